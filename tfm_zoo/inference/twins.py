"""A model of the zoo around an official one's tensors: it shares its layers, or reads its tensors at each call."""

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from ..converters.assembling import attention_of
from ..converters.checkpoint import Checkpoint, LazyTensor
from ..converters.config_conversion import completed, to_zoo_config
from ..converters.errors import ConversionError
from ..converters.official_names import names_in_checkpoint
from ..converters.sinusoids import check_stored_positions
from ..converters.tensor_matching import enumerated, match, names_by_rule
from ..converters.tensor_rules import Interleaved, Step, TensorRule
from ..models.modeling_tfm_bert import TfmBertModel
from ..models.modeling_tfm_encoder_decoder import TfmEncoderDecoderEncoder, TfmEncoderDecoderModel
from ..models.positions import TfmConstants, TfmRotaryByLayerType, TfmRotaryEmbedding
from .caches import Form
from .finding import Found

#: layers that both sides make of the same class, with the same tensors: the twin takes the official one itself
SHARED = (nn.Linear, nn.Embedding, nn.LayerNorm)
ATTENTION = ("eager", "sdpa", "varlen", "flash_attention_2", "flash_attention_3")
#: kinds of rotary positions whose frequencies do not change with the length of a row
FIXED = ("default", "linear", "llama3", "yarn", "proportional")

Slot = tuple[dict[str, torch.Tensor], str]  # where a module holds a tensor


