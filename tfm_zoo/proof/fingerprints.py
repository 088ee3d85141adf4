"""What a model computes for fixed inputs, as values that can be compared: outputs, loss, and states after each part.

Of the zoo, this file uses only `contents.py` and `states.py`: see `check.py`.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from inspect import Parameter, signature
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from .contents import digest_of_tensor, read_json
from .states import watched

#: how many values a fingerprint keeps of each output, and of each state: about one for each token
VALUES, STATE_VALUES = 64, 24
TEXT = "Ärger mit 3 naïve cafés?\n\tdef f(x): return x**2  # 東京 🤗 <b>it's</b>  OK!"
CHAT = [
    {"role": "user", "content": "Hello!"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Bye?"},
]


def fingerprint_of(model: nn.Module, weights: dict[str, torch.Tensor] | None = None) -> dict[str, Any]:
    """The first inputs of [`fixed_inputs`] that a model takes, as lists, and what it computes for them; `weights`
    replace its own of the same names."""
    quantization = getattr(getattr(model, "hf_quantizer", None), "quantization_config", None)
    is_zoo_quantised = quantization is not None and quantization.quant_method == "tfm_zoo"
    dtype = quantization.dtype if is_zoo_quantised else model.dtype
    failure = None
    for inputs in fixed_inputs(model):
        kept = {name: list(one.shape) if one.is_floating_point() else one.tolist() for name, one in inputs.items()}
        described = {"dtype": str(dtype).removeprefix("torch."), "inputs": kept}
        try:
            return described | compute(model, inputs, weights=weights)
        except Exception as error:
            failure = failure or error
    read = f"a {type(model).__name__} reads {model.main_input_name}"
    raise failure or ValueError(f"{read}, and fingerprints are of texts, images and sounds alone")


def fixed_inputs(model: nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """What a fingerprint may be computed from, the most telling first: sequences, one of them padded, and what else the
    class reads; then less, for classes that take less: classifiers that make their own target, models without a mask,
    or without a token for padding. For what reads images or sounds, those."""
    config, reads = model.config, signature(model.forward).parameters
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = getattr(text, "vocab_size", None)
    target_vocabulary = getattr(config, "decoder_vocab_size", None) or vocabulary
    has_two_sides, is_encoder_decoder = "decoder_input_ids" in reads, getattr(config, "is_encoder_decoder", False)
    target = "decoder_input_ids" if has_two_sides else "input_ids"
    for signal in signals_for(config, reads, model.dtype):
        yield signal | ({target: sequences(text, vocabulary, length=5)["input_ids"]} if target in reads else {})
    if target_vocabulary is None or ("input_ids" not in reads and not takes_all(reads)):
        return
    if "encoder_hidden_states" in reads and is_encoder_decoder and not has_two_sides:  # a decoder by itself
        states = ramp((2, 3, config.hidden_size), model.dtype)
        yield sequences(config, target_vocabulary, length=5) | {"encoder_hidden_states": states}
        return
    inputs = sequences(text, vocabulary)
    if "token_type_ids" in reads and (getattr(config, "type_vocab_size", 0) or 0) > 1:
        inputs["token_type_ids"] = (torch.arange(inputs["input_ids"].shape[1]) % 2).expand(2, -1).contiguous()
    if type(model).__name__.endswith("MultipleChoice"):
        yield {name: ids.unsqueeze(0) for name, ids in inputs.items()}  # one question of two choices
        return
    if getattr(model, "reads_target", has_two_sides and is_encoder_decoder):
        inputs["decoder_input_ids"] = sequences(config, target_vocabulary, length=5)["input_ids"]
    inputs = {name: tensor for name, tensor in inputs.items() if name in reads or "input_ids" not in reads}
    maskless = {name: tensor for name, tensor in inputs.items() if name != "attention_mask"}
    yield inputs
    yield {name: tensor for name, tensor in inputs.items() if name != "decoder_input_ids"}
    yield maskless
    yield {name: tensor[:1] for name, tensor in maskless.items()}


def signals_for(config: Any, reads: Mapping[str, Parameter], dtype: torch.dtype) -> Iterator[dict[str, torch.Tensor]]:
    """Two images, or two sounds as waves or as spectra, of the sizes that a configuration may mean."""
    seen, heard = (getattr(config, f"{kind}_config", None) or config for kind in ("vision", "audio"))
    if "pixel_values" in reads:
        size = getattr(seen, "image_size", None) or 224
        height, width = size if isinstance(size, list | tuple) else (size, size)
        yield {"pixel_values": ramp((2, getattr(seen, "num_channels", 3), height, width), dtype)}
    bins = getattr(heard, "num_mel_bins", None)
    length = getattr(heard, "max_length", 20) if bins else 4000
    length = 2 * getattr(heard, "max_source_positions", 0) or length
    for name in {"input_values", "input_features"} & reads.keys():
        shapes = [(2, bins, length), (2, length, bins)] if bins else [(2, length)]
        yield from ({name: ramp(shape, dtype)} for shape in shapes)


def ramp(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Values from -1 to 1, which the shape alone determines, and no type rounds."""
    return ((torch.arange(prod(shape)) * 97 % 257 - 128) / 128).view(*shape).to(dtype)


