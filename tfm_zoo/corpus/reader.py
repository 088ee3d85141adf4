"""Texts through an encoder, in the order in which they come, however many they are."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from itertools import islice, product
from pathlib import Path
from sys import maxsize
from textwrap import shorten
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..converters import ConversionError, from_official
from ..converters.sources import check_folder
from ..converters.token_positions import check_room, positions_of
from ..inference.packing import pack_weights
from ..inference.packing.linear import is_packed
from ..inference.packing.packing import fastest
from ..proof.contents import HARMLESS, ORIGIN, digest_of_tensor
from ..proof.fingerprints import TEXT
from ..proof.sentence_files import sentence_settings
from .results import Embeddings, Labels, Tags, results_of

#: texts that are tokenized and sorted together, and positions of a batch, padding included
WINDOW, TOKENS_PER_BATCH = 8192, 4096  # a batch of twice as many takes a tenth longer on a CPU
#: types that a model computes in
DTYPES = ("float32", "bfloat16", "float16")
#: settings that change no result, as a reader names the type itself; with the values that libraries write, or leave out
WITHOUT_EFFECT = {HARMLESS: (None, "True", "False"), "dtype": (None, *DTYPES)}
#: arguments that a reader does not take, and what to do instead
INSTEAD = {
    "calibrate": "load a folder that `tfm-zoo convert` writes, save what pack_weights(model, 'int8', calibrate=texts) "
    "returns in the same folder, whose other files stay, and read that",
    "torch_dtype": "its name is dtype",
}


class CorpusReader:
    """Reads texts through an encoder: `for result in reader(texts)`.

    A window of texts is tokenized at once, sorted by length, and computed in batches of about as many tokens. So
    there is almost no padding, and memory does not grow with the number of texts.

    Args:
        model: a model in evaluation mode, of the zoo or not, packed or not.
        tokenizer: its fast tokenizer. It pads at the right from now on.
        results: what the model gives for a text.
        prompt: a text to put before each.
        lower_case: whether texts are made lower case.
        max_length: tokens to which texts are cut.
        tokens_per_batch: positions of a batch, padding included; a longer text is a batch of its own.
        window: texts that are sorted together.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        results: Embeddings | Labels | Tags,
        prompt: str = "",
        lower_case: bool = False,
        max_length: int | None = None,
        tokens_per_batch: int = TOKENS_PER_BATCH,
        window: int = WINDOW,
    ):
        for name, value in {"tokens_per_batch": tokens_per_batch, "window": window}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        longest = min(positions_of(model.config) or maxsize, tokenizer.model_max_length, maxsize)
        if max_length is not None and not 1 <= max_length <= (positions_of(model.config) or max_length):
            raise ValueError(f"max_length {max_length}: the model reads 1 to {positions_of(model.config)} tokens")
        check_room(max_length or longest, tokenizer, "max_length")
        self.model, self.tokenizer, self.results = model, tokenizer, results
        self.prompt, self.lower_case, self.max_length = prompt, lower_case, max_length or longest
        self.tokens_per_batch, self.window = tokens_per_batch, window
        self.tokens = 0  # that were read so far
        tokenizer.padding_side = "right"
        tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True  # texts are padded once sorted

    @classmethod
    def from_pretrained(
        cls,
        source: str,
        pooling: str | None = None,
        prompt_name: str | None = None,
        max_length: int | None = None,
        dtype: str = "float32",
        embedding_dtype: str = "float32",
        pack: str | bool | None = None,
        compile: bool = False,
        tokens_per_batch: int = TOKENS_PER_BATCH,
        window: int = WINDOW,
        **loading: Any,
    ) -> "CorpusReader":
        """A reader of the model in a folder or on the Hub, on a GPU where there is one.

        A classifier gives [`Labels`], a tagger [`Tags`], any other model [`Embeddings`], as the files of
        sentence-transformers beside it say. An official model is converted, if the zoo has its architecture.

        Args:
            source: a folder or a Hub id.
            pooling: `"mean"`, `"cls"`, `"last"` or another of `POOLINGS`, or several as `"cls+mean"`, instead of
                what the files say.
            prompt_name: one of the prompts that the files name.
            max_length: tokens to which texts are cut, instead of what the files say.
            dtype: of the model: `"float32"`, `"bfloat16"` or `"float16"`.
            embedding_dtype: of the vectors: `"float32"` or `"float16"`.
            pack: a type for [`pack_weights`], or `True` to pack the weights in the type that is fastest on this CPU,
                which the log names with what it costs.
            compile: whether `torch.compile` makes kernels for the model. (Padding is computed then.)
            tokens_per_batch, window: see [`CorpusReader`].
            loading: arguments of `from_pretrained`, such as `trust_remote_code` and `revision`.

        Raises:
            ValueError: for a value that does not fit the model, or an unknown argument; the message names it.
            FileNotFoundError: for a folder that is missing.
        """
        if dtype not in DTYPES:
            packed = f". To pack weights: pack={dtype!r}, or --pack {dtype}" if dtype in ("int8", "int4") else ""
            raise ValueError(f"dtype {dtype!r}: a model computes in float32, bfloat16 or float16{packed}")
        if wrong := next((name for name in loading if name in INSTEAD), None):
            raise ValueError(f"a reader takes no {wrong}: {INSTEAD[wrong]}")
        check_folder(source, token=loading.get("token"))
        config = AutoConfig.from_pretrained(source, **loading)
        kind = results_of(config)
        if pooling and kind is not Embeddings:
            raise ValueError(
                f"pooling {pooling!r}: {source} gives {kind.task}, and no vectors. Its encoder does: save "
                "AutoModel.from_pretrained(...), with the tokenizer, in a folder of its own"
            )
        settings = sentence_settings(source, revision=loading.get("revision"))
        reading, prompt = settings.reading, settings.prompt(prompt_name)
        reading = replace(reading, pooling=pooling) if pooling else reading
        tokenizer = AutoTokenizer.from_pretrained(source, **loading)
        try:
            model = kind.auto_class.from_pretrained(source, dtype=getattr(torch, dtype), **loading)
        except TypeError as error:
            own = ", ".join(name for name in signature(cls.from_pretrained).parameters if name != "loading")
            raise ValueError(f"{error}: a reader takes {own}, and arguments of from_pretrained") from error
        with suppress(ConversionError):  # a zoo model, or one that the zoo does not convert, stays as it is
            model = from_official(model)
        model = model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
        results = kind(model, tokenizer, reading, embedding_dtype)
        max_length = max_length or reading.max_length
        reader = cls(model, tokenizer, results, prompt, reading.lower_case, max_length, tokens_per_batch, window)
        reader.source = str(Path(source).resolve() if Path(source).is_dir() else source)
        reader.digests, reader.loading = digests_of(model, tokenizer, config), loading
        if pack is True and is_packed(model):
            pack = None  # a quantised checkpoint stays as it is
        if pack:
            pack_weights(model, None if pack is True else pack)
        if compile:
            model.compile(dynamic=True)
        pack = fastest(model) if pack is True else pack or None
        reader.loaded = {"dtype": dtype, "pack": pack, "compile": compile, "device": model.device.type}
        return reader

    #: of a model that `from_pretrained` has loaded: its whole path or Hub id; what tells it from others, which is the
    #: first digest, or another where it was saved again and gives the same results; and how it computes
    source: str | None = None
    digests: Sequence[str | None] = (None,)
    loaded: dict[str, Any] = {}
    #: the arguments of `from_pretrained` with which it can be loaded again
    loading: dict[str, Any] = {}

    @property
    def settings(self) -> dict[str, Any]:
        """All that the results depend on besides model and texts."""
        own = ("prompt", "lower_case", "max_length", "tokens_per_batch", "window")
        return {
            "results": self.results.task,
            **self.results.settings,
            **{n: getattr(self, n) for n in own},
            **self.loaded,
        }

    def __call__(self, texts: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The result of each text, in the order of the texts: a value for each of `results.columns()`.

        Raises:
            ValueError: for a single text, whose letters would be read, or anything else that does not hold texts; for a
                value that is not a text, or that has no token. The message says which.
        """
        if isinstance(texts, (str, bytes, Mapping)) or hasattr(texts, "columns") or not isinstance(texts, Iterable):
            found = shorten(repr(texts), 60, placeholder="...")
            raise ValueError(
                f"a reader takes a list or another iterable of texts, not the {type(texts).__name__} {found}"
            )
        return self._results(iter(texts))

    def _results(self, waiting: Iterator[str]) -> Iterator[dict[str, Any]]:
        read = 0
        while window := list(islice(waiting, self.window)):
            yield from self._read(window, read)
            read += len(window)

    @torch.inference_mode()
    def _read(self, texts: Sequence[str], first: int) -> list[dict[str, Any]]:
        """The results of a window, whose first text has number `first`."""
        if (bad := next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)) is not None:
            raise ValueError(f"text {first + bad} (counted from 0) is not text: {texts[bad]!r}")
        prompted = [self.prompt + text for text in texts]
        prompted = [text.lower() for text in prompted] if self.lower_case else prompted
        options = {"truncation": True, "max_length": self.max_length, "padding": False, "return_attention_mask": False}
        rows = dict(self.tokenizer(prompted, **options, **self.results.tokenizing)) | {"sentence": prompted}
        lengths = [len(ids) for ids in rows["input_ids"]]
        if min(lengths) == 0:
            bad = lengths.index(0)
            raise ValueError(f"text {first + bad} (counted from 0) has no token: {texts[bad]!r}")
        results: list[Any] = [None] * len(texts)
        for places in batches(lengths, self.tokens_per_batch):
            batch = {name: [column[place] for place in places] for name, column in rows.items()}
            inputs = {name: batch[name] for name in self.tokenizer.model_input_names if name in batch}
            inputs = self.tokenizer.pad(inputs, return_tensors="pt").to(self.model.device)
            found = self.results(self.model(**inputs), inputs["attention_mask"], batch)
            for place, result in zip(places, found, strict=True):
                results[place] = result
        self.tokens += sum(lengths)
        return results


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """The places of texts in batches, the longest first. A batch has at most `budget` positions, or a single text."""
    places = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    start = 0
    while start < len(places):
        stop = start + max(1, budget // lengths[places[start]])
        yield places[start:stop]
        start = stop


def digests_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> list[str]:
    """The SHA-256 of a model's weights, its vocabulary, what its tokenizer makes of a fixed text, and the settings in
    its folder that are not the defaults, which a later release may have more of; then the same with each other value of
    settings `WITHOUT_EFFECT`; then all of these without that text, as earlier versions wrote them."""
    settings = {name: str(value) for name, value in config.to_diff_dict().items() if name not in ORIGIN}
    weights = [f"{name} {digest_of_tensor(tensor)}" for name, tensor in model.state_dict().items()]
    vocabulary = str(sorted(tokenizer.get_vocab().items()))
    tokens = str(tokenizer(TEXT, truncation=False, padding=False, verbose=False)["input_ids"])

    def digest(settings: dict[str, str | None], *more: str) -> str:
        named = sorted((name, value) for name, value in settings.items() if value is not None)
        return hashlib.sha256("\n".join((*weights, str(named), vocabulary, *more)).encode()).hexdigest()

    others = (dict(zip(WITHOUT_EFFECT, values, strict=True)) for values in product(*WITHOUT_EFFECT.values()))
    alike = [settings, *(settings | other for other in others)]
    return [*(digest(each, tokens) for each in alike), *map(digest, alike)]
