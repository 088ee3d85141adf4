"""The families of the zoo, and which Auto class loads which of their classes."""

from ..models import (
    modeling_tfm_bert,
    modeling_tfm_deberta,
    modeling_tfm_encoder_decoder,
    modeling_tfm_gpt,
    modeling_tfm_text_tower,
)
from ..models.configuration_tfm import TfmConfig

FAMILIES = {
    modeling_tfm_bert: modeling_tfm_bert.TfmBertConfig,
    modeling_tfm_deberta: modeling_tfm_deberta.TfmDebertaConfig,
    modeling_tfm_text_tower: modeling_tfm_text_tower.TfmTextTowerConfig,
    modeling_tfm_gpt: modeling_tfm_gpt.TfmGPTConfig,
    modeling_tfm_encoder_decoder: modeling_tfm_encoder_decoder.TfmEncoderDecoderConfig,
}


def auto_class_of(config_class: type[TfmConfig], name: str) -> str | None:
    """The Auto class that loads the class `name`; of several, the first, which is the most general."""
    autos = (auto for auto, target in config_class.auto_classes.items() if target == name)
    return config_class.other_auto_classes.get(name) or next(autos, None)
