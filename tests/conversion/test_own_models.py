"""Weights of a model of one's own: what a table of names may do, and what is wrong with it. (The examples of the cards
are compared with the models that they are made from in `tests/documents`.)"""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests import tutorials
from tests.precision import assert_same, in_double
from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForSequenceClassification,
    TfmBertModel,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTConfig,
    TfmGPTForCausalLM,
    TfmGPTModel,
)
from tfm_zoo.converters import (
    ConversionError,
    Interleaved,
    Join,
    NotConverted,
    Rename,
    Sinusoids,
    Split,
    SplitHeads,
    Transpose,
    ZooOnly,
    from_official,
    from_state_dict,
    to_state_dict,
)
from tfm_zoo.converters.checkpoint import lazy_tensors
from tfm_zoo.converters.sinusoids import check_sinusoids
from tfm_zoo.converters.tensor_rules import PerExpert

SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
FIELDS = SIZES | {"intermediate_size": 128, "max_position_embeddings": 20, "bos_token_id": None, "eos_token_id": None}
QKV = tuple(f"model.layers.{{i}}.self_attn.{x}_proj" for x in "qkv")
RULES = {
    "words": Rename("transformer.wte", "model.embeddings.embed_tokens"),
    "positions": Rename("transformer.wpe", "model.embeddings.embed_positions"),
    "attention": Split("transformer.h.{i}.attn.c_attn", QKV),
    "output": Rename("transformer.h.{i}.attn.c_proj", "model.layers.{i}.self_attn.o_proj"),
    "up": Rename("transformer.h.{i}.mlp.c_fc", "model.layers.{i}.mlp.up_proj"),
    "down": Rename("transformer.h.{i}.mlp.c_proj", "model.layers.{i}.mlp.down_proj"),
    "norm 1": Rename("transformer.h.{i}.ln_1", "model.layers.{i}.self_attn_norm"),
    "norm 2": Rename("transformer.h.{i}.ln_2", "model.layers.{i}.mlp_norm"),
    "norm": Rename("transformer.ln_f", "model.norm"),
    "head": Rename("lm_head", "lm_head"),
}
GATED = ("gate", "up", "down")
WEIGHTS = tutorials.GPT().state_dict()


def convert(weights: dict | None = None, rules: dict | None = None, **fields) -> TfmGPTForCausalLM:
    rules = [rule for rule in (RULES | (rules or {})).values() if rule]
    return from_state_dict(
        WEIGHTS if weights is None else weights, rules, TfmGPTForCausalLM, TfmGPTConfig(**FIELDS | fields)
    )


def without(name: str) -> dict:
    return {key: tensor for key, tensor in WEIGHTS.items() if key != name}


@pytest.mark.parametrize(
    ("weights", "rules", "fields", "message"),
    [
        (without("transformer.wpe.weight"), {}, {}, "missing: transformer.wpe.weight, for model.embeddings.embed_pos"),
        (tutorials.GPT(), {}, {}, r"expected a state dict, got a GPT: give my_model\.state_dict\(\)"),
        (
            {"epoch": 3, "model_state_dict": WEIGHTS},
            {},
            {},
            r"not tensors: epoch, model_state_dict\. Is the state dict",
        ),
        (WEIGHTS | {"crf": torch.zeros(1)}, {}, {}, r"unexpected: crf\.$"),
        (
            None,
            {"up": None},
            {},
            r"no rule for: model.layers.0.mlp.up_proj.weight.*unexpected: transformer.h.0.mlp.c_fc",
        ),
        (
            None,
            {"norm": Rename("transformer.ln_f", "model.final_norm")},
            {},
            r"no rule for: model.norm.weight.*ln_f.weight \(a rule would make it model.final_norm.weight, which the m",
        ),
        (
            None,
            {},
            {"num_hidden_layers": 1},
            r"unexpected: transformer.h.1.ln_1.weight \(a rule would make it model.lay",
        ),
        (
            WEIGHTS | {"transformer.h.0.attn.c_attn.bias": torch.zeros(2)},  # which cannot be cut into three
            {},
            {},
            r"misshapen: .*c_attn.bias of shape \(2,\), where model.layers.0.self_attn.q_proj.bias is of shape \(32,\)",
        ),
        (None, {}, {"num_hidden_layers": 3}, "missing: transformer.h.2.*for model.layers.2"),
        (None, {}, {"intermediate_size": 96}, r"misshapen: .*c_fc.weight of shape \(128, 32\).* of shape \(96, 32\)"),
        (
            WEIGHTS | {"lm_head.weight": torch.zeros(50, 32)},
            {},
            {},
            "lm_head.weight and .* differ.*set tie_word_embeddings=False",
        ),
        (None, {"positions": Sinusoids("transformer.wpe.weight")}, {}, "wpe.weight: sinusoids, .*'learned'"),
        (
            None,
            {"positions": Sinusoids("transformer.wpe.weight")},
            {"position_embedding_type": "sinusoidal"},
            "wpe.weight of the state dict is not the table of sinusoids that sinusoid_type='interleaved' has",
        ),
    ],
)
def test_what_does_not_fit_is_named(weights, rules, fields, message):
    with pytest.raises(ConversionError, match=f"(?s){message}"):
        convert(weights, rules, **fields)


