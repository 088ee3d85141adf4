"""The configuration that all families share: the sizes of the block and its architectural axes."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.utils import logging

from .configuration_checks import ConfigurationChecks

logger = logging.get_logger(__name__)

NormPosition = Literal["post", "pre", "output", "both"]
ENGINES = ("vllm", "sglang")  # the attention implementations that serving engines set
#: fields of some families, which the others refuse
OF_SOME_FAMILIES = (
    *("num_hidden_groups", "lm_head_transform", "logit_scale", "final_logit_softcapping", "classifier_dense"),
    *("position_ids_from_padding", "position_ids_from_mask", "position_offset", "num_local_experts"),
    *("project_tokens", "scale_alibi", "round_alibi", "renew_longrope_cache", "layer_types"),
)

#: names of fields in other configurations -> their names here
ALIASES = {
    **dict.fromkeys(("n_embd", "d_model", "dim"), "hidden_size"),
    **dict.fromkeys(("n_layer", "n_layers", "num_layers"), "num_hidden_layers"),
    **dict.fromkeys(("n_head", "n_heads", "num_heads"), "num_attention_heads"),
    **dict.fromkeys(("n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim", "d_ff"), "intermediate_size"),
    **dict.fromkeys(("n_positions", "n_ctx", "max_seq_len"), "max_position_embeddings"),
    **dict.fromkeys(("activation_function", "hidden_activation", "activation", "afn"), "hidden_act"),
    **dict.fromkeys(("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "rms_norm_eps"), "norm_eps"),
    **dict.fromkeys(
        ("hidden_dropout_prob", "resid_pdrop", "dropout", "dropout_rate", "residual_dropout"), "hidden_dropout"
    ),
    **dict.fromkeys(("attention_probs_dropout_prob", "attn_pdrop"), "attention_dropout"),
    "embd_pdrop": "embedding_dropout",
    "mlp_dropout": "activation_dropout",
    "d_kv": "head_dim",
    "attention_multiplier": "attention_scale",
    "init_std": "initializer_range",
}


class FollowingField:
    """The field `name`, whose value `rule` computes from the configuration while the field is `None`."""

    def __init__(self, name: str, rule: Callable[[Any], Any]):
        self.name, self.rule = name, rule

    def __get__(self, config: Any, owner: type | None = None) -> Any:
        if config is None:
            return self
        chosen = vars(config).get(self.name)
        return self.rule(config) if chosen is None else chosen

    def __set__(self, config: Any, value: Any) -> None:
        vars(config)[self.name] = value


def add_following_fields(config_class: type, **rules: Callable[[Any], Any]) -> None:
    """Makes each of these fields a [`FollowingField`], after the class is made: in its body a descriptor would be taken
    for the field's default value."""
    for name, rule in rules.items():
        setattr(config_class, name, FollowingField(name, rule))


