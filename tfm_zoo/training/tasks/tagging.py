"""Tagging: a label for each word of a text, such as names of persons and places, or parts of speech."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

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

from tfm_zoo.data import built_in_data, row_files, splits
from tfm_zoo.data.labels import class_names, each_label, known_labels, labels_in, log_label_counts
from tfm_zoo.data.options import option
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.models import Head, ModelAndTokenizer, with_padding
from tfm_zoo.training.new_models import model_with_labels
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.run import Run
from tfm_zoo.training.task import Batch, Task, Tensors, inputs_of, load_task_of_rows, with_prefix

HEAD = Head(AutoModelForTokenClassification, "token classifier")
WORD_COLUMNS = [["tokens"], ["words"]]
TAG_COLUMNS = [["ner_tags"], ["pos_tags"], ["chunk_tags"], ["tags"], ["labels"]]


@dataclass(frozen=True)
class TaggingOptions(TrainingOptions):
    """The options of a tagger. Names are those of transformers' `run_ner.py`."""

    built_in: ClassVar = staticmethod(built_in_data.tagged_sentences)

    ignore_mismatched_sizes: bool = option(False, "Replace a classification head that has other labels.")
    text_column_name: str | None = option(None, f"Column of word lists; default: {row_files.names_in(WORD_COLUMNS)}.")
    label_column_name: str | None = option(None, f"Column of tag lists; default: {row_files.names_in(TAG_COLUMNS)}.")
    label_all_tokens: bool = option(False, "All tokens of a word learn its tag; figures count the first alone.")


@dataclass
class TaggedTexts(splits.Data):
    """Splits whose columns are "words" and "tags", lists of the same length."""

    label_names: list[str]

    usual_metrics = ["seqeval"]

    def texts(self) -> Iterator[str]:
        """The training texts. Read when iterated."""
        return map(" ".join, self.splits["train"]["words"])

    def encode(self, args: TaggingOptions, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> DatasetDict:
        """The splits as token ids and label ids ("labels"; -100: no label). `notes` get the number of words cut off."""
        label2id = model.config.label2id

        def encode_batch(rows: dict[str, list], all_tokens: bool) -> dict[str, list]:
            options = {"is_split_into_words": True, "truncation": True, "max_length": args.max_seq_length}
            encoded, columns = tokenizer(rows["words"], **options), {"labels": [], "left_out": []}
            for row, tags in enumerate(rows["tags"]):
                words = encoded.word_ids(row)
                columns["labels"].append(labels_of_tokens(words, tags, label2id, all_tokens))
                columns["left_out"].append(len(tags) - len({*words} - {None}))
            return {**encoded, **columns}

        encoded = {}
        for name, rows in self.splits.items():
            options = {"remove_columns": ["words", "tags"], "num_proc": args.preprocessing_num_workers}
            learns_all = args.label_all_tokens and name == "train"
            encoded[name] = rows.map(encode_batch, batched=True, fn_kwargs={"all_tokens": learns_all}, **options)
            if left_out := sum(encoded[name]["left_out"]):
                words, longest = sum(map(len, rows["words"])), args.max_seq_length
                if left_out == words:
                    raise ValueError(f"max_seq_length {longest}: no word of the {name} split has a token")
                of = f"{left_out:,} of the {words:,} words of the {name} split were left out, as they"
                self.notes.append(f"{of} come after the first {longest} tokens, or have no token.")
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
    raw, notes = splits.load_splits(args)
    first = raw["train"]
    (words,) = row_files.find_columns(first, args.text_column_name, WORD_COLUMNS, "text_column_name")
    (tags,) = row_files.find_columns(first, args.label_column_name, TAG_COLUMNS, "label_column_name")
    rows = {name: tagged_words(words, tags, splits.FoundSplit(args, name, split)) for name, split in raw.items()}
    rows = splits.without_empty(rows, ["words"], notes)
    names = known_labels(rows, "tags", class_names(first.features[tags]))
    if len(names) < 2:
        raise ValueError(f"two tags or more are needed; {tags!r} holds only {names}")
    texts = TaggedTexts(splits.cut_splits(args, rows, notes, args.seed), notes, names)
    train = each_label(texts.splits["train"]["tags"])
    log_label_counts(train, len(train), names, "word")
    return texts


def tagged_words(word_column: str, tag_column: str, table: splits.FoundSplit) -> Dataset:
    """The words and tags of a split, in the columns "words" and "tags"; tags by their names."""
    table.check(word_column)
    table.check(tag_column)
    columns: dict[str, list[list[str]]] = {"words": [], "tags": []}
    rows = zip(table.rows[word_column], labels_in(table.rows, tag_column), strict=True)
    for row, (words, tags) in enumerate(rows):
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise table.error(row, f"text_column_name {word_column!r} needs a list of words, not {words!r}")
        if not isinstance(tags, list) or not all(isinstance(tag, (str, int)) for tag in tags):
            raise table.error(row, f"label_column_name {tag_column!r} needs a list of tags, not {tags!r}")
        if len(words) != len(tags):
            raise table.error(row, f"{splits.pluralize(len(words), 'word')} and {splits.pluralize(len(tags), 'tag')}")
        columns["words"].append(words)
        columns["tags"].append([*map(str, tags)])
    return Dataset.from_dict(columns)


def reads_words(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, set to read lists of words and to pad. A byte-level tokenizer is set to put a blank before each
    word, so that no two words are joined. A slow tokenizer (written in Python) is refused."""
    if not tokenizer.is_fast:
        raise ValueError(f"tokenizer {tokenizer.name_or_path!r} is slow, and does not tell which word a token is from")
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

    data: TaggedTexts

    pipeline_tag = "token-classification"
    usual_best = "f1"
    collator_class = DataCollatorForTokenClassification
    metric_titles = {
        "f1": "F1 (entities)",
        "precision": "precision (entities)",
        "recall": "recall (entities)",
        "accuracy": "accuracy (words)",
        "loss": "loss per word",
    }

    def compute_batch(self, model: nn.Module, batch: Batch) -> Tensors:
        """The summed loss of each text `(rows,)`, and the prediction and the label of each token, `(rows, width)`."""
        labels = batch["labels"]
        logits = model(**inputs_of(batch)).logits.float()
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        ids, rest = {"predictions": logits.argmax(-1), "references": labels}, self.args.max_seq_length - labels.shape[1]
        padded = {name: F.pad(each, (0, rest), value=IGNORED) for name, each in ids.items()}
        return {"loss": losses.sum(dim=1), **padded}

    def compute_metrics(self, computed: Tensors, split: str) -> dict[str, float]:
        labelled, names = computed["references"] != IGNORED, self.model.config.id2label
        predictions, references = (
            [[names[index] for index in row[kept].tolist()] for row, kept in zip(computed[ids], labelled, strict=True)]
            for ids in ("predictions", "references")
        )
        results = self.metrics(predictions, references)
        self.by_kind = results.others.get("by_kind", {})
        return {**super().compute_metrics(computed, split), **results.numbers}

    def final_metrics(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """Metrics of the final split. The card's scores by kind are of it, too."""
        return with_prefix(self.evaluate(best, self.final_split), self.final_split)


def build_tagger(args: TaggingOptions, texts: TaggedTexts) -> ModelAndTokenizer:
    """The model for the tags, a checkpoint or a new one, and its tokenizer."""
    model, tokenizer = model_with_labels(HEAD, args, texts.texts(), texts.label_names)
    return model, reads_words(tokenizer)


def load_task(run: Run) -> TaggingTask:
    return load_task_of_rows(TaggingTask, run, load_tagged_texts, build_tagger)
