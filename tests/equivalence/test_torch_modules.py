"""`torch.nn.TransformerEncoder`, `TransformerDecoder` and `Transformer` in the zoo's models, and back."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tfm_zoo
from tests.precision import assert_same
from tfm_zoo.converters import ConversionError, from_official, to_official

pytestmark = pytest.mark.usefixtures("double")

MASK = torch.tensor([[1] * 9, [1] * 4 + [0] * 5, [0] * 3 + [1] * 6])
TARGET_MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2, [1] * 6 + [0]])
#: what of `nn.Transformer` is converted, and its settings
SETTINGS = [{"final_norm": False}, {"activation": "gelu", "batch_first": False}]
SETTINGS += [{"norm_first": True, "activation": F.silu}]
CASES = [(part, settings) for part in ("encoder", "decoder", "whole") for settings in SETTINGS]
CASES += [("encoder", {"activation": nn.GELU()})]


def make(part: str = "whole", final_norm: bool = True, **settings) -> nn.Module:
    settings = {"layer_norm_eps": 1e-6, "batch_first": True} | settings
    transformer = nn.Transformer(32, 4, 3, 2, 48, **settings)
    transformer.encoder.enable_nested_tensor = False
    if not final_norm:
        transformer.encoder.norm = transformer.decoder.norm = None
    for parameter in transformer.parameters():
        nn.init.normal_(parameter, std=0.2)
    return transformer if part == "whole" else transformer.get_submodule(part)


def run(module: nn.Module, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """What torch's module gives, with the batch first, as it is given."""
    padding, causal = {"src_key_padding_mask": MASK == 0}, torch.ones(7, 7, dtype=torch.bool).triu(1)
    masks = {"tgt_mask": causal, "tgt_key_padding_mask": TARGET_MASK == 0, "memory_key_padding_mask": MASK == 0}
    batch_first = next(each for each in module.modules() if isinstance(each, nn.MultiheadAttention)).batch_first
    inputs = (source, target) if batch_first else (source.transpose(0, 1), target.transpose(0, 1))
    if isinstance(module, nn.TransformerEncoder):
        outputs = module(inputs[0], **padding)
    elif isinstance(module, nn.TransformerDecoder):
        outputs = module(*reversed(inputs), **masks)
    else:
        outputs = module(*inputs, **padding, **masks)
    return outputs if batch_first else outputs.transpose(0, 1)


def run_zoo(zoo: nn.Module, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    inputs, read = {"inputs_embeds": source, "attention_mask": MASK}, {"encoder_hidden_states": source}
    if isinstance(zoo, tfm_zoo.TfmEncoderDecoderDecoder):
        read |= {"encoder_attention_mask": MASK}
        inputs = read | {"inputs_embeds": target, "attention_mask": TARGET_MASK}
    elif not isinstance(zoo, tfm_zoo.TfmBertModel):
        inputs |= {"decoder_inputs_embeds": target, "decoder_attention_mask": TARGET_MASK}
    return zoo(**inputs).last_hidden_state


def random_states(**options) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 9, 32, **options), torch.randn(3, 7, 32, **options)


@pytest.mark.parametrize(
    ("part", "settings"), CASES, ids=lambda each: each if isinstance(each, str) else "-".join(each)
)
def test_there_and_back(part, settings):
    """The same outputs and gradients, and then the same module, whose dropouts differ."""
    module, states = make(part, dropout=0.0, **settings), random_states(requires_grad=True)
    real = (MASK if part == "encoder" else TARGET_MASK) == 1
    expected = run(module, *states)[real]
    read = states[:1] if part == "encoder" else states
    wanted = torch.autograd.grad(expected.square().sum(), [*read, *module.parameters()])
    for skip_padding in (True, False):
        zoo = from_official(module, skip_padding=skip_padding).train()
        outputs = run_zoo(zoo, *states)[real]
        assert_same(outputs, expected, "output")
        given = [*read, *zoo.parameters()]
        gradients = torch.autograd.grad(outputs.square().sum(), given, allow_unused=True, materialize_grads=True)
        assert_same(gradients[: len(read)], wanted[: len(read)], "gradient of the inputs")
        # The converter's table takes the gradients to where the module has them.
        for parameter, gradient in zip(zoo.parameters(), gradients[len(read) :], strict=True):
            parameter.data = gradient
        converted, names = to_official(zoo).state_dict(), [name for name, _ in module.named_parameters()]
        assert_same([converted[name] for name in names], wanted[len(read) :], "gradient")
    for name, dropout in module.named_modules():
        if name.endswith("dropout1") or ("decoder" in (part, name[:7]) and name.endswith("dropout2")):
            dropout.p = 0.3
    back = to_official(from_official(module))
    assert type(back) is type(module) and back.state_dict().keys() == module.state_dict().keys()
    assert all(torch.equal(back.state_dict()[name], tensor) for name, tensor in module.state_dict().items())
    if settings.get("final_norm", True) and not isinstance(settings.get("activation"), nn.Module):
        assert str(back) == str(module)
    assert torch.equal(run(back, *states), run(module.eval(), *states))


