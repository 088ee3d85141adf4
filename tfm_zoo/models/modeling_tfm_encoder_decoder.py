"""The encoder-decoder family: the Transformer of *Attention Is All You Need* (Vaswani et al. 2017)."""

from collections import OrderedDict

import torch
from torch import nn
from transformers import Cache, EncoderDecoderCache
from transformers.modeling_outputs import (
    BaseModelOutput,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    Seq2SeqQuestionAnsweringModelOutput,
    Seq2SeqSequenceClassifierOutput,
    TokenClassifierOutput,
)

from .batch import Tokens
from .cache import TfmGenerationMixin
from .compat import CACHE, TransformersKwargs, Unpack, can_return_tuple
from .configuration_tfm_encoder_decoder import TfmEncoderDecoderConfig
from .decoder_entrance import decoder_batch
from .encoder_decoder_stacks import TfmDecoderStack, TfmEncoderDecoderPreTrainedModel, TfmEncoderStack
from .entrance import encoder_batch
from .inputs import Inputs, given_in, one_of, takes_inputs_of
from .losses import answers, check_answers, check_classes, check_labels, labelled, sequence_loss, token_loss
from .next_tokens import next_tokens, positions_to_read, read_states
from .norms import multiplier
from .source import (
    as_encoder_outputs,
    check_encoder_states,
    check_source,
    default_mask,
    last_ends,
    shift_right,
    source_as_target,
    target_in,
    with_shared_source,
)
from .stack import passed_on
from .vocabularies import TfmOutputProjection

SOURCE, TARGET = "encoder.embeddings.embed_tokens.weight", "decoder.embeddings.embed_tokens.weight"


class TfmEncoderDecoderModel(TfmEncoderDecoderPreTrainedModel):
    """The encoder and the decoder."""

    reads_target = True

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
        read_positions: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """
        Args:
            input_ids, attention_mask, inputs_embeds, token_type_ids, position_ids: the source, as for [`TfmBertModel`];
                without a mask, padding is where `input_ids` are `pad_token_id`.
            encoder_outputs: the encoder's, in place of its inputs, or a tuple that begins with its last hidden state.
            decoder_input_ids: `(batch, length)`, the target's tokens after those in the cache, or else
                `decoder_inputs_embeds` `(batch, length, embedding_size)`. `None`: the source's, shifted to the right,
                if the two share embeddings (BART's denoising) and `config.reads_source_again`.
            decoder_attention_mask: `(batch, seen + length)`, those `seen` in the cache first, or
                `(batch, 1, length, seen + length)`. `None`: all are real.
            decoder_position_ids: `(batch or 1, length)`. `None`: counted from the cache's length.
            read_positions: `(batch, length)`, true where the caller reads the decoder's last hidden state, which
                may be zero after the last such position of a row. `None`: as for [`TfmGPTModel`].
            past_key_values: an `EncoderDecoderCache`, or a cache for the decoder's own keys; it is written to.
            use_cache: whether to return a cache. `None`: `config.use_cache`, but not while training.

        Returns:
            `last_hidden_state` `(batch, length, hidden_size)` of the decoder; `encoder_last_hidden_state`
            `(batch, source length, hidden_size)`; `past_key_values`; hidden states and attentions where asked for.
        """
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if not self.config.reads_source_again:
                raise ValueError(
                    "Neither decoder_input_ids nor decoder_inputs_embeds is given. The encoder needs no target; its "
                    "states sentence-transformers reads: convert with --head TfmEncoderDecoderEncoder, or save what "
                    "TfmEncoderDecoderEncoder.from_pretrained makes of this model's folder."
                )
            decoder_input_ids = source_as_target(self.config, input_ids)
        if isinstance(kwargs.get("cache"), Cache):  # its name in transformers 5.24 (a paged cache goes on to attention)
            past_key_values = kwargs.pop("cache")
        attention_mask = default_mask(self.config, input_ids, attention_mask)
        # Both sides are checked before either of them runs.
        source_batch = None
        if encoder_outputs is None:
            tokens = Tokens(one_of(input_ids, inputs_embeds), token_type_ids, position_ids)
            source_batch = encoder_batch(self.encoder, tokens, attention_mask, kwargs, takes_documents=False)
            source_shape = tokens.ids_or_embeddings.shape[:2]
        else:
            encoder_outputs = as_encoder_outputs(encoder_outputs)
            check_encoder_states(self.config, encoder_outputs.last_hidden_state)
            source_shape = encoder_outputs.last_hidden_state.shape[:2]
        tokens = Tokens(one_of(decoder_input_ids, decoder_inputs_embeds, "decoder_"), position_ids=decoder_position_ids)
        options = (past_key_values, use_cache, kwargs, read_positions)
        target_batch = decoder_batch(self.decoder, tokens, decoder_attention_mask, *options)
        check_source(self.config, source_shape, attention_mask, tokens, past_key_values)
        if source_batch is not None:
            encoder_outputs = self.encoder(batch=source_batch, return_dict=True, **kwargs)
        outputs = self.decoder(
            batch=target_batch,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask if source_batch is None else source_batch.attention_mask,
            source_kept=None if source_batch is None else source_batch.kept,
            past_key_values=past_key_values,
            position_ids=decoder_position_ids,
            return_dict=True,
            **kwargs,
        )
        target = (outputs.last_hidden_state, outputs.past_key_values, outputs.hidden_states, outputs.attentions)
        source = {f"encoder_{name}": value for name, value in encoder_outputs.items()}
        return Seq2SeqModelOutput(*target, outputs.cross_attentions, **source)


