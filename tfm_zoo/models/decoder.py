"""A stack of blocks that reads from the left, and remembers in a cache what it has read."""

import torch
from transformers import Cache, DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPast

from .cache import count_positions, grow_in_place
from .compat import (
    capture_outputs,
    create_causal_mask,
    create_sliding_window_causal_mask,
)
from .inputs import check_cache, check_inputs, one_of
from .linear_attention import padding_mask
from .positions import default_positions
from .stack import TfmStack
from .unpadding import is_traced, marks_padding
from .window import make_window

MASKS = {
    "full_attention": create_causal_mask,
    "sliding_attention": create_sliding_window_causal_mask,
    "linear_attention": padding_mask,
}


class TfmDecoder(TfmStack):
    """Makes a `PreTrainedModel` a decoder: `add_stack(is_causal=True)` gives it its modules, `decode` runs them."""

    def decode(
        self,
        input_ids: torch.LongTensor | None,
        attention_mask: torch.Tensor | dict | None,
        position_ids: torch.LongTensor | None,
        past_key_values: Cache | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.LongTensor | None,
        use_cache: bool | None,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        """Inputs and outputs as documented at [`TfmGPTModel`]."""
        given_positions = position_ids
        # With a cache the masks take no notice of packed sequences.
        packed = attention_mask is None and past_key_values is None and begins_anew(position_ids)
        if packed and "linear_attention" in self.stack_config.layer_types:
            raise ValueError(
                f"{self.prefix}position_ids begin anew within a row: the state of linear attention would carry one "
                "sequence into the next. They should be rows of their own, padded."
            )
        given = (input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, token_type_ids)
        position_ids, seen = self.check_decoded(*given)
        use_cache = self.wants_cache(use_cache, packed)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.stack_config)
        if use_cache and seen == 0:
            grow_in_place(past_key_values)

        kwargs["return_dict"] = True  # whatever the config says: the caller's decorator makes tuples
        outputs = self.run_layers(
            input_ids,
            inputs_embeds,
            token_type_ids,
            position_ids,
            given_positions,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            **kwargs,
        )
        outputs.past_key_values = past_key_values if use_cache else None
        return outputs

    def check_decoded(
        self,
        input_ids: torch.LongTensor | None,
        attention_mask: torch.Tensor | dict | None,
        position_ids: torch.LongTensor | None,
        past_key_values: Cache | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.LongTensor | None = None,
    ) -> tuple[torch.LongTensor, int | None]:
        """The inputs of `decode` fit each other, the cache and the model.

        Returns:
            The positions `(batch or 1, length)`, and how many the cache has seen; `None`: the device alone knows.
        """
        inputs = one_of(input_ids, inputs_embeds, self.prefix)
        count_positions(past_key_values, self.stack_config)
        seen = check_cache(self.stack_config, past_key_values, batch=inputs.shape[0])
        ids = (token_type_ids, position_ids, inputs_embeds)
        kind = {"takes_cache": True, "prefix": self.prefix}
        check_inputs(self.stack_config, input_ids, attention_mask, *ids, seen=seen, **kind)
        position_range = None
        if position_ids is None:
            before = 0 if past_key_values is None else past_key_values.get_seq_length()
            if self.stack_config.position_ids_from_padding and marks_padding(attention_mask) and past_key_values:
                before = attention_mask[:, : -inputs.shape[1]].sum(dim=1, keepdim=True)
            position_ids, position_range = default_positions(self.stack_config, inputs, before)
        self.check_ids(input_ids, token_type_ids, position_ids, position_range)
        return position_ids, seen

    def wants_cache(self, use_cache: bool | None, packed: bool = False) -> bool:
        """Whether to fill a cache and return it, where the caller may have left it open."""
        if self.training and self.layers[0].gradient_checkpointing:
            return False  # a block that is run again would write to the cache again
        if use_cache is None:
            # Nobody decodes while training, where a cache would hold every key and value a second time.
            return self.stack_config.use_cache and not self.training and not packed
        return use_cache

    @capture_outputs
    def run_layers(
        self,
        input_ids: torch.LongTensor | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.LongTensor | None,
        position_ids: torch.LongTensor,
        given_positions: torch.LongTensor | None,
        attention_mask: torch.Tensor | dict | None,
        past_key_values: Cache | None,
        encoder_hidden_states: torch.Tensor | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        """The inputs through embeddings and blocks, which are given the `kwargs`.

        Args:
            given_positions: `position_ids` where the caller gave them: in no others are sequences packed.
        """
        hidden_states, rotary = self.embed(input_ids, inputs_embeds, token_type_ids, position_ids)
        masks = self.make_masks(hidden_states, attention_mask, past_key_values, given_positions)
        for layer in self.layers[: self.stack_config.num_hidden_layers]:  # an early exit runs fewer
            hidden_states = layer(
                hidden_states,
                encoder_hidden_states,  # by place, or gradient checkpointing would not see that it needs a gradient
                attention_mask=masks[layer.self_attn.layer_type],
                position_embeddings=rotary,
                past_key_values=past_key_values,
                position_ids=given_positions,  # by which flash attention knows packed sequences
                **kwargs,
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden_states))

    def make_masks(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | dict | None,
        past_key_values: Cache | None,
        position_ids: torch.LongTensor | None,
    ) -> dict[str, torch.Tensor | None]:
        """A mask for each kind of layer there is, in the attention implementation's form."""
        if isinstance(attention_mask, dict):  # made beforehand, by `generate` for a compiled step
            return attention_mask
        given = {
            "config": self.stack_config,
            "inputs_embeds": hidden_states,
            "attention_mask": attention_mask,
            "past_key_values": past_key_values,
            "position_ids": position_ids,
        }
        masks = {kind: MASKS[kind] for kind in self.stack_config.layer_types}
        if "sliding_attention" in masks and is_new(past_key_values) and not begins_anew(position_ids):
            masks["sliding_attention"] = windowed
        return {kind: make(**given) for kind, make in masks.items()}


def windowed(config, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, **given):
    """In the place of transformers' mask function: a window, where it takes no mask over all pairs."""
    window = make_window(config, inputs_embeds, attention_mask, right=0)
    return window or create_sliding_window_causal_mask(config, inputs_embeds, attention_mask, **given)


def is_new(past_key_values: Cache | None) -> bool:
    """Whether attention to a cache reads these positions and no others."""
    return past_key_values is None or (type(past_key_values) is DynamicCache and past_key_values.get_seq_length() == 0)


def begins_anew(position_ids: torch.LongTensor | None) -> bool:
    """Whether positions go back within a row: where several sequences are packed into it."""
    if position_ids is None or is_traced(position_ids):
        return False
    return bool((position_ids.diff(dim=-1) < 0).any())
