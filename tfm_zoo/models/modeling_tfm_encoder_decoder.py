"""The encoder-decoder family: the Transformer of *Attention Is All You Need* (Vaswani et al. 2017)."""

from collections import OrderedDict
from functools import partial

import torch
from torch import nn
from transformers import Cache, EncoderDecoderCache, modeling_outputs
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.output_capturing import OutputRecorder

from .batch import Batch, KeptTokens, Tokens, is_traced, labelled
from .cache import TfmGenerationMixin, take_cache, use_own_layers
from .configuration_tfm_encoder_decoder import TfmEncoderDecoderConfig
from .decoder_entrance import decoder_batch
from .entrance import encoder_batch
from .heads import Inputs, QuestionAnswering, SequenceClassification, TokenClassification, WithHead, takes_inputs_of
from .inputs import check_labels, check_tensor, given_in, one_of
from .kernels import choose_kernel, eager_attention_forward
from .layers import TfmAttention, TfmLayer, multiplier, norm_heads
from .losses import makes_logits, states_to_read, vocabulary_outputs
from .position_bias import TfmBiasTable
from .pretrained import TfmPreTrainedModel
from .source import (
    as_encoder_outputs,
    check_encoder_states,
    check_source,
    default_mask,
    given_or_made_target,
    read_source,
    shift_right,
    source_as_target,
    with_shared_source,
)
from .stack import TfmStack
from .vocabularies import TfmOutputProjection, TwoVocabularies

SOURCE_TABLE, TARGET_TABLE = "encoder.embeddings.embed_tokens.weight", "decoder.embeddings.embed_tokens.weight"


class TfmEncoderDecoderPreTrainedModel(TwoVocabularies, TfmPreTrainedModel):
    """Base of the family's models."""

    config_class = TfmEncoderDecoderConfig
    reads_target = False  # whether `forward` needs `decoder_input_ids`: exports and fingerprints ask
    _no_split_modules = ["TfmLayer", "TfmCrossLayer"]  # not the embeddings, which the two stacks may share
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if self.config.weight_init == "xavier" and isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
        elif self.config.weight_init == "xavier" and isinstance(module, nn.Embedding):
            # (The rows of a bias are as wide as there are heads.)
            width = self.config.hidden_size if isinstance(module, TfmBiasTable) else module.embedding_dim
            init.normal_(module.weight, std=width**-0.5)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """What is tied depends on `share_encoder_decoder_embeddings` too, not on `tie_word_embeddings` alone."""
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys or {})

    def init_parallel_plans(self) -> None:
        """Keeps the entries of the configuration's plans, which name both stacks, for modules that this model has."""
        super().init_parallel_plans()
        # Tensor parallelism cannot shard a bias that is a buffer: the head stays whole, with what it is tied to.
        whole = ("embed_tokens", "lm_head") if self.config.final_logits_bias else ()
        for name in ("_tp_plan", "_fsdp_plan"):
            plan = {key: style for key, style in getattr(self, name).items() if hasattr(self, key.partition(".")[0])}
            setattr(self, name, {key: style for key, style in plan.items() if not key.endswith(whole)})


