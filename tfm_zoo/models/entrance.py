"""The entrance of encoders: a caller's arguments, then which tokens are computed, then who attends to whom."""

import torch

from .batch import EVERYTHING, Batch, Tokens
from .compat import CACHE
from .inputs import asks_for, check_inputs, count_positions, documents_of, is_traced, marks_padding
from .masks import empty_states, find_layouts, hides_only_padding
from .padding import find_kept, keep_tokens, leave_out, unless_padding_counts


def encoder_batch(
    model, tokens: Tokens, attention_mask, options: dict, read_positions=None, reads_first=False, takes_documents=True
) -> Batch:
    """Makes an encoder's batch from the inputs of [`TfmBertModel`], and its further `options`. `reads_first`: the
    caller reads the first position of each sequence, even if it is padding; `takes_documents`: several may be packed
    into a row."""
    if any(options.get(name) is not None for name in ("past_key_values", CACHE)):
        raise ValueError("past_key_values: an encoder has no cache. PEFT's prefix tuning needs one; use prompt tuning.")
    given = tokens.ids_or_embeddings
    check_inputs(model, tokens, attention_mask)
    mask = attention_mask.to(given.device) if isinstance(attention_mask, torch.Tensor) else attention_mask
    documents = None if tokens.position_ids is None else documents_of(model, tokens, mask)
    if documents is not None and not (takes_documents or is_traced(documents)):
        raise ValueError("position_ids begin anew within a row: each source should be a row of its own, padded.")
    if tokens.position_ids is None:
        tokens = tokens._replace(position_ids=count_positions(model, given))
    tokens = model.complete_tokens(tokens, mask, documents, options)

    kept = None
    if marks_padding(mask):
        mask, kept = leave_out(mask, read_positions, reads_first, documents)
    elif mask is None and documents is not None:
        kept = find_kept(torch.ones_like(documents), documents=documents)
    if mask is None and documents is None and hides_only_padding(model, given):
        return Batch(tokens, dict.fromkeys(model.layer_types, EVERYTHING))
    # A caller who asks for hidden states gets copies with the padding restored, to which no gradient would flow.
    is_copied = torch.is_grad_enabled() and asks_for(model.config, options, "output_hidden_states")
    has_bias = documents is not None and model.position_bias is not None
    kept = None if is_copied or has_bias else unless_padding_counts(model, kept)
    tokens = keep_tokens(tokens, kept)
    states, shows_weights = empty_states(model, given), asks_for(model.config, options, "output_attentions")
    layouts = find_layouts(model, states, mask, kept, shows_weights, documents=documents)
    return Batch(tokens, layouts, kept, attention_mask=mask)