def test_the_error_can_be_read():
    """A line for each kind; a tensor that every layer lacks is named once, and the field that mends it."""
    biases = {name for name in WEIGHTS if name.endswith("attn.c_attn.bias")}
    weights = {name: tensor for name, tensor in WEIGHTS.items() if name not in biases}
    with pytest.raises(ConversionError) as error:
        convert(weights | {"other.1": torch.zeros(1)}, num_hidden_layers=2)
    names = ", ".join(f"model.layers.0.self_attn.{x}_proj.bias" for x in "qkv")
    assert str(error.value).splitlines() == [
        "The state dict does not fit TfmGPTForCausalLM:",
        f"missing: transformer.h.0.attn.c_attn.bias, for {names} (and 1 like it).",
        "unexpected: other.1.",
        "The configuration says which layers and biases there are; for this state dict: attention_bias=False, "
        "attention_output_bias=True.",
    ]
    model = convert(weights, attention_bias=False, attention_output_bias=True)
    assert model.model.layers[0].self_attn.q_proj.bias is None
    with pytest.raises(ConversionError, match="for this state dict: lm_head_bias=True"):
        convert(WEIGHTS | {"lm_head.bias": torch.zeros(50)})
    for other in (None, Rename("transformer.ln_f", "model.final_norm")):  # the state dict has a last norm all the same
        with pytest.raises(ConversionError) as error:
            convert(rules={"norm": other})
        assert "The configuration says" not in str(error.value)
    assert "the model lacks; is model.norm.weight meant, which no rule fills?)" in str(error.value)
    with pytest.raises(ConversionError) as error:  # a bias that a field switches off is nothing else
        convert(rules={"down": None}, mlp_bias=False)
    assert "meant" not in str(error.value)


SMALL = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def from_its_like(model_class: type, mine: dict, fields: dict):
    """A zoo model with `fields`, from a model of somebody's own that has those of `mine` and the zoo's names."""
    config_class = model_class.config_class
    weights = model_class(config_class(**SMALL | mine)).state_dict()
    names = weights | model_class(config_class(**SMALL | fields)).state_dict()
    return from_state_dict(weights, [Rename(name, name) for name in names], model_class, config_class(**SMALL | fields))


