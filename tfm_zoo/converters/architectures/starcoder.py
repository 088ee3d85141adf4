"""GPT-BigCode (SantaCoder and StarCoder, Li et al. 2023) and StarCoder2 (Lozhkov et al. 2024).

The first is GPT-2 with one key-value head, the second LLaMA with LayerNorm, biases and a dense feed-forward.
"""

from ..architecture import Architecture
from ..config_rules import Computed, Field, constants, ignored, only, same
from ..tensor_rules import NotConverted, Rename, SplitHeads
from .decoder_family import OLDER, WITHOUT_ANSWERS, generic_heads
from .gpt import GPT2, LATER_CONFIG, SCALE
from .llama import TENSORS, llama
from .projections import QKV

GPT_BIGCODE = Architecture(
    model_type="gpt_bigcode",
    title="GPT-BigCode",
    prefix="transformer",
    config=(
        *LATER_CONFIG,
        Computed(
            "num_key_value_heads",
            lambda official: 1 if official.get("multi_query", True) else official["n_head"],
            lambda heads: {"multi_query": heads == 1},
        ),
        *constants(scaled_residual_init=True),
        SCALE,
        *only(add_cross_attention=False),
        *ignored("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"),
    ),
    tensors=(
        SplitHeads("h.{i}.attn.c_attn", QKV, by_group=True),
        Rename("h.{i}.attn.c_proj", "layers.{i}.self_attn.o_proj"),
        Rename("h.{i}.mlp.c_fc", "layers.{i}.mlp.up_proj"),
        Rename("h.{i}.mlp.c_proj", "layers.{i}.mlp.down_proj"),
        NotConverted("bias"),  # the causal mask
        *GPT2.tensors,
    ),
    heads=generic_heads("GPTBigCode", WITHOUT_ANSWERS, OLDER),
    tokenizer="GPT2Tokenizer",
)
STARCODER2 = llama(
    *("starcoder2", "StarCoder2", "Starcoder2"),
    *same("sliding_window", "embedding_dropout"),
    Field("norm_epsilon", "norm_eps"),
    Field("residual_dropout", "hidden_dropout"),
    Field("use_bias", "attention_bias"),
    Field("use_bias", "mlp_bias"),
    *constants(norm_type="layernorm", mlp_type="dense"),
    tensors=(
        Rename("layers.{i}.mlp.c_fc", "layers.{i}.mlp.up_proj"),
        Rename("layers.{i}.mlp.c_proj", "layers.{i}.mlp.down_proj"),
        *TENSORS,
    ),
    heads=WITHOUT_ANSWERS,
    tokenizer="GPT2Tokenizer",
)
