"""The two vocabularies of an encoder-decoder: how they are resized, and the projection onto the target's."""

import torch
from torch import nn


class TfmOutputProjection(nn.Linear):
    """A projection onto the vocabulary with an untrained bias, which is a saved buffer (Marian, BART)."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__(in_features, out_features, bias=False)
        del self.bias
        self.register_buffer("bias", torch.zeros(out_features))


class TwoVocabularies:
    """How a model with a source and a target finds and resizes its embeddings."""

    def get_input_embeddings(self) -> nn.Module:
        """The source's; of a stack, its own."""
        return (self.encoder if "encoder" in self._modules else super()).get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        (self.encoder if "encoder" in self._modules else super()).set_input_embeddings(value)
        if "decoder" in self._modules and self.config.share_encoder_decoder_embeddings:
            self.decoder.set_input_embeddings(value)

    def _resize_token_embeddings(
        self, new_num_tokens: int | None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resizes the source's embeddings, and the target's if they are shared, for `resize_token_embeddings`."""
        for name in ("decoder_vocab_size", "share_encoder_decoder_embeddings"):
            setattr(self.config, name, getattr(self.config, name))  # no longer derived from the source's size
        sizes = (new_num_tokens, pad_to_multiple_of, mean_resizing)
        embeddings = self._get_resized_embeddings(self.get_input_embeddings(), *sizes)
        self.set_input_embeddings(embeddings)
        if self.config.share_encoder_decoder_embeddings:
            self.resize_output(embeddings.num_embeddings, mean_resizing)
        return embeddings

    def resize_decoder_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """`resize_token_embeddings` for a target with its own vocabulary: its embeddings and the output projection.
        Raises a `ValueError` for a model whose target has no embeddings of its own."""
        decoder = getattr(self.base_model, "decoder", None)
        if decoder is None or self.config.share_encoder_decoder_embeddings:
            shared = f"share_encoder_decoder_embeddings={self.config.share_encoder_decoder_embeddings}"
            raise ValueError(f"The target has no embeddings of its own ({shared}): call resize_token_embeddings.")
        sizes = (new_num_tokens, pad_to_multiple_of, mean_resizing)
        embeddings = self._get_resized_embeddings(decoder.get_input_embeddings(), *sizes)
        decoder.set_input_embeddings(embeddings)
        self.resize_output(embeddings.num_embeddings, mean_resizing)
        self.tie_weights()
        return embeddings

    def resize_output(self, size: int, mean_resizing: bool) -> None:
        """Gives the output projection, if any, the size of the target's vocabulary."""
        self.config.decoder_vocab_size = size
        old = self.get_output_embeddings()
        if old is None:
            return
        is_trained = old.weight.requires_grad
        new = self._get_resized_lm_head(old, size, mean_resizing=mean_resizing).requires_grad_(is_trained)
        if new is not old and self.config.final_logits_bias:
            resized, common = new, min(old.out_features, size)  # the other biases become zero
            new = TfmOutputProjection(resized.in_features, resized.out_features)
            new.weight, new.bias = resized.weight, torch.zeros_like(resized.bias.detach())
            new.bias[:common] = resized.bias.detach()[:common]
            new._is_hf_initialized = True  # or transformers would give it new weights
        self.set_output_embeddings(new)
