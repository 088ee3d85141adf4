"""ALBERT (Lan et al. 2019): BERT with layers that share their weights, and embeddings narrower than the model."""

from ..architecture import Architecture, Head
from ..config_rules import Field, LabelCount, constants, only, same
from ..tensor_rules import Rename
from .bert import BUFFERS, CLASSIFIER, EMBEDDINGS, QUESTION_ANSWERING, SEQUENCE_CLASSIFIER, masked_lm

LAYER = "encoder.albert_layer_groups.{i}.albert_layers.0"
TENSORS = (
    *EMBEDDINGS,
    *BUFFERS,
    Rename("encoder.embedding_hidden_mapping_in", "embeddings.projection"),
    Rename(f"{LAYER}.attention.query", "layers.{i}.self_attn.q_proj"),
    Rename(f"{LAYER}.attention.key", "layers.{i}.self_attn.k_proj"),
    Rename(f"{LAYER}.attention.value", "layers.{i}.self_attn.v_proj"),
    Rename(f"{LAYER}.attention.dense", "layers.{i}.self_attn.o_proj"),
    Rename(f"{LAYER}.attention.LayerNorm", "layers.{i}.self_attn_norm"),
    Rename(f"{LAYER}.ffn", "layers.{i}.mlp.up_proj"),
    Rename(f"{LAYER}.ffn_output", "layers.{i}.mlp.down_proj"),
    Rename(f"{LAYER}.full_layer_layer_norm", "layers.{i}.mlp_norm"),
)
POOLER = Rename("albert.pooler", "model.pooler.dense")
MASKED_LM = masked_lm("predictions", "dense", "LayerNorm")
#: the order of two sentences, instead of BERT's next sentence
PRE_TRAINING = (POOLER, *MASKED_LM, Rename("sop_classifier.classifier", "seq_relationship"))
TWO_ORDERS = (Field("classifier_dropout_prob", "sentence_dropout"), LabelCount(2))
TEXT_CLASSIFIER = (Rename("albert.pooler", "classifier.dense"), SEQUENCE_CLASSIFIER)

ALBERT = Architecture(
    model_type="albert",
    title="ALBERT",
    prefix="albert",
    config=(
        *same("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_hidden_groups", "hidden_act"),
        *same("num_attention_heads", "intermediate_size", "max_position_embeddings", "type_vocab_size"),
        *same("initializer_range", "pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"),
        Field("layer_norm_eps", "norm_eps"),
        Field("hidden_dropout_prob", "embedding_dropout"),
        Field("hidden_dropout_prob", "attention_output_dropout"),
        Field("attention_probs_dropout_prob", "attention_dropout"),
        Field("classifier_dropout_prob", "classifier_dropout"),
        *constants(hidden_dropout=0.0),  # of what the feed-forward adds
        *only(inner_group_num=1),
    ),
    tensors=TENSORS,
    heads=(
        Head("AlbertModel", "TfmBertModel", (POOLER,)),
        Head("AlbertForPreTraining", "TfmBertForPreTraining", PRE_TRAINING, TWO_ORDERS),
        Head("AlbertForMaskedLM", "TfmBertForMaskedLM", MASKED_LM),
        Head("AlbertForSequenceClassification", "TfmBertForSequenceClassification", TEXT_CLASSIFIER),
        Head("AlbertForMultipleChoice", "TfmBertForMultipleChoice", (POOLER, CLASSIFIER)),
        Head("AlbertForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
        Head("AlbertForQuestionAnswering", "TfmBertForQuestionAnswering", (QUESTION_ANSWERING,), (LabelCount(2),)),
    ),
    tokenizer="AlbertTokenizer",
)
