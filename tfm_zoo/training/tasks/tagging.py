"""Tagging: a label for each word of a text, such as names of persons and places, or parts of speech.

Read from top to bottom: the options, the data, the model, the task (its loss is the model's own), and `prepare`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import tokenizers.pre_tokenizers as splitting
import torch.nn.functional as F
from datasets import Dataset, DatasetDict
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification, DataCollatorForTokenClassification, PreTrainedTokenizerBase

from tfm_zoo import built_in_data
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.checkpoints import TrainState
from tfm_zoo.training.data import (
    Data,
    by_role,
    check_column,
    class_names,
    divide,
    find_columns,
    load_source,
    names_in,
    row_error,
    tell_labels,
    vocabulary_digest,
    without_empty,
)
from tfm_zoo.training.loop import Loop
from tfm_zoo.training.metrics import load_metrics
from tfm_zoo.training.models import (
    Head,
    ModelAndTokenizer,
    in_order,
    label_fields,
    load_with_labels,
    longest_input,
    new_config_and_tokenizer,
    with_padding,
)
from tfm_zoo.training.options import FineTuningOptions, fitted, option
from tfm_zoo.training.run import start_run
from tfm_zoo.training.task import Batch, Task, batched, inputs_of, with_prefix
from tfm_zoo.training.wording import counted

HEAD = Head(AutoModelForTokenClassification, "token classifier")
WORD_COLUMNS = [["tokens"], ["words"]]
TAG_COLUMNS = [["ner_tags"], ["pos_tags"], ["chunk_tags"], ["tags"], ["labels"]]
DEFAULT_METRICS = ["seqeval"]
TWO_ROWS = [["B-A", "O"], ["O", "O"]]  # tags of two texts, on which metrics are tried


@dataclass(frozen=True)
class TaggingOptions(FineTuningOptions):
    """The options of a tagger. Names are those of transformers' `run_ner.py`."""

    built_in: ClassVar = staticmethod(built_in_data.tagged_sentences)

    ignore_mismatched_sizes: bool = option(False, "Replace a classification head that has other labels.")
    text_column_name: str | None = option(None, f"Column of word lists; default: first of {names_in(WORD_COLUMNS)}.")
    label_column_name: str | None = option(None, f"Column of tag lists; default: first of {names_in(TAG_COLUMNS)}.")
    label_all_tokens: bool = option(
        False,
        "Let all tokens of a word learn its tag, not the first one alone. Figures count words by their first token.",
    )


@dataclass
class TaggedTexts(Data):
    """Splits whose columns are "words" and "tags", lists of the same length."""

    label_names: list[str]

    def texts(self) -> Iterator[str]:
        """The training texts. Read when iterated."""
        return map(" ".join, self.splits["train"]["words"])

    def encode(self, tokenizer: PreTrainedTokenizerBase, args: TaggingOptions, label2id: dict[str, int]) -> DatasetDict:
        """The splits as token ids, with label ids in the column "labels", -100 where a token has no label; `notes`
        then say how many words had to be left out."""

        def encode_batch(rows: dict[str, list], all_tokens: bool) -> dict[str, list]:
            options = {"is_split_into_words": True, "truncation": True, "max_length": args.max_seq_length}
            encoded = tokenizer(rows["words"], **options)
            words = [encoded.word_ids(row) for row in range(len(rows["words"]))]
            labels = [labels_of_tokens(*pair, label2id, all_tokens) for pair in zip(words, rows["tags"], strict=True)]
            left_out = [len(tags) - len({*each} - {None}) for each, tags in zip(words, rows["tags"], strict=True)]
            return {**encoded, "labels": labels, "left_out": left_out}

        encoded = {}
        for name, rows in self.splits.items():
            options = {"remove_columns": ["words", "tags"], "num_proc": args.preprocessing_num_workers}
            learns_all = args.label_all_tokens and name == "train"
            encoded[name] = rows.map(encode_batch, batched=True, fn_kwargs={"all_tokens": learns_all}, **options)
            if left_out := sum(encoded[name]["left_out"]):
                words = sum(map(len, rows["words"]))
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
    raw = load_source(args)
    first = next(iter(raw.values()))
    (words,) = find_columns(first, args.text_column_name, WORD_COLUMNS, "text_column_name")
    (tags,) = find_columns(first, args.label_column_name, TAG_COLUMNS, "label_column_name")
    splits = {name: _tagged(args, name, split, words, tags) for name, split in raw.items()}
    rows, own_splits, notes = by_role(splits, args)
    rows = without_empty(rows, ["words"], notes)
    names = class_names(first.features[tags]) or in_order(set(chain.from_iterable(rows["train"]["tags"])))
    if len(names) < 2:
        raise ValueError(f"two tags or more are needed; {tags!r} holds only {names}")
    for name, split in rows.items():
        if unknown := sorted(set(chain.from_iterable(split["tags"])) - set(names)):
            raise ValueError(f"split {name!r} has tags that train lacks: {unknown}; train has {names}")
    splits = divide(rows, args, args.seed, notes)
    train = [*chain.from_iterable(splits["train"]["tags"])]
    tell_labels(train, names, len(train), "word")
    return TaggedTexts(splits, own_splits, notes, names)


