"""What every family's configuration shares: the sizes of the block and the axes along which it can change."""

from difflib import get_close_matches
from typing import ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .compat import ACT2FN, ROPE_INIT_FUNCTIONS

#: names that other configurations have for fields of this one
ELSEWHERE = {
    **dict.fromkeys(("n_embd", "d_model", "dim"), "hidden_size"),
    **dict.fromkeys(("n_layer", "n_layers", "num_layers"), "num_hidden_layers"),
    **dict.fromkeys(("n_head", "n_heads", "num_heads"), "num_attention_heads"),
    **dict.fromkeys(("n_inner", "ffn_dim", "hidden_dim", "d_ff"), "intermediate_size"),
    **dict.fromkeys(("n_positions", "n_ctx"), "max_position_embeddings"),
    **dict.fromkeys(("activation_function", "activation", "afn"), "hidden_act"),
    **dict.fromkeys(("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps"), "norm_eps"),
    **dict.fromkeys(("hidden_dropout_prob", "resid_pdrop", "dropout"), "hidden_dropout"),
    **dict.fromkeys(("attention_probs_dropout_prob", "attn_pdrop"), "attention_dropout"),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), "num_attention_heads"),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), "intermediate_size"),
    "src_vocab_size": "vocab_size",
    "tgt_vocab_size": "decoder_vocab_size",
    "decoder_num_hidden_layers": "decoder_layers",
    "init_std": "initializer_range",
    "layer_types": "attention_type",  # or sliding_window: of all layers, but in decoders
    "embd_pdrop": "embedding_dropout",
    "rope_theta": "rope_parameters",
    "rope_scaling": "rope_parameters",
}


