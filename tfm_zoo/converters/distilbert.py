"""DistilBERT (Sanh et al. 2019)."""

from ..models import modeling_tfm_bert as zoo
from .architecture import Architecture, Head
from .bert import CLASSIFIER, QUESTION_ANSWERING, READ_BY, SYNONYMS
from .rules import Rename, same

PRE_CLASSIFIER = Rename("pre_classifier", "model.pooler.dense")
MASKED_LM = (
    Rename("vocab_transform", "head.dense"),
    Rename("vocab_layer_norm", "head.norm"),
    Rename("vocab_projector", "lm_head"),
)

DISTILBERT = Architecture(
    model_type="distilbert",
    title="DistilBERT",
    prefix="distilbert",
    fields={
        **same(
            "vocab_size",
            "max_position_embeddings",
            "attention_dropout",
            "qa_dropout",
            "initializer_range",
            "pad_token_id",
            "bos_token_id",
            "eos_token_id",
            "tie_word_embeddings",
        ),
        "dim": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "hidden_dim": "intermediate_size",
        "activation": "hidden_act",
        "dropout": "hidden_dropout",
        "seq_classif_dropout": "classifier_dropout",
    },
    constants={
        "norm_eps": 1e-12,
        "type_vocab_size": 0,
        "attention_output_dropout": 0.0,
        "add_pooling_layer": False,
        "pooler_act": "relu",
    },
    body=(
        Rename("embeddings.word_embeddings", "embeddings.embed_tokens"),
        Rename("embeddings.position_embeddings", "embeddings.embed_positions"),
        Rename("embeddings.LayerNorm", "embeddings.norm"),
        Rename("transformer.layer.{i}.attention.q_lin", "layers.{i}.self_attn.q_proj"),
        Rename("transformer.layer.{i}.attention.k_lin", "layers.{i}.self_attn.k_proj"),
        Rename("transformer.layer.{i}.attention.v_lin", "layers.{i}.self_attn.v_proj"),
        Rename("transformer.layer.{i}.attention.out_lin", "layers.{i}.self_attn.o_proj"),
        Rename("transformer.layer.{i}.sa_layer_norm", "layers.{i}.self_attn_norm"),
        Rename("transformer.layer.{i}.ffn.lin1", "layers.{i}.mlp.up_proj"),
        Rename("transformer.layer.{i}.ffn.lin2", "layers.{i}.mlp.down_proj"),
        Rename("transformer.layer.{i}.output_layer_norm", "layers.{i}.mlp_norm"),
    ),
    heads=(
        Head("DistilBertModel", zoo.TfmBertModel),
        Head("DistilBertForMaskedLM", zoo.TfmBertForMaskedLM, MASKED_LM),
        Head("DistilBertForSequenceClassification", zoo.TfmBertForSequenceClassification, (PRE_CLASSIFIER, CLASSIFIER)),
        Head("DistilBertForMultipleChoice", zoo.TfmBertForMultipleChoice, (PRE_CLASSIFIER, CLASSIFIER)),
        Head(
            "DistilBertForTokenClassification",
            zoo.TfmBertForTokenClassification,
            (CLASSIFIER,),
            unread=("seq_classif_dropout",),
        ),
        Head("DistilBertForQuestionAnswering", zoo.TfmBertForQuestionAnswering, (QUESTION_ANSWERING,), labels=2),
    ),
    synonyms=SYNONYMS,
    ignored=("embeddings.position_ids",),
    read_by=READ_BY,
    tokenizer="BertTokenizer",
)
