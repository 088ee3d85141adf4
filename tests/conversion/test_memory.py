"""A conversion holds the checkpoint's tensors once, and one of them twice at most."""

import sys
from pathlib import Path

import pytest
import torch

from benchmarks.memory import resident
from tests.conversion.comparison import assert_same_weights
from tests.official_models import BY_NAME, build
from tfm_zoo.converters import ConversionError, from_official
from tfm_zoo.converters.checkpoint import open_checkpoint
from tfm_zoo.converters.conversion import convert
from tfm_zoo.converters.scratch import Scratch, scratch_in

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")]


@pytest.mark.parametrize("kind", ["shards", "bin"])
def test_peak(kind, tmp_path):
    """The embeddings, which are tied, are a third of all."""
    model = build(BY_NAME["BertForMaskedLM"], hidden_size=768, num_hidden_layers=4, vocab_size=30522)
    model.save_pretrained(tmp_path, max_shard_size="50MB")
    if kind == "bin":
        for file in tmp_path.glob("*.safetensors*"):
            file.unlink()
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    del model
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    assert sum(parameter.nbytes for parameter in from_official(tmp_path).parameters()) > 0.9 * size > 180e6
    assert resident("VmHWM") - before <= 1.5 * size


def test_weights_that_stay_in_files(tmp_path):
    """As the command converts: neither what is read nor what rules make of it (GPT-2's: turned and cut) is memory."""
    folder = tmp_path / "official"
    original = build(BY_NAME["GPT2LMHeadModel"], n_embd=512, n_head=8, n_layer=4)
    original.save_pretrained(folder, max_shard_size="50MB")
    before = resident("RssAnon")
    with scratch_in(tmp_path) as scratch:
        zoo = convert(open_checkpoint(folder, mapped=True), scratch=scratch)
        size = sum(parameter.nbytes for parameter in zoo.parameters())
        assert size > 140e6 and resident("RssAnon") - before < 0.3 * size
        zoo.save_pretrained(tmp_path / "zoo")
    assert_same_weights(type(zoo).from_pretrained(tmp_path / "zoo"), from_official(original))
    (tmp_path / "0").symlink_to("/dev/full")
    with pytest.raises(ConversionError, match="takes no 4,000,000 bytes more"):
        Scratch(tmp_path).mapped(torch.ones(1_000_000))
