"""Checkpoints, official ones and the zoo's, wherever they are: their configuration, and their tensors one by one."""

import copy
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from ..utils.pointers import refuse_pointers
from ..utils.quiet import silenced_retrying
from ..utils.tokenizer_files import OF_TOKENIZERS
from .config_reading import check_names, check_sizes, made_of
from .errors import OTHER_MODELS, ConversionError
from .sources import OF_SENTENCES, check_inside, is_path, no_folder, not_on_hub
from .torch_modules import MODULES

#: the files that hold weights or say which do, in the order in which they are looked for
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
#: files that belong to a checkpoint and that a conversion copies as they are
COMPANIONS = (
    *OF_TOKENIZERS,
    *("target_tokenizer/*", "chat_template.*", "additional_chat_templates/*", "generation_config.json"),
    *OF_SENTENCES,
)
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class LazyTensor:
    """A tensor that has not been read yet, or, if it is in memory, has not been copied yet."""

    meta: torch.Tensor  # its shape and type, on the meta device; in safetensors types not in `FLOATS` count as int64
    read: Callable[[], torch.Tensor]  # returns the tensor, which the converted model may keep


@dataclass(frozen=True)
class Checkpoint:
    """An official model: the files of a Hub id or a folder (`source`), or a model in memory (`model`)."""

    source: str | None
    config: dict[str, Any]  # content of `config.json`, or what takes its place for a model in memory
    tensors: dict[str, LazyTensor]
    generation_config: GenerationConfig
    model: nn.Module | None = None
    of_sentences: bool = False  # whether sentence-transformers saved it

    @property
    def title(self) -> str:
        return self.source or f"The {type(self.model).__name__} in memory"


def open_checkpoint(source: str | Path | nn.Module, mapped: bool = False) -> Checkpoint:
    """Opens a Hub id, a local folder or a model in memory, without reading tensors. (A `.bin` that is not mapped
    is read whole.)

    `mapped`: whether tensors that are read stay in their files, which must then not change. (A `.bin` from before torch
    1.6 cannot be mapped.)

    Raises:
        ConversionError: if there is no checkpoint, or one that cannot be read.
    """
    if isinstance(source, nn.Module):
        if hasattr(source, "_orig_mod"):
            raise ConversionError("This model is wrapped by torch.compile: give model._orig_mod.")
        if not isinstance(source, PreTrainedModel) and hasattr(source, "encode"):
            raise ConversionError(f"This {type(source).__name__} holds a model and more: give the folder of its model.")
        return checkpoint_of(source)
    if isinstance(source, Mapping):
        raise ConversionError(
            "A state dict does not say what its model is: load it into the official class (load_state_dict), and give "
            f"that model. {OTHER_MODELS}"
        )
    folder = fetch(source)
    of_sentences = (folder / "modules.json").is_file()
    return Checkpoint(str(source), *open_folder(folder, mapped), of_sentences=of_sentences)


def open_folder(folder: Path, mapped: bool = False) -> tuple[dict[str, Any], dict[str, LazyTensor], GenerationConfig]:
    """The fields of a checkpoint's `config.json`, its tensors, and its settings for `generate`."""
    config, file = read_config(folder), folder / "generation_config.json"
    tensors = open_weights(folder, mapped)
    check_sizes(folder / "config.json", config, [tensor.meta.shape for tensor in tensors.values()])
    if not file.is_file():  # an older checkpoint, which has these settings in `config.json`
        return config, tensors, made_of(GenerationConfig.from_model_config, config, folder / "config.json")
    made_of(GenerationConfig.from_dict, read_json(file), file)  # an error names the file and what is wrong in it
    return config, tensors, GenerationConfig.from_pretrained(folder)


def checkpoint_of(model: nn.Module) -> Checkpoint:
    """A model in memory as a checkpoint; reading a tensor copies it."""
    config = fields_of(model)
    generation = getattr(model, "generation_config", None) or GenerationConfig.from_model_config({**config})
    config |= {"architectures": [type(model).__name__]}
    return Checkpoint(None, config, lazy_tensors(model.state_dict()), copy.deepcopy(generation), model)


def fields_of(model: nn.Module) -> dict[str, Any]:
    """The configuration of a model of transformers; of a module of torch, its type.

    Raises:
        ConversionError: for a model of another kind; the message says how its weights are converted.
    """
    if isinstance(config := getattr(model, "config", None), PreTrainedConfig):
        return config.to_dict()
    if type(model) in MODULES:  # and not a class derived from it, which may compute something else
        return {"model_type": type(model).__name__}
    name = f"{type(model).__module__}.{type(model).__qualname__}"
    known = ", ".join(f"nn.{module.__name__}" for module in MODULES)
    raise ConversionError(f"{name} is not a model of transformers, nor one of {known}. {OTHER_MODELS}")


def lazy_tensors(state_dict: Mapping[str, Any], copied: bool = True) -> dict[str, LazyTensor]:
    """The tensors of a state dict, contiguous when they are read, and copied unless that is not needed.

    Raises:
        ConversionError: for a tensor without values, and for one that is not dense.
    """
    read = partial(torch.Tensor.clone if copied else torch.Tensor.contiguous, memory_format=torch.contiguous_format)
    tensors = {name: value.detach() for name, value in state_dict.items() if isinstance(value, torch.Tensor)}
    for name, tensor in tensors.items():
        if tensor.is_meta or tensor.layout != torch.strided:
            kind = "on the meta device, without values" if tensor.is_meta else f"of layout {tensor.layout}"
            raise ConversionError(f"{name} is {kind}; it should be a dense tensor with values.")
    return {name: LazyTensor(tensor.to("meta"), partial(read, tensor)) for name, tensor in tensors.items()}