class Views(TorchFunctionMode):
    """What a rule copies so that two models share no memory stays a view of the official tensor here."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.clone, torch.Tensor.contiguous):
            return args[0]
        return function(*args, **(kwargs or {}))


class Made:
    """Tensors of the zoo that a rule makes of official ones, `reads`, and where the twin reads them, `writes`."""

    def __init__(self, run: Callable, reads: list[Slot], writes: list[Slot]):
        self.run, self.reads, self.writes = run, reads, writes
        self.seen: list[tuple[torch.Tensor, int]] = []

    def make(self) -> None:
        """Makes them anew, unless they are views of the same tensors already, to which no gradient flows."""
        sources = [get(slot) for slot in self.reads]
        has_gradient = torch.is_grad_enabled()
        places = [] if has_gradient else [each.data_ptr() for each in sources]
        if places and len(self.seen) == len(sources):
            known = zip(sources, places, self.seen, strict=True)
            if all(source is seen and place == before for source, place, (seen, before) in known):
                return
        values = self.run(sources)
        for (target, name), value in zip(self.writes, values, strict=True):
            target[name] = value
        self.seen = []
        if not has_gradient:
            owned = {each.untyped_storage().data_ptr() for each in sources}
            are_views = all(value.untyped_storage().data_ptr() in owned for value in values)
            self.seen = [*zip(sources, places, strict=True)] if are_views else []


class Twin(NamedTuple):
    """A model of the zoo, and what it takes from the official one.

    Args:
        model: what computes: the zoo's model, or one of its stacks.
        shared: the official layers that it holds as its own.
        renamed: official tensors, and where the twin reads each.
        made: those that a rule splits, joins or turns.
        modules: the twin's own.
        form: how the official class lays out what it caches.
        pooler: the official pooler, where the tables lack one for the base model alone.
    """

    model: PreTrainedModel
    shared: set[nn.Module]
    renamed: list[tuple[Slot, Slot]]
    made: list[Made]
    modules: list[nn.Module]
    form: Form
    pooler: nn.Module | None

    def bind(self) -> None:
        """Has the twin read the official tensors as they are now."""
        for (target, name), (source, official) in self.renamed:
            target[name] = source[official]
        if self.made:
            with Views():
                for step in self.made:
                    step.make()


def adapted(module: nn.Module) -> nn.Module | None:
    """The linear layer inside an adapter of PEFT, which computes each position by itself, as the layer does."""
    layer = getattr(module, "base_layer", None)
    return layer if type(module).__module__.startswith("peft.tuners.") and isinstance(layer, nn.Linear) else None


def changed_linear(module: nn.Module) -> nn.Linear | None:
    """The linear layer in an adapter, or one whose weight is computed: by a parametrization or by a hook."""
    is_computed = isinstance(module, nn.Linear) and "weight" not in module._parameters
    return module if is_computed and type(module).forward is nn.Linear.forward else adapted(module)


def tensors_of(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module, Slot]]:
    """Each tensor of a model that its state dict has: its name, the layer that has it, and where. A layer whose weight
    is adapted or computed counts as the layer itself."""
    if (layer := changed_linear(model)) is not None:
        tensors = {name: getattr(layer, name) for name in ("weight", "bias") if getattr(layer, name, None) is not None}
        yield from ((path + name, model, (tensors, name)) for name in tensors)
        return
    for name, value in model._parameters.items():
        if value is not None:
            yield path + name, model, (model._parameters, name)
    for name, value in model._buffers.items():
        if value is not None and name not in model._non_persistent_buffers_set:
            yield path + name, model, (model._buffers, name)
    for name, child in model._modules.items():
        if child is not None:
            yield from tensors_of(child, f"{path}{name}.")


def zoo_class_of(found: Found) -> type[PreTrainedModel]:
    if not found.is_stack:
        return found.head.zoo
    return TfmEncoderDecoderModel if "decoder" in found.holder._modules else TfmEncoderDecoderEncoder


def make_twin(found: Found, config: PreTrainedConfig) -> Twin:
    """The twin of what was found; `config` is the official configuration.

    Raises:
        ConversionError: if the tables do not convert the configuration or the tensors.
    """
    architecture, zoo_class = found.architecture, zoo_class_of(found)
    title = f"This {type(found.owner).__name__}"
    zoo_config = to_zoo_config(architecture, completed(architecture, config.to_dict(), title), zoo_class, {})
    implementation = attention_of(found.owner) or config._attn_implementation
    if implementation not in ATTENTION:
        raise ConversionError(f"{title} computes attention by {implementation!r}, which the zoo does not")
    with torch.device("meta"):
        pooler = getattr(found.owner, "pooler", None)
        knows_pooler = any("pooler" in name for rule in found.head.tensors for name in rule.names("zoo"))
        has_pooler = pooler is not None and knows_pooler
        options = {"add_pooling_layer": has_pooler} if issubclass(zoo_class, TfmBertModel) else {}
        model = zoo_class(zoo_config, **options)
    is_chosen = attention_of(found.owner) is not None
    implementation = implementation if is_chosen else "sdpa" if model._supports_sdpa else "eager"
    # `"varlen"` is `"sdpa"`, and on a GPU without padding. (But a window of its counts real tokens alone.)
    is_same = implementation == "sdpa" and zoo_config.sliding_window is None
    model.set_attn_implementation("varlen" if is_same else implementation)

    places = {name: (layer, slot) for name, layer, slot in tensors_of(found.holder)}
    lazy = {name: LazyTensor(get(slot).to("meta"), get(slot).detach) for name, (_, slot) in places.items()}
    fields = config.to_dict() | {"architectures": [type(found.holder).__name__]}
    checkpoint = Checkpoint(None, fields, lazy, GenerationConfig(), found.holder)
    matched = match(architecture, found.head, checkpoint, model, {})
    unused = [name for name in matched.unused if not (found.is_stack or "pooler." in name)]
    if matched.fresh or unused:
        raise ConversionError(f"{title} lacks or adds tensors: {enumerated([*matched.fresh, *unused])}")
    check_stored_positions(architecture.all_tensor_rules, matched.tensors, zoo_config, title)

    sources = {full: places[name] for full, name in names_in_checkpoint(architecture, places).items()}
    twin = bound(model, matched.steps, sources)
    renew_constants(model, found.owner)
    twin.renamed.extend(frequencies_of(found.owner, model))
    twin.bind()
    if found.is_stack:
        twin = twin._replace(model=getattr(model, found.part))
    modules = [each for each in twin.model.modules() if each not in twin.shared]
    own_pooler = None if has_pooler or not issubclass(zoo_class, TfmBertModel) else pooler
    return twin._replace(modules=modules, form=form_of(found, config, matched.steps), pooler=own_pooler)


def form_of(found: Found, config: PreTrainedConfig, steps: list[Step]) -> Form:
    channels = next((step.rule.channels for step in steps if isinstance(step.rule, Interleaved)), None)
    is_repeated = found.architecture.model_type == "falcon" and config.new_decoder_architecture
    return Form(channels, config.num_attention_heads // config.num_kv_heads if is_repeated else 1)


def get(slot: Slot) -> torch.Tensor:
    tensors, name = slot
    return tensors[name]


def bound(model: PreTrainedModel, steps: list[Step], sources: dict[str, tuple[nn.Module, Slot]]) -> Twin:
    """A twin that takes its tensors by these steps from `sources`: a layer and a place for each official name."""
    names = names_by_rule(model)
    writers = {names[name]: step for step in steps for name in step.writes}
    for name, source in model.all_tied_weights_keys.items():
        writers.setdefault(name, writers.get(source))
    layers: dict[str, list[str]] = {}
    for name in model.state_dict():
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    twin, done = Twin(model, set(), [], [], [], Form(), None), set()
    for path, owned in layers.items():
        parent, _, child = path.rpartition(".")
        layer = model.get_submodule(path)
        taken = {writers.get(name) for name in owned}
        if None in taken:
            raise ConversionError(f"No rule fills {enumerated([name for name in owned if writers.get(name) is None])}")
        official = shareable(layer, taken, sources)
        if official is not None:
            model.get_submodule(parent)._modules[child] = official
            twin.shared.update(official.modules())
            continue
        if any(changed_linear(sources[name][0]) is not None for step in taken for name in step.reads):
            raise ConversionError(f"the weights of {path} are adapted or computed")
        for name in owned:
            step, leaf = writers[name], name.rpartition(".")[2]
            target = (layer._parameters if leaf in layer._parameters else layer._buffers, leaf)
            if keeps(step):
                twin.renamed.append((target, sources[step.reads[0]][1]))
            elif id(step) not in done:
                done.add(id(step))
                reads = [sources[name][1] for name in step.reads]
                twin.made.append(Made(step.run, reads, [slot_of(model, names[name]) for name in step.writes]))
    return twin


def slot_of(model: nn.Module, name: str) -> Slot:
    path, _, leaf = name.rpartition(".")
    layer = model.get_submodule(path)
    return (layer._parameters if leaf in layer._parameters else layer._buffers), leaf


def keeps(step: Step) -> bool:
    """Whether a step gives a tensor another name, and leaves it as it is."""
    return type(step.rule).to_zoo is TensorRule.to_zoo and len(step.reads) == 1


def shareable(layer: nn.Module, steps: set[Step], sources: dict) -> nn.Module | None:
    """The official layer that can stand instead of one of the zoo's: of the same class, with all its tensors."""
    if type(layer) not in SHARED or not all(map(keeps, steps)):
        return None
    official = {sources[step.reads[0]][0] for step in steps}
    if len(official) != 1:
        return None
    (only,) = official
    plain = only if adapted(only) is None else adapted(only)
    owned = {name for name, value in layer._parameters.items() if value is not None}
    has = {name for name in ("weight", "bias") if getattr(plain, name, None) is not None}
    is_alike = isinstance(plain, type(layer)) and type(plain).forward is type(layer).forward and has == owned
    return only if is_alike and has_same_numbers(layer, plain) else None


