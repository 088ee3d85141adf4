"""Official checkpoints, wherever they lie: their configuration, and their tensors one by one."""

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import GenerationConfig

from .rules import ConversionError

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
#: files that belong to a checkpoint and that a conversion hands on as they are
COMPANIONS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.*",
    "additional_chat_templates/*",
    "vocab.*",
    "vocab-*.json",
    "target_vocab.json",
    "merges.txt",
    "*.model",
    "*.spm",
    "generation_config.json",
    # sentence-transformers
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "[0-9]_*/*",
)
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class LazyTensor:
    """A tensor not read yet.

    Args:
        meta: its shape and type, on the meta device. (The type of a tensor of integers is not to be relied on.)
        read: gives it, in memory of its own.
    """

    meta: torch.Tensor
    read: Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """What a source holds.

    Args:
        source: a Hub id or a folder, `None` for a model in memory.
        config: content of `config.json`, or what takes its place for a model in memory.
        tensors: name -> tensor.
        generation_config: how it generates text, where it says so.
        model: the model in memory.
    """

    source: str | None
    config: dict[str, Any]
    tensors: dict[str, LazyTensor]
    generation_config: GenerationConfig | None = None
    model: nn.Module | None = None

    @property
    def title(self) -> str:
        return self.source or f"The {type(self.model).__name__} in memory"


def open_checkpoint(source: str | Path | nn.Module) -> Checkpoint:
    """A Hub id, a local folder or a model in memory; of the tensors nothing is read yet.

    Raises:
        ConversionError: where there is none, or one that cannot be read.
    """
    if isinstance(source, nn.Module):
        config = source.config.to_dict() if hasattr(source, "config") else {"model_type": type(source).__name__}
        config |= {"architectures": [type(source).__name__]}
        generation = getattr(source, "generation_config", None) or GenerationConfig.from_model_config(dict(config))
        tensors = {
            name: LazyTensor(tensor.to("meta"), tensor.detach().clone) for name, tensor in source.state_dict().items()
        }
        return Checkpoint(None, config, tensors, copy.deepcopy(generation), source)
    folder = fetch(source)
    config = read_json(folder / "config.json")
    return Checkpoint(str(source), config, open_weights(folder), generation_config_of(folder, config))


def generation_config_of(folder: Path, config: dict[str, Any]) -> GenerationConfig:
    """How a checkpoint generates: in a file of its own or, in older checkpoints, in `config.json`."""
    if (folder / "generation_config.json").is_file():
        return GenerationConfig.from_pretrained(folder)
    return GenerationConfig.from_model_config(dict(config))


def fetch(source: str | Path, weights: bool = True) -> Path:
    """The local folder of a checkpoint, which is downloaded first where `source` is a Hub id.

    Raises:
        ConversionError: where it is neither; with no connection: neither a folder nor in the Hub's cache.
    """
    if Path(source).is_dir():
        return Path(source)
    try:
        folder = Path(snapshot_download(str(source), allow_patterns=["config.json", *COMPANIONS]))
        if weights:
            download_weights(str(source))
    except (EntryNotFoundError, HfHubHTTPError, HFValidationError) as error:
        raise ConversionError(
            f"{str(source)!r} is neither a folder nor a model on the Hub or in its cache: {error}"
        ) from error
    return folder


def download_weights(repo: str) -> None:
    for name in WEIGHTS:
        try:
            file = hf_hub_download(repo, name)
        except EntryNotFoundError:
            continue
        if name.endswith(".index.json"):
            snapshot_download(repo, allow_patterns=sorted(set(read_json(Path(file))["weight_map"].values())))
        return


def open_weights(folder: Path) -> dict[str, LazyTensor]:
    """The tensors of all weight files in a folder, of the first kind of `WEIGHTS` that is there."""
    found = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if found is None:
        raise ConversionError(f"{folder} holds no weights; looked for {', '.join(WEIGHTS)}.")
    files = [found]
    if found.suffix == ".json":
        files = [folder / name for name in sorted(set(read_json(found)["weight_map"].values()))]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise ConversionError(f"{found} names shards that are not there: {', '.join(missing)}.")
    tensors = {}
    for file in files:
        tensors |= open_safetensors(file) if file.suffix == ".safetensors" else open_bin(file)
    return tensors


def open_safetensors(file: Path) -> dict[str, LazyTensor]:
    try:
        # Reading, not mapping: pages of a mapped file would count as memory beside the tensors copied from them.
        opened = safe_open(file, framework="pt", backend="pread")
    except SafetensorError as error:
        raise ConversionError(f"{file} is truncated, or no safetensors file: {error}.") from error
    tensors = {}
    for name in opened.keys():  # noqa: SIM118
        piece = opened.get_slice(name)
        dtype = FLOATS.get(piece.get_dtype(), torch.int64)
        meta = torch.empty(piece.get_shape(), dtype=dtype, device="meta")
        tensors[name] = LazyTensor(meta, partial(opened.get_tensor, name))
    return tensors


def open_bin(file: Path) -> dict[str, LazyTensor]:
    try:
        # Reading, not mapping: the model's weights must not change with the file.
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=False)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ConversionError(f"{file} is truncated, or no file of PyTorch weights: {error}.") from error
    tensors = {name: tensor for name, tensor in loaded.items() if isinstance(tensor, torch.Tensor)}
    # They have been read for this model alone: a further copy of each would stand in memory beside it.
    return {
        name: LazyTensor(tensor.to("meta"), partial(torch.Tensor.detach, tensor)) for name, tensor in tensors.items()
    }


def read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConversionError(f"{file.parent} holds no {file.name}.") from error
    except ValueError as error:
        raise ConversionError(f"{file} is not valid JSON: {error}.") from error
