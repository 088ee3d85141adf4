"""A model that turns texts into vectors, as its class computes it: an Auto class, or sentence-transformers."""

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from sys import maxsize
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import SafetensorError
from torch.nn.functional import normalize

from ..utils.folder_kinds import check_is_model
from ..utils.quiet import silenced_loading, silenced_tokenizing
from .contents import has_tokenizer
from .fingerprints import temporarily, text_through
from .origin import origin_of
from .poolings import POOLINGS
from .reading import MODULES, POOLER, Reading
from .sentence_files import sentence_settings
from .verifying import find, loader_of

#: texts of a batch
BATCH = 16


class Encoder:
    """A model with its tokenizer.

    Args:
        source: the folder or Hub id, for messages.
        folder: the folder.
        model: an encoder in evaluation mode.
        tokenizer: its fast tokenizer.
        loading: which weights loading has not matched: `missing` and `unexpected`.
    """

    def __init__(self, source: str, folder: Path, model: Any, tokenizer: Any, loading: dict[str, list[str]]):
        self.source, self.folder, self.model, self.tokenizer, self.loading = source, folder, model, tokenizer, loading
        self.reads = signature(model.forward).parameters
        self.padding_side, tokenizer.padding_side = tokenizer.padding_side, "right"
        tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True

    @classmethod
    def load(
        cls,
        source: str,
        revision: str | None = None,
        token: str | None = None,
        dtype: str = "float32",
        trust_remote_code: bool = False,
    ) -> "Encoder":
        """The model of a folder or a Hub id. Code of its own runs only with `trust_remote_code`, unless it is that of
        a release of `tfm_zoo`, whose classes then load it.

        Raises:
            FileNotFoundError: if there is no such model.
            ValueError: for one that gives no vectors of texts, or whose code may not be run.
        """
        folder = find(source, revision, token, needed=None).resolve()
        check_is_model(folder, source)
        trust = {"trust_remote_code": loader_of(origin_of(folder), trust_remote_code) == "folder"}
        if not has_tokenizer(folder):
            raise ValueError(f"{source} has no tokenizer: a model of vectors reads texts.")
        with silenced_loading():
            torch.manual_seed(0)  # of weights that the checkpoint lacks, such as a pooler's
            options = {"dtype": getattr(torch, dtype), "output_loading_info": True} | trust
            try:
                model, info = encoder_class(folder, source, trust).from_pretrained(folder, **options)
            except SafetensorError as error:
                raise ValueError(f"the weights of {source} cannot be read: {error}") from error
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **trust)
        loading = {kind: sorted(map(str, info[f"{kind}_keys"])) for kind in ("missing", "unexpected")}
        try:
            sentence_settings(str(folder))
        except ValueError as error:  # of modules that are not read here, such as a dense layer over the vectors
            return ModulesEncoder(str(source), folder, model.eval(), tokenizer, loading, trust, error)
        return cls(str(source), folder, model.eval(), tokenizer, loading)

    @property
    def dtype(self) -> str:
        """The type of the model."""
        return str(self.model.dtype).removeprefix("torch.")

    def files_say(self) -> tuple[Reading, dict[str, str]]:
        """What the files of sentence-transformers beside the model say, and their prompts by name."""
        settings = sentence_settings(str(self.folder))
        return settings.reading.cut(self.longest), settings.prompts

    def fixed_text(self) -> dict[str, Any]:
        """What the tokenizer makes of a fixed text."""
        with silenced_tokenizing():
            made = text_through(self.tokenizer)
        return made | {"sides": made["sides"] | {"padding_side": self.padding_side}}  # as its files say

    @property
    def padding(self) -> int:
        """The id of padding."""
        return getattr(self.model.config, "pad_token_id", None) or 0

    @property
    def longest(self) -> int:
        """How many tokens the model takes."""
        positions = getattr(self.model.config, "max_position_embeddings", None) or maxsize
        if self.counts_from_padding:
            positions -= self.padding + 1
        return min(positions, self.tokenizer.model_max_length, 1 << 20)

    @property
    def counts_from_padding(self) -> bool:
        """Whether positions begin behind the padding's."""
        return counts_from_padding(self.model) or getattr(self.model.config, "position_ids_from_padding", False)

    def tokens(self, texts: Sequence[str], reading: Reading) -> dict[str, list[list[int]]]:
        """What the tokenizer makes of each text: `input_ids`, and what else the model reads."""
        prompted = [reading.prompt + text for text in texts]
        prompted = [text.lower() for text in prompted] if reading.lower_case else prompted
        limit = reading.max_length or self.longest
        if reading.oddity == "positions_behind_padding":  # the table of positions is no longer for that
            limit = min(limit, self.longest - self.padding - 1)
        options = {"truncation": True, "max_length": limit, "padding": False}
        options |= {"add_special_tokens": reading.oddity != "no_special_tokens", "return_attention_mask": False}
        return dict(self.tokenizer(prompted, **options))

    @torch.inference_mode()
    def states(self, texts: Sequence[str], reading: Reading) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """For each text the states of its tokens, `(1, length, hidden_size)`, and the pooler's output, if any."""
        columns = self.tokens(texts, reading)
        ids = columns["input_ids"]
        if (empty := next((row for row, one in enumerate(ids) if not one), None)) is not None:
            raise ValueError(f"text {empty} (counted from 0) has no token: {texts[empty]!r}")
        found: list[Any] = [None] * len(texts)
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        with temporarily([torch.backends.mkldnn.matmul], fp32_precision="ieee"):
            for places in (order[start : start + BATCH] for start in range(0, len(order), BATCH)):
                batch = {name: [column[row] for row in places] for name, column in columns.items()}
                inputs = self.tokenizer.pad(batch, return_tensors="pt")
                outputs = self.model(**self.with_positions(dict(inputs), reading.oddity))
                pooled = getattr(outputs, "pooler_output", None)
                for place, row in enumerate(places):
                    states = outputs.last_hidden_state[place : place + 1, : len(ids[row])].float()
                    found[row] = states, None if pooled is None else pooled[place : place + 1].float()
        return found

    def with_positions(self, inputs: dict[str, torch.Tensor], oddity: str) -> dict[str, torch.Tensor]:
        """The inputs, with positions of their own if an oddity says so."""
        if "positions" not in oddity:
            return inputs
        length = inputs["input_ids"].shape[1]
        first = 0 if oddity == "positions_from_zero" else self.padding + 1
        return inputs | {"position_ids": torch.arange(first, first + length).expand_as(inputs["input_ids"])}

    def oddities(self) -> list[str]:
        """Those of `ODDITIES` that this model could have been given."""
        other = "positions_from_zero" if self.counts_from_padding else "positions_behind_padding"
        return [*([other] if "position_ids" in self.reads else []), "no_special_tokens"]

    def vectors(self, texts: Sequence[str], reading: Reading) -> np.ndarray:
        """The vectors of texts, `(texts, size)`, float32."""
        return ended(self.states(texts, reading), reading)


