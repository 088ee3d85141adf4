"""The public names of `tfm_zoo`, which takes them from here when the first of them is asked for."""

from .converters import ConversionError, from_official, to_official
from .corpus import CorpusReader
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
from .named_configs import NAMED_CONFIGS, named_config
from .packing import TfmQuantizationConfig, pack_weights, quantize_int8
from .pipelines import pipeline

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
    "from_official",
    "named_config",
    "pack_weights",
    "pipeline",
    "quantize_int8",
    "to_official",
]