class TfmEncoderDecoderForConditionalGeneration(TfmEncoderDecoderPreTrainedModel, TfmGenerationMixin):
    """The encoder and the decoder with a projection onto the target's vocabulary, by default tied to its embeddings."""

    reads_target = True
    _tied_weights_keys = {"lm_head.weight": f"model.{TARGET}"}
    _tp_plan = {"lm_head": "colwise_rep"}
    head_fields = ("lm_head_bias", "logit_scale", "final_logit_softcapping", "final_logits_bias")

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.model = TfmEncoderDecoderModel(config)
        sizes, bias = (config.hidden_size, config.decoder_vocab_size), config.lm_head_bias
        self.lm_head = TfmOutputProjection(*sizes) if config.final_logits_bias else nn.Linear(*sizes, bias=bias)
        self.head = multiplier(config.logit_scale)
        shared = config.share_encoder_decoder_embeddings
        ties = {"lm_head.weight": f"model.{SOURCE if shared else TARGET}"}
        self._tied_weights_keys = ties if config.tie_word_embeddings else None
        self.post_init()

    @takes_inputs_of(TfmEncoderDecoderModel)
    def forward(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        *,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        return_logits: bool | None = None,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """Gives `logits` `(batch, positions, decoder_vocab_size)`, and the loss of the labels; inputs as for
        [`TfmEncoderDecoderModel`]. Beside a loss, without gradients, and unless they are asked for (`return_logits`,
        `logits_to_keep`), logits after the last real token of a row are zero (`config.skip_padding`).

        Args:
            labels: `(batch, length)`, what each position of the decoder is to predict, -100 where there is nothing.
                Decoder inputs that are not given are the labels, shifted to the right.
            logits_to_keep, num_items_in_batch, return_logits: as for [`TfmGPTForCausalLM`].
        """
        read = None
        if labels is not None:
            real = inputs["decoder_attention_mask"]
            if inputs["decoder_input_ids"] is None and inputs["decoder_inputs_embeds"] is None:
                inputs["decoder_input_ids"] = self.prepare_decoder_input_ids_from_labels(labels)
                real = labelled(labels) if real is None else real
            elif not self.training:  # (Training reads labelled positions alone, whatever is real.)
                real = default_mask(self.config, inputs["decoder_input_ids"], real)
            shape, classes = given_in(inputs, "decoder_").shape[:2], self.config.decoder_vocab_size
            check_labels(labels, shape, classes, "the vocabulary (decoder_vocab_size)", inputs="the decoder's inputs")
            inputs["use_cache"] = False  # whatever the caller says: a loss decodes nothing
            read = positions_to_read(self, labels, return_logits, logits_to_keep, real)
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        options = (logits_to_keep, num_items_in_batch, return_logits, read)
        loss, logits = next_tokens(self, outputs.last_hidden_state, labels, *options)
        return Seq2SeqLMOutput(loss=loss, logits=logits, **passed_on(outputs))

    def generate(self, inputs: torch.Tensor | None = None, *args, **kwargs):
        """As in transformers, but the default of `attention_mask` is made from `pad_token_id`, as in `forward`."""
        ids = kwargs.get("input_ids", inputs)
        if kwargs.get("attention_mask") is None and isinstance(ids, torch.Tensor) and ids.dim() == 2:
            kwargs["attention_mask"] = default_mask(self.config, ids, None)
        return super().generate(inputs, *args, **kwargs)

    def _prepare_cache_for_generation(self, generation_config, model_kwargs: dict, *args, **kwargs):
        is_callers = model_kwargs.get(CACHE) is not None
        prepared = super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        cache = model_kwargs.get(CACHE)
        if isinstance(cache, EncoderDecoderCache) and not is_callers:
            length = model_kwargs["encoder_outputs"][0].shape[1]
            model_kwargs[CACHE] = with_shared_source(cache, length)
        return prepared

    def _supports_default_dynamic_cache(self) -> bool:
        # transformers would give the source a cache of states like the target's; the decoder makes its cache itself.
        return super()._supports_default_dynamic_cache() and not self._is_stateful

    def prepare_decoder_input_ids_from_labels(self, labels: torch.LongTensor) -> torch.LongTensor:
        """`(batch, length)` labels, shifted to the right; transformers' data collators call it."""
        return shift_right(self.config, labels)


class TfmEncoderDecoderForSequenceClassification(TfmEncoderDecoderPreTrainedModel):
    """A classifier (or a regressor) of the source, on the decoder's state at the last end-of-sequence token."""

    head_fields = ("classifier_dropout",)

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TfmEncoderDecoderModel(config)
        dense, out_proj = (nn.Linear(config.hidden_size, width) for width in (config.hidden_size, config.num_labels))
        dropout, out_dropout = nn.Dropout(config.classifier_dropout), nn.Dropout(config.classifier_dropout)
        layers = OrderedDict(dropout=dropout, dense=dense, act_fn=nn.Tanh(), out_dropout=out_dropout, out_proj=out_proj)
        self.classification_head = nn.Sequential(layers)
        self.post_init()

    @takes_inputs_of(TfmEncoderDecoderModel)
    def forward(self, inputs: Inputs, labels: torch.Tensor | None = None, **kwargs) -> Seq2SeqSequenceClassifierOutput:
        """Gives `logits` `(batch, num_labels)`, and the loss of the labels; inputs as for [`TfmEncoderDecoderModel`].

        Args:
            input_ids: `(batch, length)`, each with an end-of-sequence token; `decoder_input_ids` have the same shape.
            labels: `(batch,)` classes or values, or `(batch, num_labels)`; `config.problem_type` says which, and is set
                from the labels where it is `None`.
        """
        ids, read = inputs["input_ids"], last_ends(self.config, inputs["input_ids"])
        target = target_in(self.config, inputs)
        if target.shape[:2] != ids.shape:
            name = "decoder_input_ids" if inputs["decoder_inputs_embeds"] is None else "decoder_inputs_embeds"
            raise ValueError(
                f"{name} of shape {tuple(target.shape)} should be of shape {tuple(ids.shape)}, as input_ids: the "
                "classifier reads the decoder where the source ends."
            )
        check_classes(self.config, given_in(inputs), labels)
        inputs["use_cache"] = inputs["use_cache"] if labels is None else False
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        logits = self.classification_head(read_states(outputs.last_hidden_state, read))
        loss = sequence_loss(self, logits, labels)
        return Seq2SeqSequenceClassifierOutput(loss=loss, logits=logits, **passed_on(outputs))


class TfmEncoderDecoderEncoder(TfmEncoderDecoderPreTrainedModel):
    """An encoder without a decoder; its tensors are named as in the whole model."""

    _keys_to_ignore_on_load_unexpected = [
        r"^(model\.)?decoder\.",
        r"^lm_head\.",
        r"^(classification_head|classifier|qa_outputs)\.",
    ]

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.encoder = TfmEncoderStack(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.set_input_embeddings(value)

    @takes_inputs_of(TfmEncoderStack)
    def forward(self, inputs: Inputs, **kwargs) -> BaseModelOutput:
        """Inputs and outputs as for [`TfmBertModel`]; without a mask, `pad_token_id` says what is padding."""
        return self.encoder(**inputs, return_dict=True, **kwargs)


class TfmEncoderDecoderDecoder(TfmDecoderStack):
    """The decoder alone, which reads the states of any encoder. It is loaded by its own class, and by no Auto class."""


class TfmEncoderDecoderForTokenClassification(TfmEncoderDecoderPreTrainedModel):
    """The encoder with a classifier on every position of the source, as in T5."""

    _keys_to_ignore_on_load_unexpected = [r"^(model\.)?decoder\.", r"^lm_head\."]
    head_fields = ("classifier_dropout",)

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TfmEncoderDecoderEncoder(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @takes_inputs_of(TfmEncoderDecoderEncoder)
    def forward(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        *,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> TokenClassifierOutput:
        """Gives `logits` `(batch, length, num_labels)`, and the loss of the labels; inputs as for
        [`TfmEncoderDecoderEncoder`].

        Args:
            labels: `(batch, length)`, classes, -100 where there is no label.
            num_items_in_batch: labelled tokens of the whole optimizer step, by which the summed loss is divided.
        """
        check_labels(labels, given_in(inputs).shape[:2], self.config.num_labels)
        outputs = self.model(**inputs, read_positions=labelled(labels), return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = token_loss(self, logits, labels, num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits, **passed_on(outputs))


class TfmEncoderDecoderForQuestionAnswering(TfmEncoderDecoderPreTrainedModel):
    """Scores for the first and the last token of an answer, on the decoder, which reads the source again."""

    reads_target = True

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.model = TfmEncoderDecoderModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @takes_inputs_of(TfmEncoderDecoderModel)
    def forward(
        self,
        inputs: Inputs,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        **kwargs,
    ) -> Seq2SeqQuestionAnsweringModelOutput:
        """Gives `start_logits` and `end_logits` `(batch, length)`, and the loss; inputs as for
        [`TfmEncoderDecoderModel`].

        Args:
            start_positions: `(batch,)`, the first of the answer; one behind the sequence does not count in the loss.
            end_positions: `(batch,)`, its last.
        """
        everywhere = check_answers(target_in(self.config, inputs), start_positions, end_positions)
        outputs = self.model(**inputs, read_positions=everywhere, return_dict=True, **kwargs)
        found = answers(self, self.qa_outputs(outputs.last_hidden_state), start_positions, end_positions)
        return Seq2SeqQuestionAnsweringModelOutput(**found, **passed_on(outputs))