def has_same_numbers(one: nn.Module, other: nn.Module) -> bool:
    """Whether two layers have the same settings, such as the `eps` of a norm."""
    names = {name for name in vars(one).keys() & vars(other).keys() if not name.startswith("_")} - {
        "training",
        "forward",
    }
    return all(getattr(one, name) == getattr(other, name) for name in names)


def renew_constants(model: nn.Module, official: nn.Module) -> None:
    """Makes what follows from the configuration on the device where the official model is."""
    device = next(official.parameters()).device
    for module in model.modules():
        if isinstance(module, TfmConstants):
            module.to_empty(device=device)
    bound = model.state_dict()  # what a call fills
    if names := [name for name, buffer in model.named_buffers() if buffer.is_meta and name not in bound]:
        raise ConversionError(f"No rule fills {enumerated(names)}")


def frequencies_of(official: nn.Module, model: nn.Module) -> Iterator[tuple[Slot, Slot]]:
    """The official frequencies of rotary positions, which a change of type may have rounded."""
    own = [each for each in official.modules() if any(name.endswith("inv_freq") for name in each._buffers)]
    for rotary in model.modules():
        types = rotary.items() if isinstance(rotary, TfmRotaryByLayerType) else ()
        pairs = [*types] if types else [("", rotary)] if type(rotary) is TfmRotaryEmbedding else []
        for layer_type, part in pairs:
            name = f"{layer_type}_inv_freq" if layer_type else "inv_freq"
            slots = [each._buffers for each in own if name in each._buffers]
            fits = slots and slots[0][name].shape == part.inv_freq.shape
            if fits and part.rope_type in FIXED:
                yield (part._buffers, "inv_freq"), (slots[0], name)


def fresh_like(found: Found, config: PreTrainedConfig) -> nn.Module:
    """What the official class makes of the configuration, without memory."""
    kind, options = type(found.holder), {}
    if "add_pooling_layer" in inspect.signature(kind).parameters:
        options["add_pooling_layer"] = found.holder.pooler is not None
    with torch.device("meta"):
        fresh = kind(copy.deepcopy(config), **options)
    return fresh.get_submodule(found.part) if found.part else fresh
