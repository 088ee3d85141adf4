"""Configurations of published models, by name."""

from copy import deepcopy
from difflib import get_close_matches
from typing import Any

from ..configurations.names import by_field, merged
from ..converters.config_conversion import check_overrides
from ..models.configuration_tfm import TfmConfig
from ..models.configuration_tfm_bert import TfmBertConfig
from ..models.configuration_tfm_deberta import TfmDebertaConfig
from ..models.configuration_tfm_encoder_decoder import TfmEncoderDecoderConfig
from ..models.configuration_tfm_gpt import TfmGPTConfig
from ..models.configuration_tfm_text_tower import TfmTextTowerConfig


def gpt2(width: int, layers: int, heads: int) -> dict[str, int]:
    """The fields of a GPT-2's size, whose feed-forward follows from its width."""
    return {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}


def size(width: int, layers: int, heads: int, inner: int | None = None) -> dict[str, int]:
    """The fields of a model's size; its feed-forward is `inner` wide, by default four times as wide as the rest."""
    return gpt2(width, layers, heads) | {"intermediate_size": inner or 4 * width}


def rotary(theta: float, **others: float) -> dict[str, Any]:
    """Rotary positions with this base and, perhaps, other parameters."""
    parameters = {"rope_type": "default", "rope_theta": theta} | others
    return {"position_embedding_type": "rotary", "rope_parameters": parameters}


def tokens(**ids: int | None) -> dict[str, int | None]:
    """The ids of special tokens: `pad`, `bos`, `eos`."""
    return {f"{token}_token_id": index for token, index in ids.items()}


NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
#: encoders with a gated feed-forward, as they differ from BERT
GATED_ENCODER = {"mlp_type": "gated", "attention_bias": False, "mlp_bias": False, "add_pooling_layer": False}
#: OpenAI GPT (Radford et al. 2018), as it differs from GPT-2
OPENAI_GPT = {
    "vocab_size": 40478,
    "max_position_embeddings": 512,
    "norm_position": "post",
    "scaled_residual_init": False,
    "token_types_as_tokens": True,
    **tokens(bos=None, eos=None),
}
#: LLaMA (Touvron et al. 2023), as it differs from GPT-2
LLAMA = {
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    "mlp_type": "gated",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    **NO_DROPOUT,
    "train_padding_embedding": False,
    "scaled_residual_init": False,
}
#: LLaMA in the size of SmolLM-135M
SMOLLM = LLAMA | {
    "vocab_size": 49152,
    **size(width=576, layers=30, heads=9, inner=1536),
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    **rotary(10000.0),
    **tokens(bos=0, eos=0),
}
#: Qwen3 (Yang et al. 2025) in its smallest size
QWEN3_600M = LLAMA | {
    "vocab_size": 151936,
    **size(width=1024, layers=28, heads=16, inner=3072),
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    **rotary(1000000.0),
    "qk_norm": "head",
    "norm_eps": 1e-6,
    **tokens(bos=151643, eos=151645),
}
#: Gemma 3 (Gemma team 2025): what its decoder and its encoder share
GEMMA3 = {
    "vocab_size": 262144,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "position_embedding_type": "rotary",
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "scale_embedding": True,
    "round_embedding_scale": True,
    "norm_position": "both",
    "norm_type": "zero_centered_rmsnorm",
    "norm_eps": 1e-6,
    "qk_norm": "head",
    **tokens(pad=0, bos=2, eos=1),
}


def gemma3_layers(count: int) -> list[str]:
    """Every sixth layer sees everything."""
    return ["full_attention" if layer % 6 == 0 else "sliding_attention" for layer in range(1, count + 1)]


