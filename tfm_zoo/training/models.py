"""What every recipe asks of a checkpoint: its configuration, its weights as a zoo model, its tokenizer."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from tfm_zoo.training.arguments import option

# Whatever a checkpoint's weights are: AdamW's small steps vanish in half precision, and `mixed_precision` casts what
# can be cast.
WEIGHTS = torch.float32


@dataclass
class ModelArguments:
    """Which checkpoint to start from, and as what."""

    model_name_or_path: str | None = option(None, "Zoo or official checkpoint, Hub id or folder.")
    tokenizer_name: str | None = option(None, "Tokenizer, if not the checkpoint's.")
    model_class: Literal["zoo", "native"] = option(
        "zoo", "'native' leaves an official checkpoint in its native class, to compare the two."
    )
    trust_remote_code: bool = option(False, "Run code that a checkpoint on the Hub brings along.")

    def stays_as_it_is(self, config: PreTrainedConfig) -> bool:
        """Whether a checkpoint is loaded by its own class, and not converted."""
        return config.model_type.startswith("tfm_") or self.model_class == "native"

    def for_loading(self) -> dict[str, Any]:
        """Options of `from_pretrained` for what stays as it is."""
        return {"trust_remote_code": self.trust_remote_code, "dtype": WEIGHTS}


def load_config(args: ModelArguments, name: str, option_name: str = "model_name_or_path", **fields) -> PreTrainedConfig:
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=args.trust_remote_code, **fields)
    except OSError as error:
        raise OSError(f"{option_name} {name!r}: neither a checkpoint folder nor one the Hub gave") from error


def load_tokenizer(args: ModelArguments, name: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer asked for, else that of the checkpoint `name`."""
    name = args.tokenizer_name or name
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=args.trust_remote_code)
    except OSError as error:
        raise OSError(f"tokenizer_name {name!r}: neither a folder with a tokenizer nor one the Hub gave") from error


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Refuse a tokenizer whose ids a model has no embeddings for."""
    if len(tokenizer) > config.vocab_size:
        raise ValueError(
            f"tokenizer {tokenizer.name_or_path!r} has {len(tokenizer)} tokens, more than the {config.vocab_size} of"
            f" {config.name_or_path!r}"
        )


def longest_input(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens model and tokenizer take."""
    return min(positions_of(config) or tokenizer.model_max_length, tokenizer.model_max_length)


def positions_of(config: PreTrainedConfig) -> int | None:
    """How many positions a configuration has for tokens; `None` where it does not say."""
    positions = getattr(config, "max_position_embeddings", None)
    # RoBERTa's positions begin after the padding's.
    from_padding = config.model_type in ("roberta", "xlm-roberta", "camembert")
    if positions and (from_padding or getattr(config, "position_ids_from_padding", False)):
        positions -= config.pad_token_id + 1
    return positions
