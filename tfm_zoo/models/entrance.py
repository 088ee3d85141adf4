"""The entrance of encoders: which tokens are computed, then who attends to whom."""

from functools import partial

import torch

from .batch import EVERYTHING, Batch, Tokens
from .compat import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from .encoder_inputs import with_masks_dropped, with_tasks
from .inputs import asks_for, check_inputs, count_positions, hides_nothing
from .linear_attention import padding_mask
from .masks import documents_of, empty_states, lay_out, make_layout, pairs_as_read
from .padding import keep, unread_padding

ENCODER_MASKS = {
    "full_attention": create_bidirectional_mask,
    "sliding_attention": create_bidirectional_sliding_window_mask,
    "linear_attention": padding_mask,
}


def encoder_batch(model, tokens: Tokens, attention_mask, options: dict, read=None, reads_first=False) -> Batch:
    """Makes an encoder's batch from the inputs of [`TfmBertModel`]. `read` are its `read_positions`; `reads_first`: the
    caller reads the first position of each sequence, even if it is padding."""
    if options.get("past_key_values") is not None:
        raise ValueError("past_key_values: an encoder has no cache. PEFT's prefix tuning needs one; use prompt tuning.")
    check_inputs(model, tokens, attention_mask)
    if model.config.task_type_vocab_size:
        tokens = with_tasks(model.config, tokens, options.pop("task_type_ids", None))
    given, mask = tokens.ids_or_embeddings, attention_mask
    if isinstance(mask, torch.Tensor):
        mask = mask.to(given.device)
    documents = None if tokens.position_ids is None else documents_of(model, tokens, mask)
    if tokens.position_ids is None:
        tokens = tokens._replace(position_ids=count_positions(model, given))
    if model.config.dropped_token_id is not None:
        tokens = with_masks_dropped(model, tokens, mask)
    if documents is None and hides_nothing(model, given, mask):
        return Batch(tokens, dict.fromkeys(model.layer_types, EVERYTHING))
    kept, states = unread_padding(model, mask, read, options, documents, reads_first), empty_states(model, given)
    make = partial(make_layout, model.config, ENCODER_MASKS, states, documents=documents)
    layer_types = dict.fromkeys(model.layer_types)
    if kept is None:
        mask = pairs_as_read(model.config, mask, states)
        return Batch(tokens, {layer_type: make(layer_type, mask) for layer_type in layer_types})
    shows_weights = asks_for(model.config, options, "output_attentions")
    layouts = {each: lay_out(model, each, make, mask, states, kept, shows_weights) for each in layer_types}
    return Batch(Tokens(*(each if each is None else keep(each, kept) for each in tokens)), layouts, kept)
