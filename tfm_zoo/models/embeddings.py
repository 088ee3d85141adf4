"""From token ids to the residual stream's first value."""

import torch
from torch import nn

from .norms import make_norm
from .positions import TfmSinusoidalPositions


class TfmScaledEmbedding(nn.Embedding):
    """Embeddings that are looked up times the square root of their width (Vaswani et al. 2017, section 3.4).

    Those tied to it, the output projection's, are as they are.
    """

    def forward(self, input_ids: torch.LongTensor) -> torch.Tensor:
        return super().forward(input_ids) * self.embedding_dim**0.5


class TfmEmbeddings(nn.Module):
    """Token, position and segment embeddings, summed, normalised where the config says so, and dropped out.

    Rotary positions are not added here: attention applies them.
    """

    def __init__(self, config):
        super().__init__()
        width, padding_idx = config.hidden_size, config.pad_token_id
        untrained = None if config.train_padding_embedding else padding_idx
        table = TfmScaledEmbedding if config.scale_embedding else nn.Embedding
        self.embed_tokens = table(config.vocab_size, width, padding_idx=untrained)
        self.embed_positions = None
        if config.position_embedding_type == "learned":
            # Where padding has a position of its own, that row stays zero and gets no gradient.
            padding_position = padding_idx if config.position_ids_from_padding else None
            rows = config.max_position_embeddings + config.position_offset
            self.embed_positions = nn.Embedding(rows, width, padding_idx=padding_position)
        elif config.position_embedding_type == "sinusoidal":
            self.embed_positions = TfmSinusoidalPositions(config)
        self.embed_token_types = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.token_types_as_tokens = config.token_types_as_tokens
        self.position_offset = config.position_offset
        self.norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.embedding_dropout)

    def forward(
        self,
        input_ids: torch.LongTensor | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.LongTensor | None,
        position_ids: torch.LongTensor,
    ) -> torch.Tensor:
        """Ids `(batch, length)`, or `inputs_embeds`, to `(batch, length, hidden_size)`."""
        embeddings = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if self.embed_token_types is not None:
            segments = torch.zeros_like(position_ids) if token_type_ids is None else token_type_ids
            embeddings = embeddings + self.embed_token_types(segments)
        elif self.token_types_as_tokens and token_type_ids is not None:
            embeddings = embeddings + self.embed_tokens(token_type_ids)
        if self.embed_positions is not None:
            if self.position_offset:
                position_ids = position_ids + self.position_offset
            embeddings = embeddings + self.embed_positions(position_ids).to(embeddings.dtype)
        return self.dropout(self.norm(embeddings))