@pytest.mark.parametrize(
    ("model_class", "mine", "fields", "hint"),
    [
        (TfmBertModel, {"final_norm": True}, {}, "final_norm=True"),
        (
            TfmBertModel,
            {},
            {"final_norm": True, "add_pooling_layer": False},
            "final_norm=False, add_pooling_layer=True",
        ),
        (TfmBertModel, {"type_vocab_size": 3}, {"type_vocab_size": 0}, "type_vocab_size=3"),
        (TfmBertModel, {"type_vocab_size": 0, "embedding_norm": False}, {}, "type_vocab_size=0, embedding_norm=False"),
        (TfmBertForSequenceClassification, {"classifier_dense": False}, {}, "classifier_dense=False"),
        (TfmBertForMaskedLM, {}, {"lm_head_bias": False, "final_norm": True}, "final_norm=False, lm_head_bias=True"),
    ],
)
def test_the_error_names_the_fields_that_differ(model_class, mine, fields, hint):
    """And no other: with them, the conversion works."""
    with pytest.raises(ConversionError, match=rf"for this state dict: {hint}\.$"):
        from_its_like(model_class, mine, fields)
    from_its_like(model_class, mine, mine)


def test_one_tensor_under_two_names_is_tied_or_refused():
    """Two copies would learn apart, where the model of one's own learns one."""
    with pytest.raises(ConversionError, match=r"wte.weight and lm_head.weight are one .* tie_word_embeddings=True"):
        convert(tie_word_embeddings=False)
    convert(WEIGHTS | {"lm_head.weight": WEIGHTS["lm_head.weight"].clone()}, tie_word_embeddings=False)
    shared, apart = ({"share_encoder_decoder_embeddings": share} for share in (True, False))
    with pytest.raises(ConversionError, match=r"one tensor .* share_encoder_decoder_embeddings=True they are one"):
        from_its_like(TfmEncoderDecoderForConditionalGeneration, shared, apart)
    with pytest.raises(ConversionError, match=r"differ in .*: set share_encoder_decoder_embeddings=False"):
        from_its_like(TfmEncoderDecoderForConditionalGeneration, apart, shared)


def test_the_order_of_rules_makes_no_difference():
    whole = Rename("transformer.h.{i}.{x}", "model.layers.{i}.{x}")  # it fits norms, too
    for rules in ([whole, *RULES.values()], [*reversed(RULES.values()), whole]):
        model = from_state_dict(WEIGHTS, rules, TfmGPTForCausalLM, TfmGPTConfig(**FIELDS))
        assert torch.equal(model.model.layers[1].mlp_norm.weight, WEIGHTS["transformer.h.1.ln_2.weight"])


def test_a_head_that_is_new_and_buffers_that_are_no_weights(caplog):
    """They do not decide the type of the model either."""
    weights = {name: tensor.bfloat16() for name, tensor in without("lm_head.weight").items()}
    weights |= {"transformer.h.0.attn.bias": torch.ones(1, 1, 20, 20).tril()}
    rules = {"head": ZooOnly(zoo="lm_head"), "mask": NotConverted("transformer.h.{i}.attn.bias")}
    model = convert(weights, rules, tie_word_embeddings=False)
    assert "The state dict has no weights that fit lm_head.weight: new weights were made" in caplog.text
    assert model.dtype == torch.bfloat16
    assert torch.equal(model.model.norm.weight, weights["transformer.ln_f.weight"])
    *body, _ = RULES.values()
    back = to_state_dict(model, [*body, rules["head"], rules["mask"]])
    assert back.keys() == without("lm_head.weight").keys()  # and no mask
    with pytest.raises(ConversionError, match=r"No rule has tensors of TfmGPTForCausalLM: lm_head\.weight"):
        to_state_dict(model, body)


def test_tied_weights_are_one(caplog):
    for weights, head in (
        (WEIGHTS, RULES["head"]),
        (without("lm_head.weight"), RULES["head"]),
        (without("lm_head.weight"), None),
    ):
        model = convert(weights, {"head": head})
        assert model.lm_head.weight is model.model.embeddings.embed_tokens.weight
        assert torch.equal(model.lm_head.weight, WEIGHTS["lm_head.weight"])
    assert not caplog.text


