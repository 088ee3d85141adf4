"""`torch.nn.Transformer` in the zoo's encoder-decoder, and back; and `torch.nn.TransformerDecoder` alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.precision import assert_same
from tfm_zoo import TfmEncoderDecoderDecoder, TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.converters import ConversionError, from_official, to_official

pytestmark = pytest.mark.usefixtures("double")

MASK = torch.tensor([[1] * 9, [1] * 4 + [0] * 5, [0] * 3 + [1] * 6])
TARGET_MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2, [1] * 6 + [0]])
VARIANTS = pytest.mark.parametrize(
    ("norm_first", "activation", "batch_first"),
    [(False, "relu", True), (False, "gelu", False), (True, F.silu, False), (True, "relu", True)],
)


def make_transformer(norm_first=False, activation="relu", batch_first=True, **settings) -> nn.Transformer:
    torch.manual_seed(0)
    settings = {"activation": activation, "layer_norm_eps": 1e-6, "batch_first": batch_first} | settings
    transformer = nn.Transformer(32, 4, 3, 2, 48, norm_first=norm_first, **settings)
    transformer.encoder.enable_nested_tensor = False
    for parameter in transformer.parameters():
        nn.init.normal_(parameter, std=0.2)
    return transformer


def without_final_norms(transformer: nn.Transformer) -> nn.Transformer:
    transformer.encoder.norm = transformer.decoder.norm = None
    return transformer


def run(transformer: nn.Transformer, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    inputs = (source, target) if transformer.batch_first else (source.transpose(0, 1), target.transpose(0, 1))
    padding = MASK == 0
    outputs = transformer(
        *inputs,
        tgt_mask=torch.ones(7, 7, dtype=torch.bool).triu(1),
        src_key_padding_mask=padding,
        tgt_key_padding_mask=TARGET_MASK == 0,
        memory_key_padding_mask=padding,
    )
    return outputs if transformer.batch_first else outputs.transpose(0, 1)


@VARIANTS
@pytest.mark.parametrize("skip_padding", [True, False])
def test_outputs_and_gradients(norm_first, activation, batch_first, skip_padding):
    transformer = make_transformer(norm_first, activation, batch_first, dropout=0.0)
    zoo = from_official(transformer, skip_padding=skip_padding).train()
    source, target = torch.randn(3, 9, 32), torch.randn(3, 7, 32)
    masks = {"attention_mask": MASK, "decoder_attention_mask": TARGET_MASK}
    expected = run(transformer, source, target)
    outputs = zoo(inputs_embeds=source, decoder_inputs_embeds=target, **masks).last_hidden_state
    real = TARGET_MASK == 1
    assert_same(outputs[real], expected[real], "output")
    for result in (expected, outputs):
        result[real].square().sum().backward()
    # The converter's table takes the gradients to where the module has them.
    zoo.requires_grad_(False)
    for parameter in zoo.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    converted = to_official(zoo).state_dict()
    gradients = {name: parameter.grad for name, parameter in transformer.named_parameters()}
    assert_same({name: converted[name] for name in gradients}, gradients, "gradient")


@VARIANTS
@pytest.mark.parametrize("final_norms", [True, False])
def test_round_trip(norm_first, activation, batch_first, final_norms):
    transformer = make_transformer(norm_first, activation, batch_first)
    if not final_norms:
        transformer = without_final_norms(transformer)
    for layer in (*transformer.encoder.layers, *transformer.decoder.layers):
        layer.dropout1.p = 0.3
    for layer in transformer.decoder.layers:
        layer.dropout2.p = 0.3
    back = to_official(from_official(transformer))
    assert type(back) is nn.Transformer
    assert back.state_dict().keys() == transformer.state_dict().keys()
    for name, tensor in transformer.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    if final_norms:
        assert str(back) == str(transformer)
    inputs = (torch.randn(3, 9, 32), torch.randn(3, 7, 32))
    assert torch.equal(run(back, *inputs), run(transformer.eval(), *inputs))


@VARIANTS
def test_decoder_alone(norm_first, activation, batch_first, tmp_path):
    """Its outputs and gradients, one pass or step by step, and back; saved and loaded by its own class."""
    decoder = make_transformer(norm_first, activation, batch_first, dropout=0.0).decoder
    zoo = from_official(decoder)
    assert type(zoo) is TfmEncoderDecoderDecoder
    source, target = torch.randn(3, 9, 32, requires_grad=True), torch.randn(3, 7, 32, requires_grad=True)
    inputs = (target, source) if batch_first else (target.transpose(0, 1), source.transpose(0, 1))
    masks = {"tgt_key_padding_mask": TARGET_MASK == 0, "memory_key_padding_mask": MASK == 0}
    expected = decoder(*inputs, tgt_mask=torch.ones(7, 7, dtype=torch.bool).triu(1), **masks)
    expected = expected if batch_first else expected.transpose(0, 1)
    inputs = {"encoder_hidden_states": source, "encoder_attention_mask": MASK}
    outputs = zoo(inputs_embeds=target, attention_mask=TARGET_MASK, **inputs).last_hidden_state
    real = TARGET_MASK == 1
    assert_same(outputs[real], expected[real], "output")
    grads = [torch.autograd.grad(states[real].square().sum(), (source, target)) for states in (outputs, expected)]
    assert_same(*grads, "gradient")

    first = zoo(inputs_embeds=target[:, :6], attention_mask=TARGET_MASK[:, :6], use_cache=True, **inputs)
    options = {"attention_mask": TARGET_MASK, "past_key_values": first.past_key_values}
    last = zoo(inputs_embeds=target[:, 6:], **options, **inputs).last_hidden_state
    assert_same(last[real[:, 6:]], expected[:, 6:][real[:, 6:]], "last step")

    zoo.save_pretrained(tmp_path)
    back = to_official(TfmEncoderDecoderDecoder.from_pretrained(tmp_path))
    assert str(back) == str(decoder)
    assert all(torch.equal(back.state_dict()[name], tensor) for name, tensor in decoder.state_dict().items())


class OwnLayer(nn.TransformerEncoderLayer):
    """It may compute anything."""


def test_configuration_says_what_the_module_is():
    config = from_official(make_transformer(norm_first=True, dropout=0.25), vocab_size=50).config
    expected = {
        "vocab_size": 50,
        "decoder_vocab_size": 50,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "position_embedding_type": "none",
        "norm_position": "pre",
        "final_norm": True,
        "norm_eps": 1e-6,
        "hidden_act": "relu",
    }
    expected |= dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout"), 0.25)
    assert {name: getattr(config, name) for name in expected} == expected


def test_head_on_top_is_initialised_anew(caplog):
    vocabularies = {"vocab_size": 50, "decoder_vocab_size": 40, "pad_token_id": 0, "decoder_start_token_id": 1}
    model = from_official(make_transformer(), TfmEncoderDecoderForConditionalGeneration, **vocabularies)
    assert model(torch.tensor([[1, 2, 3]]), decoder_input_ids=torch.tensor([[1, 2]])).logits.shape == (1, 2, 40)
    assert "model.encoder.embeddings.embed_tokens.weight, model.decoder.embeddings.embed_tokens.weight" in caplog.text
    assert len(caplog.messages) == 1
    with pytest.raises(ConversionError, match="TfmEncoderDecoderForConditionalGeneration has no counterpart"):
        to_official(model)


def test_embeddings_that_the_module_has_not():
    model = from_official(make_transformer(), position_embedding_type="sinusoidal")
    with pytest.raises(ConversionError, match="position_embedding_type='sinusoidal'"):
        to_official(model)


def with_one_final_norm() -> nn.Transformer:
    transformer = make_transformer()
    transformer.decoder.norm = None
    return transformer


def with_other_dropout_after_cross_attention() -> nn.Transformer:
    transformer = make_transformer()
    for layer in transformer.decoder.layers:
        layer.dropout2.p = 0.5
    return transformer


def with_another_eps_in_the_decoder() -> nn.Transformer:
    transformer = make_transformer()
    transformer.decoder = make_transformer(layer_norm_eps=1e-3).decoder
    return transformer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_transformer(bias=False), "bias=False of an nn.TransformerEncoderLayer"),
        (lambda: make_transformer(activation=torch.tanh), "activation="),
        # torch itself forgets a module when it copies a decoder's layer, and computes ReLU
        (lambda: make_transformer(activation=nn.SiLU()), "activation='silu' and 'relu'"),
        (with_one_final_norm, "final_norm=True and False"),
        (with_other_dropout_after_cross_attention, "The attentions of an nn.TransformerDecoderLayer differ"),
        (with_another_eps_in_the_decoder, "layer_norm_eps=1e-06 and 0.001"),
        (lambda: nn.Transformer(32, 4, custom_encoder=nn.Identity()), "whose encoder is Identity"),
        (lambda: nn.TransformerEncoder(OwnLayer(32, 4, batch_first=True), 2), "test_torch_transformer.OwnLayer, which"),
    ],
)
def test_what_the_zoo_has_not_is_refused(make, message):
    with pytest.raises(ConversionError, match=message):
        from_official(make())
