"""NomicBERT (Nussbaum et al. 2024), GTE (Zhang et al. 2024) and Jina v3 (Sturua et al. 2024): encoders for embeddings,
which are BERT with rotary positions. The first two have a gated feed-forward."""

from ..architecture import Architecture, Head
from ..config_rules import Computed, Fields, LabelCount, amended, constants, only, same
from ..tensor_rules import NotConverted, Rename, Split, TensorRule
from .bert import (
    CLASSIFIER,
    EMBEDDINGS,
    FIELDS,
    HAS_SEGMENTS,
    QUESTION_ANSWERING,
    ROBERTA_CLASSIFIER,
    ROBERTA_MASKED_LM,
    SEQUENCE_CLASSIFIER,
    classifier_dropout,
    masked_lm,
)
from .llama import ROTATES_WHOLE_HEADS, head_dim
from .projections import ATTENTION, GATED, QKV


def is_tied(official: Fields) -> bool:
    """Whether the output projection is tied to the embeddings; NomicBERT's configuration may lack the field."""
    return official.get("tie_word_embeddings", True)


CONFIG = amended(
    FIELDS,
    Computed("tie_word_embeddings", is_tied),
    Computed("head_dim", head_dim),
    *same("rope_parameters"),
    *constants(position_embedding_type="rotary"),
    ROTATES_WHOLE_HEADS,
)
BLOCKS = (
    *(Rename(name, name) for name in ATTENTION),
    Rename("layers.{i}.post_attention_layernorm", "layers.{i}.self_attn_norm"),
    Rename("layers.{i}.post_mlp_layernorm", "layers.{i}.mlp_norm"),
    NotConverted("rotary_emb.inv_freq"),
)
GATED_MLP = tuple(Rename(name, name) for name in GATED)
DENSE = (
    Rename("layers.{i}.mlp.fc1", "layers.{i}.mlp.up_proj"),
    Rename("layers.{i}.mlp.fc2", "layers.{i}.mlp.down_proj"),
)


def flash_attention_names(attention: str) -> tuple[TensorRule, ...]:
    """The names in files of NomicBERT and Jina v3, which were trained with the code of flash-attention."""
    return (
        Rename("emb_ln", "embeddings.norm"),
        Split(f"encoder.layers.{{i}}.{attention}.Wqkv", QKV),
        Rename(f"encoder.layers.{{i}}.{attention}.out_proj", "layers.{i}.self_attn.o_proj"),
        Rename("encoder.layers.{i}.norm1", "layers.{i}.self_attn_norm"),
        Rename("encoder.layers.{i}.norm2", "layers.{i}.mlp_norm"),
        Rename("encoder.layers.{i}.mlp.fc2", "layers.{i}.mlp.down_proj"),
    )


def pooled(prefix: str) -> tuple[TensorRule, ...]:
    return (Rename(f"{prefix}.pooler.dense", "classifier.dense"), SEQUENCE_CLASSIFIER)


