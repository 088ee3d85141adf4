"""Configuration of the encoder-decoder family."""

import copy
from typing import ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_tfm import ALIASES, Follows, PositionEmbedding, TfmConfig, WriterFields, auto_classes_of

STACKS = ("encoder", "decoder")


@strict
class TfmEncoderDecoderConfig(WriterFields, TfmConfig):
    """Configuration of the encoder-decoder family. The defaults are the base model of *Attention Is All You Need*."""

    model_type = "tfm_encoder_decoder"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache"]
    modeling_file: ClassVar[str] = "modeling_tfm_encoder_decoder"
    auto_classes: ClassVar[dict[str, str]] = auto_classes_of(
        "TfmEncoderDecoder",
        "SequenceClassification TokenClassification QuestionAnswering",
        AutoModelForSeq2SeqLM="TfmEncoderDecoderForConditionalGeneration",
        AutoModelForMaskedLM="TfmEncoderDecoderForConditionalGeneration",  # which denoises, as in BART
        AutoModelForTextEncoding="TfmEncoderDecoderEncoder",
    )
    other_auto_classes: ClassVar[dict[str, str]] = {"TfmEncoderDecoderEncoder": "AutoModel"}
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
    classifier_dropout: float | int = 0.0
    scale_embedding: bool = True
    max_position_embeddings: int = 1024
    position_embedding_type: PositionEmbedding = "sinusoidal"
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    is_encoder_decoder: bool = True
    # The layers of a stack are alike. (A list that says so is accepted.)
    layer_types: ClassVar[list[str]]
    no_rope_layers: ClassVar[list[int]] = Follows(
        lambda config: [1] * max(config.num_hidden_layers, config.decoder_layers)
    )
    token_types_as_tokens: ClassVar[bool]
    use_cache: bool = True  # in evaluation mode a forward pass returns keys and values

    # what two stacks have beside the block
    decoder_layers: int | None = Follows("num_hidden_layers")  # blocks of the decoder
    #: query heads of the decoder, together as wide as the encoder's; as many of them share a key head
    decoder_attention_heads: int | None = Follows("num_attention_heads")
    decoder_ffn_dim: int | None = Follows("intermediate_size")  # width inside its feed-forward
    decoder_vocab_size: int | None = Follows("vocab_size")  # tokens in the target's vocabulary
    #: source and target share one embedding. (`tie_word_embeddings` ties the output projection to the target's)
    share_encoder_decoder_embeddings: bool | None = Follows(
        lambda config: config.decoder_vocab_size == config.vocab_size
    )
    norm_target_tokens: bool = False  # they are not scaled, and normed before positions are added (Blenderbot-small)
    decoder_start_token_id: int | None = 1  # the decoder's first input, which precedes the target
    start_with_last_token: bool = False  # or it is the last of the labels: their language (mBART), their end (FSMT)
    final_logits_bias: bool = False  # untrained, instead of `lm_head_bias`: a saved buffer (Marian, BART)
    #: initial weights: uniform (Glorot and Bengio 2010), with embeddings of standard deviation `hidden_size ** -0.5`;
    #: or all of them with standard deviation `initializer_range`
    weight_init: Literal["xavier", "normal"] = "xavier"

    def tp_plan(self) -> dict[str, str]:
        plan = super().tp_plan()
        cross = {name.replace("self_attn", "encoder_attn"): style for name, style in plan.items()}
        encoder = {f"encoder.{name}": style for name, style in plan.items()}
        return encoder | {f"decoder.{name}": style for name, style in (plan | cross).items()}

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None):
        """The configuration for transformers' caches and generation: for the decoder, a copy with its sizes."""
        if encoder or not decoder:
            return self
        config, heads = copy.copy(self), self.decoder_attention_heads
        vars(config).update(  # without the checks that setting a field makes
            num_hidden_layers=self.decoder_layers,
            layer_types=None,  # (a list that was given is as long as the encoder)
            vocab_size=self.decoder_vocab_size,
            intermediate_size=self.decoder_ffn_dim,
            num_attention_heads=heads,
            num_key_value_heads=heads * self.num_key_value_heads // self.num_attention_heads,
            head_dim=self.head_dim * self.num_attention_heads // heads,
            attention_scale=self.attention_scale if self.is_chosen("attention_scale") else None,
            share_encoder_decoder_embeddings=self.share_encoder_decoder_embeddings,  # the copy's sizes would say yes
        )
        return config

    @property
    def reads_source_again(self) -> bool:
        """Whether the base model takes the source for a target that a caller leaves out, as BART's does. Other official
        ones ask for a target: sentence-transformers, which gives no target, means their encoder alone."""
        official = (self.official or {}).get("model_type")
        return official in (None, "bart", "mbart", "plbart", "mvp", "fsmt")
