"""Linear attention against its definition, written out position by position, and decoding against one pass."""

import pytest
import torch
import transformers
from packaging.version import Version
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, CompileConfig, DynamicCache, StaticCache

from tfm_zoo import (
    TfmBertConfig,
    TfmBertForMaskedLM,
    TfmBertModel,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTConfig,
    TfmGPTForCausalLM,
    to_official,
)
from tfm_zoo.converters import ConversionError
from tfm_zoo.models.batch import Layout
from tfm_zoo.models.compat import CACHE
from tfm_zoo.models.layers import TfmAttention
from tfm_zoo.models.linear_attention import CHUNK, feature_map

from ..precision import assert_same, in_graphs, in_single
from ..tiny import HEADS, SIZES, ragged_batch, ragged_mask, tiny_config, tiny_model

pytestmark = pytest.mark.usefixtures("double")

LINEAR = {"attention_type": "linear"}
SOME = {"layer_types": ["linear_attention", "full_attention"]}
SIZED_BY_KIND = pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.23"),
    reason="transformers 5.18 sizes the mask of a static cache by its first layer, here a linear one",
)
GENERATORS = [TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration]


def attention_by_definition(module: TfmAttention, hidden: torch.Tensor, mask: torch.Tensor, causal: bool):
    """Equations 5 and 8 of Katharopoulos et al. 2020 in their quadratic form, a head and a query at a time."""
    groups = module.num_key_value_groups
    query, key, value = (proj(hidden) for proj in (module.q_proj, module.k_proj, module.v_proj))
    query, key, value = (states.unflatten(-1, (-1, module.head_dim)) for states in (query, key, value))
    rows = []
    for row in range(len(hidden)):
        outputs = []
        for place in range(hidden.shape[1]):
            heads = []
            for head in range(query.shape[2]):
                seen = [j for j in range(hidden.shape[1]) if mask[row, j] and (j <= place or not causal)]
                phi = F.elu(query[row, place, head]) + 1
                weights = torch.stack([phi @ (F.elu(key[row, j, head // groups]) + 1) for j in seen]) if seen else None
                values = value[row, seen, head // groups]
                heads.append(values.sum(0) if weights is None else (weights / weights.sum()) @ values)
            outputs.append(torch.cat(heads))
        rows.append(torch.stack(outputs))
    return module.o_proj(torch.stack(rows))


def gradients(output: torch.Tensor, wanted: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return torch.autograd.grad((output * wanted).sum(), inputs)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both_ways"])
@pytest.mark.parametrize("side", ["right", "left", "holes"])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_definition(causal, side, key_heads):
    torch.manual_seed(0)
    config = (TfmGPTConfig if causal else TfmBertConfig)(**SIZES | LINEAR | {"num_key_value_heads": key_heads})
    module = TfmAttention(config, 0, is_causal=causal)
    mask = ragged_mask(side=side)
    hidden = torch.randn(*mask.shape, config.hidden_size, requires_grad=True)
    inputs = [hidden, *module.parameters()]
    output, weights = module(hidden, Layout(mask))
    defined = attention_by_definition(module, hidden, mask, causal)
    assert weights is None
    assert_same(output, defined)
    wanted = torch.randn_like(output)
    for own, other in zip(gradients(output, wanted, inputs), gradients(defined, wanted, inputs), strict=True):
        assert_same(own, other)


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_chunks_do_not_show(length):
    torch.manual_seed(0)
    module = TfmAttention(TfmGPTConfig(**SIZES | LINEAR), 0, is_causal=True).double()
    hidden = torch.randn(2, length, 32, dtype=torch.double)

    def heads(projection):
        return projection(hidden).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)

    phi_q, phi_k = (F.elu(heads(projection)) + 1 for projection in (module.q_proj, module.k_proj))
    weights = (phi_q @ phi_k.transpose(-1, -2)).tril()
    defined = weights / weights.sum(-1, keepdim=True) @ heads(module.v_proj)
    defined = module.o_proj(defined.transpose(1, 2).flatten(2))
    assert_same(module(hidden)[0], defined)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_every_head_runs_and_learns(head):
    model = tiny_model(head, **LINEAR).train()
    outputs = model(**ragged_batch(head))
    sum(value.square().mean() for value in outputs.values() if isinstance(value, torch.Tensor)).backward()
    used = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    assert any("q_proj" in name for name in used)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("side", ["right", "left", "holes"])
def test_padding_is_not_computed_and_does_not_matter(side):
    mask = ragged_mask(side=side)
    batch = {"input_ids": torch.randint(5, 60, mask.shape), "attention_mask": mask}
    model = tiny_model(TfmBertModel, **LINEAR)
    with torch.no_grad():
        without = model(**batch).last_hidden_state
        model.config.skip_padding = False
        padded = model(**batch).last_hidden_state
        other = model(**batch | {"input_ids": batch["input_ids"].masked_fill(mask == 0, 7)}).last_hidden_state
    assert_same(without[mask == 1], padded[mask == 1])
    assert_same(other[mask == 1], padded[mask == 1])


@pytest.mark.parametrize("fields", [LINEAR, SOME], ids=["all", "some"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_step_by_step_is_one_pass(fields, positions):
    model = tiny_model(TfmGPTForCausalLM, position_embedding_type=positions, **fields)
    mask = ragged_mask(side="left")
    ids = torch.randint(5, 60, mask.shape)
    position_ids = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        whole = model(ids, attention_mask=mask, position_ids=position_ids).logits
        for pieces in ([1] * 9, [4, 1, 3, 1]):
            cache, logits, seen = DynamicCache(config=model.config), [], 0
            for piece in pieces:
                new = slice(seen, seen + piece)
                seen += piece
                inputs = {"attention_mask": mask[:, :seen], "position_ids": position_ids[:, new]}
                logits.append(model(ids[:, new], past_key_values=cache, use_cache=True, **inputs).logits)
                assert cache.get_seq_length() == seen
            assert_same(torch.cat(logits, 1)[mask == 1], whole[mask == 1])
    state = cache.layers[0].recurrent_states[0]
    assert state.shape == (4, 4, 8, 9)  # whatever the length


def test_a_gradient_reaches_back_through_steps():
    model, ids = tiny_model(TfmGPTForCausalLM, **LINEAR), torch.randint(5, 60, (2, 6))
    found = []
    for steps in ([6], [2, 3, 1]):
        model.zero_grad()
        cache, logits = DynamicCache(config=model.config), []
        for part in ids.split(steps, dim=1):
            logits.append(model(part, past_key_values=cache, use_cache=True).logits)
        torch.cat(logits, 1).square().mean().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    for once, in_steps in zip(*found, strict=True):
        assert (in_steps - once).norm() <= 1e-5 * once.norm() + 1e-9


@pytest.mark.parametrize("head", GENERATORS, ids=lambda head: head.__name__)
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "num_return_sequences": 2},
        {"cache_implementation": "static"},
    ],
    ids=["greedy", "beams", "sampled", "static"],
)
def test_generations_are_those_without_a_cache(head, how):
    model = tiny_model(head, **LINEAR)
    mask = ragged_mask((9, 4, 6), side="left" if head is TfmGPTForCausalLM else "right")
    batch = {"input_ids": torch.randint(5, 60, mask.shape).masked_fill(mask == 0, 0), "attention_mask": mask}
    generated = []
    for use_cache in (True, False):
        torch.manual_seed(0)
        options = {"do_sample": False, "max_new_tokens": 8} | how
        if not use_cache:
            options.pop("cache_implementation", None)
        generated.append(model.generate(**batch, use_cache=use_cache, **options))
    assert torch.equal(*generated)


def test_a_cache_is_continued_and_selected():
    model, ids = tiny_model(TfmGPTForCausalLM, **LINEAR), torch.randint(5, 60, (2, 7))
    with torch.no_grad():
        whole = model(ids).logits
        cache = DynamicCache()  # without a configuration: the model gives it its layers
        model(ids[:, :5], past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(2)
        cache.reorder_cache(torch.tensor([2, 3, 0, 1]))
        cache.batch_select_indices(torch.tensor([1, 2]))
        last = model(ids[[1, 0], 5:], past_key_values=cache, use_cache=True).logits
    assert_same(last, whole[[1, 0], 5:])
    cache.reset()
    assert cache.get_seq_length() == 0 and not cache.layers[0].has_previous_state[0]


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, False], ids=["positions", "counted"])
@in_graphs()
def test_a_compiled_step_is_compiled_once(given):
    model, ids = tiny_model(TfmGPTForCausalLM, num_hidden_layers=1, **LINEAR), torch.randint(5, 60, (2, 12))
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=False)
    with torch.no_grad():
        whole = model(ids).logits
        cache = DynamicCache(config=model.config)
        model(ids[:, :6], past_key_values=cache, use_cache=True)
        with torch._dynamo.config.patch(error_on_recompile=True):
            for place in range(6, 12):
                where = {"position_ids": torch.full((1, 1), place)} if given else {}
                logits = compiled(ids[:, place : place + 1], past_key_values=cache, use_cache=True, **where).logits
                torch.testing.assert_close(logits[:, 0], whole[:, place], rtol=0, atol=1e-5)
    assert cache.get_seq_length() == 12


@pytest.mark.slow
@pytest.mark.parametrize("fields", [LINEAR, pytest.param(SOME, marks=SIZED_BY_KIND)], ids=["all", "some"])
@in_graphs()
def test_a_conversation_goes_on_after_compiled_steps(fields):
    model, ids = tiny_model(TfmGPTForCausalLM, **fields), torch.randint(5, 60, (2, 6))
    cache = StaticCache(config=model.config, max_cache_len=20)
    compiled = CompileConfig(backend="aot_eager", fullgraph=True, dynamic=False, mode=None)
    compiled._compile_all_devices = True
    options = {"do_sample": False, "max_new_tokens": 5}
    first = model.generate(ids, **{CACHE: cache}, use_cache=True, compile_config=compiled, **options)
    assert int(cache.get_seq_length()) == 10
    turn = torch.cat([first, torch.randint(5, 60, (2, 3))], dim=1)
    again = model.generate(turn, **{CACHE: cache}, use_cache=True, **options)
    assert torch.equal(again, model.generate(turn, use_cache=False, **options))


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both_ways"])
def test_nothing_of_the_square_of_the_length_is_made(causal):
    module = TfmAttention((TfmGPTConfig if causal else TfmBertConfig)(**SIZES | LINEAR), 0, is_causal=causal)
    with torch.no_grad():
        output, _ = module(torch.randn(1, 100_000, 32))  # whose square is 40 GB, for each head
    assert output.isfinite().all()


@in_single()
def test_features_are_exact_where_they_are_small():
    values = torch.cat([torch.linspace(-30, 30, 601), torch.tensor([0.0])])
    exact = torch.where(values > 0, values.double() + 1, values.double().exp())
    torch.testing.assert_close(feature_map(values).double(), exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(exact, F.elu(values.double()) + 1, rtol=1e-3, atol=1e-12)


def test_no_values_no_work():
    with torch.device("meta"):
        model = TfmGPTForCausalLM(tiny_config(TfmGPTConfig, **LINEAR))
        assert model(torch.zeros(2, 5, dtype=torch.long)).logits.is_meta


def test_a_state_is_not_written_over_where_that_is_forbidden():
    """By a gradient that needs it, or since it was made in inference mode."""
    model, ids = tiny_model(TfmGPTForCausalLM, **LINEAR), torch.randint(5, 60, (2, 6))
    whole = model(ids).logits
    cache = DynamicCache(config=model.config)
    begin = model(ids[:, :4], past_key_values=cache, use_cache=True).logits
    with torch.no_grad():
        end = model(ids[:, 4:], past_key_values=cache, use_cache=True).logits
    begin.sum().backward()
    assert_same(end, whole[:, 4:])
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(ids[:, :4], past_key_values=cache, use_cache=True)
    with torch.no_grad():
        end = model(ids[:, 4:], past_key_values=cache, use_cache=True).logits
    assert_same(end, whole[:, 4:])
    assert cache.get_seq_length() == 6


@in_single()
def test_half_precision_sums_in_float32():
    model, ids = tiny_model(TfmGPTForCausalLM, **LINEAR), torch.randint(5, 60, (2, 20))
    with torch.no_grad():
        exact = model(ids).logits
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = model(ids, use_cache=True)
        half = model.to(torch.bfloat16)(ids, use_cache=True)
    for outputs in (mixed, half):
        assert outputs.past_key_values.layers[0].recurrent_states[0].dtype == torch.float32
        assert (outputs.logits.float() - exact).abs().max() <= 0.05 * exact.abs().max()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attention_type": "linear", "sliding_window": 3}, "sliding_window=3"),
        ({"attention_type": "linear", "layer_types": ["full_attention"] * 2}, "makes every layer linear"),
        ({"attention_type": "cosine"}, "attention_type"),
    ],
)
def test_combinations_without_a_meaning(fields, message):
    with pytest.raises(Exception, match=message):
        tiny_config(TfmGPTConfig, **fields)


def test_inputs_that_linear_attention_cannot_take():
    model, ids = tiny_model(TfmGPTForCausalLM, **LINEAR), torch.randint(5, 60, (2, 6))
    with pytest.raises(ValueError, match=r"compares no two positions: it should be of shape \(2, 6\)"):
        model(ids, attention_mask=torch.zeros(2, 1, 6, 6))
    with pytest.raises(ValueError, match="begin anew within a row"):
        model(ids, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]))
    with pytest.raises(ValueError, match="past_key_values has a DynamicLayer for layer 0"):
        model(ids, past_key_values=DynamicCache(config=tiny_config(TfmGPTConfig)))
    cache = DynamicCache(config=model.config)
    model(torch.cat([ids, ids[:1]]), past_key_values=cache, use_cache=True)
    with pytest.raises(ValueError, match="past_key_values holds 3 sequences, and the inputs are 2"):
        model(ids, past_key_values=cache)
    other = tiny_model(TfmGPTForCausalLM, **LINEAR, num_key_value_heads=2)
    with pytest.raises(ValueError, match="past_key_values is the cache of another model"):
        other(ids, past_key_values=cache)
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        model.generate(ids[:1], use_cache=True, prompt_lookup_num_tokens=2, max_new_tokens=3)
    with pytest.raises(ConversionError, match="attention_type"):
        to_official(tiny_model(TfmBertForMaskedLM, **LINEAR))


def test_save_and_load(tmp_path):
    model, ids = tiny_model(TfmGPTForCausalLM, **LINEAR), torch.randint(5, 60, (2, 6))
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)
    assert again.config.layer_types == ["linear_attention"] * 2


@pytest.mark.parametrize("head", [TfmBertForMaskedLM, TfmGPTForCausalLM])
def test_a_mask_may_lie_on_another_device(head):
    """`"meta"` stands for a GPU."""
    batch = ragged_batch(head)
    batch["input_ids"] = batch["input_ids"].to("meta")
    model = tiny_model(head, **LINEAR).to("meta")
    assert model(**batch).logits.shape == (4, 9, SIZES["vocab_size"])
