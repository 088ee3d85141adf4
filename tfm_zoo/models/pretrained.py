"""The base of all models: what transformers needs to know for loading, saving, initialisation and attention."""

from inspect import signature

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.quantizers import AutoHfQuantizer

from .layers import TfmAttention, TfmLayer, TfmZeroCenteredLayerNorm, TfmZeroCenteredRMSNorm
from .positions import TfmConstants


class TfmPreTrainedModel(PreTrainedModel):
    """Base of the families' base classes. (Where there is `tfm_zoo`, its `plugin/registration.py` adds methods.)"""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TfmEmbeddings", "TfmLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": TfmLayer, "attentions": TfmAttention}
    #: pattern of a tensor's name in earlier versions or in other heads -> its name here; not inherited
    other_names: dict[str, str] = {}
    #: fields of the configuration that this class reads, and not every class of its family
    head_fields: tuple[str, ...] = ()

    def __init__(self, config, *inputs, **kwargs):
        given, expected = getattr(config, "model_type", None), self.config_class
        if given != expected.model_type:  # not by class: a checkpoint's own code defines another class
            found = f"a {type(config).__name__} of type {given!r}"
            raise ValueError(f"{type(self).__name__} is made from a {expected.__name__}, not from {found}.")
        config.validate_fields()
        quantization = getattr(config, "quantization_config", None)
        if isinstance(quantization, dict) and not AutoHfQuantizer.supports_quant_method(quantization):
            # transformers would go on, and take rounded numbers for weights.
            method = quantization["quant_method"]
            raise ValueError(f"The checkpoint's weights are quantised or packed: import {method} before you load it.")
        super().__init__(config, *inputs, **kwargs)

    @property
    def accepts_loss_kwargs(self) -> bool:
        """Whether `forward` divides its loss by the labels of a whole optimizer step, if the Trainer counts them."""
        return "num_items_in_batch" in signature(self.forward).parameters

    @property
    def _supports_sdpa(self) -> bool:
        """Whether the model can use torch's attention, which has no soft cap."""
        return self.config.attn_logit_softcapping is None

    @property
    def _is_stateful(self) -> bool:
        """Whether the cache cannot be shortened, which assisted generation would need to reject candidates."""
        return self.config.has_linear_attention

    def init_parallel_plans(self) -> None:
        """Shards token embeddings too, as transformers does in its own models. (Serving engines' plans lack them.)"""
        super().init_parallel_plans()
        if self.base_model is self:
            tables = [name for name, _ in self.named_modules() if name.endswith("embeddings.embed_tokens")]
            self._tp_plan = dict.fromkeys(tables, "embedding_rowwise") | self._tp_plan

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, TfmConstants):
            module.reset_parameters()
        elif isinstance(module, TfmZeroCenteredLayerNorm | TfmZeroCenteredRMSNorm):
            init.zeros_(module.weight)

    @classmethod
    def from_pretrained(cls, *args, key_mapping: dict[str, str] | None = None, **kwargs):
        """As in transformers; tensors are found under their `other_names`, too."""
        names, wants_info = vars(cls).get("other_names", {}), kwargs.pop("output_loading_info", False)
        options = kwargs | {"key_mapping": (key_mapping or {}) | names, "output_loading_info": True}
        model, info = super().from_pretrained(*args, **options)
        rounded = next((name for name in info["unexpected_keys"] if name.endswith(".weight_scales")), None)
        if rounded and not getattr(model, "is_quantized", False):
            raise ValueError(
                f"The checkpoint holds {rounded}, so that its weights are packed, and quantization_config=None or a "
                "configuration without it hides that: leave both out."
            )
        used = getattr(model, "_weight_conversions", None) or []
        # Saving would reverse these, and write the other names.
        model._weight_conversions = [rule for rule in used if rule.source_patterns[0] not in names]
        check_shards(model.config, model.tp_size or 1)
        return (model, info) if wants_info else model


def check_shards(config, processes: int) -> None:
    """Raises a `ValueError` where the processes of tensor parallelism would hold parts of a key or value head."""
    divides = any(style == "colwise" and name.endswith("k_proj") for name, style in config.base_model_tp_plan.items())
    for sizes in (config, config.get_text_config(decoder=True)):
        if divides and sizes.num_key_value_heads % processes:
            heads = f"num_key_value_heads={sizes.num_key_value_heads}"
            raise ValueError(f"{heads} should be a multiple of tp_size={processes}, the processes that share them.")