GEMMA3_270M = LLAMA | GEMMA3 | size(width=640, layers=18, heads=4, inner=2048)
GEMMA3_270M |= {"max_position_embeddings": 32768, "sliding_window": 512, "layer_types": gemma3_layers(18)}
#: EmbeddingGemma (Vera et al. 2025), as it differs from BERT
EMBEDDING_GEMMA = {
    **GATED_ENCODER,
    **NO_DROPOUT,
    **GEMMA3,
    **size(width=768, layers=24, heads=3, inner=1152),
    **{"max_position_embeddings": 2048, "sliding_window": 256, "layer_types": gemma3_layers(24)},
    **{"embedding_norm": False, "type_vocab_size": 0, "train_padding_embedding": False},
    **{"lm_head_transform": False, "lm_head_bias": False},
}
#: GPT-NeoX (Black et al. 2022) in the size of Pythia-160M (Biderman et al. 2023), as it differs from GPT-2
PYTHIA_160M = {
    **size(width=768, layers=12, heads=12),
    "vocab_size": 50304,
    "hidden_act": "gelu",
    **NO_DROPOUT,
    "max_position_embeddings": 2048,
    "use_parallel_residual": True,
    **rotary(10000.0, partial_rotary_factor=0.25),
    "tie_word_embeddings": False,
    "scaled_residual_init": False,
    **tokens(bos=0, eos=0),
}
#: OPT (Zhang et al. 2022) in its smallest size, as it differs from GPT-2
OPT_125M = {
    **size(width=768, layers=12, heads=12),
    "vocab_size": 50272,
    "hidden_act": "relu",
    "embedding_dropout": 0.0,
    "attention_dropout": 0.0,
    "max_position_embeddings": 2048,
    "position_ids_from_mask": True,
    "position_offset": 2,
    "train_padding_embedding": False,
    "scaled_residual_init": False,
    **tokens(pad=1, bos=2, eos=2),
}
#: its second size, the only one with these norms and these embeddings
OPT_350M = {"embedding_size": 512, "project_tokens": True, "norm_position": "post"}
#: Marian's OPUS-MT from English to German (Tiedemann and Thottingal 2020), as it differs from the base Transformer
OPUS_MT = {
    "vocab_size": 58101,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "sinusoid_type": "halves",
    "final_logits_bias": True,
    "weight_init": "normal",
    **tokens(pad=58100, bos=0, eos=0),
    "decoder_start_token_id": 58100,
}
#: BART (Lewis et al. 2019), as it differs from the base Transformer
BART = {
    "vocab_size": 50265,
    "hidden_act": "gelu",
    "scale_embedding": False,
    "embedding_norm": True,
    "position_embedding_type": "learned",
    "position_offset": 2,
    "final_logits_bias": True,
    "weight_init": "normal",
    **tokens(pad=1, bos=0),
    "decoder_start_token_id": 2,
}
#: Pegasus (Zhang et al. 2019), as it differs from the base Transformer
PEGASUS_LARGE = {
    **size(width=1024, layers=16, heads=16),
    "vocab_size": 96103,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "norm_position": "pre",
    "sinusoid_type": "halves",
    "final_logits_bias": True,
    "weight_init": "normal",
    **tokens(bos=None, eos=1),
    "decoder_start_token_id": 0,
}
#: the smallest dense NLLB model (NLLB team 2022), as it differs from the base Transformer
NLLB_600M = {
    **size(width=1024, layers=12, heads=16),
    "vocab_size": 256206,
    "attention_dropout": 0.1,
    "norm_position": "pre",
    "sinusoid_type": "tensor2tensor",
    "position_ids_from_padding": True,
    "weight_init": "normal",
    **tokens(pad=1, bos=0),
    "decoder_start_token_id": 2,
}
#: the distilled Blenderbot (Roller et al. 2020), as it differs from the base Transformer
BLENDERBOT_400M = {
    **size(width=1280, layers=2, heads=32),
    "decoder_layers": 12,
    "vocab_size": 8008,
    "hidden_act": "gelu",
    "max_position_embeddings": 128,
    "norm_position": "pre",
    "position_embedding_type": "learned",
    "final_logits_bias": True,
    "weight_init": "normal",
}
#: ModernBERT (Warner et al. 2024) in its base size, as it differs from BERT
MODERNBERT_BASE = {
    "vocab_size": 50368,
    "num_hidden_layers": 22,
    "intermediate_size": 1152,
    **NO_DROPOUT,
    "classifier_dropout": 0.0,
    "max_position_embeddings": 8192,
    "type_vocab_size": 0,
    "norm_position": "pre",
    "norm_bias": False,
    "norm_eps": 1e-5,
    "first_norm": False,
    "position_embedding_type": "rotary",
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "layer_types": [("full_attention" if layer % 3 == 0 else "sliding_attention") for layer in range(22)],
    "sliding_window": 64,
    **GATED_ENCODER,
    "pooler_act": "gelu",
    "lm_head_act": "gelu",
    "classifier_bias": False,
    "classifier_norm": True,
    "classifier_transform": True,
    **tokens(pad=50283, bos=50281, eos=50282),
}
#: nomic-embed-text-v1.5 (Nussbaum et al. 2024), as it differs from BERT
NOMIC_EMBED = {
    "vocab_size": 30528,
    "hidden_act": "silu",
    **NO_DROPOUT,
    "max_position_embeddings": 2048,
    **rotary(1000.0),
    **GATED_ENCODER,
}
#: gte-multilingual-base (Zhang et al. 2024), as it differs from BERT
GTE_BASE = {
    "vocab_size": 250048,
    "attention_dropout": 0.0,
    "activation_dropout": 0.1,
    "max_position_embeddings": 8192,
    "type_vocab_size": 1,
    **rotary(160000.0),
    "mlp_type": "gated",
    "mlp_bias": False,
    "mlp_output_bias": True,
    "add_pooling_layer": False,
    "lm_head_act": "gelu",
    "pad_token_id": 1,
}
#: jina-embeddings-v3 (Sturua et al. 2024) without its adapters, as it differs from BERT
JINA_V3 = {
    **size(width=1024, layers=24, heads=16),
    "vocab_size": 250002,
    "max_position_embeddings": 8194,
    "type_vocab_size": 1,
    "norm_eps": 1e-5,
    **rotary(20000.0),
    "lm_head_act": "gelu",
    **tokens(pad=1, bos=0, eos=2),
}
#: EuroBERT (Boizard et al. 2025) in its smallest size, as it differs from BERT
EUROBERT = {
    "vocab_size": 128256,
    "hidden_act": "silu",
    **NO_DROPOUT,
    "classifier_dropout": 0.0,
    "max_position_embeddings": 8192,
    "type_vocab_size": 0,
    "tie_word_embeddings": False,
    "norm_position": "pre",
    "norm_type": "rmsnorm",
    "norm_eps": 1e-5,
    "embedding_norm": False,
    **rotary(250000.0),
    **GATED_ENCODER,
    "pooler_act": "gelu",
    "classifier_pooling": "late",
    "lm_head_transform": False,
    "lm_head_bias": False,
    **tokens(pad=128001, bos=128000, eos=128001),
}
#: ELECTRA (Clark et al. 2020) in its smallest size, as it differs from BERT
ELECTRA_SMALL = {
    **size(width=256, layers=12, heads=4),
    "embedding_size": 128,
    "add_pooling_layer": False,
    "pooler_act": "gelu",
    "pooler_dropout": 0.1,
    "lm_head_act": "gelu",
}
#: ALBERT (Lan et al. 2019) in its base size, as it differs from BERT
ALBERT_BASE = {
    "vocab_size": 30000,
    "embedding_size": 128,
    "num_hidden_groups": 1,
    "hidden_act": "gelu_new",
    **NO_DROPOUT,
    "classifier_dropout": 0.1,
    **tokens(bos=2, eos=3),
}
#: XLM-R-XL (Goyal et al. 2021), as it differs from BERT
XLM_ROBERTA_XL = {
    **size(width=2560, layers=36, heads=32),
    "vocab_size": 250880,
    "hidden_dropout": 0.0,
    "embedding_dropout": 0.1,
    "attention_output_dropout": 0.1,
    "classifier_dropout": 0.1,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "norm_position": "pre",
    "norm_eps": 1e-5,
    "embedding_norm": False,
    "position_ids_from_padding": True,
    "pooler_dropout": 0.1,
    "lm_head_act": "gelu",
    **tokens(pad=1, bos=0, eos=2),
}
#: MPNet (Song et al. 2020), as it differs from BERT
MPNET_BASE = {
    "vocab_size": 30527,
    "max_position_embeddings": 514,
    "type_vocab_size": 0,
    "norm_eps": 1e-5,
    "position_ids_from_padding": True,
    "relative_attention_num_buckets": 32,
    "lm_head_act": "gelu",
    **tokens(pad=1, bos=0, eos=2),
}
#: T5 (Raffel et al. 2020) in its small size, as it differs from the base Transformer
T5_SMALL = {
    "vocab_size": 32128,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "final_dropout": 0.1,
    "scale_embedding": False,
    "max_position_embeddings": 512,
    "train_padding_embedding": True,
    "norm_position": "pre",
    "norm_type": "rmsnorm",
    "norm_eps": 1e-6,
    "position_embedding_type": "none",
    "relative_attention_num_buckets": 32,
    "attention_bias": False,
    "attention_scale": 1.0,
    "mlp_bias": False,
    "logit_scale": 512**-0.5,
    "weight_init": "normal",
    **tokens(bos=None, eos=1),
    "decoder_start_token_id": 0,
}
#: flan-T5 (Chung et al. 2022) in its base size, which is T5 1.1
FLAN_T5_BASE = T5_SMALL | {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "tie_word_embeddings": False,
    "mlp_type": "gated",
    "hidden_act": "gelu_new",
    "logit_scale": 1.0,
}