def test_heads_apart_and_transposed():
    """A layer for each head, as some tutorials have them, and a weight that multiplies from the right."""
    joined = {f"{x}_proj": torch.randn(32, 32) for x in "qkv"}
    heads = {f"0.{h}.{x}": part for x, whole in joined.items() for h, part in enumerate(whole.chunk(4))}
    rules = [
        *(Join(tuple(f"{{i}}.{h}.{x}" for h in range(4)), f"layers.{{i}}.self_attn.{x}.weight") for x in joined),
        Transpose("{i}.out", "layers.{i}.self_attn.o_proj.weight"),
        *(
            ZooOnly(zoo=f"{name}")
            for name in ("embeddings.embed_{x}", "layers.{i}.mlp.{x}", "layers.{i}.{x}_norm", "norm")
        ),
        ZooOnly(zoo="layers.{i}.self_attn.o_proj.bias"),
    ]
    weights = heads | {"0.out": torch.randn(32, 32)}
    config = TfmGPTConfig(**FIELDS | {"num_hidden_layers": 1, "attention_bias": False, "attention_output_bias": True})
    model = from_state_dict(weights, rules, TfmGPTModel, config)
    attention = model.layers[0].self_attn
    assert all(torch.equal(getattr(attention, name).weight, whole) for name, whole in joined.items())
    assert torch.equal(attention.o_proj.weight, weights["0.out"].T)
    back = to_state_dict(model, rules)
    assert back.keys() == weights.keys() and all(torch.equal(back[name], weights[name]) for name in weights)

    with pytest.raises(
        ConversionError, match=r"0\.0\.k_proj, .* of shape \(8, 32\) and of shape \(8, 9\), where .*k_proj"
    ):
        from_state_dict(weights | {"0.1.k_proj": torch.zeros(8, 9)}, rules, TfmGPTModel, config)

    packed = torch.stack([whole.unflatten(0, (4, -1)) for whole in joined.values()], dim=1).flatten(0, 2)
    rule = SplitHeads("{i}.qkv", tuple(f"layers.{{i}}.self_attn.{x}.weight" for x in joined), by_group=True)
    weights = {"0.qkv": packed, "0.out": weights["0.out"]}
    attention = from_state_dict(weights, [rule, *rules[3:]], TfmGPTModel, config).layers[0].self_attn
    assert all(torch.equal(getattr(attention, name).weight, whole) for name, whole in joined.items())


@torch.no_grad()
@in_double()
def test_rotated_channels_side_by_side():
    """As complex numbers turn them, with fewer keys than queries."""
    modules = {
        **{"tok_embeddings": "model.embeddings.embed_tokens", "norm": "model.norm", "output": "lm_head"},
        **{f"layers.{{i}}.w{x}": f"model.layers.{{i}}.self_attn.{x}_proj" for x in "vo"},
        **{f"layers.{{i}}.w{x}": f"model.layers.{{i}}.mlp.{name}_proj" for x, name in zip("132", GATED, strict=True)},
        "layers.{i}.attention_norm": "model.layers.{i}.self_attn_norm",
        "layers.{i}.ffn_norm": "model.layers.{i}.mlp_norm",
    }
    rules = [Rename(mine, zoo) for mine, zoo in modules.items()]
    rules += [Interleaved(f"layers.{{i}}.w{x}", f"model.layers.{{i}}.self_attn.{x}_proj") for x in "qk"]
    fields = {"norm_type": "rmsnorm", "mlp_type": "gated", "hidden_act": "silu", "num_key_value_heads": 2}
    fields |= {"position_embedding_type": "rotary", "tie_word_embeddings": False, "intermediate_size": 64}
    fields |= {"attention_bias": False, "mlp_bias": False}
    mine, ids = tutorials.Llama(), torch.arange(5, 21).view(2, 8)
    model = from_state_dict(mine.state_dict(), rules, TfmGPTForCausalLM, TfmGPTConfig(**FIELDS | fields))
    assert_same(model(ids).logits, mine(ids))
    back = to_state_dict(model, rules)
    assert all(torch.equal(back[name], tensor) for name, tensor in mine.state_dict().items())


def test_rotated_channels_of_a_model_without_rotary_positions():
    rule = Interleaved("w", "model.layers.0.self_attn.q_proj")
    with pytest.raises(ConversionError, match=r"Interleaved.'w'. .* position_embedding_type='learned': use Rename"):
        from_state_dict({}, [rule], TfmGPTForCausalLM, TfmGPTConfig(**FIELDS))


