"""`torch.nn.TransformerEncoder` in the zoo's encoder, and back."""

import pytest
import torch
from torch import nn

from tests.precision import assert_same
from tfm_zoo import TfmBertConfig, TfmBertForSequenceClassification, TfmBertModel
from tfm_zoo.converters import ConversionError, from_official, to_official

pytestmark = pytest.mark.usefixtures("double")

MASK = torch.tensor([[1] * 9, [1] * 4 + [0] * 5, [0] * 3 + [1] * 6])
VARIANTS = pytest.mark.parametrize(
    ("norm_first", "final_norm", "activation", "batch_first"),
    [
        (False, False, "relu", True),
        (False, True, "gelu", False),
        (True, False, nn.GELU(), False),
        (True, True, "relu", True),
    ],
)


def make_encoder(norm_first, final_norm, activation="relu", batch_first=True, **layer) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        32, 4, 48, activation=activation, layer_norm_eps=1e-6, batch_first=batch_first, norm_first=norm_first, **layer
    )
    norm = nn.LayerNorm(32, eps=1e-6) if final_norm else None
    encoder = nn.TransformerEncoder(layer, 3, norm, enable_nested_tensor=False)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.2)
    return encoder


def run(encoder: nn.TransformerEncoder, inputs: torch.Tensor) -> torch.Tensor:
    batch_first = encoder.layers[0].self_attn.batch_first
    outputs = encoder(inputs if batch_first else inputs.transpose(0, 1), src_key_padding_mask=MASK == 0)
    return outputs if batch_first else outputs.transpose(0, 1)


@VARIANTS
def test_outputs_and_gradients(norm_first, final_norm, activation, batch_first):
    encoder = make_encoder(norm_first, final_norm, activation, batch_first, dropout=0.0)
    zoo = from_official(encoder).train()
    inputs = torch.randn(3, 9, 32)
    real = MASK == 1
    expected, outputs = run(encoder, inputs)[real], zoo(inputs_embeds=inputs, attention_mask=MASK)[0][real]
    assert_same(outputs, expected, "output")
    for result in (expected, outputs):
        result.square().sum().backward()
    for layer, official in zip(zoo.layers, encoder.layers, strict=True):
        fused = torch.cat([getattr(layer.self_attn, f"{part}_proj").weight.grad for part in "qkv"])
        assert_same(fused, official.self_attn.in_proj_weight.grad, "gradient")


@VARIANTS
def test_round_trip(norm_first, final_norm, activation, batch_first):
    encoder = make_encoder(norm_first, final_norm, activation, batch_first)
    for layer in encoder.layers:
        layer.dropout1.p = 0.3
    back = to_official(from_official(encoder))
    assert type(back) is nn.TransformerEncoder
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    if isinstance(activation, str):
        assert str(back) == str(encoder)
    inputs = torch.randn(3, 9, 32)
    assert torch.equal(run(back, inputs), run(encoder.eval(), inputs))


def test_configuration_says_what_the_module_is():
    config = from_official(make_encoder(norm_first=True, final_norm=True, dropout=0.25), vocab_size=50).config
    expected = {
        "vocab_size": 50,
        "position_embedding_type": "none",
        "type_vocab_size": 0,
        "embedding_norm": False,
        "add_pooling_layer": False,
        "norm_position": "pre",
        "final_norm": True,
        "norm_eps": 1e-6,
        "hidden_act": "relu",
    }
    expected |= dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout"), 0.25)
    assert {name: getattr(config, name) for name in expected} == expected


def test_head_on_top_is_initialised_anew(caplog):
    encoder = make_encoder(norm_first=False, final_norm=False)
    model = from_official(encoder, TfmBertForSequenceClassification, vocab_size=50, num_labels=4)
    assert model(torch.tensor([[1, 2, 3]])).logits.shape == (1, 4)
    assert "classifier.out_proj.weight" in caplog.text


def test_buffers_that_no_checkpoint_holds():
    model = from_official(make_encoder(norm_first=True, final_norm=True), position_embedding_type="rotary")
    expected = TfmBertModel(model.config).rotary_emb.inv_freq
    assert torch.equal(model.rotary_emb.inv_freq, expected)
    with pytest.raises(ConversionError, match="position_embedding_type='rotary'"):
        to_official(model)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda: make_encoder(False, False, bias=False), "bias=False"),
        (lambda: make_encoder(False, False, activation=torch.tanh), "activation="),
        (lambda: nn.TransformerEncoder(make_encoder(False, False).layers[0], 2, nn.RMSNorm(32)), "norm=RMSNorm"),
        (lambda: nn.TransformerEncoder(make_encoder(False, False).layers[0], 0), "of 0 layers is not converted"),
    ],
)
def test_what_the_zoo_has_not_is_refused(encoder, message):
    with pytest.raises(ConversionError, match=message):
        from_official(encoder())


def test_parameter_counts_of_the_paper():
    """Vaswani et al. 2017, base: 6 layers of 512, 8 heads, 2048 in the feed-forward."""
    sizes = {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048, "num_hidden_layers": 6}
    model = TfmBertModel(TfmBertConfig(vocab_size=10, **sizes))

    def count(module: nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    assert count(model.layers) == 18_914_304
    assert count(model.layers[0]) == 3_152_384
    assert count(model.layers[0].mlp) == 2_099_712
