"""The parts of the block against transformers' own and against the papers' formulas."""

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama import modeling_llama as llama

from tfm_zoo import TfmBertModel, TfmEncoderDecoderConfig, TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.models.encoder_decoder_stacks import TfmDecoderStack
from tfm_zoo.models.inputs import count_positions
from tfm_zoo.models.layers import TfmAttention, TfmLayer, TfmMLP
from tfm_zoo.models.norms import TfmRMSNorm
from tfm_zoo.models.positions import TfmRotaryEmbedding, TfmSinusoidalPositions, rotate

from ..precision import assert_same
from ..tiny import SIZES, tiny_config, tiny_model

pytestmark = pytest.mark.usefixtures("double")

LLAMA_LIKE = {
    "norm_position": "pre",
    "norm_type": "rmsnorm",
    "norm_eps": 1e-5,
    "position_embedding_type": "rotary",
    "mlp_type": "gated",
    "hidden_act": "silu",
    "num_key_value_heads": 2,
    "attention_bias": False,
    "mlp_bias": False,
    "max_position_embeddings": 32,
}
HALF = [1.0] * 4
ROPES = {
    "default": {},
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
    "longrope": {
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "short_factor": HALF,
        "long_factor": [2.0, 3.0, 4.0, 5.0],
    },
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
}


def rope(kind: str) -> dict:
    return {"rope_parameters": ROPES[kind] | {"rope_type": kind, "rope_theta": 10000.0}}


def llama_config(**fields) -> LlamaConfig:
    fields = LLAMA_LIKE | fields
    return LlamaConfig(**SIZES | fields, rms_norm_eps=fields["norm_eps"], attn_implementation="eager")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rms_norm(dtype):
    states = (3 * torch.randn(4, 5, 32)).to(dtype)
    norm, wanted = TfmRMSNorm(32, eps=1e-3).to(dtype), llama.LlamaRMSNorm(32, eps=1e-3).to(dtype)
    with torch.no_grad():
        for each in (norm, wanted):
            each.weight.copy_(torch.linspace(0.5, 2.0, 32))
    assert_same(norm(states).double(), wanted(states).double())


def test_scales():
    """Those of scores and of logits are those of queries and of the projection onto the vocabulary."""
    fields = {"norm_position": "pre", "tie_word_embeddings": False, "weight_init": "normal"}
    scaled, plain = (
        tiny_model(TfmEncoderDecoderForConditionalGeneration, **fields, **scales)
        for scales in ({"attention_scale": 0.5, "logit_scale": 3.0}, {})
    )
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            if ".q_proj." in name or name.startswith("lm_head"):
                parameter.mul_(3.0 if name.startswith("lm_head") else 0.5 * 8**0.5)
    ids = torch.arange(4, 10)[None]
    assert_same(scaled(ids, labels=ids).logits, plain(ids, labels=ids).logits)
    assert_same(scaled(ids, labels=ids).loss, plain(ids, labels=ids).loss)


@pytest.mark.parametrize("length", [8, 40], ids=["within the trained length", "beyond it"])
@pytest.mark.parametrize("kind", ROPES)
def test_rotary_positions(kind, length):
    ours = TfmRotaryEmbedding(tiny_config(**LLAMA_LIKE, **rope(kind)))
    theirs = llama.LlamaRotaryEmbedding(llama_config(**rope(kind)))
    states, positions = torch.randn(2, length, 32), torch.arange(length)[None].expand(2, -1)
    tables = ours(states, positions)
    assert_same(tables, theirs(states, positions))
    heads = torch.randn(2, 4, length, 8)
    wanted = llama.apply_rotary_pos_emb(heads, heads, *tables)[0]
    assert_same(rotate(heads, *tables), wanted)


def test_partial_rotary_positions():
    parameters = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    rotary = TfmRotaryEmbedding(tiny_config(position_embedding_type="rotary", rope_parameters=parameters))
    heads = torch.randn(1, 4, 9, 8)
    tables = rotary(heads, torch.arange(9)[None])
    turned = rotate(heads, *tables)
    assert turned[..., 4:].equal(heads[..., 4:])
    assert_same(turned[..., :4], llama.apply_rotary_pos_emb(heads[..., :4], heads[..., :4], *tables)[0])


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
    width = 16
    config = tiny_config(hidden_size=width, position_embedding_type="sinusoidal", sinusoid_type=kind)
    positions = TfmSinusoidalPositions(config)
    wanted = [[sinusoid(kind, position, channel, width) for channel in range(width)] for position in range(600)]
    table = positions(torch.arange(600)[None])
    assert_same(table, torch.tensor([wanted]))
    assert positions.table.shape[0] < 600  # it does not grow


