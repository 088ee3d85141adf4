"""The attention implementations agree with each other, and flex with the official class's flex."""

import pytest
import torch

from tests.equivalence.comparison import assert_same_outputs, ragged_batch, target_mask
from tests.official_models import BY_NAME, build_tiny
from tfm_zoo.converters import from_official

LENGTHS = [13, 5, 9]


@pytest.mark.slow
@torch.no_grad()
def test_implementations_agree():
    """Flex needs heads of 16 channels; on a CPU it has no backward pass."""
    official_class = BY_NAME["BertForMaskedLM"]
    official = build_tiny(official_class, hidden_size=64, attn_implementation="flex_attention")
    for side in ("right", "left"):
        batch = ragged_batch(official_class, official, side, LENGTHS)
        expected = official(**batch, output_hidden_states=True)
        for attention in ("eager", "sdpa", "flex_attention"):
            for skip_padding in (True, False):
                zoo = from_official(official, attn_implementation=attention, skip_padding=skip_padding)
                outputs = zoo(**batch, output_hidden_states=True)
                assert_same_outputs(outputs, expected, batch["attention_mask"])


# Compiled kernels of flex attention are those of an encoder, above; to compile each kind would take a minute.
FLEX_WITHOUT_KERNELS = torch.compiler.set_stance("force_eager")


@torch.no_grad()
@FLEX_WITHOUT_KERNELS
def test_implementations_agree_in_a_decoder():
    """In layers that slide and one that does not; the official_class GPT-2 has no flex to compare with."""
    official_class = BY_NAME["Qwen2ForCausalLM"]
    official = build_tiny(official_class, hidden_size=64, head_dim=16, attn_implementation="flex_attention")
    for side in ("right", "left"):
        batch = ragged_batch(official_class, official, side, LENGTHS)
        expected = official(**batch, output_hidden_states=True)
        for attention in ("eager", "sdpa", "flex_attention"):
            zoo = from_official(official, attn_implementation=attention)
            assert_same_outputs(zoo(**batch, output_hidden_states=True), expected, batch["attention_mask"])


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("MBartForConditionalGeneration", {"attn_implementation": "flex_attention"}),
        # whose own flex looks for a bias of each sequence, and has one for all
        ("T5ForConditionalGeneration", {"d_kv": 16, "attn_implementation": "eager"}),
    ],
)
@torch.no_grad()
@FLEX_WITHOUT_KERNELS
def test_implementations_agree_in_an_encoder_decoder(name, fields):
    """In both stacks, and between them."""
    official_class = BY_NAME[name]
    official = build_tiny(official_class, d_model=64, **fields)
    for side in ("right", "left"):
        batch = ragged_batch(official_class, official, side, LENGTHS)
        expected = official(**batch, output_hidden_states=True)
        for attention in ("eager", "sdpa", "flex_attention"):
            for skip_padding in (True, False):
                zoo = from_official(official, attn_implementation=attention, skip_padding=skip_padding)
                outputs = zoo(**batch, output_hidden_states=True)
                assert_same_outputs(outputs, expected, batch["attention_mask"], target_mask(batch))
