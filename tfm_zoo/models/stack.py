"""The core of every model: embeddings, blocks and a last norm. Its inputs have been checked."""

from functools import partial
from sys import maxsize

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.utils.output_capturing import capture_outputs

from .batch import Batch, KeptTokens, has_hooks
from .layers import TfmLayer, TfmMLP, make_norm, multiplier
from .position_bias import BiasedLayouts, make_position_bias
from .positions import TfmRotaryEmbedding, TfmSinusoidalPositions, make_rotary


class TfmScaledEmbedding(nn.Embedding):
    """Embeddings times the square root of their width (Vaswani et al. 2017, 3.4); a tied projection is not scaled.

    Serving engines, which replace the module, apply its `embed_scale`.
    """

    def __init__(self, *sizes: int, padding_idx: int | None = None, is_rounded: bool = False):
        super().__init__(*sizes, padding_idx=padding_idx)
        self.embed_scale, self.is_rounded = self.embedding_dim**0.5, is_rounded

    def forward(self, input_ids: torch.LongTensor) -> torch.Tensor:
        embeddings, scale = super().forward(input_ids), self.embed_scale
        if self.is_rounded and embeddings.dtype != torch.float32:
            scale = torch.tensor(scale, dtype=embeddings.dtype)
        return embeddings * scale


class TfmTypesAndTasks(nn.Embedding):
    """An embedding of each segment, plus one of each task (ERNIE, Sun et al. 2019)."""

    def __init__(self, num_tasks: int, *sizes: int):
        super().__init__(*sizes)
        self.tasks = nn.Embedding(num_tasks, self.embedding_dim)

    def forward(self, segments: torch.LongTensor, tasks: torch.LongTensor | None) -> torch.Tensor:
        return super().forward(segments) + self.tasks(torch.zeros_like(segments) if tasks is None else tasks)


class TfmEmbeddings(nn.Module):
    """The sum of token, position and segment embeddings; then norm (or multiplier), dropout, projection, if any."""

    def __init__(self, config, vocab_size: int):
        super().__init__()
        token_width, width, padding_idx = config.embedding_size, config.position_size, config.pad_token_id
        untrained = None if config.train_padding_embedding else padding_idx
        scaled = partial(TfmScaledEmbedding, is_rounded=config.round_embedding_scale)
        make_table = scaled if config.scale_embedding else nn.Embedding
        self.embed_tokens = make_table(vocab_size, token_width, padding_idx=untrained)
        self.token_projection = nn.Linear(token_width, width, bias=False) if config.project_tokens else None
        self.embed_positions = None
        if config.position_embedding_type == "learned":
            # If a position is reserved for padding, its row stays zero and gets no gradient.
            padding_position = padding_idx if config.position_ids_from_padding else None
            table_rows = config.max_position_embeddings + config.position_offset
            self.embed_positions = nn.Embedding(table_rows, width, padding_idx=padding_position)
        elif config.position_embedding_type == "sinusoidal":
            self.embed_positions = TfmSinusoidalPositions(config)
        self.has_tasks = config.task_type_vocab_size > 0
        make_types = partial(TfmTypesAndTasks, config.task_type_vocab_size) if self.has_tasks else nn.Embedding
        self.embed_token_types = make_types(config.type_vocab_size, width) if config.type_vocab_size else None
        self.token_types_as_tokens = config.token_types_as_tokens
        self.first_row = config.first_position or config.position_offset  # of position 0 (RoBERTa's, or OPT's)
        self.norm = make_norm(config, width) if config.embedding_norm else multiplier(config.embedding_multiplier)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.projection = nn.Linear(width, config.hidden_size) if width != config.hidden_size else None

    def forward(self, ids_or_embeddings, token_type_ids, position_ids, task_type_ids=None) -> torch.Tensor:
        """The fields of [`Tokens`] to hidden states `(batch, length, hidden_size)`."""
        embeddings = self.embed_tokens(ids_or_embeddings) if ids_or_embeddings.dim() == 2 else ids_or_embeddings
        if self.token_types_as_tokens and token_type_ids is not None:
            embeddings = embeddings + self.embed_tokens(token_type_ids)
        embeddings = embeddings if self.token_projection is None else self.token_projection(embeddings)
        if self.embed_token_types is not None:
            segments = torch.zeros_like(position_ids) if token_type_ids is None else token_type_ids
            tasks = {"tasks": task_type_ids} if self.has_tasks else {}
            embeddings = embeddings + self.embed_token_types(segments, **tasks)
        if self.embed_positions is not None:
            embeddings = embeddings + self.embed_positions(position_ids + self.first_row).to(embeddings.dtype)
        embeddings = embeddings if self.norm is None else self.norm(embeddings)
        # (To ask is cheaper than to call a dropout that does nothing.)
        embeddings = self.dropout(embeddings) if self.dropout.training else embeddings
        return embeddings if self.projection is None else self.projection(embeddings)


