"""Train a reranker on pairs: a model that reads a question and an answer together, and says how well they fit.

    accelerate launch recipes/finetune_reranker.py                         # a small new model, no network, no data
    accelerate launch recipes/finetune_reranker.py --model_name_or_path google-bert/bert-base-uncased \\
        --train_file pairs.csv --text_column_name question answer \\
        --retriever_name_or_path sentence-transformers/all-MiniLM-L6-v2

Wrong answers are those that a retriever takes for the likeliest, or, without one, any others. The trainer and the loss
are those of sentence-transformers, whose options work too (`--help`). `output_dir` gets the model, its card, and how it
orders the right answers of held-out questions among wrong ones, before and after.
"""

import random
from dataclasses import dataclass

# first: it quietens what transformers imports
from pairs import (
    ANCHOR,
    NEGATIVE,
    POSITIVE,
    Comparison,
    PairOptions,
    answers_of,
    new_model,
    read_pairs,
    sped_up,
    start,
)

# isort: split
import torch
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    util,
)
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

from tfm_zoo import TfmBertForSequenceClassification
from tfm_zoo.data.options import option
from tfm_zoo.data.splits import final_split
from tfm_zoo.training.run import errors_in_one_line
from tfm_zoo.utils.quiet import silenced_loading

FIGURES = {"map": "mean average precision", "mrr@10": "MRR@10", "ndcg@10": "NDCG@10"}


@dataclass(frozen=True)
class RerankerOptions(PairOptions):
    """The options of a reranker."""

    retriever_name_or_path: str | None = option(
        None, "Model of sentence-transformers that picks wrong answers, the likeliest; default: random ones."
    )
    num_negatives: int = option(4, "Wrong answers that are learnt for each right one.", at_least=1)
    num_candidates: int = option(20, "Wrong answers to pick from, and among which right ones are sought.", at_least=1)


def load(args: RerankerOptions, pairs: Dataset) -> CrossEncoder:
    """The model that is trained. Without a head for one number it gets a new one."""
    if args.is_new:
        model = new_model(CrossEncoder, TfmBertForSequenceClassification, pairs, num_labels=1)
    else:
        where = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
        options = {"num_labels": 1, "model_kwargs": {"dtype": torch.float32}}
        with silenced_loading():
            model = CrossEncoder(args.model_name_or_path, **options, **where)
    if args.max_seq_length:
        model.max_seq_length = args.max_seq_length
    return sped_up(model, args)


def wrong_answers(pairs: Dataset, count: int, retriever: SentenceTransformer | None, seed: int) -> dict[str, list[str]]:
    """For each text up to `count` answers of others: those that the retriever finds, the likeliest first, or any."""
    right, texts = answers_of(pairs), [*dict.fromkeys(pairs[POSITIVE])]
    if retriever is None:
        rng, most = random.Random(seed), min(len(texts), count + 1)
        found = [rng.sample(texts, most) for _ in right]
    else:
        queries, corpus = (retriever.encode(each, convert_to_tensor=True) for each in ([*right], texts))
        most = count + max(map(len, right.values()))
        hits = util.semantic_search(queries, corpus, top_k=most)
        found = [[texts[hit["corpus_id"]] for hit in row] for row in hits]
    return {
        text: [answer for answer in row if answer not in right[text]][:count]
        for text, row in zip(right, found, strict=True)
    }


def labelled(pairs: Dataset, wrong: dict[str, list[str]], number: int, seed: int) -> Dataset:
    """Each pair with label 1, and after it `number` wrong answers with label 0: its own negative, or drawn ones."""
    rng, rows = random.Random(seed), []
    for row in pairs:
        rows.append((row[ANCHOR], row[POSITIVE], 1.0))
        others = wrong[row[ANCHOR]]
        chosen = [row[NEGATIVE]] if NEGATIVE in row else rng.sample(others, min(number, len(others)))
        rows += [(row[ANCHOR], answer, 0.0) for answer in chosen]
    return Dataset.from_dict(dict(zip(("query", "answer", "label"), map(list, zip(*rows, strict=True)), strict=True)))


def evaluator(
    pairs: Dataset, wrong: dict[str, list[str]], split: str, batch_size: int
) -> CrossEncoderRerankingEvaluator:
    """Orders right and wrong answers to each text of a split."""
    samples = [
        {"query": text, "positive": [*right], "negative": wrong[text]} for text, right in answers_of(pairs).items()
    ]
    return CrossEncoderRerankingEvaluator(samples, at_k=10, name=split, batch_size=batch_size, write_csv=False)


def prepare(argv: list[str] | None = None) -> Comparison:
    """All that comes before the first step."""
    args, settings = start(RerankerOptions, CrossEncoderTrainingArguments, argv)
    pairs, notes = read_pairs(args, settings)
    model = load(args, pairs["train"])
    name, code = args.retriever_name_or_path, args.trust_remote_code
    retriever = SentenceTransformer(name, trust_remote_code=code) if name else None
    seed, split = settings.seed, final_split(pairs)
    wrong = {name: wrong_answers(rows, args.num_candidates, retriever, seed) for name, rows in pairs.items()}
    rows = labelled(pairs["train"], wrong["train"], args.num_negatives, seed)
    per_right = (len(rows) - len(pairs["train"])) / len(pairs["train"])
    loss = BinaryCrossEntropyLoss(model, pos_weight=torch.tensor(per_right))
    validation, final = (
        evaluator(pairs[name], wrong[name], prefix, settings.per_device_eval_batch_size)
        for name, prefix in (("validation", "eval"), (split, split))
    )
    trainer = CrossEncoderTrainer(model, settings, rows, loss=loss, evaluator=validation)
    kind = "the likeliest by the retriever" if retriever else "drawn at random"
    notes.append(f"Each right answer is sought among up to {args.num_candidates} wrong ones, {kind}.")
    names = {f"{split}_{figure}": title for figure, title in FIGURES.items()}
    return Comparison(trainer, args, final, split, names, notes)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Train, and measure before and after. Returns the figures."""
    with errors_in_one_line(argv):
        comparison = prepare(argv)
        comparison.begin()
    return comparison.run()


if __name__ == "__main__":
    main()
