"""What encoders and decoders share: embeddings, a stack of blocks, and the check of every id that indexes a table."""

import sys

import torch
from torch import nn

from .embeddings import TfmEmbeddings
from .inputs import check_ids, check_range
from .layers import TfmLayer
from .norms import make_norm
from .positions import TfmRotaryEmbedding


class TfmStack:
    """Gives a `PreTrainedModel` its modules (`add_stack`), and takes ids to what the first block reads (`embed`)."""

    prefix = ""  # of its arguments' and its vocabulary's names, as the user knows them

    @property
    def stack_config(self):
        """The configuration, as far as it concerns the stack."""
        return self.config

    def add_stack(self, is_causal: bool, has_cross_attention: bool = False) -> None:
        config, wanted = self.stack_config, self.config_class
        if config.model_type != wanted.model_type:  # not by class: code that travelled has a class of its own
            raise ValueError(
                f"{type(self).__name__} is made from a {wanted.__name__}, not from a {type(config).__name__}."
            )
        self.embeddings = TfmEmbeddings(config)
        self.rotary_emb = TfmRotaryEmbedding(config) if config.position_embedding_type == "rotary" else None
        self.layers = nn.ModuleList(
            TfmLayer(config, index, is_causal, has_cross_attention) for index in range(config.num_hidden_layers)
        )
        self.norm = make_norm(config) if config.final_norm else nn.Identity()

    def embed(
        self,
        input_ids: torch.LongTensor | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.LongTensor | None,
        position_ids: torch.LongTensor,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor] | None]:
        """Hidden states `(batch, length, hidden_size)`, and cosines and sines for models with rotary positions."""
        hidden_states = self.embeddings(input_ids, inputs_embeds, token_type_ids, position_ids)
        return hidden_states, None if self.rotary_emb is None else self.rotary_emb(hidden_states, position_ids)

    def check_ids(
        self,
        input_ids: torch.LongTensor | None,
        token_type_ids: torch.LongTensor | None,
        position_ids: torch.LongTensor | None,
        position_range: tuple[int, int] | None,
    ) -> None:
        """Every id has a row in its table.

        Args:
            position_range: the first and the last position, where they are known without a look at the device; they are
                then checked in place of `position_ids`.
        """
        config, tables = self.stack_config, self.embeddings
        # A table may have grown; one that an adapter is wrapped around does not say.
        rows = getattr(tables.embed_tokens, "num_embeddings", config.vocab_size)
        vocabulary = f"the vocabulary ({self.prefix}vocab_size)"
        check_ids(f"{self.prefix}input_ids", input_ids, rows, vocabulary)
        if config.token_types_as_tokens:
            check_ids("token_type_ids", token_type_ids, rows, vocabulary)
        elif config.type_vocab_size:
            check_ids("token_type_ids", token_type_ids, config.type_vocab_size, "the segments (type_vocab_size)")
        name = f"{self.prefix}position_ids"
        if config.position_embedding_type == "learned":
            rows = config.max_position_embeddings
            of = "the learned positions (max_position_embeddings, for prompt and new tokens together)"
            if position_range is None:
                check_ids(name, position_ids, rows, of)
            else:
                check_range(name, *position_range, rows, of)
        elif config.position_embedding_type == "sinusoidal" and position_range is None:
            check_ids(name, position_ids, sys.maxsize, "the positions")
