"""Texts whose words have tags, from any source, as token ids and label ids."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import ClassVar

from datasets import ClassLabel, Dataset, DatasetDict
from transformers import PreTrainedTokenizerBase

from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training import generated
from tfm_zoo.training.arguments import option
from tfm_zoo.training.labels import in_order
from tfm_zoo.training.sources import SplitArguments, check_column, find_columns, load_source, names_in
from tfm_zoo.training.splits import Data, by_role, divide, without_empty
from tfm_zoo.training.wording import counted

WORD_COLUMNS = [["tokens"], ["words"]]
TAG_COLUMNS = [["ner_tags"], ["pos_tags"], ["chunk_tags"], ["tags"], ["labels"]]


@dataclass(frozen=True)
class TaggedTextArguments(SplitArguments):
    """Where words and tags are, and how much of them to use. Names are those of transformers' `run_ner.py`."""

    built_in: ClassVar = staticmethod(generated.tagged_sentences)

    text_column_name: str | None = option(None, f"Column of word lists; default: first of {names_in(WORD_COLUMNS)}.")
    label_column_name: str | None = option(None, f"Column of tag lists; default: first of {names_in(TAG_COLUMNS)}.")
    label_all_tokens: bool = option(
        False,
        "Let all tokens of a word learn its tag, not the first one alone. Figures count words by their first token.",
    )
    max_seq_length: int = option(256, "Longer texts are truncated to this many tokens.", "max_length", at_least=1)
    pad_to_max_length: bool = option(False, "Pad to max_seq_length instead of the batch's longest text.")


@dataclass
class TaggedTexts(Data):
    """Splits whose columns are "words" and "tags", lists of the same length."""

    label_names: list[str]

    def texts(self) -> Iterator[str]:
        """The training texts. Read when iterated."""
        return map(" ".join, self.splits["train"]["words"])

    def encode(
        self, tokenizer: PreTrainedTokenizerBase, args: TaggedTextArguments, label2id: dict[str, int]
    ) -> DatasetDict:
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


def load_tagged_texts(args: TaggedTextArguments, seed: int) -> TaggedTexts:
    """Load and check the data; the seed decides which rows a missing split and `max_*_samples` take."""
    raw = load_source(args)
    first = next(iter(raw.values()))
    (words,) = find_columns(first, args.text_column_name, WORD_COLUMNS, "text_column_name")
    (tags,) = find_columns(first, args.label_column_name, TAG_COLUMNS, "label_column_name")
    splits = {name: _tagged(args, name, split, words, tags) for name, split in raw.items()}
    rows, own_splits, notes = by_role(splits, args)
    rows = without_empty(rows, ["words"], notes)
    label_names = _class_names(raw, tags) or in_order(set(chain.from_iterable(rows["train"]["tags"])))
    if len(label_names) < 2:
        raise ValueError(f"two tags or more are needed; {tags!r} holds only {label_names}")
    for name, split in rows.items():
        if unknown := sorted(set(chain.from_iterable(split["tags"])) - set(label_names)):
            raise ValueError(f"split {name!r} has tags that train lacks: {unknown}; train has {label_names}")
    return TaggedTexts(divide(rows, args, seed, notes), own_splits, notes, label_names)


def _class_names(raw: dict[str, Dataset], column: str) -> list[str] | None:
    """The names of the tags, if the data set has a list of them."""
    inner = getattr(next(iter(raw.values())).features[column], "feature", None)
    return inner.names if isinstance(inner, ClassLabel) else None


def _tagged(args: TaggedTextArguments, name: str, split: Dataset, word_column: str, tag_column: str) -> Dataset:
    """The words and tags of a split, in the columns "words" and "tags"; tags by their names."""
    for column in (word_column, tag_column):
        check_column(name, split, column)
    names = _class_names({name: split}, tag_column)
    found: dict[str, list[list[str]]] = {"words": [], "tags": []}
    for row, (words, tags) in enumerate(zip(split[word_column], split[tag_column], strict=True)):
        where, error = f"split {name!r}, {{row}}", partial(args.row_error, name, row)
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
