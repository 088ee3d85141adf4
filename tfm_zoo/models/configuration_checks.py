"""What a configuration refuses: values, and combinations of values, that have no meaning."""

from .compat import ACT2FN, ROPE_INIT_FUNCTIONS

LAYER_TYPES = ("full_attention", "sliding_attention", "linear_attention")


class ConfigurationChecks:
    """The checks of [`TfmConfig`]. Each raises a `ValueError` that names the fields."""

    def check_sizes(self):
        """Sizes are positive, dropouts are probabilities, token ids lie in the vocabulary."""
        for name in (
            "vocab_size",
            "hidden_size",
            "embedding_size",
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
        for name in ("attention_scale", "logit_scale", "attn_logit_softcapping", "final_logit_softcapping"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0.")
        if self.type_vocab_size < 0:
            raise ValueError(f"type_vocab_size={self.type_vocab_size} must be 0 (no segments) or more.")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"pad_token_id={self.pad_token_id} is outside the vocabulary, 0 to {self.vocab_size - 1}; "
                "it may be None, for a model without padding."
            )

    def check_axes(self):
        """The architectural axes fit each other."""
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads={self.num_attention_heads} is not a multiple of num_key_value_heads="
                f"{self.num_key_value_heads}: every key-value head serves the same number of query heads."
            )
        if self.hidden_act not in ACT2FN:
            raise ValueError(
                f"hidden_act={self.hidden_act!r} is not an activation of transformers: {', '.join(ACT2FN)}."
            )
        problems = ("regression", "single_label_classification", "multi_label_classification")
        if self.problem_type not in (None, *problems):
            raise ValueError(f"problem_type={self.problem_type!r} should be None or one of {', '.join(problems)}.")
        if self.attention_type == "linear" and self.sliding_window is not None:
            raise ValueError(
                f"attention_type='linear' sees all positions through one sum, and sliding_window={self.sliding_window} "
                "would have it see some: choose one of the two."
            )
        for name in ("attention_scale", "attn_logit_softcapping"):
            is_set = vars(self)[name] is not None
            if is_set and self.attention_type == "linear" and not self.is_encoder_decoder:
                raise ValueError(f"{name}={getattr(self, name)} changes scores, and attention_type='linear' has none.")
        if self.round_embedding_scale and not self.scale_embedding:
            raise ValueError("round_embedding_scale=True rounds a scale, so scale_embedding=False should be True.")
        if self.project_tokens and self.embedding_size == self.hidden_size:
            raise ValueError(
                f"project_tokens=True projects from embedding_size={self.embedding_size} to hidden_size, which is the "
                "same: they should differ."
            )
        if self.tie_word_embeddings and self.embedding_size != self.output_size and not self.lm_head_transform:
            raise ValueError(
                f"tie_word_embeddings=True without lm_head_transform makes embeddings of embedding_size="
                f"{self.embedding_size} the projection of hidden_size={self.hidden_size}: they should be equal."
            )
        if self.norm_bias and self.norm_type != "layernorm":
            raise ValueError(f"norm_bias=True has no meaning with norm_type={self.norm_type!r}, which only scales.")
        if not self.first_norm and self.norm_position not in ("pre", "both"):
            raise ValueError(
                f"first_norm=False leaves out the norm before the first attention, and norm_position="
                f"{self.norm_position!r} has none there: it goes with 'pre' and 'both'."
            )
        if self.use_parallel_residual and self.norm_position != "pre":
            raise ValueError(
                f"use_parallel_residual=True lets attention and feed-forward read a norm's output, and norm_position="
                f"{self.norm_position!r} has none before them: it goes with 'pre'."
            )
        if self.num_ln_in_parallel_attn == 1 and not self.use_parallel_residual:
            raise ValueError(
                "num_ln_in_parallel_attn=1 is one norm for attention and feed-forward beside each other: "
                "use_parallel_residual=False should be True."
            )
        if self.residual_multiplier != 1 and (self.norm_position in ("output", "both") or self.use_parallel_residual):
            raise ValueError(
                f"residual_multiplier={self.residual_multiplier} needs norm_position 'pre' or 'post' and "
                f"use_parallel_residual=False, and not {self.norm_position!r} and {self.use_parallel_residual}."
            )
        if self.embedding_multiplier != 1 and self.embedding_norm:
            raise ValueError(
                f"embedding_multiplier={self.embedding_multiplier} has no effect through a norm: embedding_norm=True."
            )
        if self.token_types_as_tokens and self.type_vocab_size:
            raise ValueError(
                f"token_types_as_tokens=True looks segments up among the tokens, and type_vocab_size="
                f"{self.type_vocab_size} gives them embeddings of their own: choose one of the two."
            )
        if self.position_embedding_type == "rotary" and self.head_dim % 2:
            raise ValueError(
                f"position_embedding_type='rotary' turns pairs of channels, and head_dim={self.head_dim} is odd."
            )
        self.check_bias()
        if self.position_embedding_type == "rotary":
            self.check_rotary()
        elif 0 in self.no_rope_layers:
            raise ValueError(
                f"no_rope_layers={self.no_rope_layers} leaves out rotary positions, which position_embedding_type="
                f"{self.position_embedding_type!r} does not have."
            )
        if self.position_embedding_type == "sinusoidal" and self.position_size % 2:
            name = "hidden_size" if self.position_size == self.hidden_size else "embedding_size"
            raise ValueError(
                f"position_embedding_type='sinusoidal' fills pairs of channels; {name}={self.position_size} is odd."
            )

    def check_bias(self):
        """The fields of a bias of positions fit each other and the layers."""
        buckets, distance = self.relative_attention_num_buckets, self.relative_attention_max_distance
        if buckets is None and self.relative_attention_per_layer:
            raise ValueError("relative_attention_per_layer=True has no meaning without relative_attention_num_buckets.")
        if buckets is not None and (buckets < 4 or distance <= buckets // 2):
            raise ValueError(
                f"relative_attention_num_buckets={buckets} should be at least 4, and less than twice "
                f"relative_attention_max_distance={distance}: up to half of them hold one distance each, and the "
                "others farther ones."
            )
        if self.position_embedding_type == "alibi" and buckets is not None:
            raise ValueError(
                f"position_embedding_type='alibi' and relative_attention_num_buckets={buckets} are two biases of "
                "positions: choose one of them."
            )
        if (self.scale_alibi or self.round_alibi) and self.position_embedding_type != "alibi":
            raise ValueError(
                f"scale_alibi={self.scale_alibi} and round_alibi={self.round_alibi} change ALiBi, which "
                f"position_embedding_type={self.position_embedding_type!r} does not have: it should be 'alibi'."
            )
        if self.round_alibi and not self.position_ids_from_mask:
            raise ValueError(
                "round_alibi=True rounds the bias of each key by its position among real tokens: "
                "position_ids_from_mask=False should be True."
            )
        if self.has_position_bias and self.has_linear_attention:
            name = "position_embedding_type='alibi'" if buckets is None else f"relative_attention_num_buckets={buckets}"
            raise ValueError(
                f"{name} adds to scores, and linear attention has none: attention_type and layer_types should name no "
                "linear layer."
            )

    def check_rotary(self):
        """Every kind of layer has rotary parameters."""
        if not hasattr(self, "layer_types") and any(isinstance(value, dict) for value in self.rope_parameters.values()):
            raise ValueError(
                f"rope_parameters={self.rope_parameters} differ by kind of layer, which {type(self).__name__} does not "
                "have: they should be those of all layers."
            )
        layers = self.no_rope_layers
        fits = self.is_encoder_decoder or len(layers) == self.num_hidden_layers
        if not fits or not set(layers) <= {0, 1}:
            raise ValueError(
                f"no_rope_layers={layers} should have 0 or 1 for each of num_hidden_layers={self.num_hidden_layers}."
            )
        for layer_type in dict.fromkeys(getattr(self, "layer_types", (self.layer_type,))):
            parameters = self.rope_parameters.get(layer_type, self.rope_parameters)
            if "rope_type" not in parameters:
                raise ValueError(f"rope_parameters={self.rope_parameters} should have those of {layer_type!r} layers.")
            kind, share = parameters["rope_type"], parameters.get("partial_rotary_factor", 1.0)
            if kind not in ("default", *ROPE_INIT_FUNCTIONS):
                raise ValueError(f"rope_type={kind!r} should be one of: default, {', '.join(ROPE_INIT_FUNCTIONS)}.")
            if not 0 < share <= 1:
                raise ValueError(f"partial_rotary_factor={share} is not a share in (0, 1].")

    def check_offset(self):
        """`position_offset` counts rows of a learned position table."""
        offset, kind = self.position_offset, self.position_embedding_type
        if offset < 0:
            raise ValueError(f"position_offset={offset} should be 0 or more.")
        if offset and kind != "learned":
            raise ValueError(f"position_offset={offset} needs learned positions, not position_embedding_type={kind!r}.")

    def check_layer_types(self):
        """Every layer has a type, and sliding ones a window."""
        types = self.layer_types
        if len(types) != self.num_hidden_layers or not set(types) <= set(LAYER_TYPES):
            raise ValueError(
                f"layer_types={types} should name one of {', '.join(LAYER_TYPES)} for each of "
                f"num_hidden_layers={self.num_hidden_layers}."
            )
        if self.sliding_window is None and "sliding_attention" in types:
            raise ValueError(f"layer_types={types} has layers that slide: sliding_window=None should say how far.")
        if self.attention_type == "linear" and set(types) != {"linear_attention"}:
            raise ValueError(f"attention_type='linear' makes every layer linear, and layer_types={types} does not.")
