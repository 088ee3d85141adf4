"""What some encoders do with tokens before their blocks: tasks beside segments (ERNIE), a scale for masks (ESM-2)."""

import torch
from torch import nn

from .batch import Tokens, is_pad_mask, is_traced
from .inputs import check_values

MASKED = 0.15 * 0.8  # of the tokens that ESM-2 was trained with


class TfmTaskEmbedding(nn.Embedding):
    """Embeddings of segments plus those of tasks (Sun et al. 2019), of ids that hold both: see `with_tasks`."""

    def __init__(self, config):
        super().__init__(config.type_vocab_size, config.position_size)
        self.tasks = nn.Embedding(config.task_type_vocab_size, config.position_size)

    def forward(self, ids: torch.LongTensor) -> torch.Tensor:
        return super().forward(ids % self.num_embeddings) + self.tasks(ids // self.num_embeddings)


def with_tasks(config, tokens: Tokens, tasks: torch.LongTensor | None) -> Tokens:
    """Tokens whose segments hold tasks `(batch, length)` too: segment plus number of segments times task."""
    if tasks is None:
        return tokens
    shape = tokens.ids_or_embeddings.shape[:2]
    if tasks.is_floating_point() or tasks.shape not in (shape, (1, shape[1])):
        found = f"task_type_ids of type {tasks.dtype} and shape {tuple(tasks.shape)}"
        raise ValueError(f"{found} should be integers of shape {tuple(shape)}.")
    check_values("task_type_ids", tasks, config.task_type_vocab_size, "the tasks (task_type_vocab_size)")
    segments = 0 if tokens.token_type_ids is None else tokens.token_type_ids
    return tokens._replace(token_type_ids=segments + config.type_vocab_size * tasks)


def with_masks_dropped(model, tokens: Tokens, attention_mask: torch.Tensor | None, documents=None) -> Tokens:
    """Tokens with embeddings instead of ids: zero at masks, others larger the more masks a sequence has, as if
    dropout had left out what is masked (Lin et al. 2023). A row with masks holds one of the `documents` alone."""
    ids = tokens.ids_or_embeddings
    if ids.dim() == 3:
        return tokens
    masks, lengths = ids == model.config.dropped_token_id, ids.shape[1]
    if documents is not None and not is_traced(ids) and masks.any():
        causes = "position_ids begin anew within a row, whose masks (dropped_token_id) would scale all its sequences"
        raise ValueError(f"{causes}. Give each sequence a row of its own, padded.")
    lengths = attention_mask.to(ids.device).sum(dim=1) if is_pad_mask(attention_mask) else lengths
    scale = (1 - MASKED) / (1 - masks.sum(dim=1).float() / lengths)
    embeddings = model.embeddings.embed_tokens(ids).masked_fill(masks.unsqueeze(-1), 0.0)
    return tokens._replace(ids_or_embeddings=(embeddings * scale[:, None, None]).to(embeddings.dtype))