#: GPT-2's names in the files of nomic-embed-text v1 and v1.5 and of nomic-bert-2048, whose own code no longer loads.
#: (The official class does not know them: it takes the sizes of these models in their place.)
PUBLISHED_FIELDS = {
    **{"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"},
    **{"n_inner": "intermediate_size", "n_positions": "max_position_embeddings", "rotary_emb_base": "rope_theta"},
    **{"resid_pdrop": "hidden_dropout_prob", "attn_pdrop": "attention_probs_dropout_prob"},
    "layer_norm_epsilon": "layer_norm_eps",
}
NOMIC_MASKED_LM = masked_lm("cls.predictions", "transform.dense", "transform.layer_norm")
NOMIC_BERT = Architecture(
    model_type="nomic_bert",
    title="NomicBERT",
    models=("nomic-embed-text v1 and v1.5",),
    prefix="nomic_bert",
    other_prefixes=("bert",),  # the prefix in files
    config=(
        *CONFIG,
        *constants(mlp_type="gated", attention_bias=False, mlp_bias=False, add_pooling_layer=False),
        HAS_SEGMENTS,
        *only(prenorm=False, parallel_block=False, causal=False, use_rms_norm=False, activation_function="swiglu"),
        *only(qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False),
        *only(rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_scaling_factor=None, num_experts=0),
    ),
    tensors=(*EMBEDDINGS, *BLOCKS, *GATED_MLP),
    stored=(
        *flash_attention_names("attn"),
        Rename("encoder.layers.{i}.mlp.fc11", "layers.{i}.mlp.up_proj"),
        Rename("encoder.layers.{i}.mlp.fc12", "layers.{i}.mlp.gate_proj"),
    ),
    stored_fields=PUBLISHED_FIELDS,
    heads=(
        Head("NomicBertModel", "TfmBertModel"),
        Head("NomicBertForMaskedLM", "TfmBertForMaskedLM", NOMIC_MASKED_LM),
        Head("NomicBertForSequenceClassification", "TfmBertForSequenceClassification", pooled("nomic_bert")),
        Head("NomicBertForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
    ),
    tokenizer="BertTokenizer",
)

GTE_MASKED_LM = (
    Rename("lm_head.dense", "head.dense"),
    Rename("lm_head.layer_norm.weight", "head.norm.weight", also="lm_head.norm.weight"),
    Rename("lm_head.layer_norm.bias", "head.norm.bias", also="lm_head.norm.bias"),
    Rename("lm_head.decoder", "lm_head"),
)
GTE = Architecture(
    model_type="gte",
    title="GTE",
    prefix="gte",
    other_prefixes=("new",),  # the prefix in files
    config=(
        *CONFIG,
        *constants(mlp_type="gated", mlp_bias=False, mlp_output_bias=True, add_pooling_layer=False, lm_head_act="gelu"),
        *constants(activation_dropout=lambda zoo: zoo["hidden_dropout"]),
    ),
    tensors=(*EMBEDDINGS, *BLOCKS, *GATED_MLP),
    stored=(
        Split("encoder.layer.{i}.attention.qkv_proj", QKV),
        Rename("encoder.layer.{i}.attention.o_proj", "layers.{i}.self_attn.o_proj"),
        Rename("encoder.layer.{i}.attn_ln", "layers.{i}.self_attn_norm"),
        Split("encoder.layer.{i}.mlp.up_gate_proj", ("layers.{i}.mlp.up_proj", "layers.{i}.mlp.gate_proj")),
        Rename("encoder.layer.{i}.mlp.down_proj", "layers.{i}.mlp.down_proj"),
        Rename("encoder.layer.{i}.mlp_ln", "layers.{i}.mlp_norm"),
    ),
    heads=(
        Head("GteModel", "TfmBertModel"),
        Head("GteForMaskedLM", "TfmBertForMaskedLM", GTE_MASKED_LM),
        Head("GteForSequenceClassification", "TfmBertForSequenceClassification", pooled("gte")),
        Head("GteForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
    ),
    tokenizer="XLMRobertaTokenizer",
)

JINA = "JinaEmbeddingsV3"
JINA_POOLER = Rename("roberta.pooler.dense", "model.pooler.dense")
#: without its adapters: a checkpoint holds them apart from the model
JINA_V3 = Architecture(
    model_type="jina_embeddings_v3",
    title="Jina v3",
    prefix="roberta",
    config=(
        *CONFIG,
        *constants(lm_head_act="gelu", pooler_dropout=classifier_dropout),
        HAS_SEGMENTS,
    ),
    tensors=(*EMBEDDINGS, *BLOCKS, *DENSE),
    stored=(
        *flash_attention_names("mixer"),
        Rename("encoder.layers.{i}.mlp.fc1", "layers.{i}.mlp.up_proj"),
    ),
    heads=(
        Head(f"{JINA}Model", "TfmBertModel", (JINA_POOLER,), constants(pooler_dropout=0.0)),
        Head(f"{JINA}ForMaskedLM", "TfmBertForMaskedLM", ROBERTA_MASKED_LM),
        Head(f"{JINA}ForSequenceClassification", "TfmBertForSequenceClassification", ROBERTA_CLASSIFIER),
        Head(f"{JINA}ForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
        Head(f"{JINA}ForQuestionAnswering", "TfmBertForQuestionAnswering", (QUESTION_ANSWERING,), (LabelCount(2),)),
    ),
    tokenizer="XLMRobertaTokenizer",
)
