"""ModernBERT (Warner et al. 2024), windows in most layers, with rotary positions of their own, and norms without bias;
its decoder (Weller et al. 2025)."""

from ..architecture import Architecture, Head
from ..config_rules import Computed, Field, Fields, LabelCount, Requires, constants, ignored, same
from ..tensor_rules import NotConverted, Rename, Split
from .bert import CLASSIFIER, SEQUENCE_CLASSIFIER
from .decoder_family import ROTARY_BY_TYPE
from .llama import ROTATES_WHOLE_HEADS
from .projections import GATE_UP, QKV

TENSORS = (
    Rename("embeddings.tok_embeddings", "embeddings.embed_tokens"),
    Rename("embeddings.norm", "embeddings.norm"),
    Rename("layers.{i}.attn_norm", "layers.{i}.self_attn_norm"),
    Split("layers.{i}.attn.Wqkv", QKV),
    Rename("layers.{i}.attn.Wo", "layers.{i}.self_attn.o_proj"),
    Rename("layers.{i}.mlp_norm", "layers.{i}.mlp_norm"),
    Split("layers.{i}.mlp.Wi", GATE_UP),
    Rename("layers.{i}.mlp.Wo", "layers.{i}.mlp.down_proj"),
    Rename("final_norm", "norm"),
    *(NotConverted(f"rotary_emb.{layer_type}_attention_inv_freq") for layer_type in ("full", "sliding")),
)


def dense(zoo: str) -> tuple[Rename, ...]:
    """The layers that every head begins with."""
    return tuple(Rename(f"head.{name}", f"{zoo}.{name}") for name in ("dense", "norm"))


TEXT_CLASSIFIER = (*dense("classifier"), SEQUENCE_CLASSIFIER)
ANSWERS = (*dense("head"), Rename("classifier", "qa_outputs"))


def sliding_window(official: Fields) -> int:
    return official.get("local_attention", 128) // 2


def local_attention(size: int | None) -> dict[str, int]:
    return {} if size is None else {"local_attention": 2 * size}


CONFIG = (
    *same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *same("max_position_embeddings", "initializer_range", "tie_word_embeddings", "layer_types"),
    *same("norm_eps", "norm_bias", "attention_bias", "mlp_bias", "classifier_bias"),
    *same("attention_dropout", "embedding_dropout", "classifier_dropout"),
    *same("pad_token_id", "bos_token_id", "eos_token_id"),
    Field("hidden_activation", "hidden_act"),
    Field("mlp_dropout", "activation_dropout"),
    Field("decoder_bias", "lm_head_bias"),
    Field("classifier_activation", "lm_head_act"),
    Computed("sliding_window", sliding_window, local_attention),
    *constants(norm_position="pre", embedding_norm=True, first_norm=False, type_vocab_size=0, hidden_dropout=0.0),
    *constants(attention_output_dropout=lambda zoo: zoo["attention_dropout"]),
    *constants(position_embedding_type="rotary", mlp_type="gated"),
    ROTATES_WHOLE_HEADS,
    *ignored("initializer_cutoff_factor"),
)
MODERNBERT = Architecture(
    model_type="modernbert",
    title="ModernBERT",
    models=("mmBERT", "Ettin encoder", "Granite Embedding R2"),
    prefix="model",
    config=(
        *CONFIG,
        *same("classifier_pooling", "rope_parameters"),
        Field("classifier_activation", "pooler_act"),
        *constants(add_pooling_layer=False, classifier_norm=True, classifier_transform=True),
        *constants(qa_dropout=lambda zoo: zoo["classifier_dropout"]),
        *ignored("deterministic_flash_attn", "sparse_prediction"),
    ),
    tensors=TENSORS,
    heads=(
        Head("ModernBertModel", "TfmBertModel"),
        Head("ModernBertForMaskedLM", "TfmBertForMaskedLM", (*dense("head"), Rename("decoder", "lm_head"))),
        Head("ModernBertForSequenceClassification", "TfmBertForSequenceClassification", TEXT_CLASSIFIER),
        Head("ModernBertForMultipleChoice", "TfmBertForMultipleChoice", (*dense("model.pooler"), CLASSIFIER)),
        Head("ModernBertForTokenClassification", "TfmBertForTokenClassification", (*dense("head"), CLASSIFIER)),
        Head("ModernBertForQuestionAnswering", "TfmBertForQuestionAnswering", ANSWERS, (LabelCount(2),)),
    ),
    tokenizer="PreTrainedTokenizerFast",
)
ATTENTION = "layers.{i}.attn"
MODERNBERT_DECODER = Architecture(
    model_type="modernbert-decoder",
    title="ModernBERT decoder",
    models=("Ettin decoder",),
    prefix="model",
    config=(
        *CONFIG,
        *same("use_cache"),
        ROTARY_BY_TYPE,
        *constants(lm_head_transform=True, scaled_residual_init=True, train_padding_embedding=False),
        Requires("local_attention", lambda size: (size or 0) >= 4, "at least 4"),
        *ignored("sliding_window"),  # half of `local_attention`
    ),
    tensors=(*(Rename(f"{ATTENTION}.{x}_proj", name) for x, name in zip("qkv", QKV, strict=True)), *TENSORS),
    heads=(
        Head("ModernBertDecoderModel", "TfmGPTModel"),
        Head(
            *("ModernBertDecoderForCausalLM", "TfmGPTForCausalLM"),
            (
                Rename("lm_head.dense", "head.dense"),
                Rename("lm_head.norm", "head.norm"),
                Rename("decoder", "lm_head"),
            ),
        ),
        Head(
            *("ModernBertDecoderForSequenceClassification", "TfmGPTForSequenceClassification"),
            (*dense("score.head"), Rename("classifier", "score.out_proj")),
        ),
    ),
    tokenizer="PreTrainedTokenizerFast",
)