class TfmStack:
    """Makes a `PreTrainedModel` a stack: `add_stack` gives it its modules, `run` takes a batch through them."""

    argument_prefix = ""  # stands before the names of arguments in errors: "decoder_" of an encoder-decoder
    depth_field = "num_hidden_layers"  # of the configuration, which says how many layers run
    layer_class = TfmLayer
    biased_layouts_class = BiasedLayouts
    #: field of the configuration -> the part that it adds, in words. Such a part reads a row as one sequence
    of_whole_rows = {"has_linear_attention": "the state of linear attention", "round_alibi": "ALiBi rounded by places"}

    def add_stack(self, layer_types: list[str], vocab_size: int, is_causal: bool = False) -> None:
        """Makes the modules; `layer_types` names each layer's type of attention (see [`TfmAttention`]).
        `position_ids` count from 0. A table adds `embeddings.first_row` to them, rotary ones add `first_position`."""
        config = self.config
        # The decoder of an encoder-decoder reads sizes from a copy. Modules store `config`: a later
        # `set_attn_implementation` changes it, and not the copy.
        stack_config = config.get_text_config(decoder=is_causal)
        self.layer_types, self.vocab_size, self.input_width = layer_types, vocab_size, config.embedding_size
        self.is_causal, self.num_heads = is_causal, stack_config.num_attention_heads
        self.key_heads_and_dim = (stack_config.num_key_value_heads, stack_config.head_dim)
        self.first_position = config.first_position
        # How many positions there are. RoBERTa's `max_position_embeddings` counts rows before position 0, too; OPT's
        # does not. Sinusoids have no last position, and rotary ones are not checked.
        learned = config.max_position_embeddings - self.first_position
        self.num_positions = {"learned": learned, "sinusoidal": maxsize}.get(config.position_embedding_type)
        self.embeddings = TfmEmbeddings(config, vocab_size)
        self.rotary_emb = make_rotary(stack_config, layer_types)
        num_layers, own_types = len(layer_types), layer_types[: config.num_hidden_groups]
        # Where layers share weights, a module runs several times in succession: the number of the module at each depth.
        shares = len(own_types) < num_layers
        self.order = [index * len(own_types) // num_layers for index in range(num_layers)] if shares else None
        self.layers = nn.ModuleList(
            self.layer_class(config, index, layer_type, is_causal, stack_config, self.mlp_class(index))
            for index, layer_type in enumerate(own_types)
        )
        self.position_bias = make_position_bias(stack_config, len(own_types), is_causal)
        self.norm = make_norm(config) if config.final_norm else nn.Identity()
        narrow = (config.hidden_size, config.output_size)
        self.projection = nn.Linear(*narrow, bias=False) if config.project_tokens else None
        self.dropout = nn.Dropout(config.final_dropout) if config.final_dropout else None

    def mlp_class(self, layer_idx: int) -> type[nn.Module]:
        return TfmMLP

    def counts_padding(self, kept: KeptTokens) -> bool:
        """Whether the padded length changes what real tokens compute: rotary frequencies that follow it (dynamic
        scaling, LongRoPE)."""
        for part in [] if self.rotary_emb is None else self.rotary_emb.modules():
            if isinstance(part, TfmRotaryEmbedding) and (part.rope_type == "longrope" or "dynamic" in part.rope_type):
                most = part.config.rope_parameters.get("original_max_position_embeddings")
                if kept.shape[1] >= (most or part.original_max_seq_len):
                    return True
        return False

    def computes_only(self, kept: KeptTokens) -> bool:
        """Whether only these are computed: the padded length changes nothing in them, and no hook sees padding."""
        return self.config.skip_padding and not (self.counts_padding(kept) or has_hooks(*self._modules.values()))

    @property
    def is_checkpointing(self) -> bool:
        """Whether gradient checkpointing runs each block a second time, and so would write to a cache twice."""
        return self.training and self.layers[0].gradient_checkpointing

    @property
    def depth(self) -> int:
        """Number of layers to run; assisted generation lowers it, to exit early."""
        return getattr(self.config, self.depth_field)

    @capture_outputs
    def run_kept(self, batch: Batch, source: tuple = (), **kwargs) -> BaseModelOutputWithPastAndCrossAttentions:
        """Takes a batch through embeddings, blocks (which get `kwargs` and a [`Source`]'s fields) and last norm."""
        biased = None if self.position_bias is None else self.biased_layouts_class(self, batch)
        hidden_states = self.embeddings(*batch.tokens)
        positions = batch.tokens.position_ids
        rotary = self.rotary_emb and self.rotary_emb.prepare(hidden_states, positions + self.first_position)
        layers = [*self.layers]  # found sooner in a list
        for index in (self.order or range(len(layers)))[: self.depth]:
            layer, layouts = layers[index], batch.layouts if biased is None else biased.layouts_of(index)
            layer_type = getattr(layer, "layer_type", None)  # an engine's stand-in lacks it
            hidden_states = layer(
                hidden_states,
                *source,  # by position: gradient checkpointing looks for gradients there
                layout=layouts.get(layer_type),
                position_embeddings=rotary.get(layer_type) if isinstance(rotary, dict) else rotary,
                past_key_values=batch.cache,
                **kwargs,
            )
        hidden_states = self.norm(hidden_states) if self.dropout is None else self.dropout(self.norm(hidden_states))
        hidden_states = hidden_states if self.projection is None else self.projection(hidden_states)
        return BaseModelOutputWithPastAndCrossAttentions(hidden_states, batch.cache if batch.returns_cache else None)

    def run(self, batch: Batch, source: tuple = (), **kwargs) -> BaseModelOutputWithPastAndCrossAttentions:
        """As `run_kept`, with hidden states of the padded batch, zero where tokens were not kept. A decoder's `kwargs`
        hold its caller's `position_ids`, too: in a graph, flash attention tells documents apart by them."""
        # (Else `config.return_dict=False` would make a tuple of the outputs.)
        outputs, kept = self.run_kept(batch, source, return_dict=True, **kwargs), batch.kept
        if kept is not None:
            outputs.last_hidden_state = kept.restore(outputs.last_hidden_state)
            if (states := outputs.hidden_states) is not None:
                # (`None`: of a layer that nobody asked for)
                outputs.hidden_states = tuple(each if each is None else kept.restore(each) for each in states)
        return outputs
