"""EuroBERT (Boizard et al. 2025): LLaMA's blocks, read in both directions."""

from ..architecture import Architecture, Head
from ..config_rules import Computed, Field, choice, constants, same
from ..tensor_rules import Rename
from .bert import CLASSIFIER, SEQUENCE_CLASSIFIER
from .llama import ROTATES_WHOLE_HEADS, TENSORS, head_dim

TEXT_CLASSIFIER = (Rename("dense", "classifier.dense"), SEQUENCE_CLASSIFIER)


EUROBERT = Architecture(
    model_type="eurobert",
    title="EuroBERT",
    models=("jina-embeddings-v5-text-nano",),
    prefix="model",
    config=(
        *same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
        *same("intermediate_size", "hidden_act", "max_position_embeddings", "rope_parameters", "initializer_range"),
        *same("attention_dropout", "attention_bias", "mlp_bias", "tie_word_embeddings"),
        *same("pad_token_id", "bos_token_id", "eos_token_id"),
        Field("rms_norm_eps", "norm_eps"),
        Computed("head_dim", head_dim),
        *choice("classifier_pooling", "classifier_pooling", {"bos": "cls", "mean": "mean", "late": "late"}, "late"),
        *constants(norm_position="pre", norm_type="rmsnorm", embedding_norm=False, type_vocab_size=0),
        *constants(position_embedding_type="rotary", mlp_type="gated", hidden_dropout=0.0, classifier_dropout=0.0),
        *constants(add_pooling_layer=False, pooler_act="gelu"),
        *constants(lm_head_transform=False, lm_head_bias=lambda zoo: zoo["mlp_bias"]),
        ROTATES_WHOLE_HEADS,
    ),
    tensors=TENSORS,
    heads=(
        Head("EuroBertModel", "TfmBertModel"),
        Head("EuroBertForMaskedLM", "TfmBertForMaskedLM", (Rename("lm_head", "lm_head"),)),
        Head("EuroBertForSequenceClassification", "TfmBertForSequenceClassification", TEXT_CLASSIFIER),
        Head("EuroBertForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
    ),
    tokenizer="PreTrainedTokenizerFast",
)
