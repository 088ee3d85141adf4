"""Configuration of the encoder-decoder family."""

import copy
from typing import ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_tfm import ALIASES, TfmConfig, add_following_fields

STACKS = ("encoder", "decoder")


@strict
class TfmEncoderDecoderConfig(TfmConfig):
    """Configuration of the encoder-decoder family. The defaults are the base model of *Attention Is All You Need*.

    Args (beyond those of [`TfmConfig`], where `vocab_size` and `num_hidden_layers` are the encoder's):
        encoder_layers: another name of `num_hidden_layers`: number of blocks of the encoder.
        decoder_layers: number of blocks of the decoder. `None`: as many as the encoder's.
        decoder_attention_heads: number of query heads of the decoder, in self- and in cross-attention. Their
            total width, and how many of them share a key head, are the encoder's. `None`: as many as the encoder's.
        decoder_ffn_dim: width inside the decoder's feed-forward. `None`: as the encoder's, `intermediate_size`.
        decoder_vocab_size: number of tokens in the target's vocabulary. `None`: `vocab_size`.
        share_encoder_decoder_embeddings: whether source and target share one embedding. `None`: if their vocabularies
            have the same size. (`tie_word_embeddings` ties the output projection to the target's embedding.)
        decoder_start_token_id: the decoder's first input, which precedes the target (in training, the labels).
        start_with_last_token: start with the last real token of the labels, and not with `decoder_start_token_id`: the
            language of the target (mBART) or the end of the sentence (FSMT).
        position_ids_from_padding: count positions from `pad_token_id + 1` over real tokens (FSMT).
        position_offset: rows of the learned position table before that of the first position (BART: 2).
        lm_head_bias: a trained bias in the output projection.
        final_logits_bias: an untrained bias in its place, saved as the buffer `lm_head.bias` (Marian, BART).
        logit_scale: what logits, but not their bias, are multiplied by (T5: `hidden_size ** -0.5`).
        final_logit_softcapping: a soft cap: logits become `cap * tanh(logits / cap)` (Gemma 2).
        weight_init: initial weights: `"xavier"`, uniform (Glorot and Bengio 2010), with embeddings from a normal
            distribution of standard deviation `hidden_size ** -0.5`; or `"normal"`, all of them with standard
            deviation `initializer_range`.
        classifier_dropout: dropout in the classification head.
        use_cache: whether a forward pass in evaluation mode returns its keys and values.
        skip_padding: compute no padding in the encoder (see [`TfmBertConfig`]) and, where there are labels, nothing
            after the end of a target, where logits are zero.
    """

    model_type = "tfm_encoder_decoder"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]
    modeling_file: ClassVar[str] = "modeling_tfm_encoder_decoder"
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "TfmEncoderDecoderConfig",
        "AutoModel": "TfmEncoderDecoderModel",
        "AutoModelForSeq2SeqLM": "TfmEncoderDecoderForConditionalGeneration",
        "AutoModelForSequenceClassification": "TfmEncoderDecoderForSequenceClassification",
        "AutoModelForTokenClassification": "TfmEncoderDecoderForTokenClassification",
        "AutoModelForQuestionAnswering": "TfmEncoderDecoderForQuestionAnswering",
        "AutoModelForTextEncoding": "TfmEncoderDecoderEncoder",
    }

    attribute_map: ClassVar[dict[str, str]] = ALIASES | {
        "encoder_attention_heads": "num_attention_heads",
        "encoder_ffn_dim": "intermediate_size",
        "src_vocab_size": "vocab_size",
        "tgt_vocab_size": "decoder_vocab_size",
        "encoder_layers": "num_hidden_layers",
        **dict.fromkeys(("decoder_num_hidden_layers", "num_decoder_layers"), "decoder_layers"),
    }
    base_model_fsdp_plan: ClassVar[dict[str, str]] = {
        f"{stack}.{part}": "free_full_weight" for stack in STACKS for part in ("embeddings", "layers.*")
    }

    base_model_pp_plan: ClassVar[None] = None  # two stacks in a row, which no engine divides

    vocab_size: int = 37000
    hidden_size: int = 512
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    hidden_act: str = "relu"
    attention_dropout: float | int = 0.0
    scale_embedding: bool = True
    max_position_embeddings: int = 1024
    position_embedding_type: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] = "sinusoidal"
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    is_encoder_decoder: bool = True

    decoder_layers: int | None = None
    decoder_attention_heads: int | None = None
    decoder_ffn_dim: int | None = None
    decoder_vocab_size: int | None = None
    share_encoder_decoder_embeddings: bool | None = None
    decoder_start_token_id: int | None = 1
    start_with_last_token: bool = False
    position_ids_from_padding: bool = False
    position_offset: int = 0
    lm_head_bias: bool = False
    final_logits_bias: bool = False
    logit_scale: float | int = 1.0
    final_logit_softcapping: float | int | None = None
    weight_init: Literal["xavier", "normal"] = "xavier"
    classifier_dropout: float | int = 0.0
    use_cache: bool = True
    skip_padding: bool = True

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        plan = self.base_model_tp_plan
        cross = {name.replace("self_attn", "encoder_attn"): style for name, style in plan.items()}
        self.base_model_tp_plan = {f"encoder.{name}": style for name, style in plan.items()} | {
            f"decoder.{name}": style for name, style in (plan | cross).items()
        }

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None):
        """The configuration for transformers' caches and generation: for the decoder, a copy with its sizes."""
        if encoder or not decoder:
            return self
        config, heads = copy.copy(self), self.decoder_attention_heads
        is_default = self.attention_scale == type(self).attention_scale.rule(self)
        vars(config).update(  # without the checks that setting a field makes
            num_hidden_layers=self.decoder_layers,
            vocab_size=self.decoder_vocab_size,
            intermediate_size=self.decoder_ffn_dim,
            num_attention_heads=heads,
            num_key_value_heads=heads * self.num_key_value_heads // self.num_attention_heads,
            head_dim=self.head_dim * self.num_attention_heads // heads,
            attention_scale=None if is_default else self.attention_scale,
            layer_types=self.decoder_layer_types,
            share_encoder_decoder_embeddings=self.share_encoder_decoder_embeddings,
        )
        return config

    @property
    def decoder_layer_types(self) -> list[str]:
        """The kind of self-attention of each of the decoder's layers."""
        return [self.layer_type] * self.decoder_layers

    def validate_encoder_decoder(self):
        """The family's own fields fit each other."""
        for name in ("decoder_layers", "decoder_vocab_size", "decoder_attention_heads", "decoder_ffn_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1.")
        self.check_decoder_heads()
        if self.use_parallel_residual:
            raise ValueError(
                "use_parallel_residual=True has no meaning with cross-attention, which reads what attention added."
            )
        if 0 in self.no_rope_layers:
            raise ValueError(f"no_rope_layers={self.no_rope_layers} names the layers of one stack, and there are two.")
        if self.lm_head_bias and self.final_logits_bias:
            raise ValueError(
                "lm_head_bias=True gives the output projection a trained bias, and final_logits_bias=True an "
                "untrained one: choose one of the two."
            )
        if self.share_encoder_decoder_embeddings and self.decoder_vocab_size != self.vocab_size:
            raise ValueError(
                f"share_encoder_decoder_embeddings=True has one embedding for vocab_size={self.vocab_size} and "
                f"decoder_vocab_size={self.decoder_vocab_size}: make them equal, or the field False."
            )
        for name in ("pad_token_id", "decoder_start_token_id"):
            token = getattr(self, name)
            if token is not None and not 0 <= token < self.decoder_vocab_size:
                raise ValueError(
                    f"{name}={token} is outside the target's vocabulary, 0 to {self.decoder_vocab_size - 1}."
                )
        if self.position_ids_from_padding:
            self.check_counting()
        self.check_offset()

    def check_decoder_heads(self):
        """The decoder's heads fit the encoder's."""
        heads, width = self.decoder_attention_heads, self.num_attention_heads * self.head_dim
        group = self.num_attention_heads // self.num_key_value_heads
        pairs = 2 if self.position_embedding_type == "rotary" else 1
        if width % (heads * pairs) or heads % group:
            even = " of even width" if pairs == 2 else ""
            raise ValueError(
                f"decoder_attention_heads={heads} should divide {width}, the width of the encoder's heads together, "
                f"into equal heads{even}, and be a multiple of {group}, the query heads that share a key."
            )

    def check_counting(self):
        """The other fields fit `position_ids_from_padding`."""
        if self.pad_token_id is None:
            raise ValueError(
                "position_ids_from_padding=True counts from pad_token_id + 1: pad_token_id=None should be an id."
            )
        if self.position_offset:
            raise ValueError(
                f"position_ids_from_padding=True and position_offset={self.position_offset} are two ways to begin "
                "after the first row of the position table: choose one of them."
            )
        if self.position_embedding_type == "learned" and self.pad_token_id >= self.max_position_embeddings - 1:
            raise ValueError(
                f"position_ids_from_padding=True counts from pad_token_id + 1, and pad_token_id={self.pad_token_id} "
                f"leaves no position of max_position_embeddings={self.max_position_embeddings}."
            )


add_following_fields(
    TfmEncoderDecoderConfig,
    decoder_layers=lambda config: config.num_hidden_layers,
    decoder_attention_heads=lambda config: config.num_attention_heads,
    decoder_ffn_dim=lambda config: config.intermediate_size,
    decoder_vocab_size=lambda config: config.vocab_size,
    share_encoder_decoder_embeddings=lambda config: config.decoder_vocab_size == config.vocab_size,
)
