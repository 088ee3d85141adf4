"""A stack of blocks that reads in both directions and computes no padding."""

import torch
from transformers.modeling_outputs import BaseModelOutput

from .compat import (
    capture_outputs,
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
)
from .inputs import check_inputs, one_of
from .linear_attention import padding_mask
from .positions import default_positions
from .stack import TfmStack
from .unpadding import Padding, attention_mode, find_padding
from .window import make_window

MASKS = {
    "full_attention": create_bidirectional_mask,
    "sliding_attention": create_bidirectional_sliding_window_mask,
    "linear_attention": padding_mask,
}


class TfmEncoder(TfmStack):
    """Makes a `PreTrainedModel` an encoder: `add_stack` gives it its modules, `encode` runs them."""

    def encode(
        self,
        input_ids: torch.LongTensor | None,
        attention_mask: torch.Tensor | None,
        token_type_ids: torch.LongTensor | None,
        position_ids: torch.LongTensor | None,
        inputs_embeds: torch.Tensor | None,
        read_positions: torch.Tensor | None = None,
        reads_first: bool = False,
        **kwargs,
    ) -> BaseModelOutput:
        """Inputs and outputs as documented at [`TfmBertModel`].

        Args:
            reads_first: whether the caller reads each sequence's first position, padded or not.
        """
        inputs = one_of(input_ids, inputs_embeds)
        shape = check_inputs(self.config, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        position_range = None
        if position_ids is None:
            position_ids, position_range = default_positions(self.config, inputs)
        self.check_ids(input_ids, token_type_ids, position_ids, position_range)
        if isinstance(attention_mask, torch.Tensor):
            attention_mask = attention_mask.to(position_ids.device)

        padding = self.unread_padding(attention_mask, read_positions, reads_first, **kwargs)
        inputs = (input_ids, inputs_embeds, token_type_ids, position_ids)
        if padding is not None:
            inputs = tuple(None if states is None else padding.drop(states) for states in inputs)
        kwargs["return_dict"] = True  # whatever the config says: the caller's decorator makes tuples
        outputs = self.run_layers(*inputs, attention_mask=attention_mask, shape=shape, padding=padding, **kwargs)
        if padding is not None:
            outputs.last_hidden_state = padding.restore(outputs.last_hidden_state)
            if outputs.hidden_states is not None:
                outputs.hidden_states = tuple(
                    None if states is None else padding.restore(states) for states in outputs.hidden_states
                )
        return outputs

    @capture_outputs
    def run_layers(
        self,
        input_ids: torch.LongTensor | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.LongTensor | None,
        position_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None,
        shape: tuple[int, int],
        padding: Padding | None,
        **kwargs,
    ) -> BaseModelOutput:
        """The inputs, padded or without their padding, through embeddings and blocks; `shape` is the padded one."""
        hidden_states, rotary = self.embed(input_ids, inputs_embeds, token_type_ids, position_ids)
        attention_mask = self.make_mask(hidden_states.new_empty(*shape, 0), attention_mask, padding)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states, attention_mask=attention_mask, position_embeddings=rotary, padding=padding, **kwargs
            )
        return BaseModelOutput(last_hidden_state=self.norm(hidden_states))

    def make_mask(self, padded: torch.Tensor, attention_mask: torch.Tensor | None, padding: Padding | None):
        """The mask in the attention implementation's form; `padded` has the batch's shape, type and device."""
        kind = self.config.kind_of(0)
        if padding is not None and padding.mode != "repad" and kind != "sliding_attention":
            return None
        if kind == "sliding_attention" and (window := make_window(self.config, padded, attention_mask)):
            return window
        return MASKS[kind](config=self.config, inputs_embeds=padded, attention_mask=attention_mask)

    def unread_padding(
        self,
        attention_mask: torch.Tensor | None,
        read_positions: torch.Tensor | None,
        reads_first: bool,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> Padding | None:
        """The padding that need not be computed; `None`: there is none, or all is to be computed."""
        config = self.config
        output_attentions = config.output_attentions if output_attentions is None else output_attentions
        output_hidden_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if not config.skip_padding or (output_hidden_states and torch.is_grad_enabled()):
            return None  # Restored hidden states would be copies, off the path that gradients take.
        padding = find_padding(attention_mask)
        if padding is None or (reads_first and not attention_mask[:, 0].all()):
            return None
        if read_positions is not None and read_positions.to(attention_mask.device)[attention_mask == 0].any():
            return None
        return padding._replace(mode=attention_mode(config, attention_mask.device, output_attentions))
