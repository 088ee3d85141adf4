"""RoFormer (Su et al. 2021): BERT with rotary positions, which may turn values too."""

from typing import TYPE_CHECKING

from ..architecture import Architecture, Head
from ..config_rules import Constant, LabelCount, amended, constants, same
from ..tensor_rules import Interleaved, NotConverted, Rename, TensorRule, Tensors
from .bert import (
    BERT_MASKED_LM,
    CLASSIFIER,
    ENCODER,
    FIELDS,
    HAS_SEGMENTS,
    QUESTION_ANSWERING,
    ROBERTA_CLASSIFIER,
    TENSORS,
)

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

ATTENTION = "encoder.layer.{i}.attention"


class TurnedValues(Interleaved):
    """Values in models that turn them. Other models use the next rule that fits."""

    def of(self, config: "PreTrainedConfig") -> TensorRule:
        return super().of(config) if config.rotary_value else TensorRule()


class FromTurnedValues(TurnedValues):
    """The projection that reads what attention makes of turned values: pairs are in its columns."""

    def to_zoo(self, tensors: Tensors) -> Tensors:
        return [part.t().contiguous() for part in super().to_zoo([tensors[0].t()])]

    def to_official(self, tensors: Tensors) -> Tensors:
        return [part.t().contiguous() for part in super().to_official([tensors[0].t()])]


#: without multiple choice, whose official class reads the last position, be it padding
ROFORMER = Architecture(
    model_type="roformer",
    title="RoFormer",
    prefix="roformer",
    config=amended(
        FIELDS,
        *same("embedding_size", "rotary_value"),
        *constants(position_embedding_type="rotary", add_pooling_layer=False, classifier_dropout=None),
        *constants(pooler_dropout=lambda zoo: zoo["hidden_dropout"], pooler_act=lambda zoo: zoo["hidden_act"]),
        Constant("rope_parameters", {"rope_type": "default", "rope_theta": 10000.0}),
        *ENCODER,
        HAS_SEGMENTS,
    ),
    tensors=(
        Interleaved(f"{ATTENTION}.self.query", "layers.{i}.self_attn.q_proj"),
        Interleaved(f"{ATTENTION}.self.key", "layers.{i}.self_attn.k_proj"),
        TurnedValues(f"{ATTENTION}.self.value", "layers.{i}.self_attn.v_proj"),
        FromTurnedValues(f"{ATTENTION}.output.dense.weight", "layers.{i}.self_attn.o_proj.weight"),
        Rename("embeddings_project", "embeddings.projection"),
        NotConverted("encoder.embed_positions"),  # cosines and sines
        *TENSORS,
    ),
    heads=(
        Head("RoFormerModel", "TfmBertModel"),
        Head("RoFormerForMaskedLM", "TfmBertForMaskedLM", BERT_MASKED_LM),
        Head("RoFormerForSequenceClassification", "TfmBertForSequenceClassification", ROBERTA_CLASSIFIER),
        Head("RoFormerForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
        Head("RoFormerForQuestionAnswering", "TfmBertForQuestionAnswering", (QUESTION_ANSWERING,), (LabelCount(2),)),
    ),
    tokenizer="RoFormerTokenizer",
)
