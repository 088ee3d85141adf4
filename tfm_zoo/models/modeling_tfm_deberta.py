"""DeBERTa (He et al. 2020, 2021): the encoder family with disentangled attention instead of its own."""

from collections import OrderedDict

from torch import nn

from .batch import Batch, KeptTokens
from .configuration_tfm_deberta import TfmDebertaConfig
from .disentangled import TfmDisentangledLayer, TfmDistanceEmbeddings
from .inputs import is_traced
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
from .norms import make_norm
from .position_bias import check_takes_bias


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
        if config.project_before_norm:
            projection = nn.Linear(config.embedding_size, config.hidden_size, bias=False)
            self.embeddings.norm = nn.Sequential(OrderedDict(projection=projection, norm=make_norm(config)))
            self.embeddings.projection = None
        self.post_init()

    def counts_padding(self, kept: KeptTokens) -> bool:
        """Also where it stands between tokens, in whose distances it counts."""
        first, last = kept.indices[kept.bounds[:-1].long()], kept.indices[kept.bounds[1:].long() - 1]
        return super().counts_padding(kept) or (last - first + 1).tolist() != kept.lengths

    def run(self, batch: Batch, **kwargs):
        """As [`TfmStack`]; layers get embeddings and numbers of distances, and the mask."""
        given = batch.tokens.ids_or_embeddings
        check_takes_bias(self.config, "DeBERTa's scores have one")
        length = (given if batch.kept is None else batch.kept).shape[1]
        distances = self.distances.of_length(length, given.device, is_traced(given))
        own = {"embeddings": self.distances, "distances": distances, "padding_mask": batch.attention_mask}
        return super().run(batch, **own, **kwargs)


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
