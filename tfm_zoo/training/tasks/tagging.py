"""Tagging: a label for each word of a text, such as names of persons and places, or parts of speech.

Read from top to bottom: the options, the data, the model, the task with its losses, and `prepare`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import tokenizers.pre_tokenizers as splitting
import torch.nn.functional as F
from datasets import Dataset, DatasetDict
from torch import nn
from transformers import (
    AutoModelForTokenClassification,
    DataCollatorForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tfm_zoo.data import built_in_data, row_files
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training import data
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.loop import Loop
from tfm_zoo.training.models import Head, ModelAndTokenizer, with_padding
from tfm_zoo.training.new_models import new_for_texts
from tfm_zoo.training.options import TrainingOptions, option
from tfm_zoo.training.run import Run, start_run
from tfm_zoo.training.task import Batch, Task, choose_metrics, inputs_of, task_of_rows, with_prefix

HEAD = Head(AutoModelForTokenClassification, "token classifier")
WORD_COLUMNS = [["tokens"], ["words"]]
TAG_COLUMNS = [["ner_tags"], ["pos_tags"], ["chunk_tags"], ["tags"], ["labels"]]
TWO_ROWS = [["B-A", "O"], ["O", "O"]]  # tags of two texts, on which metrics are tried


@dataclass(frozen=True)
class TaggingOptions(TrainingOptions):
    """The options of a tagger. Names are those of transformers' `run_ner.py`."""

    built_in: ClassVar = staticmethod(built_in_data.tagged_sentences)

    ignore_mismatched_sizes: bool = option(False, "Replace a classification head that has other labels.")
    text_column_name: str | None = option(None, f"Column of word lists; default: {row_files.names_in(WORD_COLUMNS)}.")
    label_column_name: str | None = option(None, f"Column of tag lists; default: {row_files.names_in(TAG_COLUMNS)}.")
    label_all_tokens: bool = option(False, "All tokens of a word learn its tag; figures count the first alone.")


@dataclass
class TaggedTexts(data.Data):
    """Splits whose columns are "words" and "tags", lists of the same length."""

    label_names: list[str]

    usual_metrics = data.UsualMetrics(["seqeval"], TWO_ROWS, TWO_ROWS, "f1")

    def texts(self) -> Iterator[str]:
        """The training texts. Read when iterated."""
        return map(" ".join, self.splits["train"]["words"])

    def encode(self, args: TaggingOptions, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> DatasetDict:
        """The splits as token ids, with label ids in the column "labels", -100 where a token has no label; `notes`
        then say how many words had to be left out."""
        label2id = model.config.label2id

        def encode_batch(rows: dict[str, list], all_tokens: bool) -> dict[str, list]:
            options = {"is_split_into_words": True, "truncation": True, "max_length": args.max_seq_length}
            encoded = tokenizer(rows["words"], **options)
            words = [encoded.word_ids(row) for row in range(len(rows["words"]))]
            pairs = zip(words, rows["tags"], strict=True)
            labels = [labels_of_tokens(*pair, label2id, all_tokens) for pair in pairs]
            left_out = [len(tags) - len({*each} - {None}) for each, tags in zip(words, rows["tags"], strict=True)]
            return {**encoded, "labels": labels, "left_out": left_out}

        encoded = {}
        for name, rows in self.splits.items():
            options = {"remove_columns": ["words", "tags"], "num_proc": args.preprocessing_num_workers}
            learns_all = args.label_all_tokens and name == "train"
            encoded[name] = rows.map(encode_batch, batched=True, fn_kwargs={"all_tokens": learns_all}, **options)
            if left_out := sum(encoded[name]["left_out"]):
                words = sum(map(len, rows["words"]))
                if left_out == words:
                    raise ValueError(f"max_seq_length {args.max_seq_length}: no word of the {name} split has a token")
                self.notes.append(
                    f"{left_out:,} of the {words:,} words of the {name} split were left out, and do not count in its"
                    f" figures: they come after the first {args.max_seq_length} tokens, or have no token."
                )
        return DatasetDict(encoded).remove_columns("left_out")


def labels_of_tokens(
    words: Sequence[int | None], tags: Sequence[str], label2id: dict[str, int], all_tokens: bool
) -> list[int]:
    """A label id for each token; `words` has the number of each token's word. The first token of a word gets the word's
    tag. The others get it too if `all_tokens` (`I-` for `B-`, if that is a label). All other tokens get -100."""
    labels = []
    for before, word in zip([None, *words], words, strict=False):
        if word is None or (word == before and not all_tokens):
            labels.append(IGNORED)
        else:
            tag = tags[word]
            inside = f"I-{tag[2:]}" if word == before and tag.startswith("B-") else tag
            labels.append(label2id.get(inside, label2id[tag]))
    return labels


def load_tagged_texts(args: TaggingOptions) -> TaggedTexts:
    """Load and check the data; the seed decides which rows a missing split and `max_*_samples` take."""
    splits = data.load_source(args)
    first = next(iter(splits.values()))
    (words,) = row_files.find_columns(first, args.text_column_name, WORD_COLUMNS, "text_column_name")
    (tags,) = row_files.find_columns(first, args.label_column_name, TAG_COLUMNS, "label_column_name")
    rows, own_splits, notes = data.rows_by_role(args, splits, partial(_tagged, words, tags), ["words"])
    names = data.known_labels(rows, "tags", data.class_names(first.features[tags]))
    if len(names) < 2:
        raise ValueError(f"two tags or more are needed; {tags!r} holds only {names}")
    texts = TaggedTexts(data.divide(rows, args, notes), own_splits, notes, names)
    train = data.each_label(texts.splits["train"]["tags"])
    data.log_label_counts(train, len(train), names, "word")
    return texts


def _tagged(word_column: str, tag_column: str, table: data.Table) -> Dataset:
    """The words and tags of a split, in the columns "words" and "tags"; tags by their names."""
    for column in (word_column, tag_column):
        table.check(column)
    names = data.class_names(table.rows.features[tag_column])
    found: dict[str, list[list[str]]] = {"words": [], "tags": []}
    for row, (words, tags) in enumerate(zip(table.rows[word_column], table.rows[tag_column], strict=True)):
        if not _is_list_of(str, words):
            raise table.wrong(row, f"text_column_name {word_column!r} needs a list of words, not {words!r}")
        if not _is_list_of((str, int), tags):
            raise table.wrong(row, f"label_column_name {tag_column!r} needs a list of tags, not {tags!r}")
        if len(words) != len(tags):
            sizes = f"{data.pluralize(len(words), 'word')} and {data.pluralize(len(tags), 'tag')}"
            raise table.wrong(row, f"{sizes}; each word needs one")
        found["words"].append(words)
        found["tags"].append([names[tag] if names else str(tag) for tag in tags])
    return Dataset.from_dict(found)


def _is_list_of(types: type | tuple[type, ...], values: object) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, str) and all(isinstance(v, types) for v in values)


