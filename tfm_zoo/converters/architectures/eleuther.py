"""GPT-NeoX (Black et al. 2022; Pythia, Biderman et al. 2023) and GPT-J (Wang and Komatsuzaki 2021), of EleutherAI, and
CodeGen (Nijkamp et al. 2022), which is GPT-J with packed queries, keys and values.

Their attention and feed-forward read the same hidden state, and part of each head is rotated.
"""

import math
from dataclasses import dataclass
from typing import Any

from ..architecture import Architecture
from ..config_rules import ConfigRule, Field, Fields, Requires, constants, ignored, same
from ..tensor_rules import Interleaved, NotConverted, Rename, Tensors
from .decoder_family import CONFIG, GENERIC, OLDER, WITHOUT_TOKENS, generic_heads, megatron_block
from .gpt import GPT2, LATER_CONFIG
from .projections import QKV

NEOX_LM_HEAD = Rename("lm_head.weight", "lm_head.weight", also="embed_out.weight")  # its name in files

GPT_NEOX = Architecture(
    model_type="gpt_neox",
    title="GPT-NeoX",
    models=("Pythia",),
    prefix="gpt_neox",
    config=(
        *CONFIG,
        *same("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
        *same("max_position_embeddings", "rope_parameters", "use_cache", "use_parallel_residual", "attention_bias"),
        *same("hidden_dropout", "attention_dropout"),
        Field("layer_norm_eps", "norm_eps"),
        *constants(position_embedding_type="rotary", scaled_residual_init=False),
    ),
    tensors=(
        Rename("embed_in", "embeddings.embed_tokens"),
        *megatron_block("layers.{i}", "attention"),
        Rename("final_layer_norm", "norm"),
        NotConverted("layers.{i}.attention.bias"),  # the causal mask
        NotConverted("layers.{i}.attention.masked_bias"),
        NotConverted("layers.{i}.attention.rotary_emb.inv_freq"),
    ),
    heads=generic_heads("GPTNeoX", rules=OLDER | {"ForCausalLM": (NEOX_LM_HEAD,)}),
    tokenizer="GPTNeoXTokenizer",
)


@dataclass(frozen=True)
class RotaryDim(ConfigRule):
    """How many channels of each head are rotated: a number in official configurations, a share in the zoo's."""

    zoo = "rope_parameters"

    def to_zoo(self, official: Fields, zoo: Fields) -> dict[str, Any]:
        width = official["n_embd"] // official["n_head"]
        share = official["rotary_dim"] / width
        if int(width * share) < official["rotary_dim"]:  # the share was rounded down, which would lose a channel
            share = math.nextafter(share, 1.0)
        return {self.zoo: {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share}}

    def to_official(self, zoo: Fields, official: Fields) -> dict[str, Any]:
        parameters = zoo.get(self.zoo) or {}
        return {"rotary_dim": int(parameters.get("partial_rotary_factor", 1.0) * zoo["head_dim"])}


@dataclass(frozen=True)
class InFourBlocks(Interleaved):
    """Queries, values and keys in this order, of a quarter of the heads in each of four blocks; rotated channels of
    queries and keys form pairs side by side."""

    def to_zoo(self, tensors: Tensors) -> Tensors:
        blocks = tensors[0].unflatten(0, (4, 3, -1))
        query, value, key = (blocks[:, part].flatten(0, 1).clone() for part in range(3))
        return [*super().to_zoo([query]), *super().to_zoo([key]), value]

    def to_official(self, tensors: Tensors) -> Tensors:
        import torch

        query, key, value = tensors
        parts = (*super().to_official([query]), value, *super().to_official([key]))
        return [torch.stack([part.unflatten(0, (4, -1)) for part in parts], dim=1).flatten(0, 2)]


GPTJ = Architecture(
    model_type="gptj",
    title="GPT-J",
    prefix="transformer",
    config=(
        *LATER_CONFIG,
        *constants(position_embedding_type="rotary", use_parallel_residual=True, num_ln_in_parallel_attn=1),
        *constants(attention_bias=False, lm_head_bias=True, scaled_residual_init=False),
        RotaryDim(),
        Requires("rotary_dim", lambda count: count is not None, "a number of channels"),
    ),
    tensors=(
        Interleaved("h.{i}.attn.q_proj", "layers.{i}.self_attn.q_proj"),
        Interleaved("h.{i}.attn.k_proj", "layers.{i}.self_attn.k_proj"),
        Rename("h.{i}.attn.v_proj", "layers.{i}.self_attn.v_proj"),
        Rename("h.{i}.attn.out_proj", "layers.{i}.self_attn.o_proj"),
        Rename("h.{i}.mlp.fc_in", "layers.{i}.mlp.up_proj"),
        Rename("h.{i}.mlp.fc_out", "layers.{i}.mlp.down_proj"),
        NotConverted("h.{i}.attn.embed_positions"),
        *GPT2.tensors,
    ),
    heads=generic_heads("GPTJ", WITHOUT_TOKENS, GENERIC | {"ForCausalLM": (Rename("lm_head", "lm_head"),)}),
    tokenizer="GPT2Tokenizer",
)
CODEGEN = Architecture(
    model_type="codegen",
    title="CodeGen",
    prefix="transformer",
    config=(
        *GPTJ.config,
        Requires("n_head", lambda count: count % 4 == 0, "a multiple of 4"),
        *ignored("n_ctx"),
    ),
    tensors=(InFourBlocks("h.{i}.attn.qkv_proj", QKV), *GPTJ.tensors),
    heads=generic_heads(
        "CodeGen", ("Model", "ForCausalLM"), GENERIC | {"ForCausalLM": (Rename("lm_head", "lm_head"),)}
    ),
    tokenizer="GPT2Tokenizer",
)
