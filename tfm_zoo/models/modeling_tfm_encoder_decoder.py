"""The encoder-decoder family: the Transformer of *Attention Is All You Need* (Vaswani et al. 2017)."""

from collections.abc import Mapping

import torch
from torch import nn
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers import initialization as init
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    Seq2SeqSequenceClassifierOutput,
)

from .attention import TfmAttention, TfmCrossAttention
from .cache import share_sources
from .compat import OutputRecorder, TransformersKwargs, Unpack, can_return_tuple, create_bidirectional_mask
from .configuration_tfm_encoder_decoder import DecoderSide, TfmEncoderDecoderConfig
from .decoder import TfmDecoder
from .encoder import TfmEncoder
from .generation import TfmGenerationMixin
from .inputs import (
    check_encoder_states,
    check_inputs,
    check_is_cache,
    check_label_ids,
    check_labels,
    check_source,
    one_of,
)
from .layers import TfmLayer
from .losses import labelled_only, logits_loss, select_positions, vocabulary_loss
from .pretrained import TfmPreTrainedModel
from .targets import real_tokens, shift_right
from .unpadding import find_padding, is_traced, marks_padding

SOURCE, TARGET = "encoder.embeddings.embed_tokens.weight", "decoder.embeddings.embed_tokens.weight"