#: name -> the family's configuration class, and what differs from its defaults
NAMED_CONFIGS: dict[str, tuple[type[TfmConfig], dict[str, Any]]] = {
    "bert-base": (TfmBertConfig, {}),
    "bert-large": (TfmBertConfig, size(width=1024, layers=24, heads=16)),
    "albert-base-v2": (TfmBertConfig, ALBERT_BASE),
    "electra-small": (TfmBertConfig, ELECTRA_SMALL),
    "xlm-roberta-xl": (TfmBertConfig, XLM_ROBERTA_XL),
    "mpnet-base": (TfmBertConfig, MPNET_BASE),
    "modernbert-base": (TfmBertConfig, MODERNBERT_BASE),
    "nomic-embed-text-v1.5": (TfmBertConfig, NOMIC_EMBED),
    "gte-multilingual-base": (TfmBertConfig, GTE_BASE),
    "jina-embeddings-v3": (TfmBertConfig, JINA_V3),
    "eurobert-210m": (TfmBertConfig, EUROBERT),
    "embeddinggemma-300m": (TfmBertConfig, EMBEDDING_GEMMA),
    "deberta-v3-base": (TfmDebertaConfig, {}),
    "clip-vit-base-patch32-text": (TfmTextTowerConfig, {}),
    "openai-gpt": (TfmGPTConfig, OPENAI_GPT),
    "gpt2": (TfmGPTConfig, {}),
    "gpt2-medium": (TfmGPTConfig, gpt2(width=1024, layers=24, heads=16)),
    "gpt2-large": (TfmGPTConfig, gpt2(width=1280, layers=36, heads=20)),
    "gpt2-xl": (TfmGPTConfig, gpt2(width=1600, layers=48, heads=25)),
    "smollm-135m": (TfmGPTConfig, SMOLLM),
    "qwen3-0.6b": (TfmGPTConfig, QWEN3_600M),
    "gemma-3-270m": (TfmGPTConfig, GEMMA3_270M),
    "pythia-160m": (TfmGPTConfig, PYTHIA_160M),
    "opt-125m": (TfmGPTConfig, OPT_125M),
    "opt-350m": (TfmGPTConfig, OPT_125M | OPT_350M | size(width=1024, layers=24, heads=16)),
    # the two of "Attention Is All You Need" (Vaswani et al. 2017)
    "transformer-base": (TfmEncoderDecoderConfig, {}),
    "transformer-big": (TfmEncoderDecoderConfig, size(width=1024, layers=6, heads=16) | {"hidden_dropout": 0.3}),
    "opus-mt": (TfmEncoderDecoderConfig, OPUS_MT),
    "bart-base": (TfmEncoderDecoderConfig, BART | size(width=768, layers=6, heads=12)),
    "bart-large": (TfmEncoderDecoderConfig, BART | size(width=1024, layers=12, heads=16)),
    "nllb-200-distilled-600m": (TfmEncoderDecoderConfig, NLLB_600M),
    "pegasus-large": (TfmEncoderDecoderConfig, PEGASUS_LARGE),
    "blenderbot-400m-distill": (TfmEncoderDecoderConfig, BLENDERBOT_400M),
    "t5-small": (TfmEncoderDecoderConfig, T5_SMALL),
    "flan-t5-base": (TfmEncoderDecoderConfig, FLAN_T5_BASE),
}


