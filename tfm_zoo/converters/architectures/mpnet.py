"""MPNet (Song et al. 2020): RoBERTa with a relative position bias beside its learned positions."""

from ..architecture import Architecture, Head
from ..config_rules import Field, LabelCount, constants, only, same
from ..tensor_rules import NotConverted, Rename
from .bert import CLASSIFIER, QUESTION_ANSWERING, ROBERTA_CLASSIFIER, ROBERTA_MASKED_LM

POOLER = Rename("mpnet.pooler.dense", "model.pooler.dense")
LAYER, ZOO_LAYER = "encoder.layer.{i}", "layers.{i}"
#: the official classes have one dropout for hidden states, also before classifiers
POOLER_DROPOUT = constants(pooler_dropout=lambda zoo: zoo["hidden_dropout"])

MPNET = Architecture(
    model_type="mpnet",
    title="MPNet",
    prefix="mpnet",
    config=(
        *same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        *same("hidden_act", "max_position_embeddings", "initializer_range", "relative_attention_num_buckets"),
        *same("pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"),
        Field("hidden_dropout_prob", "hidden_dropout"),
        Field("attention_probs_dropout_prob", "attention_dropout"),
        Field("layer_norm_eps", "norm_eps"),
        *constants(position_ids_from_padding=True, type_vocab_size=0, lm_head_act="gelu", classifier_dropout=None),
        *constants(relative_attention_max_distance=128, relative_attention_per_layer=False),
        *only(pad_token_id=1, relative_attention_num_buckets=32),  # the official class has no others
    ),
    tensors=(
        Rename("embeddings.word_embeddings", "embeddings.embed_tokens"),
        Rename("embeddings.position_embeddings", "embeddings.embed_positions"),
        Rename("embeddings.LayerNorm", "embeddings.norm"),
        *(Rename(f"{LAYER}.attention.attn.{name}", f"{ZOO_LAYER}.self_attn.{name}_proj") for name in "qkvo"),
        Rename(f"{LAYER}.attention.LayerNorm", f"{ZOO_LAYER}.self_attn_norm"),
        Rename(f"{LAYER}.intermediate.dense", f"{ZOO_LAYER}.mlp.up_proj"),
        Rename(f"{LAYER}.output.dense", f"{ZOO_LAYER}.mlp.down_proj"),
        Rename(f"{LAYER}.output.LayerNorm", f"{ZOO_LAYER}.mlp_norm"),
        Rename("encoder.relative_attention_bias", "position_bias.0"),
        NotConverted("embeddings.position_ids"),
    ),
    heads=(
        Head("MPNetModel", "TfmBertModel", (POOLER,)),
        Head("MPNetForMaskedLM", "TfmBertForMaskedLM", ROBERTA_MASKED_LM),
        Head("MPNetForSequenceClassification", "TfmBertForSequenceClassification", ROBERTA_CLASSIFIER, POOLER_DROPOUT),
        Head("MPNetForMultipleChoice", "TfmBertForMultipleChoice", (POOLER, CLASSIFIER)),
        Head("MPNetForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
        Head("MPNetForQuestionAnswering", "TfmBertForQuestionAnswering", (QUESTION_ANSWERING,), (LabelCount(2),)),
    ),
    tokenizer="MPNetTokenizer",
)