def fetch(source: str | Path, weights: bool = True) -> Path:
    """The local folder of a checkpoint; a Hub id is downloaded first, without its `weights` if they are not needed.

    Raises:
        ConversionError: if `source` is neither a folder nor a model on the Hub (without a connection: in its cache).
    """
    if source == "":
        raise ConversionError("The name of the checkpoint is empty; it should be a folder or a Hub id (user/name).")
    if (folder := Path(source)).is_dir():
        refuse_pointers(folder, ConversionError)
        patterns = ("config.json", *WEIGHTS, *COMPANIONS)
        check_inside(folder, (file.relative_to(folder) for pattern in patterns for file in folder.glob(pattern)))
        for index in (folder / name for name in WEIGHTS if name.endswith(".json") and (folder / name).is_file()):
            shards_of(index)  # refuses shards outside the folder
        return folder
    if folder.is_file():
        raise ConversionError(
            f"{str(source)!r} is a file, and a checkpoint is a folder with a config.json. {OTHER_MODELS}"
        )
    if is_path(source):
        raise ConversionError(no_folder(source))
    try:
        with silenced_retrying():
            folder = Path(snapshot_download(str(source), allow_patterns=["config.json", *COMPANIONS]))
            if weights:
                download_weights(str(source))
    except (EntryNotFoundError, HfHubHTTPError, HFValidationError) as error:
        raise ConversionError(not_on_hub(source, error)) from error
    return folder


def download_weights(repo: str) -> None:
    """Downloads the first of `WEIGHTS` that a repository has, and the shards that it names."""
    for name in WEIGHTS:
        try:
            file = Path(hf_hub_download(repo, name))
        except EntryNotFoundError:
            continue
        if file.suffix == ".json":
            snapshot_download(repo, allow_patterns=shards_of(file))
        return


def shards_of(index: Path) -> list[str]:
    files = read_json(index).get("weight_map")
    if not files or not isinstance(files, dict):
        raise ConversionError(f"{index} has no weight_map, which should say in which file each tensor lies.")
    check_inside(index.parent, (name for name in files.values() if name and isinstance(name, str)))
    if odd := [name for name in files.values() if not str(name).endswith((".safetensors", ".bin"))]:
        raise ConversionError(f"{index} names {odd[0]!r} as a file of weights; those end in .safetensors or .bin.")
    return sorted(set(files.values()))


def open_weights(folder: Path, mapped: bool = False) -> dict[str, LazyTensor]:
    """The tensors of the first of `WEIGHTS` that a folder has, from all its shards."""
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise ConversionError(f"{folder} holds no weights; looked for {', '.join(WEIGHTS)}.")
    files = [folder / name for name in shards_of(file)] if file.suffix == ".json" else [file]
    if missing := [shard.name for shard in files if not shard.is_file()]:
        raise ConversionError(f"{file} names shards that the folder lacks: {', '.join(missing)}.")
    readers = {".safetensors": open_safetensors, ".bin": open_bin}
    shards = [readers[shard.suffix](shard, mapped) for shard in files]
    return {name: tensor for tensors in shards for name, tensor in tensors.items()}


def open_safetensors(file: Path, mapped: bool) -> dict[str, LazyTensor]:
    try:
        # (A tensor that is read into memory would be there twice if the file were mapped: in its pages, too.)
        content = safe_open(file, framework="pt", backend="mmap" if mapped else "pread")
    except SafetensorError as error:
        raise ConversionError(f"{file} is truncated, or not a safetensors file: {error}.") from error
    tensors = {}
    for name in content.keys():  # noqa: SIM118
        entry = content.get_slice(name)
        dtype = FLOATS.get(entry.get_dtype(), torch.int64)
        meta = torch.empty(entry.get_shape(), dtype=dtype, device="meta")
        tensors[name] = LazyTensor(meta, partial(content.get_tensor, name))
    return tensors


def open_bin(file: Path, mapped: bool) -> dict[str, LazyTensor]:
    try:
        is_mapped = mapped and zipfile.is_zipfile(file)  # torch cannot map a file of its format from before version 1.6
        values = torch.load(file, map_location="cpu", weights_only=True, mmap=is_mapped)
    except Exception as error:  # which one, depends on the bytes
        raise ConversionError(f"{file} is truncated, or not a file of PyTorch weights: {error}.") from error
    if not isinstance(values, Mapping):
        raise ConversionError(f"{file} holds a {type(values).__name__}; it should hold a dict of tensors.")
    return lazy_tensors(values, copied=False)  # they were read for this model alone


def read_config(folder: Path) -> dict[str, Any]:
    """The fields of a checkpoint's `config.json`; its architecture, classes and dtypes are names."""
    config = read_json(folder / "config.json")
    check_names(folder / "config.json", config)
    return config


def read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConversionError(f"{file.parent} holds no {file.name}.") from error
    except (ValueError, RecursionError) as error:
        raise ConversionError(f"{file} is not valid JSON: {error}.") from error
    if not isinstance(content, dict):
        raise ConversionError(f"{file} holds a {type(content).__name__}; it should hold an object of names and values.")
    return content
