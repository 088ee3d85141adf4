"""Text towers (CLIP, Radford et al. 2021; SigLIP, Zhai et al. 2023): one state of a text stands for all of it."""

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.clip.modeling_clip import CLIPTextModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from .batch import Tokens, is_pad_mask
from .configuration_tfm_text_tower import TfmTextTowerConfig
from .decoder_entrance import decoder_batch
from .entrance import encoder_batch
from .heads import Inputs, WithHead, read_states
from .inputs import one_of
from .pretrained import TfmPreTrainedModel
from .stack import TfmStack


class TfmTextTowerPreTrainedModel(TfmPreTrainedModel):
    """Base of the family's models."""

    config_class = TfmTextTowerConfig


class TfmTextTowerModel(TfmStack, TfmTextTowerPreTrainedModel):
    """A stack that reads in one direction or in both, and pools one position of each text."""

    # As in the official classes, the last of `hidden_states` is what the last norm reads.
    run_kept = capture_outputs(TfmStack.run_kept.__wrapped__, tie_last_hidden_states=False)

    def __init__(self, config: TfmTextTowerConfig):
        super().__init__(config)
        self.add_stack(config.layer_types, config.vocab_size, is_causal=config.is_causal)
        self.pooler = nn.Linear(config.hidden_size, config.pooler_size) if config.pooler_size else nn.Identity()
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Inputs and outputs as for [`TfmBertModel`]; `pooler_output` is `(batch, pooler_size or hidden_size)`."""
        tokens, read = Tokens(one_of(input_ids, None), None, position_ids), None
        kind, places = self.config.pooled_position, torch.arange(input_ids.shape[-1], device=input_ids.device)
        if kind == "last":
            pooled = input_ids.new_full(input_ids.shape[:1], input_ids.shape[-1] - 1)
        else:  # `(batch,)`, 0 where the end token is missing
            pooled = (input_ids if kind == "highest" else input_ids == self.config.eos_token_id).int().argmax(dim=-1)
        is_pooled = places == pooled.unsqueeze(-1)
        if is_pad_mask(attention_mask) and attention_mask.shape == input_ids.shape:
            read = attention_mask.to(input_ids.device).bool() | is_pooled
        if self.is_causal:
            batch = decoder_batch(self, tokens, attention_mask, None, False, kwargs, read)
        else:
            batch = encoder_batch(self, tokens, attention_mask, kwargs, read)
        outputs = self.run(batch, **kwargs)
        text = read_states(outputs.last_hidden_state, is_pooled)
        return BaseModelOutputWithPooling(pooler_output=self.pooler(text), **outputs)


class TfmTextTowerForProjection(WithHead, TfmTextTowerPreTrainedModel):
    """A text tower with a projection into the space that it shares with pictures."""

    model_class = TfmTextTowerModel
    head_fields = ("projection_size",)

    def __init__(self, config: TfmTextTowerConfig):
        super().__init__(config)
        width = config.pooler_size or config.hidden_size
        self.text_projection = nn.Linear(width, config.projection_size, bias=False)
        self.post_init()

    def forward(self, inputs: Inputs, **kwargs) -> CLIPTextModelOutput:
        """Gives `text_embeds` `(batch, projection_size)`, and what [`TfmTextTowerModel`] gives, but not what is pooled;
        inputs as there."""
        outputs = self.model(**inputs, return_dict=True, **kwargs)
        return self.headed(CLIPTextModelOutput, outputs, text_embeds=self.text_projection(outputs.pooler_output))


__all__ = [*TfmTextTowerConfig.auto_classes.values(), "TfmTextTowerForProjection", "TfmTextTowerPreTrainedModel"]
