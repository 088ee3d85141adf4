"""RoBERTa (Liu et al. 2019), and XLM-R and CamemBERT, which are RoBERTa under other names."""

from functools import partial

from ..models import modeling_tfm_bert as zoo
from .architecture import Architecture, Head
from .bert import BODY, CLASSIFIER, EXCLUDED, FIELDS, IGNORED, QUESTION_ANSWERING, READ_BY, REQUIRED, SYNONYMS
from .rules import Rename

POOLER = Rename("roberta.pooler.dense", "model.pooler.dense")
MASKED_LM = (
    Rename("lm_head.dense", "head.dense"),
    Rename("lm_head.layer_norm", "head.norm"),
    Rename("lm_head.decoder.weight", "lm_head.weight"),
    Rename("lm_head.bias", "lm_head.bias"),
)
#: RoBERTa's classifier of sequences is a pooler of its own, with dropout on both sides of the dense layer
SEQUENCE_CLASSIFIER = (
    Rename("classifier.dense", "model.pooler.dense"),
    Rename("classifier.out_proj", "classifier"),
)
UNDROPPED_POOLER = {"pooler_dropout": 0.0}


def pooler_dropout(fields: dict) -> float:
    classifier_dropout = fields["classifier_dropout"]
    return fields["hidden_dropout"] if classifier_dropout is None else classifier_dropout


def heads(name: str) -> tuple[Head, ...]:
    return (
        Head(f"{name}Model", zoo.TfmBertModel, (POOLER,), config=UNDROPPED_POOLER),
        Head(f"{name}ForMaskedLM", zoo.TfmBertForMaskedLM, MASKED_LM),
        Head(f"{name}ForSequenceClassification", zoo.TfmBertForSequenceClassification, SEQUENCE_CLASSIFIER),
        Head(
            f"{name}ForMultipleChoice",
            zoo.TfmBertForMultipleChoice,
            (POOLER, CLASSIFIER),
            config=UNDROPPED_POOLER,
            unread=("classifier_dropout",),
        ),
        Head(f"{name}ForTokenClassification", zoo.TfmBertForTokenClassification, (CLASSIFIER,)),
        Head(f"{name}ForQuestionAnswering", zoo.TfmBertForQuestionAnswering, (QUESTION_ANSWERING,), labels=2),
    )


like_roberta = partial(
    Architecture,
    prefix="roberta",
    fields=FIELDS,
    constants={"position_ids_from_padding": True, "lm_head_act": "gelu", "pooler_dropout": pooler_dropout},
    required=REQUIRED,
    excluded=EXCLUDED,
    body=BODY,
    synonyms={**SYNONYMS, "lm_head.decoder.bias": "lm_head.bias"},
    ignored=IGNORED,
    read_by=READ_BY,
)

ROBERTA = like_roberta(model_type="roberta", title="RoBERTa", heads=heads("Roberta"), tokenizer="RobertaTokenizer")
XLM_ROBERTA = like_roberta(
    model_type="xlm-roberta", title="XLM-R", heads=heads("XLMRoberta"), tokenizer="XLMRobertaTokenizer"
)
CAMEMBERT = like_roberta(
    model_type="camembert", title="CamemBERT", heads=heads("Camembert"), tokenizer="CamembertTokenizer"
)
