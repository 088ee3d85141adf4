"""The fields of configurations: those that some families have, and those of the block, which all share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from inspect import getattr_static
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

NormPosition = Literal["post", "pre", "output", "both"]
PositionEmbedding = Literal["learned", "sinusoidal", "rotary", "alibi", "none"]
WITH_BIAS = ("layernorm", "zero_centered_layernorm")  # norms that may have one
ENGINES = ("vllm", "sglang")  # the attention implementations that engines set, which serve models in a way of their own
#: names of fields in other configurations -> their names here
ALIASES = {
    alias: name
    for name, aliases in {
        "hidden_size": "n_embd d_model dim",
        "num_hidden_layers": "n_layer n_layers num_layers",
        "num_attention_heads": "n_head n_heads num_heads attention_heads",
        "num_key_value_heads": "num_kv_heads",
        "head_dim": "d_kv",
        "intermediate_size": "n_inner ffn_dim ffn_hidden_size hidden_dim d_ff",
        "max_position_embeddings": "n_positions n_ctx max_seq_len",
        "hidden_act": "activation_function hidden_activation activation afn",
        "norm_eps": "layer_norm_eps layer_norm_epsilon norm_epsilon rms_norm_eps",
        "hidden_dropout": "hidden_dropout_prob resid_pdrop dropout dropout_rate residual_dropout resid_dropout",
        "attention_dropout": "attention_probs_dropout_prob attn_pdrop",
        "embedding_dropout": "embd_pdrop embed_dropout",
        "activation_dropout": "mlp_dropout",
        "attention_scale": "attention_multiplier",
        "initializer_range": "init_std",
    }.items()
    for alias in aliases.split()
}


class Stored:
    """A field that keeps the value it is given, and shows what `read` makes of the configuration and this value."""

    def __init__(self, read: Callable[[Any, Any], Any]):
        self.read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, config: Any, owner: type | None = None) -> Any:
        # (Asked of the class, it shows its default.)
        return None if config is None else self.read(config, vars(config).get(self.name))

    def __set__(self, config: Any, value: Any) -> None:
        vars(config)[self.name] = value


class Follows(Stored):
    """A field that is what another field is, or what a rule makes of the configuration, while it is `None`."""

    def __init__(self, rule: str | Callable[[Any], Any]):
        self.rule = rule

    def read(self, config: Any, value: Any) -> Any:
        if value is not None:
            return value
        return getattr(config, self.rule) if isinstance(self.rule, str) else self.rule(config)


def equal_share(config: Any) -> int:
    """The width of a head, if heads divide the width of the model; else 0."""
    share, rest = divmod(config.hidden_size, max(config.num_attention_heads, 1))
    return 0 if rest else share


@dataclass(repr=False)  # that of transformers shows it as JSON
class LogitFields:
    """Fields of families that may have layers before the projection onto the vocabulary."""

    lm_head_transform: bool = False  # a dense layer, activation and norm before the projection onto the vocabulary
    lm_head_act: str | None = Follows("hidden_act")  # of that layer
    classifier_bias: bool = True  # in that layer; in encoders also in the pooler, and in the classifier in its place


@dataclass(repr=False)
class WriterFields:
    """Fields of families that generate text."""

    logit_scale: float | int = 1.0  # what logits, but not their bias, are multiplied by (T5)
    final_logit_softcapping: float | int | None = None  # logits become `cap * tanh(logits / cap)` (Gemma 2)


def auto_classes_of(prefix: str, heads: str = "", **others: str) -> dict[str, str]:
    """`Auto...` class -> class of a family: for heads that have the names of their Auto classes, and for `others`."""
    named = {f"AutoModelFor{head}": f"{prefix}For{head}" for head in heads.split()}
    return {"AutoConfig": f"{prefix}Config", "AutoModel": f"{prefix}Model"} | named | others


def names_of(kind: type) -> set[str]:
    """The fields of a class, and their names in other configurations."""
    return {each.name for each in fields(kind)} | getattr(kind, "attribute_map", {}).keys()


@strict
class TfmConfig(PreTrainedConfig):
    """Sizes and architectural axes of one Transformer block, under the same names in every family. Each field is
    described where it stands below. Names that other configurations have for it are its aliases.

    Raises:
        ValueError: where `tfm_zoo` is installed, for a value, or a combination of values, that has no meaning, for two
            names of one field, and for a field that the family lacks; the message names the fields.
    """

    #: the family's modeling file, and `Auto...` class -> class in it, for registration and for `auto_map`
    modeling_file: ClassVar[str] = ""
    auto_classes: ClassVar[dict[str, str]] = {}
    #: class -> the Auto class that loads it if a checkpoint's `architectures` names it
    other_auto_classes: ClassVar[dict[str, str]] = {}
    attribute_map: ClassVar[dict[str, str]] = ALIASES
    #: fields that a class drops (as `ClassVar`s), and where `tfm_zoo` is installed those of other families; by any name
    lacks: ClassVar[set[str]] = set()
    defaults: ClassVar[dict[str, Any]] = {}  # field -> its default, or what makes it follow from others
    following_fields: ClassVar[list[str]] = []  # those that follow from others while they are `None`
    #: what fits what: where `tfm_zoo` is installed, the `Rule`s of `tfm_zoo/configurations`. They do not travel with a
    #: checkpoint, whose configuration was checked when it was made
    rules: ClassVar[Sequence[Any]] = ()
    ignore_keys_at_rope_validation: ClassVar[set[str]] = {"llama_4_scaling_beta", "max_position_embeddings"}

    base_model_fsdp_plan: ClassVar[dict[str, str]] = dict.fromkeys(("embeddings", "layers.*"), "free_full_weight")
    #: pipeline parallelism of serving engines: inputs and outputs of each part
    base_model_pp_plan: ClassVar[dict[str, tuple[list[str], list[str]]]] = {
        "embeddings": (["input_ids"], ["inputs_embeds"]),
        "layers": (["hidden_states"], ["hidden_states"]),
        "norm": (["hidden_states"], ["hidden_states"]),
    }

    # what the block and heads read, and only some families have as a field
    num_hidden_groups: ClassVar[int | None] = None
    task_type_vocab_size: ClassVar[int] = 0
    dropped_token_id: ClassVar[int | None] = None
    project_tokens: ClassVar[bool] = False
    position_ids_from_mask: ClassVar[bool] = False
    rotary_value: ClassVar[bool] = False
    scale_alibi: ClassVar[bool] = False
    round_alibi: ClassVar[bool] = False
    lm_head_transform: ClassVar[bool] = False
    classifier_transform: ClassVar[bool] = False
    qa_dropout: ClassVar[float] = 0.0

    # sizes
    vocab_size: int = 30522  # tokens in the vocabulary
    hidden_size: int = 768  # width of the residual stream
    embedding_size: int | None = Follows("hidden_size")  # width of the embeddings, which may be projected (ELECTRA)
    num_hidden_layers: int = 12  # blocks; in an encoder-decoder, the encoder's
    num_attention_heads: int = 12  # query heads
    num_key_value_heads: int | None = Follows("num_attention_heads")  # fewer: grouped queries (Ainslie et al. 2023)
    head_dim: int | None = Follows(equal_share)  # width of one head
    intermediate_size: int = 3072  # width inside the feed-forward

    # dropout
    hidden_dropout: float | int = 0.1  # of what each sub-layer adds to the residual stream
    embedding_dropout: float | int | None = Follows("hidden_dropout")  # of the embeddings
    attention_dropout: float | int = 0.1  # of the attention weights
    attention_output_dropout: float | int | None = Follows("hidden_dropout")  # of what attention adds to that stream
    activation_dropout: float | int = 0.0  # inside the feed-forward, after the activation
    final_dropout: float | int = 0.0  # of the last hidden state, after its norm (T5)
    classifier_dropout: float | int | None = Follows("hidden_dropout")  # before classifiers

    # embeddings
    type_vocab_size: int = 0  # number of segments, each with an embedding; without any, `token_type_ids` are ignored
    token_types_as_tokens: bool = False  # look `token_type_ids` up among the tokens, as GPT and GPT-2 do
    scale_embedding: bool = False  # multiply those of tokens by the square root of their width (Vaswani et al. 2017)
    round_embedding_scale: bool = False  # to the dtype of the embeddings, which matters in half precision (Gemma)
    embedding_multiplier: float | int = 1.0  # what the sum of all embeddings is multiplied by (Granite)
    embedding_norm: bool = False  # a norm of that sum (BERT)
    #: else that of `pad_token_id` starts at zero and gets no gradient, except through a projection that is tied to it
    train_padding_embedding: bool = False
    initializer_range: float = 0.02  # standard deviation of the normal distribution that weights start from

    # norms and residuals
    norm_position: NormPosition = "post"  # where they stand: see [`TfmLayer`]
    use_parallel_residual: bool = False  # attention and feed-forward read the same state (GPT-J, GPT-NeoX)
    num_ln_in_parallel_attn: Literal[1, 2] = 2  # 1 if they read it through one norm (GPT-J), 2 if each has its own
    residual_multiplier: float | int = 1.0  # what sub-layers add is multiplied by it first (Granite)
    first_norm: bool = True  # a norm before the first attention (ModernBERT norms its embeddings instead)
    final_norm: bool | None = Follows(lambda config: config.norm_position != "post")  # a norm after the last block
    #: Ba et al. 2016; Zhang and Sennrich 2019; also with differences from one (Nemotron, Gemma), or no weights (OLMo)
    norm_type: Literal[
        "layernorm", "zero_centered_layernorm", "plain_layernorm", "rmsnorm", "zero_centered_rmsnorm", "plain_rmsnorm"
    ] = "layernorm"
    norm_bias: bool | None = Follows(lambda config: config.norm_type in WITH_BIAS)  # the others have no bias
    #: of queries and keys: of each head (Qwen3) or of all as one (OLMo 2), or of each head once it is rotated (Hunyuan)
    qk_norm: Literal["head", "whole", "turned_head"] | None = None
    norm_eps: float = 1e-5  # added to the variance (LayerNorm) or to the mean square (RMSNorm)

    # positions
    #: learned, sinusoidal (Vaswani et al. 2017), rotary (Su et al. 2021; transformers' `rope_parameters` are one set,
    #: or a dict by type of layer), or a bias of self-attention (Press et al. 2022)
    position_embedding_type: PositionEmbedding = "learned"
    max_position_embeddings: int = 512  # longest input of learned positions; where the scaling of rotary ones starts
    position_offset: int = 0  # rows of the table before that of the first position (OPT, BART: 2)
    #: count real tokens only, by their ids (beside a cache by the mask), from row `pad_token_id + 1` on (RoBERTa)
    position_ids_from_padding: bool = False
    sinusoid_type: Literal["interleaved", "halves", "tensor2tensor"] = "interleaved"  # see [`TfmSinusoidalPositions`]
    #: for each layer, 1: rotary positions, 0: no positions (SmolLM3)
    no_rope_layers: list[int] | None = Follows(lambda config: [1] * config.num_hidden_layers)
    #: buckets of distances, each with a learned bias for each head (T5, MPNet)
    relative_attention_num_buckets: int | None = None
    relative_attention_max_distance: int = 128  # all distances from this one on share the last bucket
    relative_attention_per_layer: bool = False  # whether each layer has its own biases (umT5), or all share one set

    # attention
    #: of self-attention. If it is linear (Katharopoulos et al. 2020), nothing is dropped, and rotary positions turn
    #: queries and keys before the feature map (Zhang et al. 2024)
    attention_type: Literal["softmax", "linear"] = "softmax"
    sliding_window: int | None = None  # how far a position sees: in encoders to each side, in decoders with itself
    #: of each layer: "full_attention", "sliding_attention" or "linear_attention"
    layer_types: list[str] | None = Follows(lambda config: [config.layer_type] * config.num_hidden_layers)
    #: what scores are multiplied by before the softmax (Vaswani et al. 2017, equation 1), in cross-attention too
    attention_scale: float | int | None = Follows(lambda config: config.head_dim**-0.5)
    attn_logit_softcapping: float | int | None = None  # scores become `cap * tanh(scores / cap)` (Gemma 2), not by sdpa
    attention_bias: bool = True  # in the query, key and value projections
    attention_output_bias: bool | None = Follows("attention_bias")  # in the output projection

    # feed-forward
    mlp_type: Literal["dense", "gated"] = "dense"  # gated: Shazeer 2020; with `hidden_act="silu"`: SwiGLU
    hidden_act: str = "gelu"  # a key of transformers' `ACT2FN`
    mlp_bias: bool = True  # in its projections
    mlp_output_bias: bool | None = Follows("mlp_bias")  # in the last of them

    # heads
    tie_word_embeddings: bool = True  # the projection onto the vocabulary has the weights of its embeddings
    lm_head_bias: bool = False  # a bias in it

    #: compute nothing at padding, where outputs are then zero. Decoders do so in training, and in evaluation for a
    #: classifier that fills no cache. For a loss without logits, they also skip what stands behind the last label
    skip_padding: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    # (For an Auto class with two classes, transformers would iterate over `None`.)
    architectures: list[str] | None = Follows(lambda config: [])
    official: dict | None = None  # of a converted model: the name of its table, and fields that the way back needs

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)  # makes a dataclass of it
        own, inherited = names_of(cls), map(names_of, filter(is_dataclass, cls.__bases__))
        cls.lacks = cls.lacks.union(*inherited) - own
        cls.defaults = {name: getattr_static(cls, name, None) for name in own | TfmConfig.__annotations__.keys()}
        cls.following_fields = [name for name in own if isinstance(cls.defaults[name], Follows)]

    def __post_init__(self, **kwargs):
        for name in self.attribute_map.keys() & kwargs.keys():
            if (value := kwargs.pop(name)) is not None:
                setattr(self, name, value)
        # transformers' tools treat every model with an attribute `rope_parameters` as a rotary one.
        rope_parameters = kwargs.pop("rope_parameters", None)
        if self.position_embedding_type == "rotary" or rope_parameters is not None:
            self.rope_parameters = rope_parameters
        super().__post_init__(**kwargs)
        self.output_attentions = self.output_attentions  # transformers' setter then chooses eager attention
        if any(isinstance(own, dict) for own in (getattr(self, "rope_parameters", None) or {}).values()):
            # transformers puts a value for all layers beside those by type of layer, where its 5.17 fails to check it.
            self.rope_parameters.pop("rope_theta", None)
        self.auto_map = self.full_auto_map()
        self.validate_fields()
        # A value that follows from another field anyway is stored as `None`: it changes with the other field, here and
        # in a saved file.
        vars(self).update({name: None for name in self.following_fields if not self.is_chosen(name)})

    def validate_fields(self) -> None:
        """Raises a `ValueError` if the fields do not fit each other, by the `rules`. As they may be changed,
        transformers asks again before it saves them, and models before they are made."""
        for rule in self.rules:
            rule.check(self)

    def is_chosen(self, name: str) -> bool:
        """Whether a field has another value than its default, or than what follows from other fields."""
        value, default = vars(self).get(name), self.defaults.get(name)
        default = default.read(self, None) if isinstance(default, Stored) else default
        return value is not None and value != default

    def full_auto_map(self) -> dict[str, str]:
        """The `auto_map` of every checkpoint, whichever head was saved. A model of somebody's own has another
        `model_type`, or a class in `architectures` that the family lacks: it keeps the entries of its own classes,
        which transformers adds while it saves (`register_for_auto_class`)."""
        others, saved, given = self.other_auto_classes, set(self.architectures or ()), getattr(self, "auto_map", None)
        family = next(each for each in type(self).__mro__ if "modeling_file" in vars(each))
        if self.model_type != family.model_type or not saved <= {*self.auto_classes.values(), *others}:
            return {auto: own for auto, own in (given or {}).items() if f"{self.modeling_file}." not in str(own)}
        names = self.auto_classes | {others[name]: name for name in saved & others.keys()}
        return {auto: f"{self.modeling_file}.{name}" for auto, name in names.items()}

    @property
    def base_model_tp_plan(self) -> dict[str, str]:
        """How tensor parallelism shards the base model."""
        return self.tp_plan()

    @base_model_tp_plan.setter
    def base_model_tp_plan(self, plan: dict[str, str]) -> None:
        """Nothing: transformers 5.18 would add embeddings, under the name that they have in its own models."""

    def tp_plan(self) -> dict[str, str]:
        """How tensor parallelism shards the layers of a stack."""
        # A bias of positions and a norm of all heads as one need all heads: each process then has all scores.
        is_whole = self.has_position_bias or self.qk_norm == "whole"
        of_heads = "colwise_gather_output" if is_whole else "colwise"
        plan = dict.fromkeys((f"self_attn.{name}_proj" for name in "qkv"), of_heads)
        plan |= {"self_attn.o_proj": "rowwise_split_input" if is_whole else "rowwise"}
        plan |= {"mlp.gate_proj": "colwise"} if self.mlp_type == "gated" else {}
        plan |= {"mlp.up_proj": "colwise", "mlp.down_proj": "rowwise"}
        if self.qk_norm and not is_whole and self.norm_type != "plain_rmsnorm":
            plan |= dict.fromkeys(("self_attn.q_norm", "self_attn.k_norm"), "replicated_with_grad_allreduce")
        return {f"layers.*.{name}": style for name, style in plan.items()}

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
        """What the model adds to positions, which count from 0: in RoBERTa they begin after that of padding."""
        return self.pad_token_id + 1 if self.position_ids_from_padding else 0

    @property
    def layer_type(self) -> str:
        """The type of a layer's attention, if `layer_types` is `None`; the words are transformers'."""
        if self.attention_type == "linear":
            return "linear_attention"
        return "full_attention" if self.sliding_window is None else "sliding_attention"

    @property
    def has_linear_attention(self) -> bool:
        """Whether a layer has linear attention."""
        return "linear_attention" in self.layer_types

    @property
    def scales_queries(self) -> bool:
        """Whether queries grow with their position, by this number among the rotary parameters (Ministral 3)."""
        return "llama_4_scaling_beta" in (getattr(self, "rope_parameters", None) or {})

    @property
    def has_position_bias(self) -> bool:
        """Whether a bias of positions is added to the scores."""
        return self.position_embedding_type == "alibi" or self.relative_attention_num_buckets is not None

    def to_dict(self) -> dict:
        """All fields with their values."""
        values = {name: getattr(self, name) for name in self.following_fields}
        values = super().to_dict() | values | {"auto_map": self.full_auto_map()}
        return {name: value for name, value in values.items() if name not in self.lacks}

    def to_diff_dict(self) -> dict:
        """What `config.json` holds. A field that follows from others is `None` there, so that it changes with them."""
        chosen = {name: vars(self)[name] if self.is_chosen(name) else None for name in self.following_fields}
        return super().to_diff_dict() | chosen

    @classmethod
    def from_dict(cls, config_dict: dict, **kwargs):
        """Makes a configuration from saved fields, with overrides (`kwargs`) in their place, whatever they are called.
        (Where there is `tfm_zoo`, its `configurations/names.py` does so, and checks the names.)"""
        own, aliases = names_of(cls) - names_of(PreTrainedConfig) | cls.lacks | {"rope_parameters"}, cls.attribute_map
        given = config_dict | {name: kwargs.pop(name) for name in list(kwargs) if name in own}
        given = {name: value for name, value in given.items() if value is not None or name not in aliases}
        saved = {aliases.get(name, name): value for name, value in given.items() if name not in cls.lacks}
        return super().from_dict(saved, **kwargs)
