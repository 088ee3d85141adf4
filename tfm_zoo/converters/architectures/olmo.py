"""OLMo (Groeneveld et al. 2024), OLMo 2 (Team OLMo 2024) and OLMo 3 (Team OLMo 2025).

OLMo is LLaMA with LayerNorm without weights. OLMo 2 and 3 are LLaMA with norms after each sub-layer, in place of before
it, and norms of queries and keys. OLMo 3 has a window in three of four layers, and rotary positions by type of layer.
"""

from ..config_rules import constants, only, same
from ..tensor_rules import Rename
from .decoder_family import ROTARY_BY_TYPE
from .llama import ALWAYS_A_WINDOW, BODY, HEAD_NORMS, llama

OLMO = (
    *same("attention_bias"),
    *constants(mlp_bias=False, norm_position="output", qk_norm="whole"),
)
TENSORS = (
    *BODY,
    *HEAD_NORMS,
    Rename("layers.{i}.post_attention_layernorm", "layers.{i}.self_attn_output_norm"),
    Rename("layers.{i}.post_feedforward_layernorm", "layers.{i}.mlp_output_norm"),
)
OPTIONS = {
    "tensors": TENSORS,
    "heads": ("Model", "ForCausalLM", "ForSequenceClassification"),
    "tokenizer": "PreTrainedTokenizerFast",
}

OLMO1 = llama(
    *("olmo", "OLMo", "Olmo"),
    *same("attention_bias"),
    *constants(mlp_bias=False, norm_type="plain_layernorm", norm_eps=1e-5),
    *only(clip_qkv=None),
    **OPTIONS | {"tensors": BODY},
)
OLMO2 = llama("olmo2", "OLMo 2", "Olmo2", *OLMO, **OPTIONS)
OLMO3 = llama("olmo3", "OLMo 3", "Olmo3", *OLMO, *same("layer_types"), *ALWAYS_A_WINDOW, ROTARY_BY_TYPE, **OPTIONS)
