"""Pre-training of encoders by masked tokens and, of pairs of segments, by next sentences (Devlin et al. 2019)."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, PreTrainedConfig, PreTrainedTokenizerBase

from tfm_zoo.data.options import option
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.models import Head, longest_input
from tfm_zoo.training.new_models import new_config, new_model, new_tokenizer
from tfm_zoo.training.options import cap_lengths
from tfm_zoo.training.run import Run
from tfm_zoo.training.streaming.documents import DocumentOptions, load_documents, task_of_documents
from tfm_zoo.training.streaming.sentences import Text, join, sentence_pairs
from tfm_zoo.training.streaming.texts import CHARACTERS
from tfm_zoo.training.task import Batch, Task, Tensors, inputs_of, sums_of_rows
from tfm_zoo.training.tokenizers import learned_word_piece

SENTENCES = 500  # tokenized at once: a tokenizer's full output takes much more memory than the ids
BY_MASK, BY_RANDOM = 0.8, 0.1  # shares of the chosen tokens that [MASK] or another token replaces


@dataclass(frozen=True)
class PretrainingOptions(DocumentOptions):
    """The options of pre-training. Defaults are BERT's (Devlin et al. 2019)."""

    small_fields: ClassVar = {
        **DocumentOptions.small_fields,
        **{"hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": 128},
        **{"hidden_dropout": 0.0, "attention_dropout": 0.0},  # the generated data have no noise
    }
    small_type: ClassVar = dict.fromkeys(("zoo", "native"), "tfm_bert")
    make_tokenizer: ClassVar = staticmethod(learned_word_piece)

    next_sentence_prediction: bool = option(True, "Train also on pairs of segments; false: on masked tokens alone.")
    max_seq_length: int = option(128, "Tokens of an example at most.", "max_length", at_least=5)
    short_seq_prob: float = option(0.1, "Share of the pairs that are made shorter than that.", at_least=0, at_most=1)
    mlm_probability: float = option(0.15, "Share of the tokens that are to be predicted.", above=0, below=1)
    whole_word_mask: bool = option(False, "Mask all tokens of a word, or none of them.")