class TfmEncoderStack(TfmStack, TfmEncoderDecoderPreTrainedModel):
    """The encoder: its embeddings and its blocks."""

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.add_stack([config.layer_type] * config.num_hidden_layers, config.vocab_size)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        read_positions: torch.Tensor | None = None,
        batch: Batch | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Inputs and outputs as for [`TfmBertModel`], or a `batch` by [`encoder_batch`] in place of the inputs."""
        if batch is None:
            tokens = Tokens(one_of(input_ids, inputs_embeds), token_type_ids, position_ids)
            mask = default_mask(self.config, input_ids, attention_mask)
            batch = encoder_batch(self, tokens, mask, kwargs, read_positions)
        return BaseModelOutput(**self.run(batch, **kwargs))


class TfmCrossLayer(TfmLayer):
    """A [`TfmLayer`] with attention to the source, `encoder_attn`, between the other two sub-layers."""

    def add_attention(self, config, layer_idx: int, stack_config, **options) -> None:
        super().add_attention(config, layer_idx, stack_config=stack_config, **options)
        of_all = {"layer_type": "full_attention", "is_causal": False, "stack_config": stack_config}
        cross_attention = TfmCrossAttention(config, layer_idx, **of_all)
        self.add_sub_layer("encoder_attn", cross_attention, config, config.attention_output_dropout)

    def forward(self, hidden_states: torch.Tensor, *source: object, **kwargs) -> torch.Tensor:
        """Hidden states `(batch, length, hidden_size)` in and out; `source` has the fields of a [`Source`]."""
        hidden_states = self.sub_layer("self_attn", hidden_states, **kwargs)
        hidden_states = self.sub_layer("encoder_attn", hidden_states, *source)  # (`source` has a layout of its own)
        return self.sub_layer("mlp", hidden_states)


class TfmCrossAttention(TfmAttention):
    """Attention of the decoder to the encoder's last hidden state, without positions and windows."""

    def forward(
        self, hidden_states, source_states, keys_kept, queries_kept, layout, both_caches
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns what [`TfmAttention`] returns, for the decoder's hidden states `(rows, length, hidden_size)` and the
        fields of a [`Source`]. Consecutive rows may share one source, as the beams of a sentence do."""
        source_cache = None if both_caches is None else both_caches.cross_attention_cache
        if source_cache is not None and both_caches.is_updated.get(self.layer_idx):
            key, value = source_cache.layers[self.layer_idx].keys, source_cache.layers[self.layer_idx].values
        else:
            key, value = self.k_proj(source_states), self.v_proj(source_states)
            if keys_kept is not None:
                key, value = keys_kept.restore(key), keys_kept.restore(value)
            key, value = (each.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for each in (key, value))
            if self.k_norm is not None:
                key = norm_heads(self, self.k_norm, key)
            if source_cache is not None:
                key, value = source_cache.update(key, value, self.layer_idx)
                both_caches.is_updated[self.layer_idx] = True

        query = self.q_proj(hidden_states) if queries_kept is None else queries_kept.restore(self.q_proj(hidden_states))
        # 4 beams of a sentence share one row of keys: their queries `(4, 1, width)` become one row, `(1, 4, width)`. In
        # mode "by_bounds", all queries become one row.
        rows, length, width = query.shape  # (tensor parallelism leaves some of the heads to other processes)
        query_rows = key.shape[0] if layout.mode == "whole" else 1
        queries_per_row = max(rows, 1) // max(query_rows, 1) * length  # (not -1, which an empty batch leaves open)
        query = query.view(query_rows, queries_per_row, width // self.head_dim, self.head_dim).transpose(1, 2)
        if self.q_norm is not None:
            query = norm_heads(self, self.q_norm, query)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.attention_dropout.p if self.attention_dropout.training else 0.0
        attend = choose_kernel(attend, self, layout, query, dropout)
        options = {"dropout": dropout, "softcap": self.softcap}
        output, weights = attend(self, query, key, value, layout.mask, scaling=self.scaling, **options)
        if weights is not None and rows != query_rows:
            weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        output = output.reshape(rows, length, width)
        return self.o_proj(output if queries_kept is None else queries_kept.keep(output)), weights


class TfmDecoderStack(TfmStack, TfmEncoderDecoderPreTrainedModel):
    """The decoder: its embeddings and its blocks."""

    argument_prefix, depth_field = "decoder_", "decoder_layers"
    layer_class = TfmCrossLayer
    _can_record_outputs = {
        "hidden_states": TfmCrossLayer,
        "attentions": OutputRecorder(TfmAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(TfmCrossAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.add_stack([config.layer_type] * config.decoder_layers, config.decoder_vocab_size, is_causal=True)
        if config.norm_target_tokens:  # the norm takes the place of the projection, before the positions
            self.embeddings.token_projection, self.embeddings.norm = self.embeddings.norm, None
            self.embeddings.embed_tokens.embed_scale = 1.0
        self.post_init()

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
        batch: Batch | None = None,
        source_kept: KeptTokens | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Inputs as for [`TfmGPTModel`], `past_key_values` as for [`TfmEncoderDecoderModel`], and:

        Args:
            encoder_hidden_states: `(batch, source length, hidden_size)`.
            encoder_attention_mask, source_kept: the source's mask, and its kept tokens, as [`read_source`] takes them.
            batch: by [`decoder_batch`], for the target's inputs. The caller's positions and cache still come beside it.
        """
        states, source_mask = encoder_hidden_states, encoder_attention_mask
        if batch is None:
            check_encoder_states(self.config, states)
            past_key_values = take_cache(past_key_values, kwargs)
            tokens = Tokens(one_of(input_ids, inputs_embeds, "decoder_"), position_ids=position_ids)
            batch = decoder_batch(self, tokens, attention_mask, past_key_values, use_cache, kwargs)
            check_source(self.config, states.shape[:2], source_mask, tokens, past_key_values)
        source = read_source(self, states, source_mask, batch, past_key_values, source_kept)
        outputs = self.run(batch, source, position_ids=position_ids, **kwargs)
        outputs.past_key_values = source.both_caches if batch.returns_cache else None  # (from 5.24 on: sets `cache`)
        return outputs


class TfmEncoderDecoderModel(TfmEncoderDecoderPreTrainedModel):
    """The encoder and the decoder."""

    reads_target = True

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self._tied_weights_keys = {TARGET_TABLE: SOURCE_TABLE} if config.share_encoder_decoder_embeddings else None
        self.encoder = TfmEncoderStack(config)
        self.decoder = TfmDecoderStack(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | dict[str, torch.Tensor] | None = None,
        encoder_outputs: modeling_outputs.BaseModelOutput | tuple[torch.Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        read_positions: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> modeling_outputs.Seq2SeqModelOutput:
        """
        Args:
            input_ids, attention_mask, inputs_embeds, token_type_ids, position_ids: the source, as for [`TfmBertModel`];
                without a mask, padding is where `input_ids` are `pad_token_id`.
            encoder_outputs: the encoder's, in place of its inputs, or a tuple that begins with its last hidden state.
            decoder_input_ids: `(batch, length)`, the target's tokens after those in the cache, or else
                `decoder_inputs_embeds` `(batch, length, embedding_size)`. `None`: the source's, shifted to the right,
                if the two share a vocabulary (BART's denoising) and `config.reads_source_again`.
            decoder_attention_mask, decoder_position_ids, read_positions, use_cache: as for [`TfmGPTModel`].
            past_key_values: an `EncoderDecoderCache`, or a cache for the decoder's own keys; it is written to.

        Returns:
            `last_hidden_state` `(batch, length, hidden_size)` of the decoder; `encoder_last_hidden_state`
            `(batch, source length, hidden_size)`; `past_key_values`; hidden states and attentions where asked for.
        """
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if not self.config.reads_source_again:
                raise ValueError(
                    "Neither decoder_input_ids nor decoder_inputs_embeds is given. The encoder needs no target, and is "
                    "what sentence-transformers reads: convert with --head TfmEncoderDecoderEncoder, or save what "
                    "TfmEncoderDecoderEncoder.from_pretrained makes of this model's folder."
                )
            decoder_input_ids = source_as_target(self.config, input_ids)
        past_key_values = take_cache(past_key_values, kwargs)
        # Both sides are checked before either of them runs.
        target = Tokens(one_of(decoder_input_ids, decoder_inputs_embeds, "decoder_"), position_ids=decoder_position_ids)
        target_batch = decoder_batch(
            self.decoder, target, decoder_attention_mask, past_key_values, use_cache, kwargs, read_positions
        )
        source_mask, source_kept = default_mask(self.config, input_ids, attention_mask), None
        if encoder_outputs is None:
            source_tokens = Tokens(one_of(input_ids, inputs_embeds), token_type_ids, position_ids)
            source_batch = encoder_batch(self.encoder, source_tokens, source_mask, kwargs, takes_documents=False)
            check_source(self.config, source_batch.shape, source_mask, target, past_key_values)
            # (The encoder is called as a module, for hooks and FSDP. It restores padding, and `read_source` drops it.)
            encoder_outputs = self.encoder(batch=source_batch, return_dict=True, **kwargs)
            source_mask, source_kept = source_batch.attention_mask, source_batch.kept
        else:
            encoder_outputs = as_encoder_outputs(self.config, encoder_outputs)
            check_source(self.config, encoder_outputs.last_hidden_state.shape[:2], source_mask, target, past_key_values)
        outputs = self.decoder(
            batch=target_batch,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=source_mask,
            source_kept=source_kept,
            past_key_values=past_key_values,
            position_ids=decoder_position_ids,
            return_dict=True,
            **kwargs,
        )
        of_decoder = (outputs.last_hidden_state, outputs.past_key_values, outputs.hidden_states, outputs.attentions)
        of_encoder = (encoder_outputs.last_hidden_state, encoder_outputs.hidden_states, encoder_outputs.attentions)
        return modeling_outputs.Seq2SeqModelOutput(*of_decoder, outputs.cross_attentions, *of_encoder)


class TfmEncoderDecoderEncoder(TfmEncoderDecoderPreTrainedModel):
    """An encoder without a decoder; its tensors are named as in the whole model."""

    _keys_to_ignore_on_load_unexpected = [
        r"^(model\.)?decoder\.|^(lm_head|classification_head|classifier|qa_outputs)\."
    ]

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        self.encoder = TfmEncoderStack(config)
        self.post_init()

    @partial(takes_inputs_of, TfmEncoderStack)
    def forward(self, inputs: Inputs, **kwargs) -> modeling_outputs.BaseModelOutput:
        """Inputs and outputs as for [`TfmBertModel`]; without a mask, `pad_token_id` says what is padding."""
        return self.encoder(**inputs, return_dict=True, **kwargs)


class TfmEncoderDecoderDecoder(TfmDecoderStack):
    """The decoder alone, which reads the states of any encoder. It is loaded by its own class, and by no Auto class."""


class TfmEncoderDecoderHead(WithHead, TfmEncoderDecoderPreTrainedModel):
    """Both stacks, to which a subclass adds a head. `inputs` are arguments of its `model_class`: see [`WithHead`]."""

    model_class = TfmEncoderDecoderModel


class TfmEncoderDecoderForConditionalGeneration(TfmEncoderDecoderHead, TfmGenerationMixin):
    """The encoder and the decoder with a projection onto the target's vocabulary, by default tied to its embeddings."""

    reads_target = True
    _tied_weights_keys = {"lm_head.weight": f"model.{TARGET_TABLE}"}  # a model sets its own
    _tp_plan = {"lm_head": "colwise_rep"}
    head_fields = ("lm_head_bias", "logit_scale", "final_logit_softcapping", "final_logits_bias")

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        sizes, bias = (config.hidden_size, config.decoder_vocab_size), config.lm_head_bias
        self.lm_head = TfmOutputProjection(*sizes) if config.final_logits_bias else nn.Linear(*sizes, bias=bias)
        self.head = multiplier(config.logit_scale)  # `vocabulary_outputs` calls it before `lm_head`
        shared = config.share_encoder_decoder_embeddings
        ties = {"lm_head.weight": f"model.{SOURCE_TABLE if shared else TARGET_TABLE}"}
        self._tied_weights_keys = ties if config.tie_word_embeddings else None
        self.post_init()

    def forward(
        self,
        inputs: Inputs,
        labels: torch.LongTensor | None = None,
        *,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        return_logits: bool | None = None,
        **kwargs,
    ) -> modeling_outputs.Seq2SeqLMOutput:
        """Called with the arguments of [`TfmEncoderDecoderModel`], which [`WithHead`] gathers into `inputs`. Gives the
        loss of the labels, and `logits` `(batch, positions, decoder_vocab_size)`.

        Args:
            labels: `(batch, length)`, what each position of the decoder is to predict, -100 where there is nothing.
                Decoder inputs that are not given are the labels, shifted to the right.
            logits_to_keep, num_items_in_batch, return_logits: as for [`TfmGPTForCausalLM`].
        """
        with_logits = makes_logits(self, labels, return_logits)
        if labels is not None:
            if inputs["decoder_input_ids"] is None and inputs["decoder_inputs_embeds"] is None:
                inputs["decoder_input_ids"] = self.prepare_decoder_input_ids_from_labels(labels)
            shape, classes = given_in(inputs, "decoder_").shape[:2], self.config.decoder_vocab_size
            table = "the vocabulary (decoder_vocab_size)"
            check_labels(labels, shape, classes, table, inputs="the decoder's inputs")
            inputs["use_cache"] = False  # whatever the caller says, as in official classes of this family
        read = states_to_read(labelled(labels), with_logits)
        outputs = self.model(**inputs, read_positions=read, return_dict=True, **kwargs)
        states = outputs.last_hidden_state
        loss, logits = vocabulary_outputs(self, states, labels, with_logits, num_items_in_batch, logits_to_keep)
        return self.headed(modeling_outputs.Seq2SeqLMOutput, outputs, loss=loss, logits=logits)

    def generate(self, inputs: torch.Tensor | None = None, *args, **kwargs):
        """As in transformers, but the default of `attention_mask` is made from `pad_token_id`, as in `forward`."""
        ids = kwargs.get("input_ids", inputs)
        if kwargs.get("attention_mask") is None and isinstance(ids, torch.Tensor) and ids.dim() == 2:
            kwargs["attention_mask"] = default_mask(self.config, ids, None)
        return super().generate(inputs, *args, **kwargs)

    def own_cache(self, cache: EncoderDecoderCache, model_kwargs: dict) -> EncoderDecoderCache:
        use_own_layers(cache.self_attention_cache, self.config)  # in place
        return with_shared_source(cache, model_kwargs["encoder_outputs"][0].shape[1])

    def _supports_default_dynamic_cache(self) -> bool:
        # With linear attention, transformers would give the source a cache of states too. The decoder makes its own.
        return super()._supports_default_dynamic_cache() and not self._is_stateful

    def prepare_decoder_input_ids_from_labels(self, labels: torch.LongTensor) -> torch.LongTensor:
        """`(batch, length)` labels, shifted to the right; transformers' data collators call it."""
        return shift_right(self.config, labels)


class TfmEncoderDecoderForSequenceClassification(SequenceClassification, TfmEncoderDecoderHead):
    """A classifier (or a regressor) of the source, on the state at its last end-of-sequence token. Each source
    has one, and `decoder_input_ids` have the shape of `input_ids`."""

    output_class = modeling_outputs.Seq2SeqSequenceClassifierOutput
    head_fields = ("classifier_dropout",)

    def __init__(self, config: TfmEncoderDecoderConfig):
        super().__init__(config)
        dense, out_proj = (nn.Linear(config.hidden_size, width) for width in (config.hidden_size, config.num_labels))
        dropout, out_dropout = nn.Dropout(config.classifier_dropout), nn.Dropout(config.classifier_dropout)
        layers = OrderedDict(dropout=dropout, dense=dense, act_fn=nn.Tanh(), out_dropout=out_dropout, out_proj=out_proj)
        self.classification_head = nn.Sequential(layers)
        self.post_init()

    def candidates(self, inputs: Inputs) -> torch.BoolTensor:
        ids, end = inputs["input_ids"], self.config.eos_token_id
        check_tensor("input_ids", ids)
        if ids is None or end is None:
            name = "input_ids" if ids is None else "eos_token_id"
            raise ValueError(f"{name}=None: the classifier reads the state at the last end-of-sequence token.")
        if ids.dim() != 2:
            raise ValueError(f"input_ids of shape {tuple(ids.shape)} should be of shape (batch, length).")
        target = given_or_made_target(self.config, inputs)
        if target.shape[:2] != ids.shape:
            name = "decoder_input_ids" if inputs["decoder_inputs_embeds"] is None else "decoder_inputs_embeds"
            raise ValueError(
                f"{name} of shape {tuple(target.shape)} should be of shape {tuple(ids.shape)}, as input_ids: the "
                "classifier reads the decoder where the source ends."
            )
        # ONNX does not know `torch.isin`.
        ends = (ids.unsqueeze(-1) == torch.tensor(end, device=ids.device).view(-1)).any(dim=-1)
        if not is_traced(ids) and not ends.any(dim=1).all():
            row = int((~ends.any(dim=1)).nonzero()[0])
            raise ValueError(f"Sequence {row} of input_ids has no eos_token_id={end} in it.")
        return ends

    def classify(self, states: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        return self.classification_head(states)


class TfmEncoderDecoderForTokenClassification(TokenClassification, TfmEncoderDecoderHead):
    """The encoder with a classifier on every position of the source, as in T5."""

    model_class = TfmEncoderDecoderEncoder
    _keys_to_ignore_on_load_unexpected = [r"^(model\.)?decoder\.", r"^lm_head\."]


class TfmEncoderDecoderForQuestionAnswering(QuestionAnswering, TfmEncoderDecoderHead):
    """Scores for the first and the last token of an answer, on the decoder, which reads the source again."""

    reads_target = True
    output_class = modeling_outputs.Seq2SeqQuestionAnsweringModelOutput

    def searched(self, inputs: Inputs) -> torch.Tensor:
        return given_or_made_target(self.config, inputs)