class TfmEncoderDecoderPreTrainedModel(TfmPreTrainedModel):
    """Base of the family's models."""

    config_class = TfmEncoderDecoderConfig
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if self.config.weight_init == "xavier" and isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
        elif self.config.weight_init == "xavier" and isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])

    def fingerprint_inputs(self) -> dict[str, torch.LongTensor]:
        """Two sources, and, but for those who read no target of their own, two targets."""
        inputs = super().fingerprint_inputs()
        if isinstance(self, (TfmEncoderDecoderModel, TfmEncoderDecoderForConditionalGeneration)):
            inputs["decoder_input_ids"] = self.ids_and_mask(self.config.decoder_vocab_size, length=5)["input_ids"]
        return inputs

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Two fields say what is tied, and not `tie_word_embeddings` alone."""
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys or {})

    def init_parallel_plans(self) -> None:
        """The configuration's plans name both stacks. A model has its part of them, and a stack by itself none."""
        super().init_parallel_plans()
        # Tensor parallelism shards no buffer, which this bias is: the head stays whole, with what it is tied to.
        whole = ("embed_tokens", "lm_head") if self.config.final_logits_bias else ()
        for name in ("_tp_plan", "_fsdp_plan"):
            mine = {key: how for key, how in getattr(self, name).items() if hasattr(self, key.partition(".")[0])}
            setattr(self, name, {key: how for key, how in mine.items() if not key.endswith(whole)})

    def _resize_token_embeddings(
        self, new_num_tokens: int | None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """The source's part of `resize_token_embeddings`, and, where the two are shared, the target's."""
        sizes = (new_num_tokens, pad_to_multiple_of, mean_resizing)
        embeddings = self._get_resized_embeddings(self.get_input_embeddings(), *sizes)
        self.set_input_embeddings(embeddings)
        if self.config.share_encoder_decoder_embeddings:
            self.resize_output(embeddings.num_embeddings, mean_resizing)
        return embeddings

    def resize_decoder_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """What `resize_token_embeddings` does, for a target with a vocabulary of its own: its embeddings and the output
        projection.

        Raises:
            ValueError: for a model whose target has no embeddings of its own.
        """
        decoder = getattr(self.base_model, "decoder", None)
        if decoder is None or self.config.share_encoder_decoder_embeddings:
            shared = f"share_encoder_decoder_embeddings={self.config.share_encoder_decoder_embeddings}"
            raise ValueError(
                f"The target of this {type(self).__name__} has no embeddings of its own ({shared}): "
                "resize_token_embeddings resizes those there are."
            )
        sizes = (new_num_tokens, pad_to_multiple_of, mean_resizing)
        embeddings = self._get_resized_embeddings(decoder.get_input_embeddings(), *sizes)
        decoder.set_input_embeddings(embeddings)
        self.resize_output(embeddings.num_embeddings, mean_resizing)
        self.tie_weights()
        return embeddings

    def resize_output(self, size: int, mean_resizing: bool) -> None:
        """Gives the output projection, where there is one, the size of the target's vocabulary."""
        self.config.decoder_vocab_size = size
        old = self.get_output_embeddings()
        if old is None:
            return
        before, trained = old.out_features, old.weight.requires_grad
        new = self._get_resized_lm_head(old, size, mean_resizing=mean_resizing).requires_grad_(trained)
        if new is not old and self.config.final_logits_bias:
            keep_bias_untrained(new)
            new.bias[before:] = 0.0
        self.set_output_embeddings(new)


class TfmEncoderStack(TfmEncoder, TfmEncoderDecoderPreTrainedModel):
    """The encoder's blocks, and its embeddings."""

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.add_stack(is_causal=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Inputs and outputs as documented at [`TfmEncoderDecoderEncoder`]."""
        attention_mask = real_tokens(self.config, input_ids, attention_mask)
        return self.encode(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs)


class TfmDecoderStack(TfmDecoder, TfmEncoderDecoderPreTrainedModel):
    """The decoder's blocks, and its embeddings."""

    prefix = "decoder_"
    _can_record_outputs = {
        "hidden_states": TfmLayer,
        "attentions": OutputRecorder(TfmAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(TfmCrossAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.side = DecoderSide(config)
        self.add_stack(is_causal=True, has_cross_attention=True)
        self.post_init()

    @property
    def stack_config(self) -> DecoderSide:
        return self.side

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | dict[str, torch.Tensor] | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Inputs as the decoder's of [`TfmEncoderDecoderModel`], and:

        Args:
            encoder_hidden_states: `(batch, source length, hidden_size)`.
            encoder_attention_mask: `(batch, source length)`, 1 at real tokens and 0 at padding.
        """
        rows, length = self.check_target(input_ids, inputs_embeds, past_key_values)
        source = check_encoder_states(self.config, encoder_hidden_states)
        check_source(self.config, source, encoder_attention_mask, (rows, length), past_key_values)
        use_cache = self.wants_cache(use_cache)
        if past_key_values is None and use_cache:
            past_key_values = DynamicCache(config=self.config)
        if past_key_values is not None and not isinstance(past_key_values, EncoderDecoderCache):
            past_key_values = EncoderDecoderCache(past_key_values, DynamicCache())
        if past_key_values is not None and not past_key_values.is_updated.get(0):
            share_sources(past_key_values, encoder_hidden_states, encoder_attention_mask)

        beams = 1 if past_key_values is None else getattr(past_key_values.cross_attention_cache, "beams", 1)
        encoder_hidden_states = encoder_hidden_states[::beams]
        encoder_attention_mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=encoder_hidden_states.new_empty(rows // beams, beams * length, 0),
            attention_mask=None if encoder_attention_mask is None else encoder_attention_mask[::beams],
            encoder_hidden_states=encoder_hidden_states,
        )
        if marks_padding(encoder_attention_mask):
            # Flash attention's. transformers would take the source's last columns for the target's own mask.
            encoder_attention_mask = find_padding(encoder_attention_mask, "cross") or encoder_attention_mask
        outputs = self.decode(
            input_ids,
            attention_mask,
            position_ids,
            None if past_key_values is None else past_key_values.self_attention_cache,
            inputs_embeds,
            None,
            use_cache,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            encoder_cache=past_key_values,
            **kwargs,
        )
        outputs.past_key_values = past_key_values if use_cache else None
        return outputs

    def check_target(
        self, input_ids: torch.LongTensor | None, inputs_embeds: torch.Tensor | None, past_key_values: Cache | None
    ) -> tuple[int, int]:
        """What has to hold before more can be checked. Returns (batch, length)."""
        check_is_cache(past_key_values)
        return check_inputs(self.side, input_ids, None, None, None, inputs_embeds, prefix=self.prefix)

    def check_all(
        self,
        input_ids: torch.LongTensor | None,
        attention_mask: torch.Tensor | None,
        position_ids: torch.LongTensor | None,
        past_key_values: Cache | None,
        inputs_embeds: torch.Tensor | None,
        source: tuple[int, int],
        source_mask: torch.Tensor | None,
    ) -> None:
        """Before an encoder has read a source of (batch, length): all that there would be to refuse after it has."""
        target = self.check_target(input_ids, inputs_embeds, past_key_values)
        check_source(self.config, source, source_mask, target, past_key_values)
        own = getattr(past_key_values, "self_attention_cache", past_key_values)
        self.check_decoded(input_ids, attention_mask, position_ids, own, inputs_embeds)


class TfmEncoderDecoderModel(TfmEncoderDecoderPreTrainedModel):
    """The encoder and the decoder."""

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self._tied_weights_keys = {TARGET: SOURCE} if config.share_encoder_decoder_embeddings else None
        self.encoder = TfmEncoderStack(config)
        self.decoder = TfmDecoderStack(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.set_input_embeddings(value)
        if self.config.share_encoder_decoder_embeddings:
            self.decoder.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | dict[str, torch.Tensor] | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """
        Args:
            input_ids: `(batch, source length)`; or else `inputs_embeds`, or `encoder_outputs`.
            attention_mask: `(batch, source length)`, 1 at real tokens and 0 at padding. `None`: padding is where
                `input_ids` are `pad_token_id`.
            decoder_input_ids: `(batch, length)`, the target's tokens that the cache does not hold; or else
                `decoder_inputs_embeds`. `None`: the source's, shifted to the right, where the two share
                embeddings (BART's denoising).
            decoder_attention_mask: `(batch, seen + length)`, those `seen` in the cache first, or
                `(batch, 1, length, seen + length)`. `None`: all are real. (No real token sees padding to its right.)
            encoder_outputs: the encoder's, in place of its inputs, or a tuple that begins with its last hidden state
                `(batch, source length, hidden_size)`.
            past_key_values: an `EncoderDecoderCache`, or a cache for the decoder's own keys; it is written to. Its part
                for the source is replaced, where it is empty, by one that holds each source once for all rows that read
                it, but for a static one with just the room that is needed.
            inputs_embeds: `(batch, source length, hidden_size)`: what `get_input_embeddings()` makes of ids.
            decoder_inputs_embeds: `(batch, length, hidden_size)`, likewise of the target.
            use_cache: whether to return a cache. `None`: `config.use_cache`, but not while training.
            token_type_ids: `(batch, source length)`, read where the configuration gives them embeddings.
            position_ids: `(batch or 1, source length)`. `None`: counted from the left, padding included, or over real
                tokens (`config.position_ids_from_padding`).
            decoder_position_ids: `(batch or 1, length)`. `None`: counted on from the cache's, in the same way.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict`.

        Returns:
            `last_hidden_state` `(batch, length, hidden_size)` of the decoder; `encoder_last_hidden_state`
            `(batch, source length, hidden_size)`, zero at padding where `config.skip_padding` took effect;
            `past_key_values`; where asked for `decoder_hidden_states`, `decoder_attentions`, `cross_attentions`,
            `encoder_hidden_states` and `encoder_attentions`.

        Raises:
            ValueError: for inputs that do not fit each other, the cache or the model; the message names the value.
        """
        kwargs["return_dict"] = True  # whatever the config says: the decorator makes tuples
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if input_ids is None or not self.config.share_encoder_decoder_embeddings:
                raise ValueError(
                    "Neither decoder_input_ids nor decoder_inputs_embeds is given. They follow from labels, or from "
                    "input_ids where source and target have one vocabulary (share_encoder_decoder_embeddings)."
                )
            decoder_input_ids = shift_right(self.config, input_ids)
        attention_mask = real_tokens(self.config, input_ids, attention_mask)
        target = (decoder_input_ids, decoder_attention_mask)
        past = (past_key_values, decoder_inputs_embeds)
        if encoder_outputs is None:
            source = check_inputs(self.config, input_ids, None, None, None, inputs_embeds)
            self.decoder.check_all(*target, decoder_position_ids, *past, source, attention_mask)
            encoder_outputs = self.encoder(
                input_ids, attention_mask, inputs_embeds, position_ids, token_type_ids, **kwargs
            )
        encoder_outputs = as_encoder_outputs(encoder_outputs)
        source = (encoder_outputs.last_hidden_state, attention_mask)
        outputs = self.decoder(*target, *source, *past, decoder_position_ids, use_cache, **kwargs)
        return Seq2SeqModelOutput(
            last_hidden_state=outputs.last_hidden_state,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.hidden_states,
            decoder_attentions=outputs.attentions,
            cross_attentions=outputs.get("cross_attentions"),
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


class TfmEncoderDecoderForConditionalGeneration(TfmEncoderDecoderPreTrainedModel, TfmGenerationMixin):
    """The encoder and the decoder with a projection onto the target's vocabulary, by default tied to its embeddings."""

    _tied_weights_keys = {"lm_head.weight": f"model.{TARGET}"}
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.model = TfmEncoderDecoderModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.decoder_vocab_size, bias=False)
        if config.final_logits_bias:
            keep_bias_untrained(self.lm_head)
        shared = config.share_encoder_decoder_embeddings
        ties = {"lm_head.weight": f"model.{SOURCE if shared else TARGET}"}
        self._tied_weights_keys = ties if config.tie_word_embeddings else None
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | dict[str, torch.Tensor] | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        return_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """Inputs as for [`TfmEncoderDecoderModel`], and:

        Args:
            labels: `(batch, length)`, what each position of the decoder is to predict, -100 where there is nothing: the
                target itself. Where `decoder_input_ids` are not given, they are the labels, shifted to the right.
            logits_to_keep: how many positions of the decoder, counted from the end, to make logits for, 0 for all; or
                which, as indices `(positions,)` or `(batch, positions)`, or true in `(batch, length)`.
            num_items_in_batch: labelled tokens of the whole optimizer step, which the summed loss is divided by.
            return_logits: whether to make logits. `None`: unless training on labels, where the loss is computed
                without ever holding those of all positions.
        """
        if labels is not None:
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
            inputs = one_of(decoder_input_ids, decoder_inputs_embeds, "decoder_")
            vocabulary = (self.lm_head.out_features, "the vocabulary (decoder_vocab_size)")
            check_labels(labels, inputs.shape[:2], *vocabulary, inputs="the decoder's inputs")
            use_cache = False
        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            past_key_values,
            inputs_embeds,
            decoder_inputs_embeds,
            use_cache,
            **kwargs | {"return_dict": True},
        )
        hidden_states, loss, logits = outputs.last_hidden_state, None, None
        if return_logits or (return_logits is None and not (self.training and labels is not None)):
            logits = self.lm_head(select_positions(hidden_states, logits_to_keep))
        if labels is not None and logits is not None and logits.shape[:-1] == labels.shape:
            loss = logits_loss(logits, labels, num_items_in_batch)
        elif labels is not None:
            states, targets = labelled_only(hidden_states, labels)
            loss = vocabulary_loss(states, self.lm_head, targets, num_items_in_batch)
        return Seq2SeqLMOutput(loss=loss, logits=logits, **without_last_hidden_state(outputs))

    def generate(self, inputs: torch.Tensor | None = None, *args, **kwargs):
        """As in transformers; but `attention_mask=None` is made from `pad_token_id` here as in `forward`, since the
        decoder will see the encoder's states alone."""
        ids = kwargs.get("input_ids", inputs)
        if kwargs.get("attention_mask") is None and isinstance(ids, torch.Tensor) and ids.dim() == 2:
            kwargs["attention_mask"] = real_tokens(self.config, ids, None)
        return super().generate(inputs, *args, **kwargs)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.LongTensor) -> torch.LongTensor:
        """`(batch, length)` labels, shifted to the right; transformers' data collators call it."""
        return shift_right(self.config, labels)


class TfmEncoderDecoderClassificationHead(nn.Module):
    """A classifier with one hidden layer, as BART's."""

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.out_proj = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(batch, hidden_size)` to `(batch, num_labels)`."""
        return self.out_proj(self.dropout(self.dense(self.dropout(hidden_states)).tanh()))


class TfmEncoderDecoderForSequenceClassification(TfmEncoderDecoderPreTrainedModel):
    """A classifier (or a regressor) of the source, on the decoder's state at the last end-of-sequence token."""

    accepts_loss_kwargs = False

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TfmEncoderDecoderModel(config)
        self.classification_head = TfmEncoderDecoderClassificationHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqSequenceClassifierOutput:
        """Inputs as for [`TfmEncoderDecoderModel`], with `input_ids`, in which the end-of-sequence tokens are, and:

        Args:
            labels: `(batch,)` classes or values, or `(batch, num_labels)`; `config.problem_type` says which, and is
                set from the labels where it is `None`.
        """
        last = self.last_end(input_ids)
        if decoder_input_ids is not None and decoder_input_ids.shape != input_ids.shape:
            shapes = [tuple(ids.shape) for ids in (decoder_input_ids, input_ids)]
            raise ValueError(
                f"decoder_input_ids of shape {shapes[0]} should be of shape {shapes[1]}, as input_ids: the classifier "
                "reads the decoder where the source ends."
            )
        check_label_ids(labels, input_ids.shape[:1], self.num_labels)
        outputs = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            use_cache=False if labels is not None else use_cache,
            **kwargs | {"return_dict": True},
        )
        hidden_states = outputs.last_hidden_state
        rows = torch.arange(len(hidden_states), device=hidden_states.device)
        logits = self.classification_head(hidden_states[rows, last.to(hidden_states.device)])
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return Seq2SeqSequenceClassifierOutput(loss=loss, logits=logits, **without_last_hidden_state(outputs))

    def last_end(self, input_ids: torch.LongTensor | None) -> torch.LongTensor:
        """`(batch,)`, where the last end-of-sequence token of each source stands."""
        if input_ids is None:
            raise ValueError("input_ids=None: the classifier reads the state at their last end-of-sequence token.")
        if self.config.eos_token_id is None:
            raise ValueError("eos_token_id=None: the classifier reads the state at the last token that has it.")
        if input_ids.dim() != 2:
            raise ValueError(f"input_ids of shape {tuple(input_ids.shape)} should be of shape (batch, length).")
        ends = torch.isin(input_ids, torch.tensor(self.config.eos_token_id, device=input_ids.device))
        if not is_traced(input_ids) and not ends.any(dim=1).all():
            row = int((~ends.any(dim=1)).nonzero()[0])
            raise ValueError(f"Sequence {row} of input_ids has no eos_token_id={self.config.eos_token_id} in it.")
        return (ends * torch.arange(input_ids.shape[1], device=input_ids.device)).argmax(dim=-1)


class TfmEncoderDecoderEncoder(TfmEncoderDecoderPreTrainedModel):
    """The encoder alone."""

    _keys_to_ignore_on_load_unexpected = [r"^(model\.)?decoder\.", r"^lm_head\.", r"^classification_head\."]

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.encoder = TfmEncoderStack(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """
        Args:
            input_ids: `(batch, length)`; or else `inputs_embeds`.
            attention_mask: `(batch, length)`, 1 at real tokens and 0 at padding, or `(batch, 1, length, length)`.
                `None`: padding is where `input_ids` are `pad_token_id`.
            inputs_embeds: `(batch, length, hidden_size)`: what `get_input_embeddings()` makes of ids.
            position_ids: `(batch or 1, length)`. `None`: counted from the left, padding included, or over real tokens
                (`config.position_ids_from_padding`).
            token_type_ids: `(batch, length)`, read where the configuration gives them embeddings.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict`.

        Returns:
            `last_hidden_state` `(batch, length, hidden_size)`, zero at padding where `config.skip_padding` took
            effect; `hidden_states` and `attentions` where asked for.

        Raises:
            ValueError: for inputs that do not fit each other, or the model; the message names the value.
        """
        inputs = (input_ids, attention_mask, inputs_embeds, position_ids, token_type_ids)
        return self.encoder(*inputs, **kwargs | {"return_dict": True})


def as_encoder_outputs(outputs: object) -> BaseModelOutput:
    """What an encoder gave, or a user in its place: a mapping with the names of [`BaseModelOutput`], or a tuple."""
    if isinstance(outputs, Mapping):
        return BaseModelOutput(**{name: outputs.get(name) for name in BaseModelOutput.__dataclass_fields__})
    if isinstance(outputs, tuple | list):
        return BaseModelOutput(*outputs[:3])
    raise ValueError(
        f"encoder_outputs is a {type(outputs).__name__}; it should be what the encoder returns, or a tuple that begins "
        "with its last hidden state."
    )


def keep_bias_untrained(lm_head: nn.Linear) -> None:
    """Makes the bias of a projection, zero where it has none, a buffer: it is saved, and takes part in no training."""
    bias = lm_head._parameters.pop("bias")
    lm_head.register_buffer("bias", torch.zeros(lm_head.out_features) if bias is None else bias.detach())


def without_last_hidden_state(outputs: Seq2SeqModelOutput) -> dict:
    """What a head passes on."""
    return {name: value for name, value in outputs.items() if name != "last_hidden_state"}


__all__ = [
    "TfmEncoderDecoderConfig",
    "TfmEncoderDecoderEncoder",
    "TfmEncoderDecoderForConditionalGeneration",
    "TfmEncoderDecoderForSequenceClassification",
    "TfmEncoderDecoderModel",
    "TfmEncoderDecoderPreTrainedModel",
]