@dataclass
class PretrainingExamples:
    """Turns documents into examples for a `Stream`: `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]`, partly masked.

    An example has `input_ids` and `labels`, both `(tokens,)`. A pair also has `token_type_ids` and
    `next_sentence_label`: 0 if B follows A, 1 if not. A single segment has `token_type_ids` if the tokenizer has them.
    """

    tokenizer: PreTrainedTokenizerBase
    split: Callable[[str], list[str]]  # cuts a document into its sentences, for pairs
    longest: int  # tokens of an example at most, special ones included
    probability: float = 0.15  # share of the tokens, or words, that are to be predicted
    pairs: bool = True  # pairs for next-sentence prediction; false: segments of one document
    short_probability: float = 0.1  # share of the pairs that are made shorter, as texts of a later task may be
    whole_words: bool = False  # mask all tokens of a word or none

    def __post_init__(self) -> None:
        tokenizer = self.tokenizer
        for name in ("mask_token", "cls_token", "sep_token"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no {name}, which an encoder needs")
        self.room = self.longest - (3 if self.pairs else 2)
        self.cls, self.sep = (np.array([[i], [1]]) for i in (tokenizer.cls_token_id, tokenizer.sep_token_id))
        self.is_special = np.zeros(len(tokenizer), dtype=bool)
        self.is_special[tokenizer.all_special_ids] = True

    @property
    def needs(self) -> str:
        """What the documents must have for an example to be made, for messages."""
        pairs = f"two documents of less than {CHARACTERS:,} characters, and of one of them two sentences"
        return pairs if self.pairs else "a token"

    def __call__(self, documents: Sequence[str], rng: np.random.Generator) -> list[dict[str, Any]]:
        """The examples of a chunk of documents, in the documents' order."""
        if self.pairs and len(documents) < 2:
            return []
        encoded, texts, others = self.encode(documents), [], []
        if self.pairs:
            for first, second, is_random in sentence_pairs(encoded, self.room, self.short_probability, rng):
                texts.append(join([self.cls, first, self.sep, second, self.sep]))
                types = np.repeat([0, 1], [first.shape[1] + 2, second.shape[1] + 1])
                others.append({"token_type_ids": types, "next_sentence_label": int(is_random)})
        else:
            has_types = "token_type_ids" in self.tokenizer.model_input_names
            for document in map(join, encoded):
                for start in range(0, document.shape[1], self.room):
                    texts.append(join([self.cls, document[:, start : start + self.room], self.sep]))
                    others.append({"token_type_ids": np.zeros_like(texts[-1][0])} if has_types else {})
        if not texts:
            return []
        ids, labels = self.mask(*join(texts), rng)
        ends = np.cumsum([text.shape[1] for text in texts])[:-1]
        rows = zip(np.split(ids, ends), np.split(labels, ends), others, strict=True)
        return [{"input_ids": ids, "labels": labels.tolist(), **other} for ids, labels, other in rows]

    def encode(self, documents: Sequence[str]) -> list[list[Text]]:
        """The tokens of each document's sentences, or of its whole text; texts without tokens are left out."""
        sentences = [self.split(document) if self.pairs else [document] for document in documents]
        texts, encoded = [*chain.from_iterable(sentences)], []
        options = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        for start in range(0, len(texts), SENTENCES):
            encoding = self.tokenizer(texts[start : start + SENTENCES], add_special_tokens=False, **options)
            for index, ids in enumerate(encoding["input_ids"]):
                units = encoding.word_ids(index) if self.whole_words else range(len(ids))
                begins = [True, *(unit != before for before, unit in pairwise(units))][: len(ids)]
                encoded.append(np.array([ids, begins], dtype=np.int32))
        rest = iter(encoded)
        groups = ([text for text in islice(rest, len(group)) if text.shape[1]] for group in sentences)
        return [group for group in groups if group]

    def mask(self, ids: np.ndarray, begins: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The ids that the model reads, and its labels: -100 for tokens that are not predicted. All are `(tokens,)`, of
        many examples in a row. `begins` is true where a unit begins that is masked as a whole: a word, or each token.

        Each unit is chosen independently with the same probability (Devlin et al. 2019). `[MASK]` replaces 80 %,
        another token 10 %, and 10 % stay. Special tokens are neither chosen nor put in another's place. (With
        transformers' `DataCollatorForLanguageModeling`, masks would depend on the number of processes.)
        """
        word = np.cumsum(begins) - begins[0]
        chosen = (rng.random(word[-1] + 1) < self.probability)[word] & ~self.is_special[ids]
        draw = rng.random(len(ids))
        replaced = chosen & (draw >= 1 - BY_RANDOM)
        seen = np.where(chosen & (draw < BY_MASK), self.tokenizer.mask_token_id, ids)
        seen[replaced] = rng.choice(np.flatnonzero(~self.is_special), np.count_nonzero(replaced))
        return seen, np.where(chosen, ids, IGNORED)


class PairsHead(Head):
    """The head that predicts next sentences besides masked tokens."""

    def check(self, config: PreTrainedConfig) -> None:
        """Refuse also a configuration whose model cannot learn from pairs of sentences."""
        super().check(config)
        model_class = self.official_class(config)
        has_head = model_class is None or "next_sentence_label" in inspect.signature(model_class.forward).parameters
        if not has_head or (getattr(config, "type_vocab_size", 2) or 0) < 2:
            lacks = f"model_type {config.model_type!r} has no head, or no segments, for pairs of sentences"
            raise ValueError(f"{lacks}: give next_sentence_prediction false")


MASKED = Head(AutoModelForMaskedLM, "masked language model")
PAIRS = PairsHead(AutoModelForPreTraining, "masked language model")


@dataclass(kw_only=True)
class PretrainingTask(Task):
    """An encoder learns to predict masked tokens and, of pairs of segments, whether one follows the other."""

    pipeline_tag = "fill-mask"
    label_of_loss = {"mlm_loss": "labels", "nsp_loss": "next_sentence_label"}
    metric_titles = {
        "mlm_accuracy": "accuracy of masked tokens",
        "nsp_accuracy": "accuracy of next sentences",
        "mlm_loss": "loss per masked token",
        "nsp_loss": "loss per pair",
        "loss": "sum of losses",
    }

    @property
    def known_metrics(self) -> list[str]:
        return [name for name in self.metric_titles if self.args.next_sentence_prediction or name[:3] != "nsp"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if all({*example["labels"]} == {IGNORED} for example in self.splits["validation"]):
            raise ValueError("no token of the validation documents is masked: give more of them")

    def compute_batch(self, model: nn.Module, batch: Batch) -> Tensors:
        """The summed loss and, in evaluations, the hits of each example's masked tokens; and those of a pair."""
        labels, computed = batch["labels"], {}
        labelled = labels != IGNORED
        if self.is_zoo and torch.is_grad_enabled() and labelled.any():  # in chunks, without logits of other tokens
            outputs = model(**inputs_of(batch), labels=labels, return_logits=False)
            computed["mlm_loss"] = (outputs.loss * labelled.sum())[None]
        else:
            outputs = model(**inputs_of(batch))
            logits = outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits
            losses, hits = losses_and_hits(logits[labelled], labels[labelled])
            computed |= {"mlm_loss": sums_of_rows(losses, labelled), "mlm_hits": sums_of_rows(hits, labelled)}
        if "next_sentence_label" in batch:
            logits = outputs.seq_relationship_logits
            computed["nsp_loss"], computed["nsp_hits"] = losses_and_hits(logits, batch["next_sentence_label"])
        return computed

    def compute_metrics(self, computed: Tensors, split: str) -> dict[str, float]:
        """Loss and accuracy per masked token and per pair."""
        metrics = super().compute_metrics(computed, split)
        for part in ("mlm", "nsp"):
            if f"{part}_hits" in computed:
                hits, items = (computed[f"{part}_{name}"].double().sum().item() for name in ("hits", "loss_items"))
                metrics[f"{part}_accuracy"] = hits / items
        return metrics


def losses_and_hits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each item, `(items,)`, and 1 for each that was predicted right."""
    losses = F.cross_entropy(logits.float(), labels, reduction="none")
    return losses, (logits.argmax(dim=-1) == labels).to(losses)


def load_task(run: Run) -> PretrainingTask:
    args = run.args
    with run.accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        documents, head = load_documents(args), PAIRS if args.next_sentence_prediction else MASKED
        if args.is_new:
            tokenizer = new_tokenizer(args, documents.train.first_texts())
            positions = max(args.max_seq_length, args.small_fields["max_position_embeddings"])
            fields = {} if args.has_own_sizes else {"max_position_embeddings": positions}
            config = new_config(head, args, tokenizer, **fields)
            if not args.tokenizer_name:
                tokenizer.model_max_length = config.max_position_embeddings
            model = new_model(head, args, config)
        else:
            model, tokenizer = head.load(args)
    args = cap_lengths(args, longest_input(model.config, tokenizer), "max_seq_length")
    options = {"pairs": args.next_sentence_prediction, "short_probability": args.short_seq_prob}
    options["whole_words"] = args.whole_word_mask
    examples = PretrainingExamples(tokenizer, documents.split, args.max_seq_length, args.mlm_probability, **options)
    return task_of_documents(PretrainingTask, replace(run, args=args), documents, examples, model, tokenizer)