def test_rotated_channels_of_each_kind_of_layer():
    """They are found, if all kinds rotate as many."""
    rule, kinds = Interleaved("w", "model.layers.0.self_attn.q_proj"), ["full_attention", "sliding_attention"]
    rotary = {
        kind: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": share}
        for kind, share in zip(kinds, (0.5, 1.0), strict=True)
    }

    def config(layer_types: list[str], rope_parameters: dict) -> TfmGPTConfig:
        fields = FIELDS | {"position_embedding_type": "rotary", "sliding_window": 4}
        return TfmGPTConfig(**fields, layer_types=layer_types, rope_parameters=rope_parameters)

    half = FIELDS["hidden_size"] // FIELDS["num_attention_heads"] // 2
    assert rule.of(config(kinds, dict.fromkeys(kinds, rotary["full_attention"]))).rotated == half
    assert rule.of(config(kinds[:1] * 2, rotary)).rotated == half  # no layer slides
    with pytest.raises(ConversionError, match=r"Interleaved.'w'. needs as many .* differ in partial_rotary_factor"):
        rule.of(config(kinds, rotary))


def test_a_long_table_of_sinusoids():
    """float32 rounds the angles of later rows by more; training changes early ones, too."""
    config = TfmGPTConfig(**FIELDS | {"position_embedding_type": "sinusoidal"})
    table = tutorials.PositionalEncoding(32, 40_000).pe
    check_sinusoids(lazy_tensors({"pe": table}), config, "mine")
    with pytest.raises(ConversionError, match=r"differs by 0\.00"):
        check_sinusoids(lazy_tensors({"pe": table + 2e-3}), config, "mine")
    with pytest.raises(ConversionError, match=r"pe of mine is of shape .*16\), and not \(positions, 32\)"):
        check_sinusoids(lazy_tensors({"pe": table[..., :16]}), config, "mine")


def test_a_rule_whose_places_differ():
    with pytest.raises(ValueError, match="same places in braces"):
        Rename("layers.{i}.W_{x}", "layers.{i}.q_proj")
    with pytest.raises(ValueError, match=r"'lm_head'.* should be .*zoo="):
        ZooOnly("lm_head")


class TransformerEncoder(nn.Module):
    """Somebody's own, with a name that torch has, too."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)])


class Configured(nn.Module):
    config = SimpleNamespace(n_layer=2)


class Derived(nn.TransformerEncoder):
    """It may compute anything."""


@pytest.mark.parametrize(
    "make",
    [
        TransformerEncoder,
        Configured,
        lambda: Derived(nn.TransformerEncoderLayer(8, 2, batch_first=True), 1),
        lambda: nn.Linear(2, 2),
    ],
)
def test_a_model_of_another_kind_is_told_the_way(make):
    with pytest.raises(
        ConversionError, match=r"nn.TransformerDecoder.*from_state_dict takes .* 'A model of your own' in"
    ) as error:
        from_official(make())
    assert type(make()).__qualname__ in str(error.value)


def test_a_state_dict_is_told_the_way():
    with pytest.raises(ConversionError, match=r"A state dict does not say .*load_state_dict.*from_state_dict takes"):
        from_official(WEIGHTS)


def test_a_file_of_weights_is_told_the_way(tmp_path):
    torch.save(WEIGHTS, tmp_path / "mine.pt")
    with pytest.raises(ConversionError, match=r"mine.pt' is a file.*from_state_dict"):
        from_official(tmp_path / "mine.pt")


def test_names_of_a_rule_have_the_same_places():
    """Of single experts too, whose number alone may stand on one side."""
    PerExpert("layers.{i}.experts.{e}.w1.weight", "layers.{i}.experts.down_proj")
    with pytest.raises(ValueError, match="the same places in braces"):
        PerExpert("layers.{i}.experts.{e}.w1.weight", "layers.0.experts.down_proj")
