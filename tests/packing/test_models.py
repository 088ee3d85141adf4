"""Packed models give the tokens and nearly the outputs of the model that was packed, with less memory."""

import copy
import shutil
import weakref
from itertools import product

import pytest
import torch
from torch import nn

import tfm_zoo
from tfm_zoo import TfmBertForMaskedLM, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM, pack_weights
from tfm_zoo.inference.packing import compiling, packing
from tfm_zoo.inference.packing.compiling import compile_steps, room
from tfm_zoo.inference.packing.linear import LinearPart
from tfm_zoo.inference.packing.products import Int8Product, has_onednn, levels_of

from ..generation.models import assert_varied, generate, pair, prompts
from ..tiny import ragged_batch, tiny_decoder, tiny_model

#: relative distance of logits to those of the whole model, of width 32. (Without VNNI inputs have seven bits.) In the
#: other types a packed model is as near as the whole one in that type.
BOUNDS = {"int8": 0.15 if levels_of(Int8Product) == 127 else 0.2, "int4": 0.7}
IDS = torch.arange(1, 13).view(2, 6)
STRATEGIES = {"greedy": {}, "beams": {"num_beams": 3}, "static": {"cache_implementation": "static"}}
STRATEGIES |= {"sampled": {"do_sample": True, "temperature": 2.0}}


def packed(model, dtype: str):
    return pack_weights(copy.deepcopy(model), dtype)


def distance(model, packed_model, batch: dict) -> float:
    with torch.no_grad():
        wanted, made = model(**batch).logits, packed_model(**batch).logits
    return ((made - wanted).norm() / wanted.norm()).item()


def assert_near(model, packed_model, batch: dict, dtype: str) -> None:
    """As near to the model in double precision as the bound allows, or 1.5 times the error of the whole model in it."""
    assert packed_model(**batch).logits.dtype == model(**batch).logits.dtype
    exact, rounded = copy.deepcopy(model).double(), copy.deepcopy(model)
    if dtype == "bfloat16":
        rounded = rounded.bfloat16()
    bound = max(BOUNDS.get(dtype, 0), 1.5 * distance(exact, rounded, batch) + torch.finfo(rounded.dtype).eps)
    assert distance(exact, packed_model, batch) <= bound


@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "LlamaForCausalLM", "MarianMTModel"])
def test_same_tokens(architecture):
    model, _ = pair(architecture)
    twin = packed(model, "float32")
    for name, options in STRATEGIES.items():
        wanted, made = (generate(each, prompts(), **options).sequences for each in (model, twin))
        assert made.equal(wanted), name
    assert_varied(wanted, 1 if architecture == "MarianMTModel" else 9)


@pytest.mark.parametrize("head", [TfmGPTForCausalLM, TfmBertForMaskedLM, TfmEncoderDecoderForConditionalGeneration])
def test_near_the_whole_model(head):
    """Of ragged batches, whose padding encoders drop; with grouped queries, rotary positions and a gate. What a model
    in bfloat16 returns stays in bfloat16."""
    fields = {"mlp_type": "gated", "num_key_value_heads": 2, "position_embedding_type": "rotary"}
    fields |= {"final_logits_bias": True} if head is TfmEncoderDecoderForConditionalGeneration else {}
    batch, model = ragged_batch(head), tiny_model(head, **fields)
    for bias in (each for name, each in model.named_buffers() if name == "lm_head.bias"):
        bias.normal_()
    for kind, dtype in product((torch.float32, torch.bfloat16), packing.WEIGHTS):
        twin = packed(model.to(kind), dtype)
        assert_near(model, twin, batch, dtype)
        assert not [name for name, module in twin.named_modules() if isinstance(module, nn.Linear)]
        assert not any(parameter.requires_grad for parameter in twin.parameters())


LINEAR = {"attention_type": "linear"}
#: what attends in ways of its own, and not as packed encoders without them do
ATTENTION = [(head, {"sliding_window": 2}) for head in (TfmBertForMaskedLM, TfmGPTForCausalLM)]
ATTENTION += [(TfmBertForMaskedLM, {"position_embedding_type": "alibi"}), (TfmGPTForCausalLM, LINEAR)]
ATTENTION += [(TfmBertForMaskedLM, {"relative_attention_num_buckets": 8})]


@pytest.mark.parametrize(("head", "fields"), ATTENTION)
@torch.no_grad()
def test_any_attention(head, fields):
    """A decoder also goes on from a cache."""
    model, batch = tiny_model(head, **fields), ragged_batch(head)
    for dtype in ("float32", "bfloat16"):
        assert_near(model, twin := packed(model, dtype), batch, dtype)
        if head is TfmGPTForCausalLM:
            past, whole = twin(IDS[:, :4], use_cache=True).past_key_values, twin(IDS).logits
            assert (twin(IDS[:, 4:], past_key_values=past).logits - whole[:, 4:]).norm() < 0.02 * whole.norm()


