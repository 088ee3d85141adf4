"""A sliding window taken in blocks, against one that is a mask over all pairs."""

from unittest.mock import Mock

import pytest
import torch
from transformers import DynamicCache

from tfm_zoo import TfmBertModel, TfmEncoderDecoderModel, TfmGPTModel
from tfm_zoo.models import kernels

from ..precision import assert_same
from ..tiny import ragged_mask, tiny_model

pytestmark = pytest.mark.usefixtures("double")

LENGTHS = (24, 13, 2, 17)
#: each family, side and size of a window
CASES = [
    *((TfmBertModel, "right", 2), (TfmBertModel, "left", 3), (TfmBertModel, "holes", 5), (TfmBertModel, "right", 6)),
    *((TfmGPTModel, "right", 6), (TfmGPTModel, "left", 2), (TfmGPTModel, "holes", 3), (TfmGPTModel, "left", 5)),
    *((TfmEncoderDecoderModel, "right", size) for size in (2, 5)),  # a target begins at its left
]


@pytest.fixture
def blocks(monkeypatch) -> Mock:
    """Attention in blocks, which notes that it is called."""
    noted = Mock(wraps=kernels.attend_in_blocks)
    monkeypatch.setattr(kernels, "attend_in_blocks", noted)
    return noted


def make(family, size: int, implementation: str, **fields):
    fields |= {"sliding_window": size, "num_key_value_heads": 2}
    return tiny_model(family, attn_implementation=implementation, **fields)


def batch(side: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    mask = ragged_mask(LENGTHS, side=side)
    return {"input_ids": torch.randint(5, 60, mask.shape), "attention_mask": mask}


def run(model, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The last hidden state at real positions, and every gradient of its sum of squares."""
    own = {f"decoder_{name}": value for name, value in inputs.items()} if model.config.is_encoder_decoder else {}
    real = model(**inputs | own).last_hidden_state[inputs["attention_mask"] == 1]
    real.square().sum().backward()
    grads = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {"states": real.detach(), **grads}


@pytest.mark.parametrize(("family", "side", "size"), CASES)
def test_blocks_are_the_mask(family, side, size, blocks):
    inputs = batch(side)
    dense = run(make(family, size, "eager"), inputs)
    assert not blocks.called
    assert_same(run(make(family, size, "sdpa"), inputs), dense)
    assert blocks.called


def test_without_padding_and_with_all_of_it_computed(blocks):
    inputs = batch("right")
    whole = {"input_ids": inputs["input_ids"], "attention_mask": torch.ones_like(inputs["attention_mask"])}
    for given, fields in ((whole, {}), (inputs, {"skip_padding": False})):
        assert_same(*(run(make(TfmBertModel, 3, kind, **fields), given)["states"] for kind in ("eager", "sdpa")))
    assert blocks.called


@pytest.mark.slow
@torch.no_grad()
def test_a_graph_takes_a_mask(blocks):
    model, ids = make(TfmGPTModel, 6, "sdpa"), torch.randint(5, 60, (2, 24))
    graph = torch.export.export(model, (ids,), {"use_cache": False}).module()
    assert not blocks.called
    assert_same(graph(ids, use_cache=False).last_hidden_state, model(ids).last_hidden_state)


@torch.no_grad()
def test_a_prompt_in_blocks_fills_the_cache(blocks):
    model, inputs = make(TfmGPTModel, 3, "sdpa", layer_types=["sliding_attention", "full_attention"]), batch("left")
    whole = model(**inputs, use_cache=True).last_hidden_state
    cache, states = DynamicCache(config=model.config), []
    for start, end in ((0, 20), (20, 21), (21, 24)):
        part = {"input_ids": inputs["input_ids"][:, start:end], "attention_mask": inputs["attention_mask"][:, :end]}
        states.append(model(**part, past_key_values=cache, use_cache=True).last_hidden_state)
    real = inputs["attention_mask"] == 1
    assert_same(torch.cat(states, 1)[real], whole[real])
    assert blocks.called


@torch.no_grad()
def test_positions_that_do_not_count_up_by_one(blocks):
    """Where they do not rise, packed sequences begin, which take a mask; a gap ends none."""
    ids = torch.randint(5, 60, (1, 18))
    for places, is_one in (([0, *range(17)], False), ([*range(8), *range(10, 20)], True)):
        positions = torch.tensor([places])
        assert_same(*(make(TfmGPTModel, 2, kind)(ids, position_ids=positions)[0] for kind in ("eager", "sdpa")))
        assert blocks.called == is_one


@torch.no_grad()
def test_nothing_of_the_square_of_the_length_is_made():
    """A hundred thousand positions: a byte for each pair would be ten gigabytes."""
    model = make(TfmGPTModel, 8, "sdpa", position_embedding_type="none", num_hidden_layers=1)
    assert model(torch.randint(5, 60, (1, 100_000)), use_cache=False).last_hidden_state.isfinite().all()
