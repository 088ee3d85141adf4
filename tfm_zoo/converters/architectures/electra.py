"""ELECTRA (Clark et al. 2020): BERT with embeddings that may be narrower than the model."""

from ..architecture import Architecture, Head
from ..config_rules import Constant, Field, LabelCount, Requires, constants, only, same
from ..tensor_rules import Rename
from .bert import CLASSIFIER, CONFIG, QUESTION_ANSWERING, ROBERTA_CLASSIFIER, TENSORS, classifier_dropout

MASKED_LM = (
    Rename("generator_predictions.dense", "head.dense"),
    Rename("generator_predictions.LayerNorm", "head.norm"),
    Rename("generator_lm_head", "lm_head"),
)
DISCRIMINATOR = (
    Rename("discriminator_predictions.dense", "detector.dense"),
    Rename("discriminator_predictions.dense_prediction", "detector.out_proj"),
)
CHOICES = (Rename("sequence_summary.summary", "model.pooler.dense"), CLASSIFIER)
SUMMARY = (
    Field("summary_activation", "pooler_act"),
    Field("summary_last_dropout", "classifier_dropout"),
    Constant("pooler_dropout", 0.0),
    Requires("summary_activation", lambda name: name is not None, "an activation"),
    Requires("summary_first_dropout", lambda rate: not rate, "0"),
    *only(summary_type="first", summary_use_proj=True, summary_proj_to_labels=False),
)

ELECTRA = Architecture(
    model_type="electra",
    title="ELECTRA",
    prefix="electra",
    config=(
        *CONFIG,
        *same("embedding_size"),
        *constants(add_pooling_layer=False, pooler_act="gelu", lm_head_act="gelu"),
        *constants(pooler_dropout=classifier_dropout),
    ),
    tensors=(*TENSORS, Rename("embeddings_project", "embeddings.projection")),
    heads=(
        Head("ElectraModel", "TfmBertModel"),
        Head("ElectraForPreTraining", "TfmBertForReplacedTokenDetection", DISCRIMINATOR),
        Head("ElectraForMaskedLM", "TfmBertForMaskedLM", MASKED_LM),
        Head("ElectraForSequenceClassification", "TfmBertForSequenceClassification", ROBERTA_CLASSIFIER),
        Head("ElectraForMultipleChoice", "TfmBertForMultipleChoice", CHOICES, SUMMARY),
        Head("ElectraForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
        Head("ElectraForQuestionAnswering", "TfmBertForQuestionAnswering", (QUESTION_ANSWERING,), (LabelCount(2),)),
    ),
    tokenizer="BertTokenizer",
)