def given(kept: dict[str, list], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The inputs of a fingerprint, which keeps ids, in two dimensions or more, and of a [`ramp`] the shape, in one.
    (One of version 0.2 keeps values.)"""
    inputs = {name: torch.tensor(values) for name, values in kept.items()}
    return {
        name: ramp(kept[name], dtype) if one.ndim == 1 else one.to(dtype) if one.is_floating_point() else one
        for name, one in inputs.items()
    }


def takes_all(reads: Mapping[str, Parameter]) -> bool:
    return any(parameter.kind is Parameter.VAR_KEYWORD for parameter in reads.values())


def sequences(config: Any, vocab_size: int, length: int = 12, first: int | None = None) -> dict[str, torch.LongTensor]:
    """Two sequences of ids from all over the vocabulary, the second padded at its end, and their mask: `(2, length)`.

    They end with the model's end-of-sequence token, and are shorter if it has fewer positions. `first`: the row
    of its table at which these begin. `None`: the configuration's, or else the one behind the padding's.
    """
    pad, bos, eos = (getattr(config, f"{name}_token_id", None) for name in ("pad", "bos", "eos"))
    positions = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or length
    if first is None:
        first = getattr(config, "first_position", pad + 1 if isinstance(pad, int) and positions > pad + 2 else 0)
    length = max(2, min(length, positions - first))
    ends = [eos] if isinstance(eos, int) else eos or []
    ordinary = [token for token in range(vocab_size) if token not in {*ends, pad, bos}] or [0]
    ids = torch.tensor([ordinary[place * len(ordinary) // (2 * length)] for place in range(2 * length)]).view(2, length)
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, length // 2 :] = 0
    ids = ids.masked_fill(mask == 0, pad or 0)
    if ends and ends[0] < vocab_size:
        ids[[0, 1], mask.sum(dim=1) - 1] = ends[0]
    return {"input_ids": ids, "attention_mask": mask}


@torch.no_grad()
def compute(
    model: nn.Module,
    inputs: dict[str, torch.Tensor],
    labels: dict[str, Any] | None = None,
    weights: dict[str, torch.Tensor] | None = None,
) -> dict[str, Any]:
    """A sample of a model's outputs in evaluation mode, and of the states after each of its parts; where its class
    takes labels, these and its loss for them. `weights` replace its own of the same names.

    Args:
        labels: by default, labels that fit the logits; `{}`: no labels.
    """
    reads = signature(type(model).forward).parameters
    device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
    if "return_dict" in reads or takes_all(reads):
        inputs["return_dict"] = True
    multiplications = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # TF32 and bfloat16 may be on
    with (
        as_its_class(model),
        temporarily(list(model.modules()), training=False),
        temporarily(multiplications, fp32_precision="ieee"),
        torch.autocast(device.type, enabled=False),
    ):
        with watched(model, state_of) as states:
            outputs = named(functional_call(model, weights or {}, kwargs=inputs))
        computed = {"outputs": sample(outputs), "states": states}
        labels = fixed_labels(model, outputs, reads) if labels is None else labels
        if labels:
            given = {name: torch.tensor(values, device=device) for name, values in labels.items()}
            with suppress(Exception):  # a head whose labels have another form is compared without its loss
                loss = named(functional_call(model, weights or {}, kwargs=inputs | given))["loss"]
                computed |= {"outputs": computed["outputs"] | {"loss": sample_of(loss, VALUES)}, "labels": labels}
    return computed


def named(outputs: Any) -> dict[str, Any]:
    """Outputs by name; those of a tuple by place."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    return {str(i): output for i, output in enumerate(outputs if isinstance(outputs, tuple) else (outputs,))}


def fixed_labels(model: nn.Module, outputs: dict[str, Any], reads: Mapping[str, Parameter]) -> dict[str, list]:
    """Labels that fit the shape of a head's outputs. Empty if its class takes no labels, or has other outputs."""
    if {"start_positions", "end_positions"} <= reads.keys():
        return {"start_positions": [0, 1], "end_positions": [1, 1]}
    logits = outputs.get("logits")
    if "labels" not in reads or not isinstance(logits, torch.Tensor) or logits.ndim < 2:
        return {}
    *rows, classes = logits.shape
    labels = torch.arange(logits[..., 0].numel()).view(rows)
    return {"labels": (labels % classes if classes > 1 else labels / 2).tolist()}


def state_of(module: nn.Module, state: torch.Tensor) -> dict[str, Any]:
    """What is kept of a state: its type and shape, a digest, some values, and the class of what computed it."""
    kept = sample_of(state, STATE_VALUES)
    kept["values"] = [value and float(f"{value:.6g}") for value in kept["values"]]
    described = {"class": type(module).__name__, "dtype": str(state.dtype).removeprefix("torch.")}
    return described | {"digest": digest_of_tensor(state)[:16]} | kept


@contextmanager
def as_its_class(model: nn.Module) -> Iterator[None]:
    """While it is open, a model computes as its class says: without accelerate's `forward`, which uses mixed precision,
    and without `model.compile()`. Its configuration is a copy, since classifiers add to it what labels they were given.
    """
    own = vars(model)
    aside = {name: own.pop(name) for name in ("forward", "_compiled_call_impl", "config") if name in own}
    if "config" in aside:
        model.config = copy(aside["config"])
    try:
        yield
    finally:
        own.update(aside)


@contextmanager
def temporarily(objects: Iterable[Any], **attributes: Any) -> Iterator[None]:
    """Sets attributes of every object, and restores them at the end."""
    originals = [(target, name, getattr(target, name)) for target in objects for name in attributes]
    try:
        for target, name, _ in originals:
            setattr(target, name, attributes[name])
        yield
    finally:
        for target, name, value in originals:
            setattr(target, name, value)


def sample(outputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The shape of each floating-point output, and evenly spaced values of it."""
    tensors = {name: output for name, output in outputs.items() if isinstance(output, torch.Tensor)}
    return {name: sample_of(tensor, VALUES) for name, tensor in tensors.items() if tensor.is_floating_point()}


def sample_of(tensor: torch.Tensor, most: int) -> dict[str, Any]:
    """A tensor's shape, and at most so many values of it, evenly spaced.

    A value is `None` if it is not finite, or the lowest of its type, which models put where no answer can be.
    """
    flat = tensor.detach().cpu().flatten()
    values = flat[torch.tensor(places(flat.numel(), most), dtype=torch.long)]
    valid = values.isfinite() & (values != torch.finfo(values.dtype).min)
    numbers = [value if good else None for value, good in zip(values.tolist(), valid.tolist(), strict=True)]
    return {"shape": list(tensor.shape), "values": numbers}


def places(size: int, most: int) -> list[int]:
    """Which values of a flat tensor a sample holds."""
    count = min(most, size)
    return [place * (size - 1) // max(count - 1, 1) for place in range(count)]


def text_through(tokenizer: Any) -> dict[str, Any]:
    """What a tokenizer makes of a fixed text, of a pair and of a conversation, its special tokens, a digest of all
    that it consists of, and one (`file`) of what its tokenizer.json says, which other programs read."""
    pair = tokenizer(TEXT, "A second text.", truncation=False, padding=False, verbose=False)
    made = {
        "ids": tokenizer(TEXT, truncation=False, padding=False, verbose=False)["input_ids"],
        "pair": {name: list(ids) for name, ids in pair.items()},
        "special": {name: str(token) for name, token in sorted(tokenizer.special_tokens_map.items())},
    }
    made["decoded"] = tokenizer.decode(made["ids"])
    made |= {"digest": digest_of_tokenizer(tokenizer), "longest": tokenizer.model_max_length}
    file = Path(tokenizer.name_or_path, "tokenizer.json")
    made["file"] = digest_of_json(read_json(file)) if file.is_file() else None
    made["sides"] = {name: getattr(tokenizer, name) for name in ("padding_side", "truncation_side")}
    if getattr(tokenizer, "chat_template", None):
        fixed = {"add_generation_prompt": True, "strftime_now": lambda form: "a day"}  # some templates tell the date
        made["chat"] = tokenizer.apply_chat_template(CHAT, tokenize=False, **fixed)
    return made


def digest_of_tokenizer(tokenizer: Any) -> str:
    """The SHA-256 of a tokenizer's vocabulary and rules, without truncation and padding, which each call names."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content = json.loads(backend.to_str()) if backend else tokenizer.get_vocab()
    kept = {name: value for name, value in content.items() if not backend or name not in ("truncation", "padding")}
    return digest_of_json(kept)


def digest_of_json(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
