"""DeBERTa (He et al. 2020, 2021): the encoder family with disentangled attention instead of its own."""

import torch

from .batch import Batch
from .configuration_tfm_deberta import TfmDebertaConfig
from .disentangled import TfmDisentangledLayer, TfmDistanceEmbeddings
from .inputs import is_traced, marks_padding
from .modeling_tfm_bert import (
    TfmBertForMaskedLM,
    TfmBertForMultipleChoice,
    TfmBertForQuestionAnswering,
    TfmBertForReplacedTokenDetection,
    TfmBertForSequenceClassification,
    TfmBertForTokenClassification,
    TfmBertModel,
    TfmBertPreTrainedModel,
)
from .padding import is_split
from .position_bias import IMPLEMENTATIONS


class TfmDebertaPreTrainedModel(TfmBertPreTrainedModel):
    """Base of DeBERTa's models."""

    config_class = TfmDebertaConfig
    _no_split_modules = ["TfmEmbeddings", "TfmDisentangledLayer"]
    _supports_flash_attn = False
    #: of checkpoints without absolute positions, which hold a table all the same
    _keys_to_ignore_on_load_unexpected = [r"embeddings\.embed_positions"]


class TfmDebertaModel(TfmDebertaPreTrainedModel, TfmBertModel):
    """The encoder; arguments and outputs are those of [`TfmBertModel`]. Distances are those in the padded batch."""

    layer_class = TfmDisentangledLayer
    of_whole_rows = {"conv_kernel_size": "the convolution"}

    def __init__(self, config: TfmDebertaConfig, add_pooling_layer: bool | None = None):
        super().__init__(config, add_pooling_layer)
        self.distances = TfmDistanceEmbeddings(config)
        self.post_init()

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        read_positions: torch.Tensor | None = None,
        **kwargs,
    ):
        """Padding that stands between tokens counts in their distances, so that it is computed."""
        if marks_padding(attention_mask) and not is_traced(attention_mask) and is_split(attention_mask.bool()):
            read_positions = torch.ones_like(attention_mask)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, read_positions)
        return super().forward(*inputs, padding_mask=attention_mask, **kwargs)

    def run(self, batch: Batch, **kwargs):
        """As [`TfmStack`]; layers get embeddings and numbers of distances."""
        implementation, given = self.config._attn_implementation or "eager", batch.tokens.ids_or_embeddings
        if implementation not in IMPLEMENTATIONS:
            raise ValueError(
                f"Attention {implementation!r} takes no bias of positions, and DeBERTa's scores have one: "
                f"set_attn_implementation() should choose one of {', '.join(IMPLEMENTATIONS)}."
            )
        length = (given if batch.kept is None else batch.kept).shape[1]
        distances = self.distances.of_length(length, given.device, is_traced(given))
        return super().run(batch, embeddings=self.distances, distances=distances, **kwargs)


class TfmDebertaHead(TfmDebertaPreTrainedModel):
    """DeBERTa, to which a class of the encoder family adds its head."""

    model_class = TfmDebertaModel


class TfmDebertaForMaskedLM(TfmDebertaHead, TfmBertForMaskedLM):
    """DeBERTa with the head of [`TfmBertForMaskedLM`]."""


class TfmDebertaForReplacedTokenDetection(TfmDebertaHead, TfmBertForReplacedTokenDetection):
    """DeBERTa with the head of [`TfmBertForReplacedTokenDetection`]."""


class TfmDebertaForSequenceClassification(TfmDebertaHead, TfmBertForSequenceClassification):
    """DeBERTa with the head of [`TfmBertForSequenceClassification`]."""


class TfmDebertaForTokenClassification(TfmDebertaHead, TfmBertForTokenClassification):
    """DeBERTa with the head of [`TfmBertForTokenClassification`]."""


class TfmDebertaForQuestionAnswering(TfmDebertaHead, TfmBertForQuestionAnswering):
    """DeBERTa with the head of [`TfmBertForQuestionAnswering`]."""


class TfmDebertaForMultipleChoice(TfmDebertaHead, TfmBertForMultipleChoice):
    """DeBERTa with the head of [`TfmBertForMultipleChoice`]."""


__all__ = [*TfmDebertaConfig.auto_classes.values(), "TfmDebertaPreTrainedModel"]
