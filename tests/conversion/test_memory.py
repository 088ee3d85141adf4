"""A conversion holds the checkpoint's tensors once, and one of them twice at most."""

import json
import sys

import pytest
import torch

from benchmarks.memory import resident
from tests.conversion.comparison import assert_same_weights
from tests.forks import with_libraries
from tests.official_models import BY_NAME, build
from tfm_zoo.converters import ConversionError, from_official
from tfm_zoo.converters.checkpoint import open_checkpoint
from tfm_zoo.converters.conversion import convert
from tfm_zoo.converters.scratch import Scratch, scratch_in

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20
#: peaks of a fresh process, in bytes: after the conversion of something tiny, and after that and a pass over the
#: weights of the real one. (What `getrusage` says of a child may be its parent's.)
MEASURE = """
import json, re, sys
from tfm_zoo.converters import from_official

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024

from_official(sys.argv[1])
before = peak()
model = from_official(sys.argv[2])
assert all(parameter.sum().isfinite() for parameter in model.parameters())
parameters = sum(parameter.nbytes for parameter in model.parameters())
print(json.dumps({"before": before, "after": peak(), "parameters": parameters}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
@pytest.mark.parametrize("kind", ["shards", "bin"])
def test_peak(kind, tmp_path):
    """The embeddings, which are tied, are a third of all."""
    native = BY_NAME["BertForMaskedLM"]
    small, large = tmp_path / "small", tmp_path / "large"
    build(native, hidden_size=16, num_attention_heads=2, num_hidden_layers=1).save_pretrained(small)
    model = build(native, hidden_size=768, num_hidden_layers=5, vocab_size=30522, intermediate_size=3072)
    model.save_pretrained(large, max_shard_size="50MB" if kind == "shards" else "5GB")
    if kind == "bin":
        (large / "model.safetensors").unlink()
        torch.save(model.state_dict(), large / "pytorch_model.bin")
    size = sum(file.stat().st_size for file in large.iterdir())
    assert size > 200 * MEGABYTE
    del model
    result = with_libraries().run([sys.executable, "-c", MEASURE, small, large], check=True)
    measured = json.loads(result.stdout)
    peak = measured["after"] - measured["before"]
    print(f"{kind}: {peak / size:.2f} times the checkpoint")
    assert peak <= 1.5 * size
    assert measured["parameters"] > 200 * MEGABYTE


def test_weights_that_stay_in_files(tmp_path):
    """As the command converts: neither what is read nor what rules make of it (GPT-2's: turned and cut) is memory."""
    folder = tmp_path / "official"
    original = build(BY_NAME["GPT2LMHeadModel"], n_embd=512, n_head=8, n_layer=4)
    original.save_pretrained(folder, max_shard_size="50MB")
    before = resident("RssAnon")
    with scratch_in(tmp_path) as scratch:
        zoo = convert(open_checkpoint(folder, mapped=True), scratch=scratch)
        size = sum(parameter.nbytes for parameter in zoo.parameters())
        assert size > 140 * MEGABYTE and resident("RssAnon") - before < 0.3 * size
        zoo.save_pretrained(tmp_path / "zoo")
    assert_same_weights(type(zoo).from_pretrained(tmp_path / "zoo"), from_official(original))
    (tmp_path / "0").symlink_to("/dev/full")
    with pytest.raises(ConversionError, match="takes no 4,000,000 bytes more"):
        Scratch(tmp_path).mapped(torch.ones(1_000_000))
