"""MPNet (Song et al. 2020): RoBERTa with a relative position bias beside its learned positions."""

from ..architecture import Architecture, Head
from ..config_rules import LabelCount, amended, constants, only, same
from ..tensor_rules import Rename
from .bert import CLASSIFIER, FIELDS, QUESTION_ANSWERING, ROBERTA_CLASSIFIER, ROBERTA_MASKED_LM, TENSORS

POOLER = Rename("mpnet.pooler.dense", "model.pooler.dense")
ATTENTION = "encoder.layer.{i}.attention"
#: the official classes have one dropout for hidden states, also before classifiers
POOLER_DROPOUT = constants(pooler_dropout=lambda zoo: zoo["hidden_dropout"])

MPNET = Architecture(
    model_type="mpnet",
    title="MPNet",
    prefix="mpnet",
    config=amended(
        FIELDS,
        *same("relative_attention_num_buckets"),
        *constants(position_ids_from_padding=True, type_vocab_size=0, lm_head_act="gelu", classifier_dropout=None),
        *constants(relative_attention_max_distance=128, relative_attention_per_layer=False),
        *only(pad_token_id=1, relative_attention_num_buckets=32),  # the official class has no others
    ),
    tensors=(
        *(Rename(f"{ATTENTION}.attn.{name}", f"layers.{{i}}.self_attn.{name}_proj") for name in "qkvo"),
        Rename(f"{ATTENTION}.LayerNorm", "layers.{i}.self_attn_norm"),
        Rename("encoder.relative_attention_bias", "position_bias.0"),
        *TENSORS,
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
