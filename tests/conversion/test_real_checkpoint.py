"""all-MiniLM-L6-v2, where it lies beside the project: real weights, real sentences."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from tests.equivalence.comparison import assert_same_outputs
from tests.precision import in_double
from tfm_zoo.converters import from_official

MINILM = Path(__file__).resolve().parents[3] / "shared" / "checkpoints" / "all-MiniLM-L6-v2"
SENTENCES = [
    "The cat sat on the mat.",
    "A transformer reads every position of its input at once, and attends to all of them.",
    "Short.",
    "In 1998 the museum moved from the old harbour to a brick building near the station, where it still is.",
]

pytestmark = pytest.mark.skipif(not MINILM.is_dir(), reason=f"no checkpoint at {MINILM}")


@pytest.mark.parametrize("side", ["right", "left"])
@torch.no_grad()
def test_hidden_states_of_real_sentences(side):
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    batch = tokenizer(SENTENCES, padding="longest", padding_side=side, return_tensors="pt")
    assert (batch["attention_mask"] == 0).any()
    native = AutoModel.from_pretrained(MINILM).double()
    for skip_padding in (True, False):
        zoo = from_official(MINILM, skip_padding=skip_padding).double()
        with in_double():
            outputs, expected = (model(**batch, output_hidden_states=True) for model in (zoo, native))
            assert_same_outputs(outputs, expected, batch["attention_mask"])