def build_tagger(args: TaggingOptions, texts: TaggedTexts) -> ModelAndTokenizer:
    """The model for the tags, a checkpoint or a new one, and its tokenizer."""
    names = texts.label_names
    made = new_for_texts(HEAD, args, texts.texts(), names) if args.is_new else HEAD.load_with_labels(args, names)
    return made._replace(tokenizer=reads_words(made.tokenizer))


def reads_words(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, set to read lists of words and to pad. A byte-level tokenizer is set to put a blank before each
    word, so that no two words are joined. A slow tokenizer (written in Python) is refused."""
    if not tokenizer.is_fast:
        slow = f"tokenizer {tokenizer.name_or_path!r} is slow (written in Python)"
        raise ValueError(f"{slow} and does not tell which word a token is from: give a fast one")
    splitter = tokenizer.backend_tokenizer.pre_tokenizer
    for part in splitter if isinstance(splitter, splitting.Sequence) else [splitter]:  # Llama 3 and Qwen2 have several
        if isinstance(part, splitting.ByteLevel) and not part.add_prefix_space:
            part.add_prefix_space = tokenizer.add_prefix_space = True
            tokenizer.backend_tokenizer.pre_tokenizer = splitter
            tokenizer.init_kwargs["add_prefix_space"] = True  # so that it is saved
    return with_padding(tokenizer)


@dataclass(kw_only=True)
class TaggingTask(Task):
    """A model learns the tags of words. The scores of each kind of entity are kept for the card."""

    args: TaggingOptions
    data: TaggedTexts

    pipeline_tag = "token-classification"
    collator_class = DataCollatorForTokenClassification
    metric_titles = {
        "f1": "F1 (entities)",
        "precision": "precision (entities)",
        "recall": "recall (entities)",
        "accuracy": "accuracy (words)",
        "loss": "loss per word",
    }

    def compute_batch(self, model: nn.Module, batch: Batch) -> Batch:
        """The summed loss of each text `(rows,)`, and the prediction and the label of each token, `(rows, width)`."""
        labels = batch["labels"]
        logits = model(**inputs_of(batch)).logits.float()
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        width = -(-self.args.max_seq_length // 8) * 8  # the most tokens in a row
        ids = {"predictions": logits.argmax(-1), "references": labels}
        return {
            "loss": losses.sum(dim=1),
            **{name: F.pad(each, (0, width - labels.shape[1]), value=IGNORED) for name, each in ids.items()},
        }

    def compute_metrics(self, computed: Batch, split: str) -> dict[str, float]:
        labelled, names = computed["references"] != IGNORED, self.model.config.id2label
        predictions, references = (
            [[names[index] for index in row[kept].tolist()] for row, kept in zip(computed[ids], labelled, strict=True)]
            for ids in ("predictions", "references")
        )
        scores = self.metrics(predictions, references)
        self.by_kind = scores.others.get("by_kind", {})
        return {**super().compute_metrics(computed, split), **scores.figures}

    def final_metrics(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """Metrics of the final split. The card's scores by kind are of it, too."""
        return with_prefix(self.evaluate(best, self.final_split), self.final_split)

    def for_card(self) -> dict[str, Any]:
        splits = self.data.splits
        return {
            "by_kind": self.by_kind,
            "example": " ".join(splits["validation"][0]["words"]),
            "sizes": {name: f"{len(rows):,} ({sum(map(len, rows['words'])):,})" for name, rows in splits.items()},
        }


def load_task(run: Run) -> TaggingTask:
    with run.accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        texts = load_tagged_texts(run.args)
        run, metrics = choose_metrics(run, TaggingTask, texts)
        model, tokenizer = build_tagger(run.args, texts)
        return task_of_rows(TaggingTask, run, texts, metrics, model=model, tokenizer=tokenizer)


def prepare(argv: list[str] | None = None) -> Loop:
    run = start_run("finetune_token_classification", TaggingOptions, argv)
    return Loop(run, load_task(run))