def counts_from_padding(model: Any) -> bool:
    """Whether the table of an official model's positions has a row for padding, behind which they begin (RoBERTa)."""
    tables = [module for name, module in model.named_modules() if name.endswith("position_embeddings")]
    return any(getattr(table, "padding_idx", None) is not None for table in tables)


def encoder_class(folder: Path, source: str, trust: dict[str, bool]) -> type:
    """The Auto class of an encoder; of a model with two sides, as of T5, that of its encoder alone."""
    config = transformers.AutoConfig.from_pretrained(folder, **trust)
    if not getattr(config, "is_encoder_decoder", False):
        return transformers.AutoModel
    if type(config) not in transformers.AutoModelForTextEncoding._model_mapping:
        raise ValueError(f"{source} is a {config.model_type}, which gives no vectors of texts here.")
    return transformers.AutoModelForTextEncoding


class ModulesEncoder(Encoder):
    """A model whose vectors more modules of sentence-transformers make than are read here: that library runs them.

    Args:
        trust: whether its modules' own code runs.
        error: says which module it is, for where that library is not installed.
    """

    def __init__(
        self, source: str, folder: Path, model: Any, tokenizer: Any, loading: dict, trust: dict, error: Exception
    ):
        super().__init__(source, folder, model, tokenizer, loading)
        try:
            from sentence_transformers import SentenceTransformer
        except ModuleNotFoundError:
            raise ValueError(f"{error}: pip install sentence-transformers, which runs it") from error
        with silenced_loading():
            self.modules = SentenceTransformer(str(folder), device="cpu", **trust).eval()
        self.modules[0].auto_model = model

    def files_say(self) -> tuple[Reading, dict[str, str]]:
        prompts = {name: prompt for name, prompt in (self.modules.prompts or {}).items() if prompt}
        is_normal = any(type(module).__name__ == "Normalize" for module in self.modules)
        reading = Reading(
            prompt=prompts.get(self.modules.default_prompt_name, ""),
            max_length=self.modules.max_seq_length,
            pooling=MODULES,
            normalize=is_normal,
            size=self.modules.truncate_dim,
        )
        return reading.cut(self.longest), prompts

    @torch.inference_mode()
    def states(self, texts: Sequence[str], reading: Reading) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """For each text its vector, as the state of a single token and as what the modules make of it."""
        columns = self.tokens(texts, reading)
        found = []
        for row in range(len(texts)):
            inputs = {name: torch.tensor([column[row]]) for name, column in columns.items()}
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            vector = self.modules(inputs)["sentence_embedding"].float()
            found.append((vector[:, None], vector))
        return found


def ended(states: list[tuple[torch.Tensor, torch.Tensor | None]], reading: Reading) -> np.ndarray:
    """The vectors of states, as [`Encoder.states`] gives them.

    Raises:
        ValueError: for an unknown pooling.
    """
    return np.concatenate([one_ended(*each, reading).numpy() for each in states])


def one_ended(states: torch.Tensor, pooled: torch.Tensor | None, reading: Reading) -> torch.Tensor:
    real, parts = torch.ones(*states.shape[:2], 1), []
    for name in reading.pooling.split("+"):
        if name in (POOLER, MODULES) and pooled is not None:
            parts.append(pooled)
        elif name in POOLINGS:
            parts.append(POOLINGS[name](states, real))
        else:
            raise ValueError(f"pooling {name!r}: give one of {', '.join(POOLINGS)}")
    vectors = torch.cat(parts, dim=1)
    vectors = normalize(vectors) if reading.normalize else vectors
    shortened = vectors[:, : reading.size]
    return normalize(shortened) if reading.normalize_shortened and shortened.shape != vectors.shape else shortened
