"""Weights of a model of one's own: what a table of names may do, and what is wrong with it. (The examples of the cards
are compared with the models that they are made from in `tests/documents`.)"""

import pytest
import torch
from torch import nn

import tfm_zoo
from tests import tutorials
from tests.official_models import BY_NAME, build_tiny
from tfm_zoo import TfmGPTConfig, TfmGPTForCausalLM, TfmGPTModel, converters
from tfm_zoo.converters import ConversionError, from_official, from_state_dict, to_state_dict
from tfm_zoo.converters.checkpoint import lazy_tensors
from tfm_zoo.converters.sinusoids import check_sinusoids
from tfm_zoo.converters.tensor_rules import PerExpert, Rename, ZooOnly

FIELDS = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
FIELDS |= {"intermediate_size": 128, "max_position_embeddings": 20, "bos_token_id": None, "eos_token_id": None}
QKV = tuple(f"model.layers.{{i}}.self_attn.{x}_proj" for x in "qkv")
NAMES = {
    **{"wte": "embeddings.embed_tokens", "wpe": "embeddings.embed_positions", "ln_f": "norm"},
    **{"h.{i}.attn.c_proj": "layers.{i}.self_attn.o_proj", "h.{i}.mlp.c_fc": "layers.{i}.mlp.up_proj"},
    **{"h.{i}.mlp.c_proj": "layers.{i}.mlp.down_proj", "h.{i}.ln_1": "layers.{i}.self_attn_norm"},
    "h.{i}.ln_2": "layers.{i}.mlp_norm",
}
#: by one's own name
RULES = {mine: Rename(f"transformer.{mine}", f"model.{zoo}") for mine, zoo in NAMES.items()}
RULES |= {"qkv": converters.Split("transformer.h.{i}.attn.c_attn", QKV), "lm_head": Rename("lm_head", "lm_head")}
WEIGHTS = tutorials.GPT().state_dict()
SINUSOIDAL = {"position_embedding_type": "sinusoidal"}


def convert(weights=None, rules: dict | None = None, **fields) -> TfmGPTForCausalLM:
    rules = [rule for rule in (RULES | (rules or {})).values() if rule]
    weights = WEIGHTS if weights is None else weights
    return from_state_dict(weights, rules, TfmGPTForCausalLM, TfmGPTConfig(**FIELDS | fields))


def without(*ends: str) -> dict:
    return {key: tensor for key, tensor in WEIGHTS.items() if not key.endswith(ends)}


class Derived(nn.TransformerEncoder):
    """It may compute anything."""


def checked(table: torch.Tensor) -> None:
    check_sinusoids(lazy_tensors({"pe": table}), TfmGPTConfig(**FIELDS | SINUSOIDAL), "mine")