@strict
class TfmConfig(ConfigurationChecks, PreTrainedConfig):
    """Sizes and architectural axes of one Transformer block, under the same names in every family.

    Args:
        vocab_size: number of tokens in the vocabulary.
        hidden_size: width of the residual stream.
        embedding_size: width of the embeddings; a projection follows them if it is not `hidden_size` (ELECTRA).
            `None`: `hidden_size`.
        num_hidden_layers: number of blocks.
        num_attention_heads: number of query heads.
        num_key_value_heads: number of key and value heads; fewer than `num_attention_heads` is grouped-query
            attention (Ainslie et al. 2023). `None`: as many as query heads.
        head_dim: width of one head. `None`: `hidden_size / num_attention_heads`.
        intermediate_size: width inside the feed-forward.
        hidden_act: activation of the feed-forward, a key of transformers' `ACT2FN`.
        hidden_dropout: dropout of what each sub-layer adds to the residual stream.
        embedding_dropout: dropout of the embeddings. `None`: `hidden_dropout`.
        attention_dropout: dropout of the attention weights.
        activation_dropout: dropout inside the feed-forward, after the activation.
        attention_output_dropout: dropout of what attention adds to the residual stream. `None`: `hidden_dropout`.
        final_dropout: dropout of the last hidden state, after its norm (T5).
        type_vocab_size: number of segments, each with an embedding; 0: none.
        token_types_as_tokens: look `token_type_ids` up among the tokens, as GPT and GPT-2 do. A model with neither this
            nor segments ignores them.
        scale_embedding: token embeddings are multiplied by the square root of their width (Vaswani et al. 2017, 3.4).
        round_embedding_scale: round that square root to the dtype of the embeddings first, which matters in half
            precision (Gemma).
        embedding_multiplier: what the sum of all embeddings is multiplied by (Granite).
        residual_multiplier: what the output of each sub-layer is multiplied by, before it is added (Granite).
        max_position_embeddings: longest input of learned positions; for rotary ones, where their scaling starts.
        initializer_range: standard deviation of the normal distribution that weights start from.
        train_padding_embedding: whether the embedding of `pad_token_id` is trained like any other; else it starts at
            zero, and looking it up gives it no gradient.
        norm_position: where the norms of a block stand: `"post"`, after each residual sum; `"pre"`, before each
            sub-layer; `"output"`, after each sub-layer; or `"both"` of the last two. See [`TfmLayer`].
        use_parallel_residual: attention and feed-forward read the same hidden state, and both are added to it (GPT-J,
            GPT-NeoX). Needs `norm_position="pre"`.
        num_ln_in_parallel_attn: with `use_parallel_residual`, 1 if both read it through one norm (GPT-J, Phi), 2 if
            each has its own (GPT-NeoX).
        first_norm: whether the first block has a norm before its attention, as the others have. False needs
            `norm_position` `"pre"` or `"both"` (ModernBERT, which norms its embeddings instead).
        final_norm: a norm after the last block. `None`: true unless `norm_position="post"`.
        embedding_norm: a norm on the sum of the embeddings (BERT).
        norm_type: `"layernorm"` (Ba et al. 2016), `"rmsnorm"` (Zhang and Sennrich 2019), or `"zero_centered_rmsnorm"`,
            whose weights are differences from one (Gemma).
        norm_bias: whether norms have a bias. `None`: true for LayerNorm; RMSNorm has none.
        qk_norm: a norm of queries and keys, before positions rotate them: `"head"`, of each head (Qwen3, Gemma 3), or
            `"whole"`, of all heads as one (OLMo 2).
        norm_eps: added to the variance (LayerNorm) or to the mean square (RMSNorm).
        position_embedding_type: `"learned"`, `"sinusoidal"` (Vaswani et al. 2017), `"rotary"` (Su et al. 2021; its
            kind and base in `rope_parameters`, as in transformers: one set, or a dict of them by layer type),
            `"alibi"` (Press et al. 2022: scores fall with the distance, in self-attention) or `"none"`.
        no_rope_layers: for each layer, 1: rotary, 0: none (SmolLM3; the name is transformers'). `None`: 1 for all.
        relative_attention_num_buckets: number of buckets of distances, each with a learned bias for each head that is
            added to the scores of self-attention, beside any other positions (T5, MPNet). `None`: no such bias.
        relative_attention_max_distance: all distances from this one on share the last bucket.
        relative_attention_per_layer: whether each layer has its own biases (umT5), or all share one set (T5).
        sinusoid_type: how sinusoidal positions are laid out: see [`TfmSinusoidalPositions`].
        mlp_type: `"dense"` or `"gated"` (Shazeer 2020; with `hidden_act="silu"`: SwiGLU).
        attention_type: `"softmax"`, or `"linear"` (Katharopoulos et al. 2020), whose work grows with the length, not
            with its square, and which ignores `attention_dropout`. Cross-attention always uses softmax. Rotary
            positions turn queries and keys before the feature map (Zhang et al. 2024), so that weights depend on the
            two positions, and not on their distance alone.
        attention_scale: what scores are multiplied by before the softmax, in cross-attention too (T5: 1). `None`:
            `head_dim ** -0.5` (Vaswani et al. 2017, equation 1).
        attn_logit_softcapping: a soft cap: scores become `cap * tanh(scores / cap)`, in cross-attention too (Gemma 2).
            The implementation `"sdpa"` has no cap and cannot be chosen then. `None`: no cap.
        sliding_window: how far a position sees: in an encoder this many positions to each side; in a decoder the last
            `sliding_window` positions, itself included (as in Mistral). `None`: without limit.
        attention_bias: biases in the query, key and value projections.
        attention_output_bias: a bias in the output projection. `None`: `attention_bias`.
        mlp_bias: biases in the feed-forward's projections.
        mlp_output_bias: a bias in the last of them. `None`: `mlp_bias`.

    Raises:
        ValueError: for a value, or a combination of values, that has no meaning; the message names the fields.
    """

    #: the family's modeling file, and `Auto...` class -> class in it, for registration and for `auto_map`
    modeling_file: ClassVar[str] = ""
    auto_classes: ClassVar[dict[str, str]] = {}
    #: class -> the Auto class that loads it if a checkpoint's `architectures` names it
    other_auto_classes: ClassVar[dict[str, str]] = {}
    attribute_map: ClassVar[dict[str, str]] = ALIASES

    #: only encoder layers can share weights: a cache keeps the keys of each layer under the layer's own number
    num_hidden_groups: ClassVar[None] = None
    #: only an encoder's language-modelling head has layers before its projection
    lm_head_transform: ClassVar[bool] = False
    #: only the families that decode have these fields
    logit_scale: ClassVar[float] = 1.0
    final_logit_softcapping: ClassVar[None] = None
    #: only an encoder's sequence classifier can be a projection alone
    classifier_dense: ClassVar[bool] = True
    #: only some families can start positions after 0, or leave padding out of the count
    position_ids_from_padding: ClassVar[bool] = False
    position_ids_from_mask: ClassVar[bool] = False
    position_offset: ClassVar[int] = 0
    #: only a decoder's ALiBi can be that of Falcon
    scale_alibi: ClassVar[bool] = False
    round_alibi: ClassVar[bool] = False
    #: only a decoder can project the embeddings of tokens, and its last hidden states back
    project_tokens: ClassVar[bool] = False
    #: only a decoder generates with rotary positions as Phi 3 does
    renew_longrope_cache: ClassVar[bool] = False

    base_model_fsdp_plan: ClassVar[dict[str, str]] = dict.fromkeys(("embeddings", "layers.*"), "free_full_weight")
    #: how tensor parallelism shards a layer's projections; see `base_model_tp_plan`
    block_tp_plan: ClassVar[dict[str, str]] = {
        **dict.fromkeys((f"layers.*.self_attn.{name}_proj" for name in "qkv"), "colwise"),
        "layers.*.self_attn.o_proj": "rowwise",
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
    }

    #: what `qk_norm` adds to that plan: with "whole", as with a position bias, each process needs all heads
    qk_norm_tp_plan: ClassVar[dict[str, dict[str, str]]] = {
        "head": {f"layers.*.self_attn.{name}_norm": "replicated_with_grad_allreduce" for name in "qk"},
        "whole": {
            **dict.fromkeys((f"layers.*.self_attn.{name}_proj" for name in "qkv"), "colwise_gather_output"),
            "layers.*.self_attn.o_proj": "rowwise_split_input",
        },
    }

    #: pipeline parallelism of serving engines: inputs and outputs of each part
    base_model_pp_plan: ClassVar[dict[str, tuple[list[str], list[str]]]] = {
        "embeddings": (["input_ids"], ["inputs_embeds"]),
        "layers": (["hidden_states"], ["hidden_states"]),
        "norm": (["hidden_states"], ["hidden_states"]),
    }

    vocab_size: int = 30522
    hidden_size: int = 768
    embedding_size: int | None = None
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout: float | int = 0.1
    embedding_dropout: float | int | None = None
    attention_dropout: float | int = 0.1
    activation_dropout: float | int = 0.0
    attention_output_dropout: float | int | None = None
    final_dropout: float | int = 0.0
    type_vocab_size: int = 0
    token_types_as_tokens: bool = False
    scale_embedding: bool = False
    round_embedding_scale: bool = False
    embedding_multiplier: float | int = 1.0
    residual_multiplier: float | int = 1.0
    max_position_embeddings: int = 512
    initializer_range: float = 0.02
    train_padding_embedding: bool = False
    tie_word_embeddings: bool = True

    norm_position: NormPosition = "post"
    use_parallel_residual: bool = False
    num_ln_in_parallel_attn: Literal[1, 2] = 2
    first_norm: bool = True
    final_norm: bool | None = None
    embedding_norm: bool = False
    norm_type: Literal["layernorm", "rmsnorm", "zero_centered_rmsnorm"] = "layernorm"
    norm_bias: bool | None = None
    qk_norm: Literal["head", "whole"] | None = None
    norm_eps: float = 1e-5
    position_embedding_type: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] = "learned"
    no_rope_layers: list[int] | None = None
    relative_attention_num_buckets: int | None = None
    relative_attention_max_distance: int = 128
    relative_attention_per_layer: bool = False
    sinusoid_type: Literal["interleaved", "halves", "tensor2tensor"] = "interleaved"
    mlp_type: Literal["dense", "gated"] = "dense"
    attention_type: Literal["softmax", "linear"] = "softmax"
    attention_scale: float | int | None = None
    attn_logit_softcapping: float | int | None = None
    sliding_window: int | None = None
    attention_bias: bool = True
    attention_output_bias: bool | None = None
    mlp_bias: bool = True
    mlp_output_bias: bool | None = None

    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    #: of a converted model: the official `model_type`, and fields that the zoo lacks
    official: dict | None = None

    def __post_init__(self, **kwargs):
        for name in kwargs:
            if field := self.misspelt_field(name):
                raise ValueError(f"{type(self).__name__} has no field {name!r}. Is it {field!r}?")
            if name in OF_SOME_FAMILIES:
                raise ValueError(
                    f"{name}={kwargs[name]!r} is a field of other families, and not of {type(self).__name__}."
                )
        aliases = {name: kwargs.pop(name) for name in [*kwargs] if name in self.attribute_map}
        aliases = {name: value for name, value in aliases.items() if value is not None}
        for name, value in aliases.items():
            same = {other: aliases[other] for other in aliases if self.attribute_map[other] == self.attribute_map[name]}
            if any(other != value for other in same.values()):
                raise ValueError(f"{same} are names of one field, {self.attribute_map[name]!r}: they should be equal.")
            setattr(self, name, value)
        if vars(self)["head_dim"] is None and self.hidden_size % max(self.num_attention_heads, 1):
            raise ValueError(
                f"hidden_size={self.hidden_size} is not a multiple of num_attention_heads={self.num_attention_heads}: "
                "change one of them, or set head_dim."
            )
        for name in ("rope_parameters", "rope_theta", "rope_scaling"):
            if kwargs.get(name) is not None and self.position_embedding_type != "rotary":
                raise ValueError(
                    f"{name}={kwargs[name]} has no meaning with position_embedding_type="
                    f"{self.position_embedding_type!r}: it goes with 'rotary'."
                )
        # transformers' tools treat every model with an attribute `rope_parameters` as a rotary one.
        rope_parameters = kwargs.pop("rope_parameters", None)
        if self.position_embedding_type == "rotary":
            self.rope_parameters = rope_parameters
        super().__post_init__(**kwargs)
        absent = () if self.mlp_type == "gated" else ("layers.*.mlp.gate_proj",)
        plan = {name: style for name, style in self.block_tp_plan.items() if name not in absent}
        # A bias of positions has numbers for all heads: each process then scores all of them.
        self.base_model_tp_plan = plan | self.qk_norm_tp_plan.get(
            "whole" if self.has_position_bias else self.qk_norm, {}
        )
        self.auto_map = self.full_auto_map()

    @classmethod
    def misspelt_field(cls, name: str) -> str | None:
        """The field that an unknown name resembles, if any."""
        if hasattr(cls, name) or name in cls.__dataclass_fields__ or name in cls.attribute_map:
            return None
        return next(iter(get_close_matches(name, cls.__dataclass_fields__, n=1, cutoff=0.87)), None)

    def full_auto_map(self) -> dict[str, str]:
        """The `auto_map` of every checkpoint, whichever head was saved."""
        others = self.other_auto_classes
        saved = {others[name]: name for name in self.architectures or () if name in others}
        return {auto: f"{self.modeling_file}.{name}" for auto, name in (self.auto_classes | saved).items()}

    @property
    def position_size(self) -> int:
        """The width of positions and segments, which are added to the embeddings of tokens."""
        return self.hidden_size if self.project_tokens else self.embedding_size

    @property
    def output_size(self) -> int:
        """The width of the last hidden states, which heads read."""
        return self.embedding_size if self.project_tokens else self.hidden_size

    @property
    def first_position(self) -> int:
        """The position of a sequence's first token: in RoBERTa the one after the padding's."""
        return self.pad_token_id + 1 if self.position_ids_from_padding else 0

    @property
    def layer_type(self) -> str:
        """The default kind of attention of a layer, under transformers' name."""
        if self.attention_type == "linear":
            return "linear_attention"
        return "full_attention" if self.sliding_window is None else "sliding_attention"

    @property
    def has_linear_attention(self) -> bool:
        """Whether a layer has linear attention."""
        return "linear_attention" in getattr(self, "layer_types", (self.layer_type,))

    @property
    def has_position_bias(self) -> bool:
        """Whether a bias of positions is added to the scores."""
        return self.position_embedding_type == "alibi" or self.relative_attention_num_buckets is not None

    @classmethod
    def following_fields(cls) -> list[str]:
        """Names of the fields that follow from others while they are `None`."""
        return [name for name in cls.__dataclass_fields__ if isinstance(getattr(cls, name, None), FollowingField)]

    def to_dict(self) -> dict:
        """All fields with their values."""
        values = {name: getattr(self, name) for name in self.following_fields()}
        # While transformers saves, it adds an entry to `auto_map` with the file of the saved class: this drops it.
        return super().to_dict() | values | {"auto_map": self.full_auto_map()}

    def to_diff_dict(self) -> dict:
        """What `config.json` holds. A field that follows from others is `None` there, so that it changes with them."""
        chosen = {}
        for name in self.following_fields():
            value, rule = vars(self)[name], getattr(type(self), name).rule
            chosen[name] = None if value == rule(self) else value
        return super().to_diff_dict() | chosen

    @classmethod
    def from_dict(cls, config_dict: dict, **kwargs):
        """Makes a configuration from saved fields and overrides (`kwargs`), checked together.

        A saved name that looks like a misspelt field becomes an attribute, with a warning: a tool may have written it.

        Raises:
            ValueError: for the fields of another type of model.
        """
        kind = config_dict.get("model_type") or cls.model_type
        if kind != cls.model_type:
            hint = "" if kind.startswith("tfm_") else " (tfm_zoo.from_official converts official checkpoints)"
            raise ValueError(f"A model of type {kind!r} is not one of {cls.model_type!r}{hint}.")
        known = set(cls.__dataclass_fields__) - set(PreTrainedConfig.__dataclass_fields__)
        known |= {"rope_parameters", *cls.attribute_map}
        fields = config_dict | {name: kwargs.pop(name) for name in known & kwargs.keys()}
        foreign = {name: fields.pop(name) for name in list(fields) if cls.misspelt_field(name)}
        loaded = super().from_dict(fields, **kwargs)
        config = loaded[0] if isinstance(loaded, tuple) else loaded
        for name, value in foreign.items():
            meant = cls.misspelt_field(name)
            logger.warning(f"{name}={value!r} has no effect: {cls.__name__} has no such field. Is it {meant!r}?")
            setattr(config, name, value)
        return loaded

    def validate_block(self):
        """Sizes come first: the other checks divide by them."""
        self.check_sizes()
        self.check_axes()


add_following_fields(
    TfmConfig,
    norm_bias=lambda config: config.norm_type == "layernorm",
    no_rope_layers=lambda config: [1] * max(config.num_hidden_layers, getattr(config, "decoder_layers", 0)),
    embedding_size=lambda config: config.hidden_size,
    num_key_value_heads=lambda config: config.num_attention_heads,
    head_dim=lambda config: config.hidden_size // max(config.num_attention_heads, 1),
    attention_scale=lambda config: config.head_dim**-0.5,
    final_norm=lambda config: config.norm_position != "post",
    embedding_dropout=lambda config: config.hidden_dropout,
    attention_output_dropout=lambda config: config.hidden_dropout,
    attention_output_bias=lambda config: config.attention_bias,
    mlp_output_bias=lambda config: config.mlp_bias,
)
