"""Train vectors of texts on pairs: a question and its answer, a title and its text, a sentence and its translation.

    accelerate launch recipes/finetune_embeddings.py                       # a small new model, no network, no data
    accelerate launch recipes/finetune_embeddings.py --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 \\
        --train_file pairs.csv --text_column_name question answer --matryoshka_dims 384 128 64

The trainer and the losses are those of sentence-transformers, whose options work too (`--help`). `output_dir` gets the
model, its card, and how well it finds the answers of held-out pairs, before and after.
"""

from dataclasses import dataclass

# first: it quietens what transformers imports
from pairs import (
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
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator, SequentialEvaluator
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)

from tfm_zoo import TfmBertModel
from tfm_zoo.data.options import option
from tfm_zoo.data.splits import final_split
from tfm_zoo.training.run import errors_in_one_line
from tfm_zoo.utils.quiet import silenced_loading

FIGURES = {
    "accuracy@1": "the first is right",
    "recall@10": "among the first ten",
    "mrr@10": "MRR@10",
    "ndcg@10": "NDCG@10",
}


@dataclass(frozen=True)
class EmbeddingOptions(PairOptions):
    """The options of vectors."""

    matryoshka_dims: list[int] | None = option(
        None, "Lengths at which vectors that are cut stay good, such as 384 128 64 (Kusupati et al. 2022)."
    )
    mini_batch_size: int | None = option(
        None, "Texts computed at a time: batches may then be larger than memory (GradCache).", at_least=1
    )


def load(args: EmbeddingOptions, pairs: Dataset) -> SentenceTransformer:
    """The model that is trained, checked against the options."""
    if args.is_new:
        model = new_model(SentenceTransformer, TfmBertModel, pairs)
    else:
        where = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
        with silenced_loading():
            model = SentenceTransformer(args.model_name_or_path, model_kwargs={"dtype": torch.float32}, **where)
    model.max_seq_length = args.max_seq_length or model.max_seq_length
    size = model.get_embedding_dimension()
    if wrong := [dim for dim in args.matryoshka_dims or () if not 0 < dim <= size]:
        raise ValueError(f"matryoshka_dims {wrong[0]}: vectors of this model have {size} numbers")
    return sped_up(model, args)


def evaluator(pairs: Dataset, split: str, args: EmbeddingOptions, batch_size: int) -> SequentialEvaluator:
    """Asks for the answers of all texts of a split, at each length of vectors."""
    answers = answers_of(pairs)
    numbers = {text: str(number) for number, text in enumerate(dict.fromkeys(pairs[POSITIVE]))}
    queries = {f"q{number}": text for number, text in enumerate(answers)}
    parts = {
        "queries": queries,
        "corpus": {number: text for text, number in numbers.items()},
        "relevant_docs": {query: {numbers[answer] for answer in answers[text]} for query, text in queries.items()},
    }
    options = {"batch_size": batch_size, "write_csv": False, "main_score_function": "cosine"}
    dims = sorted(args.matryoshka_dims or [None], key=lambda dim: -(dim or 0))
    return SequentialEvaluator(
        [
            InformationRetrievalEvaluator(**parts, name=f"{split}_{dim}" if dim else split, truncate_dim=dim, **options)
            for dim in dims
        ],
        main_score_function=lambda scores: scores[0],  # the longest vectors choose the best model
    )


def prepare(argv: list[str] | None = None) -> Comparison:
    """All that comes before the first step."""
    # each other text of a batch is a wrong answer
    sampler = {"batch_sampler": "no_duplicates"}
    args, settings = start(EmbeddingOptions, SentenceTransformerTrainingArguments, argv, **sampler)
    pairs, notes = read_pairs(args, settings)
    model = load(args, pairs["train"])
    loss = MultipleNegativesRankingLoss(model)
    if args.mini_batch_size:
        loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=args.mini_batch_size)
    if args.matryoshka_dims:
        loss = MatryoshkaLoss(model, loss, args.matryoshka_dims)
    validation = evaluator(pairs["validation"], "eval", args, settings.per_device_eval_batch_size)
    trainer = SentenceTransformerTrainer(model, settings, pairs["train"], loss=loss, evaluator=validation)

    split = final_split(pairs)
    final = evaluator(pairs[split], split, args, settings.per_device_eval_batch_size)
    cuts = {f"{split}_{dim}": f", first {dim} numbers" for dim in args.matryoshka_dims or ()} or {split: ""}
    names = {f"{key}_cosine_{figure}": f"{name}{cut}" for key, cut in cuts.items() for figure, name in FIGURES.items()}
    return Comparison(trainer, args, final, split, names, notes)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Train, and measure before and after. Returns the figures."""
    with errors_in_one_line(argv):
        comparison = prepare(argv)
        comparison.begin()
    return comparison.run()


if __name__ == "__main__":
    main()
