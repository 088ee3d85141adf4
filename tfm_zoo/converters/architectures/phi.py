"""Phi 1 and 2 (Gunasekar et al. 2023), with attention beside feed-forward; Phi 3 and 4 (Abdin et al. 2024)."""

from ..architecture import Head
from ..config_rules import Field, Free, choice, constants, ignored, same
from ..tensor_rules import Rename, Split, SplitHeads
from .decoder_family import ROTARY_SHARE
from .llama import FIELDS, TENSORS, llama
from .projections import GATE_UP, QKV

CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")

PHI = llama(
    *("phi", "Phi", "Phi"),
    Field("layer_norm_eps", "norm_eps"),
    Field("resid_pdrop", "hidden_dropout"),
    Field("embd_pdrop", "embedding_dropout"),
    *choice("qk_layernorm", "qk_norm", {True: "head", False: None}, False),
    *constants(norm_type="layernorm", mlp_type="dense", use_parallel_residual=True, num_ln_in_parallel_attn=1),
    *constants(lm_head_bias=True),
    ROTARY_SHARE,
    base=FIELDS,
    tensors=(
        Rename("layers.{i}.self_attn.dense", "layers.{i}.self_attn.o_proj"),
        Rename("layers.{i}.self_attn.q_layernorm", "layers.{i}.self_attn.q_norm"),
        Rename("layers.{i}.self_attn.k_layernorm", "layers.{i}.self_attn.k_norm"),
        Rename("layers.{i}.mlp.fc1", "layers.{i}.mlp.up_proj"),
        Rename("layers.{i}.mlp.fc2", "layers.{i}.mlp.down_proj"),
        Rename("final_layernorm", "norm"),
        *TENSORS,
    ),
    heads=("Model", Head("PhiForCausalLM", "TfmGPTForCausalLM", (Rename("lm_head", "lm_head"),)), *CLASSIFIERS),
    tokenizer="GPT2Tokenizer",
)
#: LLaMA with packed projections
PHI3 = llama(
    *("phi3", "Phi 3", "Phi3"),
    *same("sliding_window"),
    Field("resid_pdrop", "hidden_dropout"),
    *constants(attention_bias=False, mlp_bias=False, embedding_dropout=0.0),
    *ignored("embd_pdrop", "original_max_position_embeddings"),  # a part of `rope_parameters`
    *constants(renew_longrope_cache=lambda zoo: zoo["rope_parameters"]["rope_type"] == "longrope"),
    Free("renew_longrope_cache"),  # models that were converted earlier keep their cache
    models=("Phi 4",),
    base=FIELDS,
    tensors=(
        SplitHeads("layers.{i}.self_attn.qkv_proj", QKV),
        Split("layers.{i}.mlp.gate_up_proj", GATE_UP),
        *TENSORS,
    ),
    heads=("Model", "ForCausalLM", *CLASSIFIERS),
)
