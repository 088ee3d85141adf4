"""GPT-2 (Radford et al. 2019), and the first OpenAI GPT (Radford et al. 2018), whose blocks have the same names."""

from ..architecture import Architecture, Head
from ..config_rules import Computed, Field, Fields, choice, constants, ignored, only, same
from ..tensor_rules import NotConverted, Rename, Split, Transpose
from .decoder_family import CONFIG as DECODER_CONFIG
from .decoder_family import LM_HEAD, OLDER, generic_heads
from .projections import QKV

CONFIG = (
    *DECODER_CONFIG,
    Field("n_embd", "hidden_size"),
    Field("n_layer", "num_hidden_layers"),
    Field("n_head", "num_attention_heads"),
    Field("n_positions", "max_position_embeddings"),
    Field("resid_pdrop", "hidden_dropout"),
    Field("embd_pdrop", "embedding_dropout"),
    Field("attn_pdrop", "attention_dropout"),
    Field("layer_norm_epsilon", "norm_eps"),
    *constants(token_types_as_tokens=True),
    # of a head that the zoo has not, and of rounding
    *ignored("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels"),
    *ignored("summary_first_dropout", "reorder_and_upcast_attn"),
)
BLOCK = (
    Rename("h.{i}.ln_1", "layers.{i}.self_attn_norm"),
    Split("h.{i}.attn.c_attn", QKV, transposed=True),
    Transpose("h.{i}.attn.c_proj", "layers.{i}.self_attn.o_proj"),
    Rename("h.{i}.ln_2", "layers.{i}.mlp_norm"),
    Transpose("h.{i}.mlp.c_fc", "layers.{i}.mlp.up_proj"),
    Transpose("h.{i}.mlp.c_proj", "layers.{i}.mlp.down_proj"),
    NotConverted("h.{i}.attn.bias"),  # the causal mask
    NotConverted("h.{i}.attn.masked_bias"),  # what a masked score was set to
)


def intermediate_size(official: Fields) -> int:
    width = official.get("n_inner")
    return 4 * official["n_embd"] if width is None else width


#: for all but the first GPT
LATER_CONFIG = (
    *CONFIG,
    *same("use_cache"),
    Field("activation_function", "hidden_act"),
    Computed("intermediate_size", intermediate_size, lambda width: {"n_inner": width}),
)


def attention_scale(official: Fields) -> float:
    """What scores are multiplied by."""
    is_scaled = official.get("scale_attn_weights", True)
    return (official["n_embd"] // official["n_head"]) ** -0.5 if is_scaled else 1.0


SCALE = Computed("attention_scale", attention_scale, lambda scale: {"scale_attn_weights": scale != 1.0})


def heads(name: str, *kinds: str) -> tuple[Head, ...]:
    """The base model, the language model, which has a name of its own, and the heads of other kinds."""
    language_model = Head(f"{name}LMHeadModel", "TfmGPTForCausalLM", (LM_HEAD,))
    return generic_heads(name, ("Model", language_model, *kinds), OLDER)


GPT2 = Architecture(
    model_type="gpt2",
    title="GPT-2",
    prefix="transformer",
    config=(
        *LATER_CONFIG,
        SCALE,
        *same("scale_attn_by_inverse_layer_idx"),
        *only(add_cross_attention=False),
    ),
    tensors=(
        Rename("wte", "embeddings.embed_tokens"),
        Rename("wpe", "embeddings.embed_positions"),
        *BLOCK,
        Rename("ln_f", "norm"),
    ),
    heads=heads("GPT2", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"),
    tokenizer="GPT2Tokenizer",
)

#: the first GPT's names for its activations -> the zoo's. Its "gelu" is what others call "gelu_new".
ACTIVATIONS = {"swish": "silu", "gelu": "gelu_new", "relu": "relu", "silu": "silu"}

OPENAI_GPT = Architecture(
    model_type="openai-gpt",
    title="OpenAI GPT",
    prefix="transformer",
    config=(
        *CONFIG,
        *choice("afn", "hidden_act", ACTIVATIONS, "gelu"),
        *constants(norm_position="post", scaled_residual_init=False),
        *constants(intermediate_size=lambda zoo: 4 * zoo["hidden_size"]),
    ),
    tensors=(
        Rename("tokens_embed", "embeddings.embed_tokens"),
        Rename("positions_embed", "embeddings.embed_positions"),
        *BLOCK,
    ),
    heads=heads("OpenAIGPT", "ForSequenceClassification"),
    tokenizer="OpenAIGPTTokenizer",
)
