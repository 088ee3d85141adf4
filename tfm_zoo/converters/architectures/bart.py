"""BART (Lewis et al. 2019), and the encoder-decoders that share its code: mBART, PLBart, MVP, Marian, FSMT, M2M100,
Pegasus, Blenderbot and its small model.
"""

from ..architecture import Architecture, Head
from ..config_rules import (
    Computed,
    ConfigRule,
    Field,
    Fields,
    Free,
    LabelCount,
    amended,
    constants,
    ignored,
    only,
    same,
)
from ..tensor_rules import NotConverted, Rename, Row, Sinusoids, TensorRule
from .decoder_family import LM_HEAD

SIDES = ("encoder", "decoder")

CONFIG = (
    *same("decoder_layers", "max_position_embeddings", "attention_dropout", "activation_dropout", "scale_embedding"),
    *same("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "tie_word_embeddings", "use_cache"),
    Field("d_model", "hidden_size"),
    Field("encoder_layers", "num_hidden_layers"),
    Field("encoder_attention_heads", "num_attention_heads"),
    Field("encoder_ffn_dim", "intermediate_size"),
    *same("decoder_attention_heads", "decoder_ffn_dim"),
    Field("activation_function", "hidden_act"),
    Field("dropout", "hidden_dropout"),
    Field("init_std", "initializer_range"),
    *constants(norm_eps=1e-5, weight_init="normal"),
    *only(is_decoder=False, is_encoder_decoder=True),
)
BIASES = ("final_logits_bias", "lm_head_bias")
NO_LAYERDROP = only(encoder_layerdrop=0, decoder_layerdrop=0)
#: for classes whose output projection has an untrained bias. A zoo model with a trained bias can be exported to it,
#: and so can one without a bias, which becomes zeros.
LOGITS_BIAS = (*constants(final_logits_bias=lambda zoo: not zoo.get("lm_head_bias")), *map(Free, BIASES))

ATTENTIONS = [("encoder", "self_attn"), ("decoder", "self_attn"), ("decoder", "encoder_attn")]
ATTENTION = {**{f".{part}_proj": f".{part}_proj" for part in "qkv"}, ".out_proj": ".o_proj", "_layer_norm": "_norm"}
MLP = {"fc1": "mlp.up_proj", "fc2": "mlp.down_proj", "final_layer_norm": "mlp_norm"}
BLOCKS = (
    *(
        Rename(f"{side}.layers.{{i}}.{attention}{official}", f"{side}.layers.{{i}}.{attention}{zoo}")
        for side, attention in ATTENTIONS
        for official, zoo in ATTENTION.items()
    ),
    *(
        Rename(f"{side}.layers.{{i}}.{official}", f"{side}.layers.{{i}}.{zoo}")
        for side in SIDES
        for official, zoo in MLP.items()
    ),
    *(NotConverted(f"{side}.version") for side in SIDES),
)
#: `shared` is the source's embedding, which the target may share. If `encoder.embed_tokens` differs, that one is read.
SHARED_EMBEDDINGS = (
    Rename("shared.weight", "encoder.embeddings.embed_tokens.weight", also="encoder.embed_tokens.weight"),
    Rename("decoder.embed_tokens", "decoder.embeddings.embed_tokens"),
)
SINUSOIDS = tuple(Sinusoids(f"{side}.embed_positions.weight") for side in SIDES)
LANGUAGE_MODEL = (LM_HEAD, Row("final_logits_bias", "lm_head.bias", optional=True))
NORMS = tuple(Rename(f"{side}.layer_norm", f"{side}.norm") for side in SIDES)
LEARNED_POSITIONS = tuple(Rename(f"{side}.embed_positions", f"{side}.embeddings.embed_positions") for side in SIDES)
#: for classes that tie all embeddings or leave all apart. Marian can tie those of the target alone
ALL_TIED = constants(share_encoder_decoder_embeddings=lambda zoo: zoo["tie_word_embeddings"])
CLASSIFIER = tuple(
    Rename(f"classification_head.{name}", f"classification_head.{name}") for name in ("dense", "out_proj")
)

ANSWERS = (Rename("qa_outputs", "qa_outputs"),), (LabelCount(2),)


def bart_relative(
    model_type: str,
    title: str,
    name: str,
    config: tuple[ConfigRule, ...],
    tensors: tuple[TensorRule, ...],
    language_model: tuple[TensorRule, ...] = LANGUAGE_MODEL,
    other_heads: tuple[Head, ...] = (),
    encoder_half_class: str | None = None,
) -> Architecture:
    """The table of official classes that share BART's code, and whose names begin with `name`."""
    return Architecture(
        model_type=model_type,
        title=title,
        prefix="model",
        config=config,
        tensors=(*SHARED_EMBEDDINGS, *BLOCKS, *tensors),
        heads=(
            Head(f"{name}Model", "TfmEncoderDecoderModel"),
            Head(f"{name}ForConditionalGeneration", "TfmEncoderDecoderForConditionalGeneration", language_model),
            *other_heads,
        ),
        encoder_half_class=encoder_half_class,
        tokenizer=f"{name}Tokenizer",
    )


def bart(
    model_type: str, title: str, name: str, config: tuple[ConfigRule, ...] = (), answers: bool = True
) -> Architecture:
    """The table of BART, for official classes whose names begin with `name` and that differ from it by `config`.

    `answers`: whether one of them answers questions.
    """
    question_answering = Head(f"{name}ForQuestionAnswering", "TfmEncoderDecoderForQuestionAnswering", *ANSWERS)
    return bart_relative(
        model_type,
        title,
        name,
        config=amended(
            CONFIG,
            *NO_LAYERDROP,
            *same("vocab_size", "classifier_dropout"),
            *constants(position_embedding_type="learned", position_offset=2, embedding_norm=True),
            *ALL_TIED,
            *LOGITS_BIAS,
            *config,
        ),
        tensors=(
            *LEARNED_POSITIONS,
            *(Rename(f"{side}.layernorm_embedding", f"{side}.embeddings.norm") for side in SIDES),
            *NORMS,
        ),
        other_heads=(
            Head(f"{name}ForSequenceClassification", "TfmEncoderDecoderForSequenceClassification", CLASSIFIER),
            *([question_answering] if answers else []),
        ),
    )


BART = bart("bart", "BART", "Bart")
#: Liu et al. 2020: BART with pre-norm, for many languages
MBART = bart("mbart", "mBART", "MBart", constants(norm_position="pre", start_with_last_token=True))
#: where a configuration may lack the field
START = Computed("decoder_start_token_id", lambda official: official.get("decoder_start_token_id"))
#: Ahmad et al. 2021, for programs. As with mBART, what is decoded starts with the last real label.
PLBART = bart("plbart", "PLBart", "PLBart", (*constants(start_with_last_token=True), START), answers=False)
#: Tang et al. 2022; without the prompts of its later versions
MVP = bart("mvp", "MVP", "Mvp", (*only(use_prompt=False), *ignored("prompt_length", "prompt_mid_dim")))


def is_shared(official: Fields) -> bool:
    """Whether source and target share their embeddings: with `tie_word_embeddings=False` nothing is tied."""
    return official.get("share_encoder_decoder_embeddings", True) and official["tie_word_embeddings"]


#: Junczys-Dowmunt et al. 2018; the architecture of the OPUS-MT translation models
MARIAN = Architecture(
    model_type="marian",
    title="Marian",
    models=("opus-mt",),
    prefix="model",
    config=(
        *CONFIG,
        *NO_LAYERDROP,
        *same("vocab_size", "decoder_vocab_size"),
        Computed("share_encoder_decoder_embeddings", is_shared),
        *constants(position_embedding_type="sinusoidal", sinusoid_type="halves"),
        *LOGITS_BIAS,
    ),
    tensors=(*SHARED_EMBEDDINGS, *BLOCKS, *SINUSOIDS),
    heads=(
        Head("MarianModel", "TfmEncoderDecoderModel"),
        Head("MarianMTModel", "TfmEncoderDecoderForConditionalGeneration", LANGUAGE_MODEL),
    ),
    encoder_half_class="MarianEncoder",
    tokenizer="MarianTokenizer",
)

FSMT_HEAD = (Rename("model.decoder.output_projection.weight", "lm_head.weight"),)
#: the translation models of fairseq (Ng et al. 2019). Their official base class holds the projection too and returns
#: logits: there is no model without a head.
FSMT = Architecture(
    model_type="fsmt",
    title="FSMT",
    prefix="model",
    config=(
        *CONFIG,
        *NO_LAYERDROP,
        Field("src_vocab_size", "vocab_size"),
        Field("tgt_vocab_size", "decoder_vocab_size"),
        *constants(position_embedding_type="sinusoidal", sinusoid_type="tensor2tensor"),
        *constants(position_ids_from_padding=True, start_with_last_token=True),
        *ALL_TIED,
        *ignored("langs"),
    ),
    tensors=(
        *(Rename(f"{side}.embed_tokens", f"{side}.embeddings.embed_tokens") for side in SIDES),
        *BLOCKS,
        *SINUSOIDS,
    ),
    heads=(Head("FSMTForConditionalGeneration", "TfmEncoderDecoderForConditionalGeneration", FSMT_HEAD),),
    tokenizer="FSMTTokenizer",
)

PRE_NORM = (*CONFIG, *same("vocab_size"), *constants(norm_position="pre"), *ALL_TIED)
#: Fan et al. 2020; the architecture of the dense NLLB models (NLLB team 2022). The official class
#: drops whole layers in training (`encoder_layerdrop`): the zoo keeps this field, but drops no layer.
M2M100 = bart_relative(
    *("m2m_100", "M2M100 (NLLB)", "M2M100"),
    config=(
        *PRE_NORM,
        *constants(position_embedding_type="sinusoidal", sinusoid_type="tensor2tensor", position_ids_from_padding=True),
        *ignored("encoder_layerdrop", "decoder_layerdrop"),
    ),
    tensors=(*NORMS, *(Sinusoids(f"{side}.embed_positions.weights") for side in SIDES)),
    language_model=(LM_HEAD,),
    encoder_half_class="M2M100Encoder",
)
#: Zhang et al. 2019, for summaries
PEGASUS = bart_relative(
    *("pegasus", "Pegasus", "Pegasus"),
    config=amended(
        PRE_NORM,
        *NO_LAYERDROP,
        *constants(position_embedding_type="sinusoidal", sinusoid_type="halves"),
        Computed("bos_token_id", lambda official: official.get("bos_token_id")),  # which its configuration may lack
        *LOGITS_BIAS,
    ),
    tensors=(*NORMS, *SINUSOIDS),
    encoder_half_class="PegasusEncoder",
)
#: Roller et al. 2020, for conversation
BLENDERBOT = bart_relative(
    *("blenderbot", "Blenderbot", "Blenderbot"),
    config=(*PRE_NORM, *NO_LAYERDROP, *constants(position_embedding_type="learned"), *LOGITS_BIAS),
    tensors=(*NORMS, *LEARNED_POSITIONS),
    encoder_half_class="BlenderbotEncoder",
)
#: its model of 90M: BART, whose decoder norms tokens before their positions are added
BLENDERBOT_SMALL = bart_relative(
    *("blenderbot-small", "Blenderbot-small", "BlenderbotSmall"),
    config=(
        *CONFIG,
        *NO_LAYERDROP,
        *same("vocab_size"),
        *constants(position_embedding_type="learned", embedding_norm=True, norm_target_tokens=True),
        *ALL_TIED,
        *LOGITS_BIAS,
    ),
    tensors=(
        *LEARNED_POSITIONS,
        Rename("encoder.layernorm_embedding", "encoder.embeddings.norm"),
        Rename("decoder.layernorm_embedding", "decoder.embeddings.token_projection"),
    ),
)
