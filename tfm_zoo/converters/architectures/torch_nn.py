"""`nn.TransformerEncoder`, `nn.TransformerDecoder` and `nn.Transformer`: blocks without embeddings, which read
`inputs_embeds`."""

from ..architecture import Architecture, Head
from ..config_rules import Constant, Field, Free, Requires, constants, same
from ..tensor_rules import Rename, Split, TensorRule, ZooOnly

#: the activations that both sides have: names in `torch.nn.functional` -> names in `torch.nn`
ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "silu": "SiLU"}
CONFIG = (
    *same("norm_position", "final_norm", "hidden_dropout", "attention_dropout", "attention_output_dropout"),
    Field("d_model", "hidden_size"),
    Field("num_layers", "num_hidden_layers"),
    Field("nhead", "num_attention_heads"),
    Field("dim_feedforward", "intermediate_size"),
    Field("activation", "hidden_act"),
    Requires("activation", ACTIVATIONS.__contains__, " or ".join(ACTIVATIONS)),
    Field("layer_norm_eps", "norm_eps"),
    Field("dropout", "activation_dropout"),
    *constants(vocab_size=1, position_embedding_type="none"),
    *(Constant(f"{token}_token_id", None) for token in ("pad", "bos", "eos")),
    *map(Free, ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")),
    *map(Free, ("max_position_embeddings", "tie_word_embeddings")),
)
EMBEDDINGS = tuple(
    ZooOnly(zoo=f"embeddings.{name}") for name in ("embed_tokens", "embed_positions", "embed_token_types", "norm")
)


def attention(official: str, zoo: str) -> tuple[TensorRule, ...]:
    parts = tuple(f"layers.{{i}}.{zoo}.{part}_proj.{{w}}" for part in "qkv")
    return (
        Split(f"layers.{{i}}.{official}.in_proj_{{w}}", parts),  # weight and bias
        Rename(f"layers.{{i}}.{official}.out_proj", f"layers.{{i}}.{zoo}.o_proj"),
    )


BLOCK = (
    *attention("self_attn", "self_attn"),
    Rename("layers.{i}.norm1", "layers.{i}.self_attn_norm"),
    Rename("layers.{i}.linear1", "layers.{i}.mlp.up_proj"),
    Rename("layers.{i}.linear2", "layers.{i}.mlp.down_proj"),
    Rename("norm", "norm"),
)
ENCODER = (*BLOCK, Rename("layers.{i}.norm2", "layers.{i}.mlp_norm"), *EMBEDDINGS)
DECODER = (
    *BLOCK,
    *attention("multihead_attn", "encoder_attn"),
    Rename("layers.{i}.norm2", "layers.{i}.encoder_attn_norm"),
    Rename("layers.{i}.norm3", "layers.{i}.mlp_norm"),
    *EMBEDDINGS,
)

TORCH_ENCODER = Architecture(
    model_type="TransformerEncoder",
    title="nn.TransformerEncoder",
    library="torch",
    prefix="encoder",
    config=(*CONFIG, *constants(type_vocab_size=0, embedding_norm=False, add_pooling_layer=False)),
    tensors=ENCODER,
    heads=(Head("TransformerEncoder", "TfmBertModel"),),
)
DECODER_CONFIG = (
    Constant("decoder_start_token_id", None),
    *map(Free, ("decoder_vocab_size", "share_encoder_decoder_embeddings", "scale_embedding")),
    *map(Free, ("decoder_start_token_id", "start_with_last_token")),
)
TORCH_DECODER = Architecture(
    model_type="TransformerDecoder",
    title="nn.TransformerDecoder",
    library="torch",
    prefix="decoder",
    config=(*CONFIG, *DECODER_CONFIG, Field("num_layers", "decoder_layers")),
    tensors=DECODER,
    heads=(Head("TransformerDecoder", "TfmEncoderDecoderDecoder"),),
)
TORCH_TRANSFORMER = Architecture(
    model_type="Transformer",
    title="nn.Transformer",
    library="torch",
    prefix="model",
    config=(*CONFIG, *DECODER_CONFIG, Field("num_decoder_layers", "decoder_layers")),
    tensors=(
        *(rule.under("encoder", "encoder") for rule in ENCODER),
        *(rule.under("decoder", "decoder") for rule in DECODER),
    ),
    heads=(Head("Transformer", "TfmEncoderDecoderModel"),),
)
