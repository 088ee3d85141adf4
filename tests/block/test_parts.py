"""Norms, sinusoids, biases of positions and first weights are those of the papers and of official code."""

import math
from itertools import product

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.t5.modeling_t5 import T5Attention

from tfm_zoo import TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.models.layers import TfmRMSNorm
from tfm_zoo.models.position_bias import TfmRelativeBias
from tfm_zoo.models.positions import TfmSinusoidalPositions

from ..precision import assert_same
from ..tiny import tiny_config

pytestmark = pytest.mark.usefixtures("double")


def test_rms_norm_in_half_precision():
    states = (3 * torch.randn(4, 5, 32)).bfloat16()
    norm, wanted = TfmRMSNorm(32, eps=1e-3).bfloat16(), LlamaRMSNorm(32, eps=1e-3).bfloat16()
    for each in (norm, wanted):
        each.weight.data = torch.linspace(0.5, 2.0, 32).bfloat16()
    assert_same(norm(states).double(), wanted(states).double())


def sinusoid(kind: str, position: int, channel: int, width: int) -> float:
    """By the papers and codes that `TfmSinusoidalPositions` names, in double precision."""
    half = width // 2
    if kind == "interleaved":  # PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same)
        pair, wave = channel // 2, (math.sin, math.cos)[channel % 2]
    else:
        pair, wave = channel % half, (math.sin, math.cos)[channel // half]
    return wave(position / 10000 ** (pair / (half - 1) if kind == "tensor2tensor" else 2 * pair / width))


@pytest.mark.parametrize("kind", ["interleaved", "halves", "tensor2tensor"])
def test_sinusoidal_positions(kind):
    """Of any length, in a table of one size: it is a buffer, which processes that train together send each other."""
    config = tiny_config(hidden_size=16, position_embedding_type="sinusoidal", sinusoid_type=kind)
    positions, places = TfmSinusoidalPositions(config), [*range(600), 4000]
    wanted = [[sinusoid(kind, position, channel, 16) for channel in range(16)] for position in places]
    assert_same(positions(torch.tensor([places])), torch.tensor([wanted]))
    assert_same(positions(torch.tensor([places[:9]])), torch.tensor([wanted[:9]]))
    assert positions.table.shape == (512, 16)


def test_the_papers_weights_at_first():
    """Uniform by Glorot and Bengio, biases zero, norms one; embeddings by the square root of the width, and scaled by
    it where they are looked up; the tables of padding and of the projection as said."""
    sizes = {"hidden_size": 64, "vocab_size": 512, "intermediate_size": 256, "decoder_vocab_size": 600}
    config = tiny_config(TfmEncoderDecoderForConditionalGeneration.config_class, weight_init="xavier", **sizes)
    config.relative_attention_num_buckets, config.relative_attention_max_distance = 256, 512
    model = TfmEncoderDecoderForConditionalGeneration(config).eval()
    for name, tensor in model.named_parameters():
        if tensor.dim() == 1:
            assert tensor.eq("norm.weight" in name).all(), name
        elif "embed_tokens" in name:
            assert tensor[0].eq(0).all() and tensor.std().item() == pytest.approx(64**-0.5, rel=0.05), name
        elif "position_bias" in name:
            assert tensor.std().item() == pytest.approx(64**-0.5, rel=0.1), name
        else:
            bound = (6 / sum(tensor.shape)) ** 0.5
            assert 0.98 * bound < tensor.abs().max().item() <= bound, name
            assert tensor.std().item() == pytest.approx(bound / 3**0.5, rel=0.05), name
    assert model.lm_head.weight is model.model.decoder.embeddings.embed_tokens.weight
    ids, places, embeddings = torch.tensor([[5, 9, 0]]), torch.arange(3)[None], model.model.encoder.embeddings
    wanted = 8 * embeddings.embed_tokens.weight[ids] + embeddings.embed_positions(places)
    assert_same(embeddings(ids, None, places), wanted)


def test_buckets_of_t5():
    distances = torch.arange(-300, 300)
    for is_causal, (buckets, farthest) in product((True, False), ((32, 128), (8, 10), (7, 20))):
        fields = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": farthest}
        made = TfmRelativeBias(tiny_config(**fields), 1, is_causal).bucket_of(distances)
        wanted = T5Attention._relative_position_bucket(distances, not is_causal, buckets, farthest)
        assert made.equal(wanted), (is_causal, buckets)
