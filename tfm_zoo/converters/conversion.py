"""`from_official` and `to_official`, which apply the tables."""

import copy
import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

from .architecture import Head
from .assembling import as_dtype, assemble, attention_of, common_dtype, official_skeleton, skeleton_of
from .checkpoint import Checkpoint, fetch, lazy_tensors, open_checkpoint, read_config
from .choosing import architecture_of, official_for
from .config_conversion import KEPT, completed, to_official_fields, to_zoo_config
from .errors import ConversionError
from .official_names import canonical_name, checkpoint_head, is_converted
from .scratch import Scratch
from .sinusoids import check_stored_positions
from .tensor_matching import enumerated, match, names_by_rule, new_weights
from .tensor_rules import Kept, Step, of_kind, plan
from .torch_modules import settings_of

logger = logging.getLogger(__name__)


def from_official(
    source: str | Path | nn.Module, model_class: type[PreTrainedModel] | None = None, **config_overrides
) -> PreTrainedModel:
    """A zoo model that computes what an official checkpoint computes.

    Args:
        source: a Hub id, a local folder (safetensors or `.bin`, in one file or in shards), or an official model in
            memory (a transformers model, an `nn.TransformerEncoder`, an `nn.TransformerDecoder` or an
            `nn.Transformer`). Its weights are copied. The zoo's decoders are causal: they compute what a decoder of
            `torch.nn` computes with a causal mask.
        model_class: a class of the zoo. `None`: the one for the head that the checkpoint holds. For another head,
            weights that the checkpoint lacks are initialised, and others are left out. Warnings list both.
        config_overrides: fields of the zoo's configuration; also `dtype` (default: the checkpoint's) and
            `attn_implementation`.

    Returns:
        The model, in evaluation mode.

    Raises:
        ConversionError: if the source is not a checkpoint, is truncated, has an architecture that the zoo does not
            convert, or holds tensors that do not fit. The message names the file, the value or the tensors. It is
            raised from names, shapes, stored positions and embeddings under two names, before other weights are read.
            (Only that of `tie_word_embeddings=True` comes last.)
    """
    is_class = isinstance(model_class, type) and isinstance(getattr(model_class, "config_class", None), type)
    # (A base class such as TfmBertPreTrainedModel inherits torch's `forward`.)
    if model_class is not None and not (is_class and model_class.forward != nn.Module.forward):
        raise ConversionError(f"model_class={model_class!r} should be a class of the zoo, as tfm_zoo.TfmBertModel is.")
    if isinstance(source, str | Path) and not Path(source).exists():  # before weights are downloaded
        architecture_of(read_config(fetch(source, weights=False)), str(source))
    return convert(open_checkpoint(source), model_class, **config_overrides)


def convert(
    checkpoint: Checkpoint,
    model_class: type[PreTrainedModel] | None = None,
    progress: Callable[[Collection[Step]], Iterable[Step]] = iter,
    dtype: torch.dtype | str | None = None,
    attn_implementation: str | None = None,
    scratch: Scratch | None = None,
    **config_overrides,
) -> PreTrainedModel:
    """[`from_official`] for an open checkpoint; `progress` iterates over the steps and may draw a bar.

    `scratch`: keeps the tensors that rules make. With a checkpoint that is `mapped`, the model then takes no memory.
    """
    dtype = None if dtype is None else as_dtype(dtype)
    architecture = architecture_of(checkpoint.config, checkpoint.title)
    head = checkpoint_head(architecture, checkpoint.config.get("architectures"), checkpoint.tensors)
    # sentence-transformers reads the encoder alone of an encoder-decoder that it has saved, unless its head classifies.
    is_classifier = head.zoo_name.endswith("ForSequenceClassification")
    if checkpoint.of_sentences and architecture.encoder_half_class and not is_classifier:
        model_class = model_class or architecture.encoder_half.zoo
    model_class = model_class or head.zoo
    if model_class.config_class.model_type != architecture.family:
        raise ConversionError(
            f"{checkpoint.title} ({architecture.title}) becomes a model of the family {architecture.family}; "
            f"{model_class.__name__} is of another family."
        )
    # A module of torch has settings in place of a configuration.
    fields = settings_of(checkpoint.model) if architecture.library == "torch" else checkpoint.config
    if checkpoint.model is None:
        fields = {architecture.stored_fields.get(name, name): value for name, value in fields.items()}
    fields = completed(architecture, fields, checkpoint.title)
    config = to_zoo_config(architecture, fields, model_class, config_overrides)
    skeleton = skeleton_of(model_class, config)
    matched = match(architecture, head, checkpoint, skeleton, config_overrides)
    check_stored_positions(architecture.all_tensor_rules, matched.tensors, config, checkpoint.title)
    if kept := of_kind(Kept, architecture.all_tensor_rules, matched.tensors):
        config.official[KEPT] = {name: tensor.read().tolist() for name, tensor in kept.items()}

    in_float32 = kept_in_float32(head)
    if dtype is None:
        names = {name for step in matched.steps for name in step.reads}
        dtype = common_dtype(matched.tensors[name] for name in names if in_float32.isdisjoint(name.split(".")))
    if dtype == torch.float16 and in_float32:
        logger.warning(
            f"{model_class.__name__} from {checkpoint.title}: its hidden states may overflow in float16, so "
            f"{head.official} holds {', '.join(in_float32)} in float32 there: dtype='bfloat16' is safe."
        )
    weights = {}
    for step in progress(matched.steps):
        read = [matched.tensors[name].read() for name in step.reads]
        values = step.run(read)
        if scratch is not None:
            values = scratch.keep(values, unless_in=read, dtype=dtype)
        weights.update(zip(map(matched.names_in_model.get, step.writes), values, strict=True))

    original = checkpoint.model
    model = assemble(skeleton, weights, dtype, attn_implementation or attention_of(original))
    if untie_what_differs(model) and config_overrides.get("tie_word_embeddings"):
        raise ConversionError(
            f"tie_word_embeddings=True: {checkpoint.title} holds an output projection that differs from its embeddings."
        )
    if original is not None:
        model.to(next(original.parameters()).device)
    if model.can_generate():
        model.generation_config = checkpoint.generation_config
    # The configuration names the source, whose tokenizer goes with the model. The model itself lies nowhere until it is
    # saved: what asks it for its place (PEFT) would take the official model for it.
    model.name_or_path, model.config.name_or_path = "", checkpoint.source or getattr(original, "name_or_path", "")
    if matched.fresh:
        logger.warning(new_weights(checkpoint.title, matched.fresh))
    if matched.unused:
        title = f"{model_class.__name__} from {checkpoint.title}"
        logger.warning(f"{title}: left out what belongs to another head: {enumerated(matched.unused)}.")
    return model