@strict
class TfmConfig(PreTrainedConfig):
    """Sizes and architectural axes of one Transformer block, under the same names in every family.

    Args:
        vocab_size: number of tokens in the vocabulary.
        hidden_size: width of the residual stream.
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
        type_vocab_size: number of segments, each with an embedding; 0 for a model without.
        token_types_as_tokens: look `token_type_ids` up among the tokens, as GPT and GPT-2 do. A model with neither this
            nor segments does not read them.
        scale_embedding: token embeddings are multiplied by the square root of `hidden_size` (Vaswani et al. 2017, 3.4).
        max_position_embeddings: longest input of learned positions; the length that rotary scaling starts from.
        initializer_range: standard deviation of the normal distribution that weights start from.
        train_padding_embedding: whether the embedding of `pad_token_id` is trained like any other; else it starts at
            zero, and looking it up gives it no gradient.
        norm_position: `"post"` normalises after each residual sum (Vaswani et al. 2017, BERT), `"pre"` normalises
            what each sub-layer reads (GPT-2 and later; Xiong et al. 2020).
        final_norm: a norm after the last block. `None`: true for pre-norm.
        embedding_norm: a norm on the sum of the embeddings (BERT).
        norm_type: `"layernorm"` (Ba et al. 2016) or `"rmsnorm"` (Zhang and Sennrich 2019).
        norm_eps: added to the variance (LayerNorm) or to the mean square (RMSNorm).
        position_embedding_type: `"learned"`, `"sinusoidal"` (Vaswani et al. 2017), `"rotary"` (Su et al. 2021; its
            kind and base in `rope_parameters`, as in transformers) or `"none"`.
        sinusoid_type: how sinusoidal positions are laid out: see [`TfmSinusoidalPositions`].
        mlp_type: `"dense"` or `"gated"` (Shazeer 2020; with `hidden_act="silu"`: SwiGLU).
        attention_type: `"softmax"`, or `"linear"` (Katharopoulos et al. 2020), whose work grows with the length and not
            with its square; of it, `attention_dropout` has no weights to drop. (An encoder is read by softmax, always.)
            Rotary positions turn queries and keys before their features are taken, as in LLaMAs that are made linear
            (Zhang et al. 2024): weights then depend on where two positions are, and not on their distance alone.
        sliding_window: `None`: a position attends to all it may see. Else, reading both ways, to those at most this
            many positions away; reading from the left, to the last so many, itself included (as Mistral counts them).
        attention_bias: biases in the query, key and value projections.
        attention_output_bias: a bias in the output projection. `None`: `attention_bias`.
        mlp_bias: biases in the feed-forward's projections.

    Raises:
        ValueError: for a value, or a combination of values, that has no meaning; the message names the fields.
    """

    #: modeling file that holds the family, and `Auto...` class -> class in that file: the single source of both the
    #: registration in `tfm_zoo` and the `auto_map` of every saved checkpoint, whichever head is saved.
    modeling_file: ClassVar[str] = ""
    auto_classes: ClassVar[dict[str, str]] = {}

    #: fields of the families whose official models count positions otherwise than from 0, padding included
    position_ids_from_padding: ClassVar[bool] = False
    position_offset: ClassVar[int] = 0

    base_model_fsdp_plan: ClassVar[dict[str, str]] = {
        "embeddings": "free_full_weight",
        "layers.*": "free_full_weight",
    }
    #: how tensor parallelism shards the embeddings and a layer's projections; see `base_model_tp_plan`
    block_tp_plan: ClassVar[dict[str, str]] = {
        "embeddings.embed_tokens": "embedding_rowwise",
        "layers.*.self_attn.q_proj": "colwise",
        "layers.*.self_attn.k_proj": "colwise",
        "layers.*.self_attn.v_proj": "colwise",
        "layers.*.self_attn.o_proj": "rowwise",
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
    }

    vocab_size: int = 30522
    hidden_size: int = 768
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
    type_vocab_size: int = 0
    token_types_as_tokens: bool = False
    scale_embedding: bool = False
    max_position_embeddings: int = 512
    initializer_range: float = 0.02
    train_padding_embedding: bool = False
    tie_word_embeddings: bool = True

    norm_position: Literal["post", "pre"] = "post"
    final_norm: bool | None = None
    embedding_norm: bool = False
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_eps: float = 1e-5
    position_embedding_type: Literal["learned", "sinusoidal", "rotary", "none"] = "learned"
    sinusoid_type: Literal["interleaved", "halves", "tensor2tensor"] = "interleaved"
    mlp_type: Literal["dense", "gated"] = "dense"
    attention_type: Literal["softmax", "linear"] = "softmax"
    sliding_window: int | None = None
    attention_bias: bool = True
    attention_output_bias: bool | None = None
    mlp_bias: bool = True

    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    #: what an official configuration held that the zoo has no field for, with its `model_type`; written by a converter
    official: dict | None = None

    def __post_init__(self, **kwargs):
        for key in kwargs:
            near = get_close_matches(key, self.__dataclass_fields__, n=1, cutoff=0.87)
            meant = ELSEWHERE.get(key) or (near[0] if near else None)
            if meant and not hasattr(type(self), key):
                raise ValueError(f"{type(self).__name__} has no field {key!r}. Is it {meant!r} that is meant?")
        if self.head_dim is None and self.hidden_size % max(self.num_attention_heads, 1):
            raise ValueError(
                f"hidden_size={self.hidden_size} is not a multiple of num_attention_heads={self.num_attention_heads}: "
                "change one of them, or set head_dim."
            )
        for name, value in self.derived().items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        # An attribute `rope_parameters` marks a rotary model for transformers' tools: other models do not have it.
        rope_parameters = kwargs.pop("rope_parameters", None)
        if self.position_embedding_type == "rotary":
            self.rope_parameters = rope_parameters
        elif rope_parameters is not None:
            raise ValueError(
                f"rope_parameters={rope_parameters} has no meaning with position_embedding_type="
                f"{self.position_embedding_type!r}: it goes with 'rotary'."
            )
        super().__post_init__(**kwargs)
        absent = () if self.mlp_type == "gated" else ("layers.*.mlp.gate_proj",)
        self.base_model_tp_plan = {name: how for name, how in self.block_tp_plan.items() if name not in absent}
        self.auto_map = self.full_auto_map()

    def full_auto_map(self) -> dict[str, str]:
        """Where each `Auto...` class finds its class in the code of a checkpoint, whichever head was saved."""
        return {auto: f"{self.modeling_file}.{name}" for auto, name in self.auto_classes.items()}

    def kind_of(self, layer_idx: int) -> str:
        """What attention a layer has, as transformers names it."""
        if self.attention_type == "linear":
            return "linear_attention"
        return "full_attention" if self.sliding_window is None else "sliding_attention"

    def derived(self) -> dict:
        """What the fields that follow from others are, where they are not given."""
        return {
            "num_key_value_heads": self.num_attention_heads,
            "head_dim": self.hidden_size // max(self.num_attention_heads, 1),
            "final_norm": self.norm_position == "pre",
            "embedding_dropout": self.hidden_dropout,
            "attention_output_bias": self.attention_bias,
        }

    def to_dict(self) -> dict:
        """The fields as they are saved; `None` where they follow from others, and so would from changed ones."""
        unchanged = {name: None for name, value in self.derived().items() if getattr(self, name) == value}
        # Saving writes an entry of its own into `auto_map`, under the file of the class that is saved.
        return super().to_dict() | unchanged | {"auto_map": self.full_auto_map()}

    @classmethod
    def from_dict(cls, config_dict: dict, **kwargs):
        """Overrides take part in making the configuration, so that what follows from them does, and is checked."""
        own = (set(cls.__dataclass_fields__) - set(PreTrainedConfig.__dataclass_fields__)) | {"rope_parameters"}
        overrides = {name: kwargs.pop(name) for name in own & kwargs.keys()}
        return super().from_dict(config_dict | overrides, **kwargs)

    def validate_block(self):
        """Runs the checks in this order, since the second divides by what the first finds to be positive."""
        self.check_sizes()
        self.check_axes()

    def check_sizes(self):
        """Sizes are positive, dropouts are probabilities, token ids lie in the vocabulary."""
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
            "max_position_embeddings",
            "sliding_window",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        for name in [field for field in self.__dataclass_fields__ if field.endswith("dropout")]:
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name}={value} is not a probability in [0, 1).")
        if self.norm_eps <= 0 or self.initializer_range < 0:
            raise ValueError(
                f"norm_eps={self.norm_eps} must be above 0, initializer_range={self.initializer_range} at least 0."
            )
        if self.type_vocab_size < 0:
            raise ValueError(f"type_vocab_size={self.type_vocab_size} must be 0 (no segments) or more.")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"pad_token_id={self.pad_token_id} is outside the vocabulary, 0 to {self.vocab_size - 1}; "
                "None is for a model without."
            )

    def check_axes(self):
        """The values of the architectural axes go together."""
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads={self.num_attention_heads} is not a multiple of num_key_value_heads="
                f"{self.num_key_value_heads}: every key-value head serves the same number of query heads."
            )
        if self.hidden_act not in ACT2FN:
            raise ValueError(
                f"hidden_act={self.hidden_act!r} is not an activation of transformers: {', '.join(ACT2FN)}."
            )
        if self.attention_type == "linear" and self.sliding_window is not None:
            raise ValueError(
                f"attention_type='linear' sees all positions through one sum, and sliding_window={self.sliding_window} "
                "would have it see some: one of the two."
            )
        if self.token_types_as_tokens and self.type_vocab_size:
            raise ValueError(
                f"token_types_as_tokens=True looks segments up among the tokens, and type_vocab_size="
                f"{self.type_vocab_size} gives them embeddings of their own: one of the two."
            )
        if self.position_embedding_type == "rotary" and self.head_dim % 2:
            raise ValueError(
                f"position_embedding_type='rotary' turns pairs of channels, and head_dim={self.head_dim} is odd."
            )
        if self.position_embedding_type == "rotary":
            kind, share = self.rope_parameters["rope_type"], self.rope_parameters.get("partial_rotary_factor", 1.0)
            if kind not in ("default", *ROPE_INIT_FUNCTIONS):
                raise ValueError(f"rope_type={kind!r} should be one of: default, {', '.join(ROPE_INIT_FUNCTIONS)}")
            if not 0 < share <= 1:
                raise ValueError(f"partial_rotary_factor={share} is not a share in (0, 1].")
        if self.position_embedding_type == "sinusoidal" and self.hidden_size % 2:
            raise ValueError(
                f"position_embedding_type='sinusoidal' fills pairs of channels; hidden_size={self.hidden_size} is odd."
            )