def test_padding_has_no_position():
    """Where positions count real tokens; in the table, those of the paper, the first comes after `pad_token_id`."""
    config = tiny_config(TfmEncoderDecoderConfig, position_ids_from_padding=True, pad_token_id=1)
    positions = TfmSinusoidalPositions(config)
    states = positions(torch.tensor([[2, 3, 1, 1]]))
    assert states[0, 2:].eq(0).all()
    assert_same(states[0, 0, :2], torch.tensor([math.sin(2.0), math.cos(2.0)]))
    ids, mask = torch.tensor([[7, 8, 1, 9, 1]]), torch.tensor([[1, 1, 0, 1, 0]])
    decoder = TfmDecoderStack(config)
    assert count_positions(decoder, ids).tolist() == [[0, 1, -1, 2, -1]]
    assert count_positions(decoder, ids[:, 3:4], 3).tolist() == [[3]]
    assert count_positions(decoder, torch.zeros(1, 2, 32)).tolist() == [[0, 1]]
    assert mask.equal((ids != 1).long())


def test_the_papers_weights_at_first():
    """Uniform by Glorot and Bengio, biases zero, norms one; embeddings by the square root of the width, and scaled by
    it where they are looked up; the tables of padding and of the projection as said."""
    sizes = {"hidden_size": 64, "vocab_size": 512, "intermediate_size": 256, "decoder_vocab_size": 600}
    config = tiny_config(TfmEncoderDecoderConfig, weight_init="xavier", **sizes)
    config.relative_attention_num_buckets, config.relative_attention_max_distance = 256, 512
    model = TfmEncoderDecoderForConditionalGeneration(config).eval()
    for name, tensor in model.named_parameters():
        if "norm.weight" in name:
            assert tensor.eq(1).all(), name
        elif tensor.dim() == 1:
            assert tensor.eq(0).all(), name
        elif "embed_tokens" in name:
            assert tensor[0].eq(0).all() and tensor.std().item() == pytest.approx(64**-0.5, rel=0.05), name
        elif "position_bias" in name:
            assert tensor.std().item() == pytest.approx(64**-0.5, rel=0.1), name
        else:
            bound = (6 / sum(tensor.shape)) ** 0.5
            assert 0.98 * bound < tensor.abs().max().item() <= bound, name
            assert tensor.std().item() == pytest.approx(bound / 3**0.5, rel=0.05), name
    assert model.lm_head.weight is model.model.decoder.embeddings.embed_tokens.weight
    ids = torch.tensor([[5, 9, 0]])
    embeddings = model.model.encoder.embeddings
    wanted = 8 * embeddings.embed_tokens.weight[ids] + embeddings.embed_positions(torch.arange(3)[None])
    assert_same(embeddings(ids, None, torch.arange(3)[None]), wanted)


def test_gated_feed_forward():
    mlp, wanted = TfmMLP(tiny_config(**LLAMA_LIKE)), llama.LlamaMLP(llama_config())
    wanted.load_state_dict(mlp.state_dict())
    states = torch.randn(2, 5, 32)
    assert_same(mlp(states), wanted(states))


def test_pre_norm_layer_is_llamas():
    """With grouped queries, rotary positions, RMSNorm and SwiGLU; every position sees every other."""
    config = tiny_config(**LLAMA_LIKE, **rope("default"))
    config._attn_implementation = "eager"
    layer, wanted = TfmLayer(config, 0).eval(), llama.LlamaDecoderLayer(llama_config(), 0).eval()
    names = {"self_attn": "self_attn", "self_attn_norm": "input_layernorm"}
    for ours, theirs in (names | {"mlp": "mlp", "mlp_norm": "post_attention_layernorm"}).items():
        wanted.get_submodule(theirs).load_state_dict(layer.get_submodule(ours).state_dict())
    states = torch.randn(2, 9, 32)
    tables = TfmRotaryEmbedding(config)(states, torch.arange(9)[None])
    everything = torch.zeros(2, 1, 9, 9)
    theirs = wanted(states, attention_mask=everything, position_embeddings=tables)
    assert_same(layer(states, position_embeddings=tables), theirs)


@pytest.mark.parametrize("window", [1, 3, 20])
def test_sliding_window(window):
    """A position sees those at most `window` away, and no other."""
    model = tiny_model(TfmBertModel, sliding_window=window)
    model.set_attn_implementation("eager")
    places = torch.arange(9)
    near = (places[:, None] - places).abs() <= window
    for weights in model(places[None] + 1, output_attentions=True).attentions:
        assert weights.gt(0).equal(near.expand_as(weights))


def test_no_positions_no_order():
    model = tiny_model(TfmBertModel, position_embedding_type="none")
    ids, order = torch.arange(1, 10)[None], torch.randperm(9)
    shuffled = model(ids[:, order]).last_hidden_state
    assert_same(shuffled, model(ids).last_hidden_state[:, order])


def test_attention_weights_are_dropped_out_in_training_alone():
    config = tiny_config(attention_dropout=0.5)
    config._attn_implementation = "eager"
    attention, states = TfmAttention(config, 0), torch.randn(1, 9, 32)
    assert attention.train()(states)[1].eq(0).float().mean().item() == pytest.approx(0.5, abs=0.2)
    assert attention.eval()(states)[1].gt(0).all()