BIAS_OF_TWO = WEIGHTS | {"transformer.h.0.attn.c_attn.bias": torch.zeros(2)}  # which cannot be cut into three
OTHER_HEAD = WEIGHTS | {"lm_head.weight": torch.zeros(50, 32)}
OTHER_NORM = {"ln_f": Rename("transformer.ln_f", "model.final_norm")}
FIXED = {"wpe": converters.Sinusoids("transformer.wpe.weight")}
IN_PAIRS = {"qkv": converters.Interleaved("{i}.w", QKV[0])}
KINDS = {"full_attention": 1.0, "sliding_attention": 0.5}
ROPE = {kind: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": n} for kind, n in KINDS.items()}
UNLIKE = {"position_embedding_type": "rotary", "rope_parameters": ROPE, "layer_types": [*KINDS], "sliding_window": 3}
#: float32 rounds the angles of later rows by more; training changes early ones, too
LONG = tutorials.PositionalEncoding(32, 40_000).pe
BERT = BY_NAME["BertModel"]
OTHER_MODEL = r"nn.TransformerDecoder.*from_state_dict takes .* 'A model of your own' in"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: convert(without("wpe.weight")), "missing: transformer.wpe.weight, for model.embeddings.embed_pos"),
        (lambda: convert(tutorials.GPT()), r"expected a state dict, got a GPT: give my_model\.state_dict\(\)"),
        (lambda: convert({"epoch": 3, "model": WEIGHTS}), r"not tensors: epoch, model\. Is the state dict"),
        (lambda: convert(WEIGHTS | {"crf": torch.zeros(1)}), r"unexpected: crf\.$"),
        (lambda: convert(rules={"h.{i}.mlp.c_fc": None}), "no rule for: .*up_proj.weight.*unexpected: .*c_fc"),
        (lambda: convert(rules=OTHER_NORM), r"would make it model.final_norm.*is model.norm.weight meant"),
        (lambda: convert(num_hidden_layers=1), r"unexpected: .*h.1.ln_1.weight \(a rule would make it model.lay"),
        (lambda: convert(BIAS_OF_TWO), r"misshapen: .*c_attn.bias of shape \(2,\), where .*q_proj.bias is .*\(32,\)"),
        (lambda: convert(intermediate_size=96), r"misshapen: .*c_fc.weight of shape \(128, 32\).* of shape \(96, 32\)"),
        (lambda: convert(OTHER_HEAD), "lm_head.weight and .* differ.*set tie_word_embeddings=False"),
        (lambda: convert(tie_word_embeddings=False), "wte.weight and lm_head.weight are one .* tie_word"),
        (lambda: convert(WEIGHTS | {"lm_head.bias": torch.zeros(50)}), "for this state dict: lm_head_bias=True"),
        (lambda: convert(rules=FIXED), "wpe.weight: sinusoids, .*'learned'"),
        (lambda: convert(rules=IN_PAIRS), r"'\{i\}.w'. is for rotary.*'learned': use R"),
        (lambda: convert(rules=IN_PAIRS, **UNLIKE), "as many rotated channels in all layers, .* in partial_rotary_fac"),
        (lambda: checked(LONG + 2e-3), r"differs by 0\.00"),
        (lambda: checked(LONG[..., :16]), r"pe of mine is of shape .*16\), and not \(positions, 32\)"),
        (lambda: Rename("layers.{i}.W_{x}", "layers.{i}.q_proj"), "same places in braces"),
        (lambda: ZooOnly("lm_head"), r"'lm_head'.* should be .*zoo="),
        # of single experts too, whose number alone may stand on one side
        (lambda: PerExpert("layers.{i}.{e}.w1", "layers.0.down"), "the same places in braces"),
        (lambda: from_official(Derived(nn.TransformerEncoderLayer(8, 2), 1)), OTHER_MODEL),
        (lambda: from_official(WEIGHTS), r"A state dict does not say .*load_state_dict.*from_state_dict takes"),
        (lambda: from_official(build_tiny(BERT).to(torch.float8_e5m2)), "misshapen: .* not of a floating type of 16"),
        (lambda: from_official(build_tiny(BERT).to("meta")), "word_embeddings.weight is on the meta device"),
        (lambda: convert({name: value.to_sparse() for name, value in WEIGHTS.items()}), "of layout torch.sparse_coo"),
        (lambda: from_official(torch.compile(build_tiny(BERT))), r"give model\._orig_mod"),
        (lambda: from_official(""), "is empty; it should be"),
        (lambda: from_official(tutorials.__file__), r"tutorials.py' is a file.*from_state_dict"),
    ],
)
def test_what_does_not_fit_is_named(made, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        made()


def test_what_is_near_to_a_refusal_fits():
    PerExpert("layers.{i}.{e}.w1", "layers.{i}.down")
    checked(LONG)


def test_the_error_can_be_read():
    """A line for each kind; a tensor that every layer lacks is named once, and the field that mends it."""
    weights = without("attn.c_attn.bias")
    with pytest.raises(ConversionError) as caught:
        convert(weights | {"other.1": torch.zeros(1)})
    _, missing, unexpected, fields = str(caught.value).splitlines()
    assert missing.startswith("missing: transformer.h.0.attn.c_attn.bias, ") and "(and 1 like it)" in missing
    assert unexpected == "unexpected: other.1." and "attention_bias=False, attention_output_bias=True" in fields
    model = convert(weights, attention_bias=False, attention_output_bias=True)
    assert model.model.layers[0].self_attn.q_proj.bias is None
    with pytest.raises(ConversionError) as caught:
        convert(rules={"ln_f": None})  # the state dict has a norm
    assert "The configuration says" not in str(caught.value)


SMALL = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SEQ2SEQ, SHARE = "EncoderDecoderForConditionalGeneration", "share_encoder_decoder_embeddings"
NORMED = {"final_norm": True}


@pytest.mark.parametrize(
    ("head", "mine", "fields", "hint"),
    [
        ("BertModel", NORMED, {}, "state dict: final_norm=True"),
        ("BertModel", {}, NORMED | {"add_pooling_layer": False}, "dict: final_norm=False, add_pooling_layer=True"),
        ("BertModel", {"type_vocab_size": 3}, {"type_vocab_size": 0}, "state dict: type_vocab_size=3"),
        ("BertForSequenceClassification", {"classifier_dense": False}, {}, "state dict: classifier_dense=False"),
        (SEQ2SEQ, {}, {SHARE: False}, f"{SHARE}=True they are one.*into the state dict"),
        (SEQ2SEQ, {SHARE: False}, {}, f"differ in .*: set {SHARE}=False"),
    ],
)
def test_the_error_names_the_fields_that_differ(head, mine, fields, hint):
    """And no other: with them, the conversion works."""
    model_class = getattr(tfm_zoo, f"Tfm{head}")
    own, config = (model_class.config_class(**SMALL | each) for each in (mine, fields))
    weights = model_class(own).state_dict()
    rules = [Rename(name, name) for name in weights | model_class(config).state_dict()]
    with pytest.raises(ConversionError, match=rf"{hint}\.$"):
        from_state_dict(weights, rules, model_class, config)
    from_state_dict(weights, rules, model_class, own)


def test_a_head_that_is_new_and_buffers_that_are_no_weights(caplog):
    """They do not decide the type of the model either."""
    weights = {name: tensor.bfloat16() for name, tensor in without("lm_head.weight").items()}
    weights |= {"transformer.h.0.attn.bias": torch.ones(1, 1, 20, 20).tril()}
    rules = {"lm_head": ZooOnly(zoo="lm_head"), "mask": converters.NotConverted("transformer.h.{i}.attn.bias")}
    model = convert(weights, rules, tie_word_embeddings=False)
    assert "The state dict has no weights that fit lm_head.weight: new weights were made" in caplog.text
    assert model.dtype == torch.bfloat16 and torch.equal(model.model.norm.weight, weights["transformer.ln_f.weight"])
    assert to_state_dict(model, (RULES | rules).values()).keys() == without("lm_head.weight").keys()  # and no mask
    with pytest.raises(ConversionError, match=r"No rule has tensors of TfmGPTForCausalLM: lm_head\.weight"):
        to_state_dict(model, [rule for name, rule in RULES.items() if name != "lm_head"])


def test_tied_weights_are_one(caplog):
    """Two copies would learn apart, where the model of one's own learns one."""
    for weights, rules in (
        (WEIGHTS, {}),
        (without("lm_head.weight"), {}),
        (without("lm_head.weight"), {"lm_head": None}),
    ):
        model = convert(weights, rules)
        assert model.lm_head.weight is model.model.embeddings.embed_tokens.weight
        assert torch.equal(model.lm_head.weight, WEIGHTS["lm_head.weight"])
    assert not caplog.text
    convert(WEIGHTS | {"lm_head.weight": WEIGHTS["lm_head.weight"].clone()}, tie_word_embeddings=False)


def test_heads_apart_and_transposed():
    """A layer for each head, as some tutorials have them, and a weight that multiplies from the right."""
    joined = {f"{x}_proj": torch.randn(32, 32) for x in "qkv"}
    heads = {f"0.{h}.{x}": part for x, whole in joined.items() for h, part in enumerate(whole.chunk(4))}
    new = ("embeddings.embed_{x}", "layers.{i}.mlp.{x}", "layers.{i}.{x}_norm", "norm")
    new += ("layers.{i}.self_attn.o_proj.bias",)
    rest = [converters.Transpose("{i}.out", "layers.{i}.self_attn.o_proj.weight"), *(ZooOnly(zoo=name) for name in new)]
    zoo = {x: f"layers.{{i}}.self_attn.{x}.weight" for x in joined}
    rules = [*(converters.Join(tuple(f"{{i}}.{h}.{x}" for h in range(4)), name) for x, name in zoo.items()), *rest]
    weights = heads | {"0.out": torch.randn(32, 32)}
    config = TfmGPTConfig(**FIELDS | {"num_hidden_layers": 1, "attention_bias": False, "attention_output_bias": True})
    packed = torch.stack([whole.unflatten(0, (4, -1)) for whole in joined.values()], dim=1).flatten(0, 2)
    grouped = [converters.SplitHeads("{i}.qkv", tuple(zoo.values()), by_group=True), *rest]
    for given, table in ((weights, rules), ({"0.qkv": packed, "0.out": weights["0.out"]}, grouped)):
        model = from_state_dict(given, table, TfmGPTModel, config)
        attention = model.layers[0].self_attn
        assert all(torch.equal(getattr(attention, name).weight, whole) for name, whole in joined.items())
        assert torch.equal(attention.o_proj.weight, weights["0.out"].T)
        back = to_state_dict(model, table)
        assert back.keys() == given.keys() and all(torch.equal(back[name], given[name]) for name in given)
    shapes = r"0\.0\.k_proj, .* of shape \(8, 32\) and of shape \(8, 9\), where .*k_proj"
    with pytest.raises(ConversionError, match=shapes):
        from_state_dict(weights | {"0.1.k_proj": torch.zeros(8, 9)}, rules, TfmGPTModel, config)