def named_config(name: str, **overrides: Any) -> TfmConfig:
    """The configuration of a published model.

    Args:
        name: a key of `NAMED_CONFIGS`, such as `"gpt2-medium"`.
        overrides: fields of the configuration that are to differ from the published ones, under any of their names.

    Raises:
        ValueError: for an unknown name, with a list of those that are known, or for an override that is not a field.
    """
    if name not in NAMED_CONFIGS:
        known = ", ".join(NAMED_CONFIGS)
        raise ValueError(f"There is no configuration named {name!r}.{suggestion(name)} There are: {known}.")
    config_class, fields = NAMED_CONFIGS[name]
    overrides = by_field(config_class, overrides)
    check_overrides(overrides, config_class)
    return config_class(**merged(config_class, deepcopy(fields), overrides))


def suggestion(name: str) -> str:
    """A question, after a blank, whether the name most like this one is meant, first of its family; or nothing."""
    wanted = name.rpartition("/")[2].lower()
    family = [each for each in NAMED_CONFIGS if each.partition("-")[0] == wanted.partition("-")[0]]
    near = (
        [each for each in NAMED_CONFIGS if each.startswith(wanted)]
        or get_close_matches(wanted, family, n=1, cutoff=0.9)
        or sorted((each for each in NAMED_CONFIGS if wanted.startswith(each)), key=len, reverse=True)
        or get_close_matches(wanted, family, n=1, cutoff=0)
        or get_close_matches(wanted, NAMED_CONFIGS, n=1)
    )
    return f" Did you mean {near[0]!r}?" if near else ""
