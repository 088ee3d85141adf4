"""What serving engines, such as vLLM, read otherwise than transformers, and what is refused since they would compute it
otherwise."""

from collections.abc import Iterator
from typing import Any

ENGINES = ("vllm", "sglang")  # the attention implementations that they set


def window_in_engine(config: Any, window: int | None) -> int | None:
    """A window as it is read: engines count the position itself too, so they read one more."""
    return window if window is None or config._attn_implementation not in ENGINES else window + 1


def check_pooling(config: Any) -> None:
    """Raises a `ValueError` where an engine would pool another position than a classifier does."""
    pooling, hint = config.classifier_pooling, "no engine pools in this way, so serve the model with transformers."
    if pooling == "mean":
        hint = (
            "an engine pools by its own settings, the first position by default. Serve it with "
            """--pooler-config '{"seq_pooling_type": "MEAN"}' and, to say that this is done, """
            """--hf-overrides '{"classifier_pooling": "cls"}'."""
        )
    if config._attn_implementation in ENGINES and pooling != "cls":
        raise ValueError(f"classifier_pooling={pooling!r}: {hint}")


def serves_encoder(config: Any) -> Iterator[str]:
    """An engine computes what the encoder does."""
    if config._attn_implementation in ENGINES and config.dropped_token_id is not None:
        yield (
            "$dropped_token_id scales a sequence by its masks, and an engine packs several into a row: serve the model "
            "with transformers."
        )


def serves_decoder(config: Any) -> Iterator[str]:
    """An engine computes what the decoder does."""
    if config._attn_implementation not in ENGINES:
        return
    if config.project_tokens:
        yield (
            "$project_tokens projects the last hidden states to $embedding_size, and an engine's logits read "
            "$hidden_size: serve the model with transformers."
        )
    if config.lm_head_transform:
        yield "$lm_head_transform adds layers that an engine skips: serve the model with transformers."
    if config.logit_scale != 1 and (config.lm_head_bias or config.final_logit_softcapping is not None):
        yield (
            "$logit_scale scales logits before their bias and their cap, and an engine scales them after $lm_head_bias "
            "and $final_logit_softcapping: serve the model with transformers."
        )
    if config.num_local_experts is not None and config.hidden_act != "silu":
        yield "$hidden_act: engines compute experts with 'silu', so serve the model with transformers."