def _tagged(args: TaggingOptions, name: str, split: Dataset, word_column: str, tag_column: str) -> Dataset:
    """The words and tags of a split, in the columns "words" and "tags"; tags by their names."""
    for column in (word_column, tag_column):
        check_column(name, split, column)
    names = class_names(split.features[tag_column])
    found: dict[str, list[list[str]]] = {"words": [], "tags": []}
    for row, (words, tags) in enumerate(zip(split[word_column], split[tag_column], strict=True)):
        where, error = f"split {name!r}, {{row}}", partial(row_error, args, name, row)
        if not _is_list_of(str, words):
            raise error(f"{where}: text_column_name {word_column!r} needs a list of words, not {words!r}")
        if not _is_list_of((str, int), tags):
            raise error(f"{where}: label_column_name {tag_column!r} needs a list of tags, not {tags!r}")
        if len(words) != len(tags):
            sizes = f"{counted(len(words), 'word')} and {counted(len(tags), 'tag')}"
            raise error(f"{where}: {sizes}; each word needs one")
        found["words"].append(words)
        found["tags"].append([names[tag] if names else str(tag) for tag in tags])
    return Dataset.from_dict(found)


def _is_list_of(types: type | tuple[type, ...], values: object) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, str) and all(isinstance(v, types) for v in values)


def build_tagger(args: TaggingOptions, label_names: list[str], texts: Iterable[str] = ()) -> ModelAndTokenizer:
    """The checkpoint with a head for these labels, and its tokenizer; or a new model for texts of at most
    `max_seq_length` tokens, and the tokenizer named, or one made from the texts."""
    if args.is_new:
        config, tokenizer = new_config_and_tokenizer(
            HEAD, args, texts, args.max_seq_length, **label_fields(label_names)
        )
        model = HEAD.new(args, config)
    else:
        config = HEAD.config_of_checkpoint(args)
        model, tokenizer = load_with_labels(HEAD, args, config, label_names, args.ignore_mismatched_sizes)
    return model, reads_words(tokenizer)


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
    width: int  # the most tokens in a row

    pipeline_tag = "token-classification"
    titles = {
        "f1": "F1 (entities)",
        "precision": "precision (entities)",
        "recall": "recall (entities)",
        "accuracy": "accuracy (words)",
        "loss": "loss per word",
    }

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The loss, the prediction and the label of each token, each `(rows, width)`."""
        labels = batch["labels"]
        logits = model(**inputs_of(batch)).logits.float()
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        values = {"loss": losses, "predictions": logits.argmax(-1), "references": labels}
        gap = (0, self.width - labels.shape[1])
        return {name: F.pad(each, gap, value=IGNORED) for name, each in values.items()}

    def figures(self, measured: dict[str, Tensor], split: str) -> dict[str, float]:
        """The mean loss of the words, and the metrics of their tags."""
        labelled, names = measured["references"] != IGNORED, self.model.config.id2label
        predictions, references = (
            [[names[index] for index in row[kept].tolist()] for row, kept in zip(ids, labelled, strict=True)]
            for ids in (measured["predictions"], measured["references"])
        )
        figures, others = self.metrics(list(predictions), list(references))
        self.by_kind = others.get("by_kind", {})
        return {"loss": measured["loss"][labelled].double().mean().item(), **figures}

    def final_figures(self, best: nn.Module, state: TrainState) -> dict[str, float]:
        """Figures of the final split. The card's scores by kind are of it, too."""
        return with_prefix(self.evaluate(best, self.final_split), self.final_split)

    def for_card(self) -> dict[str, Any]:
        return {
            "by_kind": self.by_kind,
            "example": " ".join(self.data.splits["validation"][0]["words"]),
            "sizes": {name: (len(rows), sum(map(len, rows["words"]))) for name, rows in self.data.splits.items()},
        }


def prepare(argv: list[str] | None = None) -> Loop:
    """Read options, data and model: all that a user can get wrong."""
    run = start_run("finetune_token_classification", TaggingOptions, argv)
    args, accelerator = run.args, run.accelerator
    metrics = load_metrics(args.metrics or DEFAULT_METRICS, args.trust_remote_code)
    figure_names = ["loss", *metrics.result_names(TWO_ROWS, TWO_ROWS)]
    args = args.choosing_by(figure_names, "f1")
    with accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        data = load_tagged_texts(args)
        model, tokenizer = build_tagger(args, data.label_names, data.texts())
        longest = longest_input(model.config, tokenizer)
        args = fitted(args, longest, "max_seq_length")
        encoded = data.encode(tokenizer, args, model.config.label2id)

    task = TaggingTask(
        accelerator=accelerator,
        model=model,
        tokenizer=tokenizer,
        args=args,
        data=data,
        metrics=metrics,
        figure_names=figure_names,
        facts={"tokenizer": vocabulary_digest(tokenizer), **data.facts},
        width=-(-args.max_seq_length // 8) * 8,
        **batched(encoded, DataCollatorForTokenClassification, tokenizer, accelerator, longest, args),
    )
    return Loop(replace(run, args=args), task)