def test_parts_of_a_product():
    """Each gives the output for its own input, in whatever order they are called."""
    model = tiny_decoder()
    attention = model.model.layers[0].self_attn
    twin = packed(model, "float32").model.layers[0].self_attn
    one, other = torch.randn(2, 3, 32), torch.randn(1, 4, 32)
    for name, inputs in [("v_proj", one), ("q_proj", other), ("k_proj", one), ("k_proj", one), ("q_proj", one)]:
        assert isinstance(getattr(twin, name), LinearPart)
        torch.testing.assert_close(getattr(twin, name)(inputs), getattr(attention, name)(inputs))


def test_fastest_type(monkeypatch):
    """Without a type, the one that suits the kind of model and what the machine has."""
    encoder, decoder = tiny_model(TfmBertForMaskedLM), tiny_decoder()
    for has_bfloat16, levels, wanted in (
        (True, 127, ["bfloat16", "int8"]),
        (False, 63, ["int8", "int8"]),
        (False, 0, ["float32", "float32"]),
    ):
        monkeypatch.setattr(packing, "has_bfloat16", lambda has=has_bfloat16: has)
        monkeypatch.setattr(packing, "levels_of", lambda kernel, levels=levels: levels)
        assert [packing.fastest(model) for model in (encoder, decoder)] == wanted


def test_choice_is_said(caplog):
    """With its cost; what the official class runs and cannot be packed stays as it is."""
    model, ids = pack_weights(tiny_decoder()), torch.arange(1, 7)[None]
    assert model.config.quantization_config.dtype == "int8"
    assert "chose 'int8'" in caplog.text and "perplexity" in caplog.text
    wanted = model(ids).logits
    assert pack_weights(model) is model and "leaves this TfmGPTForCausalLM as it is: it is packed" in caplog.text
    assert model(ids).logits.equal(wanted)
    half = tiny_decoder().half()
    with torch.no_grad():
        wanted = half(ids).logits
        assert (pack_weights(half)(ids).logits - wanted).norm() < BOUNDS["int8"] * wanted.norm()


def with_adapter(**options):
    """A packed model with an adapter, what it reads, and the tokens of the model before it was packed."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["q_proj", "v_proj", "up_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(tiny_decoder(num_hidden_layers=1, mlp_type="gated"), config).eval()
    source = {name: value.clamp(max=60) for name, value in prompts().items()}
    wanted = generate(adapted, source).sequences
    torch.compiler.reset()
    return pack_weights(adapted, "float32", **options), source, wanted


def test_adapters_stay():
    """PEFT's adapters stay beside packed weights, and can be switched off."""
    twin, source, wanted = with_adapter()
    assert generate(twin, source).sequences.equal(wanted)
    with twin.disable_adapter():
        assert distance(tiny_decoder(num_hidden_layers=1, mlp_type="gated"), twin, source) < 1e-5


def test_the_kernel_computes_the_activation():
    """GELU, exact or nearly, as it writes the product before it, and in a copy of the model; others stay."""
    for act in ("gelu", "gelu_new", "relu"):
        model, batch = tiny_model(TfmBertForMaskedLM, hidden_act=act), ragged_batch(TfmBertForMaskedLM)
        twin = packed(model, "float32")
        applied = {type(layer.mlp.act_fn) is nn.Identity for layer in twin.model.layers}
        assert applied == {act.startswith("gelu") and has_onednn(torch.float32)}, act
        assert distance(model, twin, batch) < 1e-5 and distance(twin, copy.deepcopy(twin), batch) == 0, act


REFUSED = [
    (lambda model: tfm_zoo.quantize_int8(model.train()), "training mode"),
    (lambda model: pack_weights("my-model"), "takes a model, not the str 'my-model'"),
    (lambda model: pack_weights(model, "int3"), "dtype='int3' should be"),
    (lambda model: pack_weights(model.to("meta"), "int8"), "on meta"),
    (lambda _: pack_weights(tiny_model(TfmBertForMaskedLM), compile=True), "MaskedLM does not generate"),
    (lambda _: pack_weights(tiny_decoder(sliding_window=4), compile=True), "layers without a window"),
    (lambda model: pack_weights(model, "int8", compile=True), "there is no no-such-compiler"),
]