@torch.no_grad()
def test_a_decoder_goes_on_from_its_cache_and_is_saved(tmp_path):
    decoder, (source, target) = make("decoder", norm_first=True, dropout=0.0), random_states()
    zoo, real = from_official(decoder), TARGET_MASK == 1
    expected, inputs = run(decoder, source, target), {"encoder_hidden_states": source, "encoder_attention_mask": MASK}
    first = zoo(inputs_embeds=target[:, :6], attention_mask=TARGET_MASK[:, :6], use_cache=True, **inputs)
    options = {"attention_mask": TARGET_MASK, "past_key_values": first.past_key_values}
    last = zoo(inputs_embeds=target[:, 6:], **options, **inputs).last_hidden_state
    assert_same(last[real[:, 6:]], expected[:, 6:][real[:, 6:]], "last step")
    zoo.save_pretrained(tmp_path)
    assert str(to_official(tfm_zoo.TfmEncoderDecoderDecoder.from_pretrained(tmp_path))) == str(decoder)


def test_heads_on_top_are_initialised_anew(caplog):
    ids = torch.tensor([[1, 2, 3]])
    model = from_official(make("encoder"), tfm_zoo.TfmBertForSequenceClassification, vocab_size=50, num_labels=4)
    assert model(ids).logits.shape == (1, 4) and "classifier.out_proj.weight" in caplog.text
    vocabularies = {"vocab_size": 50, "decoder_vocab_size": 40, "pad_token_id": 0, "decoder_start_token_id": 1}
    model = from_official(make(), tfm_zoo.TfmEncoderDecoderForConditionalGeneration, **vocabularies)
    assert model(ids, decoder_input_ids=ids).logits.shape == (1, 3, 40)
    assert "model.encoder.embeddings.embed_tokens.weight, model.decoder.embeddings.embed_tokens.weight" in caplog.text
    with pytest.raises(ConversionError, match="TfmEncoderDecoderForConditionalGeneration has no counterpart"):
        to_official(model)


def test_positions_that_the_module_has_not():
    model = from_official(make("encoder"), position_embedding_type="rotary")
    assert torch.equal(model.rotary_emb.inv_freq, tfm_zoo.TfmBertModel(model.config).rotary_emb.inv_freq)
    for kind, zoo in (("rotary", model), ("sinusoidal", from_official(make(), position_embedding_type="sinusoidal"))):
        with pytest.raises(ConversionError, match=f"position_embedding_type='{kind}'"):
            to_official(zoo)


class OwnLayer(nn.TransformerEncoderLayer):
    """It may compute anything."""


def changed(place: str, value: object) -> nn.Module:
    """A module, one of whose parts or settings is another one."""
    module = make()
    owner, _, name = place.rpartition(".")
    setattr(module.get_submodule(owner), name, value)
    return module


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: make("encoder", bias=False), "bias=False"),
        (lambda: make("encoder", activation=torch.tanh), "activation="),
        # torch itself forgets a module when it copies a decoder's layer, and computes ReLU
        (lambda: make(activation=nn.SiLU()), "activation='silu' and 'relu'"),
        (lambda: changed("decoder.norm", None), "final_norm=True and False"),
        (lambda: changed("encoder.norm.eps", 0.1), "eps=0.1, .* of an nn.TransformerEncoder is .* each must be a"),
        (lambda: changed("encoder.layers.1.norm_first", True), "layers of the nn.TransformerEncoder differ"),
        (lambda: changed("decoder.layers.0.dropout2.p", 0.5), "The attentions of an nn.TransformerDecoderLayer differ"),
        (lambda: changed("decoder", make("decoder", layer_norm_eps=1e-3)), "layer_norm_eps=1e-06 and 0.001"),
        (lambda: nn.Transformer(32, 4, custom_encoder=nn.Identity()), "whose encoder is Identity"),
        (lambda: nn.TransformerEncoder(make("encoder").layers[0], 0), "of 0 layers is not converted"),
        (lambda: nn.TransformerEncoder(OwnLayer(32, 4, batch_first=True), 2), "test_torch_modules.OwnLayer, which"),
    ],
)
def test_what_the_zoo_has_not_is_refused(module, message):
    with pytest.raises(ConversionError, match=message):
        from_official(module())
