"""What `tfm_zoo` changes in another library while it runs: each change stands here, and says why.

(What other libraries print is a matter of `quiet.py`.)
"""

from collections.abc import Callable
from functools import wraps
from types import ModuleType

import torch
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from ..families.auto_classes import FAMILIES
from ..hub.adapters import check_base
from ..inference.packing.linear import is_packed, refuse_conversion, refuse_resizing
from ..models.modeling_tfm_encoder_decoder import (
    TfmEncoderDecoderConfig,
    TfmEncoderDecoderEncoder,
    TfmEncoderDecoderPreTrainedModel,
)
from ..utils.importing import when_imported


def add_classes_to_transformers() -> None:
    """Makes every zoo class an attribute of `transformers`.

    `transformers serve` takes the class of a checkpoint from `getattr(transformers, config.architectures[0])`. It does
    not ask the Auto classes, where the zoo's classes are registered, and has no other place to register them.
    """
    import transformers  # as it is now: its command may have put another module in its place

    for module, config_class in FAMILIES.items():
        for name in (*config_class.auto_classes.values(), *config_class.other_auto_classes):
            setattr(transformers, name, getattr(module, name))


def add_names_to_transformers() -> None:
    """Puts the decoder and the encoder-decoder into transformers' tables of names, which tools ask for what a model is.

    `Trainer` shifts labels for `label_smoothing_factor` if a class stands among the causal language models there, and
    lm-eval takes a model for an encoder-decoder if its type does.
    """
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["tfm_gpt"] = "TfmGPTForCausalLM"
    encoder_decoders = modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    encoder_decoders["tfm_encoder_decoder"] = "TfmEncoderDecoderForConditionalGeneration"


def add_tasks_to_transformers(tasks: dict[str, tuple[type, type]]) -> dict[str, str]:
    """Adds the tasks that transformers 5 removed to its table of pipelines, under names with `tfm_zoo:` before them.

    `transformers.pipeline` loads models and tokenizers by that table, and knows how to for every kind of checkpoint.
    It refuses the names that it has removed.

    Args:
        tasks: names that users know -> the class of the pipeline, and the Auto class of its model.

    Returns:
        The names in the table, by those that users know.
    """
    from transformers.pipelines import PIPELINE_REGISTRY

    for name, (pipeline_class, auto_class) in tasks.items():
        entry = {"impl": pipeline_class, "pt": (auto_class,), "type": "text"}
        PIPELINE_REGISTRY.supported_tasks.setdefault(f"tfm_zoo:{name}", entry)
    return {name: f"tfm_zoo:{name}" for name in tasks}


def add_types_to_peft() -> None:
    """Puts the zoo's model types into PEFT's tables of the modules that adapt a model, now or when PEFT is imported.

    Without an entry there every configuration of PEFT has to name its `target_modules`. PEFT has no place to register a
    type.
    """
    when_imported("peft.utils.constants", add_types_to_tables)


def add_types_to_tables(constants: ModuleType) -> None:
    """Gives the zoo's types the entries of LLaMA, whose projections have the same names; its norms have others."""
    for name, table in vars(constants).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and "llama" in table and "LNTUNING" not in name:
            table.update(dict.fromkeys((config.model_type for config in FAMILIES.values()), table["llama"]))


def read_encoders_alone() -> None:
    """Makes sentence-transformers read the encoder alone where it does of the official class, now or when it is
    imported: of T5, for one. It goes by the configuration's class, and has no place to register one."""
    when_imported("sentence_transformers.base.modules.transformer", read_encoders_alone_in)


def read_encoders_alone_in(transformer: ModuleType) -> None:
    load = getattr(transformer.Transformer, "_load_encoder_only_model", None)
    if load is None:  # in another release: then the model asks for a target, and says what to convert
        return

    @wraps(load)
    def loaded(self, model_name_or_path, config, **kwargs):
        if isinstance(config, TfmEncoderDecoderConfig) and not config.reads_source_again:
            return TfmEncoderDecoderEncoder.from_pretrained(model_name_or_path, config=config, **kwargs)
        return load(self, model_name_or_path, config, **kwargs)

    transformer.Transformer._load_encoder_only_model = loaded


def place_tied_modules() -> None:
    """Lets `device_map="auto"` place the parts of a language model whose embeddings are tied.

    transformers and Accelerate ask whether `name + "."` stands in the name of a tied weight. So they take `head` for a
    part of `lm_head`. They fail then, since the module with the other weight has its place already.
    """
    for name in ("transformers.integrations.accelerate", "accelerate.utils.modeling"):
        when_imported(name, place_tied_modules_in)


def place_tied_modules_in(library: ModuleType) -> None:
    """Leaves out weights whose modules have their place."""
    measure = library.get_module_size_with_ties

    @wraps(measure)
    def measured(tied_params, module_size, module_sizes, modules_to_treat):
        waiting = tuple(f"{name}." for name, _ in modules_to_treat)
        tied = [each for each in tied_params if each.startswith(waiting)]
        return measure(tied, module_size, module_sizes, modules_to_treat)

    library.get_module_size_with_ties = measured


def ask_for_bases() -> None:
    """Makes PEFT refuse a new adapter whose base nobody would find again, now or when PEFT is imported.

    PEFT notes the name of the base and asks nobody. A trainer that calls it would save such an adapter for the first
    time after hours of training, and its base would be lost.
    """
    when_imported("peft.peft_model", ask_for_bases_in)


def ask_for_bases_in(peft_model: ModuleType) -> None:
    """Checks the base of every adapter that is made, and not of those that are loaded."""
    initialise = peft_model.PeftModel.__init__

    @wraps(initialise)
    def checked(self, model, peft_config, *args, **kwargs):
        if not (peft_config.base_model_name_or_path or peft_config.inference_mode):
            check_base(model)
        initialise(self, model, peft_config, *args, **kwargs)

    peft_model.PeftModel.__init__ = checked


def refuse_to_change_packed_models() -> None:
    """Makes a model with packed weights refuse another type, device or vocabulary before anything of it is changed.

    torch and transformers change one tensor after another. They would not find those that are packed, and would leave
    a model whose parts do not fit.
    """
    checks = {
        (PreTrainedModel, "_apply"): lambda model, change, recurse=True: refuse_conversion(model, change),
        (PreTrainedModel, "half"): lambda model: refuse_conversion(model, torch.Tensor.half),
        (PreTrainedModel, "float"): lambda model: refuse_conversion(model, torch.Tensor.float),
        (PreTrainedModel, "resize_token_embeddings"): refuse_resizing,
        (TfmEncoderDecoderPreTrainedModel, "resize_decoder_token_embeddings"): refuse_resizing,
    }
    for (owner, name), check in checks.items():
        setattr(owner, name, checked_if_packed(getattr(owner, name), check))


def checked_if_packed(method: Callable, check: Callable) -> Callable:
    """The method of a model; of a packed one, after `check` of the same arguments."""

    @wraps(method)
    def checked(self, *args, **kwargs):
        if is_packed(self):
            check(self, *args, **kwargs)
        return method(self, *args, **kwargs)

    return checked