def to_official(model: PreTrainedModel) -> nn.Module:
    """The official model that computes what a zoo model computes, with copies of its weights.

    `official_for` chooses its architecture: the one that the zoo model was converted from, or, for a model that never
    was official, the nearest.

    Returns:
        The model, in evaluation mode.

    Raises:
        ConversionError: if no official class can express the zoo model; the message names the configuration's fields.
    """
    architecture, head, differences = official_for(model)
    for name, (value, other) in differences.items():
        logger.warning(f"{head.official} has no {name}={value}: it computes the same, but trains with {other}.")
    skeleton = official_skeleton(architecture, head, to_official_fields(architecture, model.config, head))
    # Steps read names of the zoo and write official ones, both as the rules have them.
    state = lazy_tensors(model.state_dict())  # each read makes a copy
    zoo_tensors = {name_in_rule: state[name] for name_in_rule, name in names_by_rule(model).items()}
    names = [name for name in skeleton.state_dict() if is_converted(architecture, name)]
    canonical = {name: canonical_name(architecture, name) for name in names}  # official name -> that in the rules

    steps, missing = plan(architecture.tensor_rules([head], model.config), canonical.values(), to="official")
    values = {}
    for step in steps:
        is_whole = all(name in zoo_tensors for name in step.reads)
        if is_whole:
            values.update(zip(step.writes, step.run([zoo_tensors[name].read() for name in step.reads]), strict=True))
        elif not step.rule.optional:
            missing += step.writes
    if missing:
        raise ConversionError(f"{type(model).__name__} lacks what {head.official} needs for {', '.join(missing)}.")

    # An official model may hold one tensor under two names that have one name in the rules, such as the bias of BERT's
    # vocabulary. If it does not tie them, each needs memory of its own. (Tied embeddings have a rule for each name.)
    first = {name_in_rule: name for name, name_in_rule in reversed(canonical.items())}
    weights = {
        name: values[name_in_rule] if name == first[name_in_rule] else values[name_in_rule].clone()
        for name, name_in_rule in canonical.items()
        if name_in_rule in values
    }
    for name_in_rule, numbers in (model.config.official or {}).get(KEPT, {}).items():
        is_full = name_in_rule in skeleton.state_dict()
        name = name_in_rule if is_full else name_in_rule.removeprefix(f"{architecture.prefix}.")
        weights[name] = torch.tensor(numbers, dtype=model.dtype)
    official = assemble(skeleton, weights, model.dtype, attention_of(model))
    if isinstance(official, PreTrainedModel):
        if official.can_generate():
            official.generation_config = copy.deepcopy(model.generation_config)
        official.name_or_path, official.config.name_or_path = "", model.config.name_or_path
    return official.to(model.device)


def kept_in_float32(head: Head) -> set[str]:
    """The modules that the official class holds in float32 where all others are in float16 (T5: `wo`)."""
    return set(getattr(getattr(transformers, head.official, None), "_keep_in_fp32_modules", None) or ())


def untie_what_differs(model: PreTrainedModel) -> bool:
    """Unties the output projection in the configuration if the checkpoint holds a tensor of its own for it.
    Returns whether it did.

    transformers leaves such a projection untied, but would tie it when the vocabulary is resized.
    """
    output, tied = model.get_output_embeddings(), model._tied_weights_keys
    if tied and output is not None and model.config.tie_word_embeddings:
        untied = set(tied) - set(model.all_tied_weights_keys)  # transformers has taken out those that differ
        if any(model.get_parameter(name) is output.weight for name in untied):
            model.config.tie_word_embeddings, model._tied_weights_keys = False, None
            return True
    return False
