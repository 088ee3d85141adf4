"""BERT (Devlin et al. 2018)."""

from ..models import modeling_tfm_bert as zoo
from .architecture import Architecture, Head
from .rules import Rename, same

#: configuration fields that are the same for BERT and for those who took over its code
FIELDS = {
    **same(
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
        "max_position_embeddings",
        "type_vocab_size",
        "initializer_range",
        "classifier_dropout",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "tie_word_embeddings",
    ),
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "layer_norm_eps": "norm_eps",
}
#: zoo fields that only some heads of the encoder family read
POOLED = (
    zoo.TfmBertModel,
    zoo.TfmBertForPreTraining,
    zoo.TfmBertForNextSentencePrediction,
    zoo.TfmBertForSequenceClassification,
    zoo.TfmBertForMultipleChoice,
)
READ_BY = {
    "add_pooling_layer": (zoo.TfmBertModel,),
    **dict.fromkeys(("classifier_pooling", "pooler_act", "pooler_dropout"), POOLED),
    "classifier_dropout": (
        zoo.TfmBertForSequenceClassification,
        zoo.TfmBertForMultipleChoice,
        zoo.TfmBertForTokenClassification,
    ),
    "qa_dropout": (zoo.TfmBertForQuestionAnswering,),
    "lm_head_act": (zoo.TfmBertForPreTraining, zoo.TfmBertForMaskedLM),
}
EXCLUDED = {"type_vocab_size": 0}
REQUIRED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
BODY = (
    Rename("embeddings.word_embeddings", "embeddings.embed_tokens"),
    Rename("embeddings.position_embeddings", "embeddings.embed_positions"),
    Rename("embeddings.token_type_embeddings", "embeddings.embed_token_types"),
    Rename("embeddings.LayerNorm", "embeddings.norm"),
    Rename("encoder.layer.{i}.attention.self.query", "layers.{i}.self_attn.q_proj"),
    Rename("encoder.layer.{i}.attention.self.key", "layers.{i}.self_attn.k_proj"),
    Rename("encoder.layer.{i}.attention.self.value", "layers.{i}.self_attn.v_proj"),
    Rename("encoder.layer.{i}.attention.output.dense", "layers.{i}.self_attn.o_proj"),
    Rename("encoder.layer.{i}.attention.output.LayerNorm", "layers.{i}.self_attn_norm"),
    Rename("encoder.layer.{i}.intermediate.dense", "layers.{i}.mlp.up_proj"),
    Rename("encoder.layer.{i}.output.dense", "layers.{i}.mlp.down_proj"),
    Rename("encoder.layer.{i}.output.LayerNorm", "layers.{i}.mlp_norm"),
)
SYNONYMS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids")

POOLER = Rename("bert.pooler.dense", "model.pooler.dense")
CLASSIFIER = Rename("classifier", "classifier")
QUESTION_ANSWERING = Rename("qa_outputs", "qa_outputs")
NEXT_SENTENCE = Rename("cls.seq_relationship", "seq_relationship")
MASKED_LM = (
    Rename("cls.predictions.transform.dense", "head.dense"),
    Rename("cls.predictions.transform.LayerNorm", "head.norm"),
    Rename("cls.predictions.decoder.weight", "lm_head.weight"),
    Rename("cls.predictions.bias", "lm_head.bias"),
)

BERT = Architecture(
    model_type="bert",
    title="BERT",
    prefix="bert",
    fields=FIELDS,
    required=REQUIRED,
    excluded=EXCLUDED,
    body=BODY,
    heads=(
        Head("BertModel", zoo.TfmBertModel, (POOLER,)),
        Head("BertForPreTraining", zoo.TfmBertForPreTraining, (POOLER, *MASKED_LM, NEXT_SENTENCE)),
        Head("BertForMaskedLM", zoo.TfmBertForMaskedLM, MASKED_LM),
        Head("BertForNextSentencePrediction", zoo.TfmBertForNextSentencePrediction, (POOLER, NEXT_SENTENCE)),
        Head("BertForSequenceClassification", zoo.TfmBertForSequenceClassification, (POOLER, CLASSIFIER)),
        Head("BertForMultipleChoice", zoo.TfmBertForMultipleChoice, (POOLER, CLASSIFIER)),
        Head("BertForTokenClassification", zoo.TfmBertForTokenClassification, (CLASSIFIER,)),
        Head("BertForQuestionAnswering", zoo.TfmBertForQuestionAnswering, (QUESTION_ANSWERING,), labels=2),
    ),
    synonyms={**SYNONYMS, "cls.predictions.decoder.bias": "cls.predictions.bias"},
    ignored=IGNORED,
    read_by=READ_BY,
    tokenizer="BertTokenizer",
)
