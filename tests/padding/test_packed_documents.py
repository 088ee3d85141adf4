"""Several documents in one row, whose positions begin anew: none sees another, or the call is refused."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

from tfm_zoo import (
    TfmBertModel,
    TfmDebertaModel,
    TfmEncoderDecoderEncoder,
    TfmEncoderDecoderForConditionalGeneration,
    TfmEncoderDecoderModel,
    TfmGPTModel,
    from_official,
)
from tfm_zoo.models.kernels import varlen_attention_forward
from tfm_zoo.models.padding import find_kept

from ..official_models import BY_NAME, build_tiny
from ..precision import MAX_DIFFERENCE, assert_same
from ..tiny import NO_DROPOUT, ragged_batch, tiny_model, without_kernels
from ..varlen import device

pytestmark = pytest.mark.usefixtures("double")

IDS = torch.randint(5, 61, (2, 12), generator=torch.Generator().manual_seed(0))
POSITIONS = torch.tensor([[*range(5), *range(4), *range(3)], [*range(2), 0, *range(9)]])
PADDED = torch.ones_like(IDS)
PADDED[0, 9:] = PADDED[1, :2] = 0
#: of padding; `None`: there is none
MASKS = {"no mask": None, "a mask of ones": torch.ones_like(IDS), "padding": PADDED}
LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}
FALCON = {"position_embedding_type": "alibi", "position_ids_from_mask": True, "round_alibi": True}
RELATIVE = {"position_embedding_type": "none", "relative_attention_num_buckets": 8}
MODELS = {
    "BERT": (TfmBertModel, {"add_pooling_layer": False}),
    "ModernBERT": (TfmBertModel, LAYERS | {"position_embedding_type": "rotary", "add_pooling_layer": False}),
    "GPT-2": (TfmGPTModel, {}),
    "Mistral": (TfmGPTModel, LAYERS | {"position_embedding_type": "rotary"}),
    "BLOOM": (TfmGPTModel, {"position_embedding_type": "alibi"}),
    "T5's encoder": (TfmEncoderDecoderEncoder, RELATIVE),
}


def documents() -> list[tuple[int, slice]]:
    """The row and the places of each document."""
    starts = [[*(row == 0).nonzero().flatten().tolist(), len(row)] for row in POSITIONS]
    return [(row, slice(*ends)) for row, places in enumerate(starts) for ends in pairwise(places)]


def differences(model: nn.Module, mask: torch.Tensor | None, with_gradients: bool = True, **options) -> list[float]:
    """How far documents that share rows are from each alone: states, and, as shares of the largest, gradients."""
    embeddings = model.get_input_embeddings()(IDS).detach().requires_grad_(with_gradients)
    given = {"inputs_embeds": embeddings, "position_ids": POSITIONS, "attention_mask": mask, **options}
    together = model(**given).last_hidden_state
    found = []
    for row, places in documents():
        if mask is not None and mask.dim() == 2 and not mask[row, places].all():
            continue
        alone = embeddings[row : row + 1, places].detach().requires_grad_(with_gradients)
        states = model(inputs_embeds=alone, **options).last_hidden_state[0]
        found.append((together[row, places] - states).abs().max().item())
        if with_gradients:
            weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
            [expected] = torch.autograd.grad((states * weights).sum(), alone)
            [gradient] = torch.autograd.grad((together[row, places] * weights).sum(), embeddings, retain_graph=True)
            found.append(((gradient[row, places] - expected[0]).abs().max() / expected.abs().max()).item())
            assert gradient.count_nonzero() <= expected.numel(), "other documents have a gradient too"
    return found


def pairs(is_causal: bool, dtype: torch.dtype = torch.bool) -> torch.Tensor:
    """`(rows, 1, length, length)`: who sees whom, as a caller may say it himself."""
    numbers = (POSITIONS == 0).cumsum(dim=1)
    sees = (numbers[:, :, None] == numbers[:, None, :]).unsqueeze(1)
    sees = sees.tril() if is_causal else sees
    return torch.zeros(sees.shape).masked_fill(~sees, torch.finfo().min) if dtype.is_floating_point else sees.to(dtype)


@pytest.mark.parametrize(
    ("mask", "attention"),
    [("no mask", "sdpa"), ("a mask of ones", "eager"), ("padding", "eager"), ("padding", "sdpa")]
    + [(mask, "varlen") for mask in MASKS],
)
@pytest.mark.parametrize("name", MODELS)
def test_documents_of_a_row_do_not_see_each_other(name, mask, attention):
    head, fields = MODELS[name]
    for skip_padding, training in ((True, False), (True, True), (False, True)):
        model = tiny_model(head, skip_padding=skip_padding, **NO_DROPOUT, **fields)
        model.set_attn_implementation(attention)
        with device() as kernel:
            assert max(differences(model.train(training), MASKS[mask])) < MAX_DIFFERENCE
        has_bias = model.config.has_position_bias
        assert bool(kernel.calls) == (attention == "varlen" and skip_padding and not has_bias)


@pytest.mark.parametrize("head", [TfmBertModel, TfmGPTModel])
def test_a_row_may_begin_inside_a_document(head):
    """As where a stream of documents is cut into blocks."""
    model, ids = tiny_model(head, hidden_dropout=0.0), IDS[:1, :6]
    states = [
        model(torch.cat((first, ids[:, 1:]), dim=1), position_ids=torch.tensor([[3, 4, 5, 0, 1, 2]])).last_hidden_state
        for first in (ids[:, :1], ids[:, :1] + 1)
    ]
    differs = (states[0] != states[1]).any(dim=2)[0].tolist()
    assert differs == [True] * 3 + [False] * 3


@pytest.mark.parametrize("padding", [0, 1])
def test_a_padded_row_may_begin_inside_a_document(padding):
    model, ids = tiny_model(TfmBertModel, add_pooling_layer=False, hidden_dropout=0.0), IDS[:1, :8]
    given = {"attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1]])}
    given["position_ids"] = torch.tensor([[padding, padding, 3, 4, 5, 0, 1, 2]])
    states = [model(each, **given).last_hidden_state for each in (ids, ids + (torch.arange(8) == 2))]
    assert (states[0] != states[1]).any(dim=2)[0].tolist() == [False] * 2 + [True] * 3 + [False] * 3


def test_an_encoder_reads_positions_in_any_order():
    model, ids = tiny_model(TfmBertModel), IDS[:1, :6]
    order = torch.tensor([3, 5, 0, 4, 2, 1])
    states = model(ids).last_hidden_state[:, order]
    assert_same(model(ids[:, order], position_ids=order[None]).last_hidden_state, states)


def test_rows_have_documents_of_their_own():
    """The first has as many as tokens, the second is one."""
    assert find_kept(torch.ones(2, 3), documents=torch.tensor([[1, 2, 3], [0, 0, 0]])).lengths == [1, 1, 1, 3]


def bounded_attention(module, query, key, value, attention_mask, cu_seq_lens_q=None, **kwargs):
    """As flash attention, which is told the bounds of sequences, but for a document alone."""
    assert attention_mask is None
    if cu_seq_lens_q is None:
        assert len(query) == 1
        cu_seq_lens_q = torch.tensor([0, query.shape[2]], dtype=torch.int32)
        kwargs |= {"cu_seq_lens_k": cu_seq_lens_q, "max_length_q": query.shape[2], "max_length_k": query.shape[2]}
    return varlen_attention_forward(module, query, key, value, None, cu_seq_lens_q=cu_seq_lens_q, **kwargs)


AttentionInterface.register("flash_by_bounds", bounded_attention)
AttentionMaskInterface.register("flash_by_bounds", flash_attention_mask)


@pytest.mark.parametrize("name", MODELS)
def test_flash_attention_gets_the_bounds_of_documents(name):
    head, fields = MODELS[name]
    model = tiny_model(head, **NO_DROPOUT, **fields)
    model.config._attn_implementation = "flash_by_bounds"  # its setter would look for a kernel on the Hub
    for mask in MASKS.values():
        if model.config.has_position_bias:
            with pytest.raises(ValueError, match="takes no bias of positions"):
                differences(model, mask)
            continue
        for training in (False, True):
            with device() as kernel:
                assert max(differences(model.train(training), mask)) < MAX_DIFFERENCE
            assert kernel.calls


@pytest.mark.parametrize("reason", ["skip_padding", "hidden states", "hook", "frequencies"])
@pytest.mark.parametrize("head", [TfmBertModel, TfmGPTModel])
def test_flash_attention_without_the_bounds_is_refused(head, reason):
    dynamic = {"rope_type": "dynamic", "factor": 2.0}
    fields = {"position_embedding_type": "rotary", "max_position_embeddings": 8, "rope_parameters": dynamic}
    model = tiny_model(head, skip_padding=reason != "skip_padding", **fields if reason == "frequencies" else {})
    model.config._attn_implementation = "flash_by_bounds"
    if reason == "hook":
        model.layers[0].register_forward_hook(lambda *args: None)
    with pytest.raises(ValueError, match=r"begin anew within a row: choose sdpa\. Flash attention takes it only where"):
        model(IDS, position_ids=POSITIONS, output_hidden_states=reason == "hidden states")


@pytest.mark.slow
@pytest.mark.parametrize("head", [TfmBertModel, TfmGPTModel])
def test_a_compiled_model_with_flash_attention_takes_positions(head):
    """Nobody can tell in a graph whether they begin anew."""
    model = tiny_model(head)
    model.config._attn_implementation = "flash_in_a_graph"
    torch.compile(model, backend="eager")(IDS, position_ids=torch.arange(12)[None])


def attention_in_a_graph(module, query, key, value, attention_mask, **kwargs):
    return nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2), None


AttentionInterface.register("flash_in_a_graph", attention_in_a_graph)
AttentionMaskInterface.register("flash_in_a_graph", flash_attention_mask)


@pytest.mark.parametrize(
    ("head", "fields", "cause"),
    [
        (TfmGPTModel, {"layer_types": ["linear_attention", "full_attention"]}, "the state of linear attention"),
        (TfmGPTModel, FALCON, "ALiBi rounded by places"),
        (TfmDebertaModel, {"conv_kernel_size": 3}, "the convolution"),
    ],
)
def test_parts_that_take_a_row_for_one_sequence_refuse_several(head, fields, cause):
    model = tiny_model(head, **fields)
    model(IDS[:, :9], position_ids=torch.arange(9)[None])
    with pytest.raises(ValueError, match=rf"begin anew within a row: {cause} would carry one sequence into the next"):
        model(IDS, position_ids=POSITIONS)


def test_masks_that_are_dropped_scale_one_sequence():
    """Of rows without masks nothing is scaled."""
    model = tiny_model(TfmBertModel, dropped_token_id=4, hidden_dropout=0.0)
    assert max(differences(model, None)) < MAX_DIFFERENCE
    model(IDS, position_ids=POSITIONS)
    with pytest.raises(ValueError, match=r"whose masks \(dropped_token_id\) would scale all its sequences"):
        model(IDS.index_fill(1, torch.tensor([3]), 4), position_ids=POSITIONS)


@torch.no_grad()
@pytest.mark.parametrize("name", ["BertModel", "MistralModel"])
def test_official_classes_are_the_control(name):
    """With a mask of ones transformers looks for no documents; without one it does in decoders without a cache."""
    official = build_tiny(BY_NAME[name])
    zoo = from_official(official)
    leaks = {}
    for mask in ("no mask", "a mask of ones"):
        assert max(differences(zoo, MASKS[mask], with_gradients=False, use_cache=False)) < MAX_DIFFERENCE
        leaks[mask] = max(differences(official, MASKS[mask], with_gradients=False, use_cache=False)) > 1e-3
    assert leaks == {"no mask": name == "BertModel", "a mask of ones": True}


@torch.no_grad()
@without_kernels
@pytest.mark.parametrize("name", ["ModernBERT", "Mistral", "BLOOM", "T5's encoder"])
def test_flex_attention_keeps_them_apart(name):
    """Each kind of mask: of all and of a window, with and without causality; with a bias. (A mask of ones is none.)"""
    head, fields = MODELS[name]
    model = tiny_model(head, **fields)
    model.set_attn_implementation("flex_attention")
    for mask in (None, PADDED):
        assert max(differences(model, mask, with_gradients=False)) < MAX_DIFFERENCE


@torch.no_grad()
@pytest.mark.parametrize(
    ("attention", "dtype"),
    [("eager", torch.bool), ("sdpa", torch.long), ("sdpa", torch.float)]
    + [("varlen", dtype) for dtype in (torch.bool, torch.long, torch.float)],
    ids=str,
)
@pytest.mark.parametrize("name", ["BERT", "GPT-2", "BLOOM", "T5's encoder"])
def test_a_mask_of_pairs_keeps_them_apart(name, attention, dtype):
    head, fields = MODELS[name]
    model = tiny_model(head, **fields)
    model.set_attn_implementation(attention)
    together = model(IDS, position_ids=POSITIONS, attention_mask=pairs(head is TfmGPTModel, dtype)).last_hidden_state
    for row, places in documents():
        alone = model(IDS[row : row + 1, places]).last_hidden_state[0]
        assert_same(together[row, places], alone)


@pytest.mark.parametrize("mask", MASKS)
@torch.no_grad()
def test_a_cache_takes_no_documents_that_share_a_row(mask):
    model = tiny_model(TfmGPTModel)
    given = {"position_ids": POSITIONS, "attention_mask": MASKS[mask]}
    assert model.eval()(IDS, **given).past_key_values is None
    with pytest.raises(ValueError, match="a cache does not keep apart what is packed into a row: pass use_cache=False"):
        model(IDS, **given, use_cache=True)


def test_sources_do_not_share_a_row():
    """The decoder would read all of them; targets of one source may share a row."""
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration)
    with pytest.raises(ValueError, match="each source should be a row of its own"):
        model(IDS, position_ids=POSITIONS, decoder_input_ids=IDS)
    mask = torch.ones_like(IDS)
    for attention in ("eager", "sdpa", "varlen"):
        model.set_attn_implementation(attention)
        with device():
            logits = model(IDS, mask, decoder_input_ids=IDS, decoder_position_ids=POSITIONS).logits
        for row, places in documents():
            alone = model(IDS[row : row + 1], mask[:1], decoder_input_ids=IDS[row : row + 1, places]).logits[0]
            assert_same(logits[row, places], alone)


@torch.no_grad()
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_step_with_a_mask_of_pairs_and_a_window(attention):
    """The cache of a layer with a window holds fewer keys than one mask for all layers covers (Gemma 3)."""
    model = tiny_model(TfmGPTModel, **LAYERS, position_embedding_type="rotary", use_cache=True)
    model.set_attn_implementation(attention)
    expected = model(IDS, use_cache=False).last_hidden_state[:, -1:]
    past = model(IDS[:, :-1]).past_key_values
    sees = torch.ones(2, 1, 1, 12, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"covers 12 keys, and the cache holds 3 for layers with a window"):
        model(IDS[:, -1:], past_key_values=past, attention_mask=sees)
    each = {"full_attention": sees, "sliding_attention": sees[..., -3:]}
    step = model(IDS[:, -1:], past_key_values=past, attention_mask=each).last_hidden_state
    assert_same(step, expected)
    model = tiny_model(TfmEncoderDecoderModel, sliding_window=3, use_cache=True)
    past = model(IDS, decoder_input_ids=IDS[:, :-1]).past_key_values
    with pytest.raises(ValueError, match=r"^decoder_attention_mask covers 12 keys"):
        model(IDS, decoder_input_ids=IDS[:, -1:], past_key_values=past, decoder_attention_mask=sees)


@torch.no_grad()
@without_kernels
def test_an_encoder_decoder_with_a_cache_under_flex_attention():
    head = TfmEncoderDecoderForConditionalGeneration
    model, batch = tiny_model(head, use_cache=True), ragged_batch(head)
    given = {name: batch[name] for name in ("input_ids", "attention_mask")} | {"max_new_tokens": 4}
    expected, tokens = model(**batch, use_cache=False).logits, model.generate(**given)
    model.set_attn_implementation("flex_attention")
    assert_same(model(**batch, use_cache=True).logits, expected)
    assert torch.equal(model.generate(**given), tokens)


@torch.no_grad()
def test_other_orders_of_positions_are_no_documents():
    """Padding whose positions are arbitrary, tokens in another order, and positions that are all the same."""
    decoder, encoder = tiny_model(TfmGPTModel), tiny_model(TfmBertModel)
    left = PADDED.flip(1)
    counted = (left.cumsum(dim=1) - 1).clamp(min=1).masked_fill(left.cumsum(dim=1) == 1, 0)  # as `generate` counts
    assert decoder(IDS, attention_mask=left, position_ids=counted, use_cache=True).past_key_values is not None
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    expected = encoder(IDS).last_hidden_state[:, order]
    shuffled = encoder(IDS[:, order], position_ids=order[None]).last_hidden_state
    assert_same(shuffled, expected)
    same = encoder(IDS, position_ids=torch.zeros_like(IDS)).last_hidden_state
    assert not torch.allclose(same[0, 0], encoder(IDS[:1, :1]).last_hidden_state[0, 0], atol=1e-3)


HOLES = torch.tensor([[1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0]])
OF_REAL = HOLES.cumsum(1) - HOLES


@pytest.mark.parametrize("at_padding", [OF_REAL, 0, 1, OF_REAL + 1], ids=["of trl", "zeros", "ones", "counted"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.long, torch.float])
@pytest.mark.parametrize("name", ["BERT", "GPT-2", "rotary", "target"])
@torch.no_grad()
def test_padding_inside_a_row_begins_no_document(name, dtype, at_padding):
    """Only positions of real tokens count: theirs rise, so that each row is one document, with and without a cache."""
    positions, side = torch.where(HOLES == 1, OF_REAL, at_padding), ""
    head, fields = MODELS.get(name, (TfmEncoderDecoderModel if name == "target" else TfmGPTModel, {}))
    given, fields = {}, fields if name != "rotary" else {"position_embedding_type": "rotary"}
    if name == "target":
        side, given = "decoder_", {"input_ids": IDS}
    model = tiny_model(head, **fields).eval()
    calls = [{}] if name == "BERT" else [{"use_cache": use} for use in (True, False)]
    for options in calls:
        inputs = {f"{side}input_ids": IDS, f"{side}attention_mask": HOLES.to(dtype), f"{side}position_ids": positions}
        states = model(**given, **inputs, **options).last_hidden_state
        for row, real in enumerate(HOLES.bool()):
            source = {key: each[row : row + 1] for key, each in given.items()}
            alone = model(**source, **{f"{side}input_ids": IDS[row : row + 1, real]}, **options).last_hidden_state
            torch.testing.assert_close(states[row, real], alone[0], rtol=1e-4, atol=1e-5)
