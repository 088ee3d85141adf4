"""Text towers (CLIP, Radford et al. 2021; SigLIP, Zhai et al. 2023): one state of a text stands for all of it."""

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.clip.modeling_clip import CLIPTextModelOutput

from .batch import Tokens
from .compat import TransformersKwargs, Unpack, can_return_tuple, capture_outputs
from .configuration_tfm_text_tower import TfmTextTowerConfig
from .decoder_entrance import decoder_batch
from .entrance import encoder_batch
from .inputs import Inputs, marks_padding, one_of, takes_inputs_of
from .padding import restore_outputs
from .pretrained import TfmPreTrainedModel
from .stack import TfmStack, passed_on


class TfmTextTowerPreTrainedModel(TfmPreTrainedModel):
    """Base of the family's models."""

    config_class = TfmTextTowerConfig


class TfmTextTowerModel(TfmStack, TfmTextTowerPreTrainedModel):
    """A stack that reads in one direction or in both, and pools one position of each text."""

    # As in the official classes, the last of `hidden_states` is what the last norm reads.
    run = capture_outputs(TfmStack.run.__wrapped__, tie_last_hidden_states=False)

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
        """
        Args:
            input_ids: `(batch, length)`.
            attention_mask: `(batch, length)`, 1 at real tokens and 0 at padding, or `(batch, 1, length, length)`.
            position_ids: `(batch or 1, length)`, from 0. `None`: counted from the left, padding included. Where those
                of real tokens begin anew within a row, another document begins, and sees no other.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict`.

        Returns:
            `last_hidden_state` `(batch, length, hidden_size)`, zero at padding that was skipped; `pooler_output`
            `(batch, pooler_size or hidden_size)`; `hidden_states` and `attentions` where asked for.

        Raises:
            ValueError: for inputs that do not fit each other or the model; the message names the value.
        """
        tokens, read = Tokens(one_of(input_ids, None), None, position_ids), None
        pooled, places = self.pooled_positions(input_ids), torch.arange(input_ids.shape[-1], device=input_ids.device)
        if marks_padding(attention_mask) and attention_mask.shape == input_ids.shape:
            read = attention_mask.to(input_ids.device).bool() | (places == pooled.unsqueeze(-1))
        if self.is_causal:
            batch = decoder_batch(self, tokens, attention_mask, None, False, kwargs, read)
        else:
            batch = encoder_batch(self, tokens, attention_mask, kwargs, read)
        outputs = restore_outputs(self.run(batch, return_dict=True, **kwargs), batch.kept)
        states = outputs.last_hidden_state
        text = states[torch.arange(len(states), device=states.device), pooled.to(states.device)]
        return BaseModelOutputWithPooling(pooler_output=self.pooler(text), **outputs)

    def pooled_positions(self, input_ids: torch.LongTensor) -> torch.LongTensor:
        """The position `(batch,)` of each text that is pooled; 0 where the end token is missing."""
        kind = self.config.pooled_position
        if kind == "last":
            return input_ids.new_full(input_ids.shape[:1], input_ids.shape[-1] - 1)
        return (input_ids if kind == "highest" else input_ids == self.config.eos_token_id).int().argmax(dim=-1)


class TfmTextTowerForProjection(TfmTextTowerPreTrainedModel):
    """A text tower with a projection into the space that it shares with pictures."""

    head_fields = ("projection_size",)

    def __init__(self, config: TfmTextTowerConfig):
        super().__init__(config)
        self.model = TfmTextTowerModel(config)
        width = config.pooler_size or config.hidden_size
        self.text_projection = nn.Linear(width, config.projection_size, bias=False)
        self.post_init()

    @takes_inputs_of(TfmTextTowerModel)
    def forward(self, inputs: Inputs, **kwargs) -> CLIPTextModelOutput:
        """Gives `text_embeds` `(batch, projection_size)`, and what [`TfmTextTowerModel`] gives, but not what is pooled;
        inputs as there."""
        outputs = self.model(**inputs, return_dict=True, **kwargs)
        states, embeddings = outputs.last_hidden_state, self.text_projection(outputs.pooler_output)
        return CLIPTextModelOutput(text_embeds=embeddings, last_hidden_state=states, **passed_on(outputs))


__all__ = [*TfmTextTowerConfig.auto_classes.values(), "TfmTextTowerForProjection", "TfmTextTowerPreTrainedModel"]
