"""T5 (Raffel et al. 2020) with its later version flan-T5, mT5 (Xue et al. 2021) and umT5 (Chung et al. 2023)."""

from typing import Any

from ..architecture import Architecture, Head
from ..config_rules import Computed, ConfigRule, Field, Fields, Free, constants, ignored, only, same
from ..tensor_rules import NotConverted, Rename
from .bart import ANSWERS, CLASSIFIER, SHARED_EMBEDDINGS, SIDES
from .decoder_family import LM_HEAD


class FeedForward(ConfigRule):
    """`feed_forward_proj`, such as "relu" or "gated-gelu", and the two official fields that follow from it."""

    zoo = None

    def to_zoo(self, official: Fields, zoo: Fields) -> dict[str, Any]:
        return {"mlp_type": "gated" if official["is_gated_act"] else "dense", "hidden_act": official["dense_act_fn"]}

    def to_official(self, zoo: Fields, official: Fields) -> dict[str, Any]:
        is_gated, act = zoo["mlp_type"] == "gated", zoo["hidden_act"]
        if (official.get("is_gated_act"), official.get("dense_act_fn")) == (is_gated, act):
            return {}
        name = f"gated-{act}" if is_gated else act
        return {"feed_forward_proj": name, "is_gated_act": is_gated, "dense_act_fn": act}


CONFIG = (
    *same("vocab_size", "relative_attention_num_buckets", "relative_attention_max_distance", "classifier_dropout"),
    *same("pad_token_id", "eos_token_id", "use_cache"),
    # A configuration may lack these two.
    Computed("bos_token_id", lambda official: official.get("bos_token_id")),
    Computed("decoder_start_token_id", lambda official: official.get("decoder_start_token_id")),
    Field("d_model", "hidden_size"),
    Field("d_kv", "head_dim"),
    Field("d_ff", "intermediate_size"),
    Field("num_layers", "num_hidden_layers"),
    Field("num_decoder_layers", "decoder_layers"),
    Field("num_heads", "num_attention_heads"),
    Field("layer_norm_epsilon", "norm_eps"),
    *(Field("dropout_rate", f"{name}_dropout") for name in ("hidden", "attention", "activation", "final")),
    FeedForward(),
    *constants(position_embedding_type="none", max_position_embeddings=512, attention_scale=1.0),
    *constants(norm_position="pre", norm_type="rmsnorm", attention_bias=False, mlp_bias=False),
    *constants(scale_embedding=False, train_padding_embedding=True, weight_init="normal"),
    *constants(share_encoder_decoder_embeddings=True, is_encoder_decoder=True),
    Free("max_position_embeddings"),
    # Official configurations say that all is tied. It is, unless a checkpoint holds a projection of its own.
    Computed("tie_word_embeddings", lambda official: True, lambda is_tied: {"tie_word_embeddings": True}),
    Free("tie_word_embeddings"),
    *only(is_decoder=False),
    *ignored("feed_forward_proj", "tie_word_embeddings"),  # other fields follow from the first
)

BLOCK = "block.{i}.layer"
#: a stack's modules: official name -> zoo name; a feed-forward is the last part of a block, after one attention or two
MODULES = {
    "final_layer_norm": "norm",
    f"{BLOCK}.0.SelfAttention.relative_attention_bias": "position_bias.{i}",
    f"{BLOCK}.0.layer_norm": "layers.{i}.self_attn_norm",
    **{f"{BLOCK}.0.SelfAttention.{name}": f"layers.{{i}}.self_attn.{name}_proj" for name in "qkvo"},
}


def feed_forward(side: str, place: int) -> tuple[Rename, ...]:
    official, zoo = f"{side}.{BLOCK}.{place}", f"{side}.layers.{{i}}.mlp"
    inner = f"{official}.DenseReluDense"
    return (
        Rename(f"{official}.layer_norm", f"{zoo}_norm"),
        Rename(f"{inner}.wi", f"{zoo}.up_proj", also=f"{inner}.wi_1"),  # `wi_1`: beside a gate
        Rename(f"{inner}.wi_0", f"{zoo}.gate_proj"),
        Rename(f"{inner}.wo", f"{zoo}.down_proj"),
    )


CROSS, ZOO_CROSS = f"decoder.{BLOCK}.1", "decoder.layers.{i}.encoder_attn"
TENSORS = (
    *SHARED_EMBEDDINGS,
    *(Rename(f"{side}.{official}", f"{side}.{zoo}") for side in SIDES for official, zoo in MODULES.items()),
    *(Rename(f"{CROSS}.EncDecAttention.{name}", f"{ZOO_CROSS}.{name}_proj") for name in "qkvo"),
    Rename(f"{CROSS}.layer_norm", f"{ZOO_CROSS}_norm"),
    *feed_forward("encoder", 1),
    *feed_forward("decoder", 2),
    NotConverted(f"{CROSS}.EncDecAttention.relative_attention_bias"),  # which old files have
)
TOKENS = (Rename("classifier", "classifier"),)


def t5(title: str, *config: ConfigRule) -> Architecture:
    """The table of T5, or of a relative that differs from it by `config`."""
    name = title.upper()
    return Architecture(
        model_type=title.lower(),
        title=title,
        prefix="transformer",
        config=(*CONFIG, *config),
        tensors=TENSORS,
        heads=(
            Head(f"{name}Model", "TfmEncoderDecoderModel"),
            Head(f"{name}ForConditionalGeneration", "TfmEncoderDecoderForConditionalGeneration", (LM_HEAD,)),
            Head(f"{name}ForSequenceClassification", "TfmEncoderDecoderForSequenceClassification", CLASSIFIER),
            Head(f"{name}ForTokenClassification", "TfmEncoderDecoderForTokenClassification", TOKENS),
            Head(f"{name}ForQuestionAnswering", "TfmEncoderDecoderForQuestionAnswering", *ANSWERS),
            Head(f"{name}EncoderModel", "TfmEncoderDecoderEncoder"),
        ),
        encoder_half_class=f"{name}EncoderModel",
        tokenizer="T5Tokenizer",
    )


def scale(official: Fields) -> float:
    """What T5 multiplies hidden states by before it projects them onto its vocabulary; version 1.1 does not."""
    return official["d_model"] ** -0.5 if official.get("scale_decoder_outputs", True) else 1.0


T5 = t5("T5", Computed("logit_scale", scale, lambda factor: {"scale_decoder_outputs": factor != 1}))
MT5 = t5("mT5", *constants(logit_scale=1.0))
#: with a bias in each layer
UMT5 = t5("umT5", *constants(logit_scale=lambda zoo: zoo["hidden_size"] ** -0.5, relative_attention_per_layer=True))
