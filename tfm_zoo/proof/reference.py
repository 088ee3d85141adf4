"""What an export is judged by: the model that it was made from, as it is, and with a single thing left out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import nn

from .encoder import counts_from_padding, one_ended
from .fingerprints import fixed_inputs, named, sequences, takes_all, temporarily
from .poolings import POOLINGS
from .reading import Reading

Tensors = dict[str, torch.Tensor]
#: lengths that are tried, in tokens, as far as the model takes them
LENGTHS = (64, 128, 256, 512)
#: what parts of a model's outputs are called that are not outputs of a graph
UNREAD = ("loss", "past_key_values", "hidden_states", "attentions")
#: vectors of texts: as the files of sentence-transformers say, and before they are made 1 long
SENTENCE, POOLED = "sentence_embedding", "pooled"


@dataclass(frozen=True)
class Loss:
    """What an export may have lost.

    Args:
        name: how a verdict calls it.
        inputs: changes the inputs.
        patched: changes the model while it is open.
        reading: how texts become vectors without it.
    """

    name: str
    inputs: Callable[[Tensors], Tensors] | None = None
    patched: Callable[[], AbstractContextManager] | None = None
    reading: Reading | None = None


class Reference:
    """A model in evaluation mode whose outputs an export should give.

    Args:
        model: of any class with a head or without one.
        reading: what files of sentence-transformers beside it say, if there are any.
    """

    def __init__(self, model: Any, reading: Reading | None):
        self.model, self.reading = model, reading
        self.reads = signature(model.forward).parameters

    @property
    def gives_vectors(self) -> bool:
        """Whether files beside the model say how a text becomes a vector."""
        return bool(self.reading and self.reading.pooling)

    @property
    def has_two_sides(self) -> bool:
        return "decoder_input_ids" in self.reads

    @property
    def base(self) -> nn.Module:
        return getattr(self.model, "base_model", self.model)

    @torch.no_grad()
    def __call__(self, inputs: Tensors, loss: Loss | None = None) -> Tensors:
        """All that an export may give, by name: the class's own outputs, those of its base, and vectors of texts.

        Args:
            inputs: `input_ids`, `attention_mask`, ..., `(batch, length)`.
            loss: something that is left out.
        """
        given = loss.inputs(inputs) if loss and loss.inputs else inputs
        given = {name: value for name, value in given.items() if name in self.reads or takes_all(self.reads)}
        seen: dict[str, Any] = {}
        hook = self.base.register_forward_hook(lambda module, arguments, outputs: seen.update(named(outputs)))
        with loss.patched() if loss and loss.patched else nullcontext():
            try:
                own = named(self.model(**given, return_dict=True))
            finally:
                hook.remove()
        outputs = {
            name: value.float()
            for name, value in ({**seen, **own}).items()
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim > 1 and name not in UNREAD
        }
        self.own = [name for name in own if name in outputs]
        reading = loss.reading if loss and loss.reading else self.reading
        if reading and reading.pooling and "last_hidden_state" in outputs:
            states, mask = outputs["last_hidden_state"], inputs["attention_mask"]
            outputs[POOLED] = vectors_of(states, mask, replace(reading, normalize=False))
            outputs[SENTENCE] = vectors_of(states, mask, reading)
        return outputs

    def longer(self) -> Iterator[Tensors]:
        """Inputs of longer and longer sequences, as far as the model takes them."""
        config = self.model.config.get_text_config()
        made: set[int] = set()
        target = next(fixed_inputs(self.model)).get("decoder_input_ids")
        for length in LENGTHS:
            inputs = sequences(
                config, config.vocab_size, length, getattr(config, "first_position", self.first_position)
            )
            if inputs["input_ids"].shape[1] not in made:
                made.add(inputs["input_ids"].shape[1])
                yield inputs | ({} if target is None else {"decoder_input_ids": target})

    def losses(self, inputs: Tensors, only_long: bool = False) -> Iterator[Loss]:
        """What an export may have lost of this model; `only_long`: of long inputs alone."""
        if "position_ids" in self.reads:
            length, pad = inputs["input_ids"].shape[1], getattr(self.model.config, "pad_token_id", None) or 0
            for limit in (limit for limit in LENGTHS if limit < length):
                yield Loss(f"positions behind token {limit}", at_positions(self.first_position, limit))
            yield Loss("where positions begin (they count from 0)", at_positions(0))
            yield Loss("where positions begin (they count from behind the padding's)", at_positions(pad + 1))
        if only_long:
            return
        if bool(inputs.get("token_type_ids", torch.zeros(1)).any()):
            yield Loss("token types", lambda given: given | {"token_type_ids": torch.zeros_like(given["input_ids"])})
        if bool((inputs["attention_mask"] == 0).any()):
            yield Loss(
                "the mask of padding", lambda given: given | {"attention_mask": torch.ones_like(given["input_ids"])}
            )
        yield from self.lost_parts()
        if self.reading and self.reading.pooling:
            if self.reading.normalize:
                yield Loss("normalisation", reading=replace(self.reading, normalize=False))
            for pooling in POOLINGS:
                if pooling != self.reading.pooling:
                    lost = f"the pooling {self.reading.pooling!r} (it is {pooling!r})"
                    yield Loss(lost, reading=replace(self.reading, pooling=pooling))

    @property
    def first_position(self) -> int:
        padding = getattr(self.model.config, "pad_token_id", None) or 0
        return padding + 1 if counts_from_padding(self.model) else 0

    def lost_parts(self) -> Iterator[Loss]:
        """Parts of the model: its pooler, biases outside of its layers, biases of attention, and how norms and
        activations are computed."""
        modules = dict(self.model.named_modules())
        for name, module in modules.items():
            if type(module).__name__.endswith("Pooler"):
                yield Loss(
                    "the pooler", patched=lambda module=module: replaced(module, lambda states, *_: states[:, 0])
                )
            is_end = not any(part.isdigit() for part in name.split(".")) and isinstance(module, nn.Linear)
            if is_end and module.bias is not None:
                yield Loss(f"the bias of {name}", patched=lambda module=module: zeroed(module.bias))
            if "relative_attention_bias" in name and hasattr(module, "weight"):
                yield Loss("the bias of attention by distance", patched=lambda module=module: zeroed(module.weight))
            if name.endswith("token_type_embeddings"):
                yield Loss("the embedding of token types", patched=lambda module=module: zeroed(module.weight))
        gelus = [module for module in modules.values() if type(module).__name__ == "GELUActivation"]
        if gelus:
            yield Loss(
                "GELU as it is (it is computed by tanh)", patched=lambda: all_replaced(gelus, nn.GELU("tanh").forward)
            )
        norms = [module for module in modules.values() if isinstance(module, nn.LayerNorm)]
        for epsilon in (1e-12, 1e-6, 1e-5):
            if norms and norms[0].eps != epsilon:
                yield Loss(
                    f"the epsilon of norms (it is {epsilon})", patched=lambda eps=epsilon: temporarily(norms, eps=eps)
                )


def at_positions(first: int, limit: int | None = None) -> Callable[[Tensors], Tensors]:
    """What gives tokens positions from `first` on, and those behind `limit` tokens the last of these."""

    def change(inputs: Tensors) -> Tensors:
        places = torch.arange(inputs["input_ids"].shape[1])
        places = places if limit is None else places.clamp(max=limit - 1)
        return inputs | {"position_ids": (places + first).expand_as(inputs["input_ids"])}

    return change


def vectors_of(states: torch.Tensor, mask: torch.Tensor, reading: Reading) -> torch.Tensor:
    """The vectors of texts, whose padding stands at the right."""
    rows = [one_ended(row[None, : int(real.sum())], None, reading) for row, real in zip(states, mask, strict=True)]
    return torch.cat(rows)


@contextmanager
def zeroed(tensor: torch.Tensor) -> Iterator[None]:
    with torch.no_grad():
        kept = tensor.clone()
        tensor.zero_()
        try:
            yield
        finally:
            tensor.copy_(kept)


@contextmanager
def replaced(module: nn.Module, forward: Callable) -> Iterator[None]:
    with all_replaced([module], forward):
        yield


@contextmanager
def all_replaced(modules: list[nn.Module], forward: Callable) -> Iterator[None]:
    for module in modules:
        module.forward = forward
    try:
        yield
    finally:
        for module in modules:
            del module.forward