@pytest.mark.parametrize(("act", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(act, message, monkeypatch):
    """Before any work is done."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    model = tiny_decoder()
    with pytest.raises(ValueError, match=message):
        act(model)
    assert isinstance(model.lm_head, nn.Linear) and model.generation_config.cache_implementation is None


CHANGES = [
    *(lambda model: model.half(), lambda model: model.to(torch.bfloat16), lambda model: model.to_empty(device="meta")),
    lambda model: nn.ModuleList([model]).to("cpu", torch.half),
    lambda model: model.resize_token_embeddings(70),
    lambda model: model.resize_decoder_token_embeddings(70),
    tfm_zoo.quantize_int8,
]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_changes_are_refused(dtype):
    """In a line that says what the model is, and before anything is changed."""
    head = TfmEncoderDecoderForConditionalGeneration
    model, batch = packed(tiny_model(head, share_encoder_decoder_embeddings=False), dtype), ragged_batch(head)
    wanted = model(**batch).logits
    for change in CHANGES:
        with pytest.raises(ValueError, match="is packed"):
            change(model)
    with pytest.raises(ValueError, match="q_proj is packed, and takes no weights"):
        model.load_state_dict(tiny_model(head).state_dict(), strict=False)
    with pytest.raises(RuntimeError, match="without gradients"):
        model.get_encoder()(inputs_embeds=torch.randn(1, 3, 32, requires_grad=True))
    with pytest.raises(RuntimeError, match="train the model first"):
        copy.deepcopy(model).train()(**batch)
    assert model.to("cpu", torch.float).resize_token_embeddings() is model.get_input_embeddings()
    assert model(**batch).logits.equal(wanted)


def test_old_weights_are_released():
    """Only embeddings and norms stay, among them the embedding that a head was tied to."""
    model = tiny_decoder(mlp_type="gated")
    weights = [weakref.ref(module.weight) for module in model.modules() if isinstance(module, nn.Linear)]
    pack_weights(model, "int8")
    left = [weight() for weight in weights if weight() is not None]
    assert [weight is model.get_input_embeddings().weight for weight in left] == [True]
    assert all("embed" in name or "norm" in name for name, _ in model.named_parameters())


# Compiled decoding steps: one graph for all lengths that have room in one cache


def twins(architecture: str, dtype: str):
    """A packed model, and one that compiles its steps, too."""
    packed = pack_weights(copy.deepcopy(pair(architecture)[0]), dtype)
    compiled = copy.deepcopy(packed)
    compile_steps(compiled, "eager")
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    return packed, compiled


def graphs() -> int:
    assert not torch._dynamo.utils.counters["graph_break"]
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.slow
@pytest.mark.parametrize("architecture, dtype", [("LlamaForCausalLM", "int8"), ("MarianMTModel", "bfloat16")])
def test_same_tokens_of_compiled_steps(architecture, dtype, monkeypatch):
    """A long generation takes another graph, and those after it take the first one again. Beams are not compiled."""
    assert [room(positions) for positions in (1, 128, 129, 1000, 1024)] == [128, 128, 256, 1024, 1024]
    monkeypatch.setattr(compiling, "SHORTEST", 16)
    packed, compiled = twins(architecture, dtype)
    assert "static" in compiled.generation_config.to_json_string()  # which saving a model writes
    assert isinstance(compiled, type(packed)) and type(compiled).__name__ == type(packed).__name__
    short, sampled = {"max_new_tokens": 6}, {"max_new_tokens": 6, "do_sample": True}
    cases = [(short, 1), (sampled, 1), ({"max_new_tokens": 20}, 2), ({"max_new_tokens": 5}, 2), ({"num_beams": 3}, 2)]
    for options, count in cases:
        made, wanted = (generate(model, prompts(), **options) for model in (compiled, packed))
        assert made.sequences.equal(wanted.sequences), options
        assert graphs() == count, options


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_generated_code_of_steps(caplog):
    """`compile=True`, with adapters too; how long compiling took is said once."""
    compiled, source, wanted = with_adapter(compile=True)
    assert all(generate(compiled, source).sequences.equal(wanted) for _ in range(2))
    assert caplog.text.count("Compiled the decoding step") == 1


@pytest.mark.slow
def test_a_step_is_used_for_its_own_weights_alone():
    """Not with an adapter that is turned off, and not for a copy whose embeddings are others."""
    packed, source, wanted = with_adapter()
    compiled = copy.deepcopy(packed)
    compile_steps(compiled, "eager")
    assert generate(compiled, source).sequences.equal(wanted)
    with compiled.disable_adapter(), packed.disable_adapter():
        made, other = (generate(model, source).sequences for model in (compiled, packed))
    assert made.equal(other) and not made.equal(wanted)
    twins = [copy.deepcopy(each) for each in (compiled, packed)]
    for twin in twins:
        table = twin.get_input_embeddings().weight
        table.data = table.flip(0)
    made, other = (generate(twin, source).sequences for twin in twins)
    assert made.equal(other) and not made.equal(wanted)
