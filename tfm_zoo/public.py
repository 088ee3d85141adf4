"""The public names of `tfm_zoo`, which takes them from here when the first of them is asked for."""

from .converters import ConversionError, from_official, to_official
from .corpus import CorpusReader
from .families.named_configs import NAMED_CONFIGS, named_config
from .inference import restore, speed_up
from .inference.packing import TfmQuantizationConfig, pack_weights, quantize_int8
from .models.configuration_tfm import TfmConfig
from .models.modeling_tfm_bert import (
    TfmBertConfig,
    TfmBertForMaskedLM,
    TfmBertForMultipleChoice,
    TfmBertForNextSentencePrediction,
    TfmBertForPreTraining,
    TfmBertForQuestionAnswering,
    TfmBertForReplacedTokenDetection,
    TfmBertForSequenceClassification,
    TfmBertForTokenClassification,
    TfmBertModel,
    TfmBertPreTrainedModel,
)
from .models.modeling_tfm_deberta import (
    TfmDebertaConfig,
    TfmDebertaForMaskedLM,
    TfmDebertaForMultipleChoice,
    TfmDebertaForQuestionAnswering,
    TfmDebertaForReplacedTokenDetection,
    TfmDebertaForSequenceClassification,
    TfmDebertaForTokenClassification,
    TfmDebertaModel,
    TfmDebertaPreTrainedModel,
)
from .models.modeling_tfm_encoder_decoder import (
    TfmEncoderDecoderConfig,
    TfmEncoderDecoderDecoder,
    TfmEncoderDecoderEncoder,
    TfmEncoderDecoderForConditionalGeneration,
    TfmEncoderDecoderForQuestionAnswering,
    TfmEncoderDecoderForSequenceClassification,
    TfmEncoderDecoderForTokenClassification,
    TfmEncoderDecoderModel,
    TfmEncoderDecoderPreTrainedModel,
)
from .models.modeling_tfm_gpt import (
    TfmGPTConfig,
    TfmGPTForCausalLM,
    TfmGPTForQuestionAnswering,
    TfmGPTForSequenceClassification,
    TfmGPTForTokenClassification,
    TfmGPTModel,
    TfmGPTPreTrainedModel,
)
from .models.modeling_tfm_text_tower import (
    TfmTextTowerConfig,
    TfmTextTowerForProjection,
    TfmTextTowerModel,
    TfmTextTowerPreTrainedModel,
)
from .pipelines import pipeline
from .proof import compare, record, verify

__all__ = [
    "NAMED_CONFIGS",
    "ConversionError",
    "CorpusReader",
    "TfmBertConfig",
    "TfmBertForMaskedLM",
    "TfmBertForMultipleChoice",
    "TfmBertForNextSentencePrediction",
    "TfmBertForPreTraining",
    "TfmBertForQuestionAnswering",
    "TfmBertForReplacedTokenDetection",
    "TfmBertForSequenceClassification",
    "TfmBertForTokenClassification",
    "TfmBertModel",
    "TfmBertPreTrainedModel",
    "TfmConfig",
    "TfmDebertaConfig",
    "TfmDebertaForMaskedLM",
    "TfmDebertaForMultipleChoice",
    "TfmDebertaForQuestionAnswering",
    "TfmDebertaForReplacedTokenDetection",
    "TfmDebertaForSequenceClassification",
    "TfmDebertaForTokenClassification",
    "TfmDebertaModel",
    "TfmDebertaPreTrainedModel",
    "TfmEncoderDecoderConfig",
    "TfmEncoderDecoderDecoder",
    "TfmEncoderDecoderEncoder",
    "TfmEncoderDecoderForConditionalGeneration",
    "TfmEncoderDecoderForQuestionAnswering",
    "TfmEncoderDecoderForSequenceClassification",
    "TfmEncoderDecoderForTokenClassification",
    "TfmEncoderDecoderModel",
    "TfmEncoderDecoderPreTrainedModel",
    "TfmGPTConfig",
    "TfmGPTForCausalLM",
    "TfmGPTForQuestionAnswering",
    "TfmGPTForSequenceClassification",
    "TfmGPTForTokenClassification",
    "TfmGPTModel",
    "TfmGPTPreTrainedModel",
    "TfmQuantizationConfig",
    "TfmTextTowerConfig",
    "TfmTextTowerForProjection",
    "TfmTextTowerModel",
    "TfmTextTowerPreTrainedModel",
    "compare",
    "from_official",
    "named_config",
    "pack_weights",
    "pipeline",
    "quantize_int8",
    "record",
    "restore",
    "speed_up",
    "to_official",
    "verify",
]
