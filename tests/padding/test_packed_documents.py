"""Several documents in one row, whose positions begin anew: none sees another, or the call is refused."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import tfm_zoo
from tfm_zoo import TfmBertModel, TfmEncoderDecoderModel, TfmGPTModel

from ..precision import MAX_DIFFERENCE, assert_same
from ..tiny import NO_DROPOUT, tiny_model, without_kernels
from ..varlen import FLASH, device, use

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
    "T5's encoder": (tfm_zoo.TfmEncoderDecoderEncoder, RELATIVE),
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


#: a mask, an implementation, whether padding is skipped, and whether the model is trained
WAYS = [
    *(("no mask", "sdpa", True, True), ("padding", "sdpa", False, True), ("a mask of ones", "eager", True, False)),
    *(("padding", "eager", True, True), ("no mask", "varlen", True, False), ("padding", "varlen", True, True)),
    *(("no mask", "varlen", False, True), ("no mask", FLASH, True, True), ("padding", FLASH, True, False)),
]


@pytest.mark.parametrize("name", MODELS)
def test_documents_of_a_row_do_not_see_each_other(name):
    """Flash attention is told the bounds of documents. (It takes no bias of positions.)"""
    head, fields = MODELS[name]
    for way in WAYS:
        mask, attention, skip_padding, training = way
        model = tiny_model(head, skip_padding=skip_padding, **NO_DROPOUT, **fields)
        if attention == FLASH and model.config.has_position_bias:
            continue
        use(attention, model)
        with device() as kernel:
            assert max(differences(model.train(training), MASKS[mask])) < MAX_DIFFERENCE, way
        runs = attention in ("varlen", FLASH) and skip_padding and not model.config.has_position_bias
        assert bool(kernel.calls) == runs, way


@torch.no_grad()
@without_kernels
@pytest.mark.parametrize("name", ["ModernBERT", "Mistral", "T5's encoder"])
def test_flex_attention_keeps_them_apart(name):
    """Each kind of mask: of all and of a window, with and without causality; with a bias. (A mask of ones is none.)"""
    head, fields = MODELS[name]
    model = tiny_model(head, attn_implementation="flex_attention", **fields)
    for mask in (None, PADDED):
        assert max(differences(model, mask, with_gradients=False)) < MAX_DIFFERENCE


@torch.no_grad()
@pytest.mark.parametrize("name", ["BERT", "GPT-2", "BLOOM", "T5's encoder"])
def test_a_mask_of_pairs_keeps_them_apart(name):
    """As a caller may say it himself."""
    head, fields = MODELS[name]
    model, numbers = tiny_model(head, **fields), (POSITIONS == 0).cumsum(dim=1)
    alone = [model(IDS[row : row + 1, places]).last_hidden_state[0] for row, places in documents()]
    sees = (numbers[:, :, None] == numbers[:, None, :]).unsqueeze(1)
    sees = sees.tril() if head is TfmGPTModel else sees
    added = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo().min)
    for attention, mask in (("eager", sees), ("sdpa", sees.long()), ("sdpa", added), ("varlen", sees)):
        model.set_attn_implementation(attention)
        together = model(IDS, position_ids=POSITIONS, attention_mask=mask).last_hidden_state
        assert_same([together[each] for each in documents()], alone, f"{attention}, {mask.dtype}")


@pytest.mark.parametrize("head", [TfmBertModel, TfmGPTModel])
def test_a_row_may_begin_inside_a_document(head):
    """As where a stream of documents is cut into blocks; an encoder's row may be padded before it."""
    model = tiny_model(head, hidden_dropout=0.0, **{"add_pooling_layer": False} if head is TfmBertModel else {})
    positions = torch.tensor([[3, 4, 5, 0, 1, 2]])
    cases = [(0, {"position_ids": positions})]
    if head is TfmBertModel:
        padded = {"attention_mask": nn.functional.pad(torch.ones(1, 6).long(), (2, 0))}
        cases.append((2, padded | {"position_ids": nn.functional.pad(positions, (2, 0))}))
    for padding, given in cases:
        ids, changed = IDS[:1, : padding + 6], (torch.arange(padding + 6) == padding).long()
        states = [model(each, **given).last_hidden_state for each in (ids, ids + changed)]
        assert (states[0] != states[1]).any(dim=2)[0].tolist() == [False] * padding + [True] * 3 + [False] * 3


@pytest.mark.parametrize("head", [TfmBertModel, TfmGPTModel])
def test_flash_attention_without_the_bounds_is_refused(head):
    """Where padding is computed, and so for hidden states with gradients."""
    message = r"begin anew within a row: choose sdpa\. Flash attention takes it only where"
    for fields, options in (({"skip_padding": False}, {}), ({}, {"output_hidden_states": True})):
        model = tiny_model(head, **fields)
        use(FLASH, model)
        with pytest.raises(ValueError, match=message):
            model(IDS, position_ids=POSITIONS, **options)


@pytest.mark.parametrize(
    ("head", "fields", "cause"),
    [
        (TfmGPTModel, {"layer_types": ["linear_attention", "full_attention"]}, "the state of linear attention"),
        (TfmGPTModel, FALCON, "ALiBi rounded by places"),
        (tfm_zoo.TfmDebertaModel, {"conv_kernel_size": 3}, "the convolution"),
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
    with pytest.raises(ValueError, match=r"whose masks \(dropped_token_id\) would scale all its sequences"):
        model(IDS.index_fill(1, torch.tensor([3]), 4), position_ids=POSITIONS)


@torch.no_grad()
def test_a_cache_takes_no_documents_that_share_a_row():
    model = tiny_model(TfmGPTModel)
    for mask in MASKS.values():
        given = {"position_ids": POSITIONS, "attention_mask": mask}
        assert model(IDS, **given).past_key_values is None
        with pytest.raises(ValueError, match="a cache does not keep apart what is packed into a row: pass use_cache=F"):
            model(IDS, **given, use_cache=True)


def test_sources_do_not_share_a_row():
    """The decoder would read all of them; targets of one source may share a row."""
    model = tiny_model(tfm_zoo.TfmEncoderDecoderForConditionalGeneration)
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
def test_a_step_with_a_mask_of_pairs_and_a_window():
    """The cache of a layer with a window holds fewer keys than one mask for all layers covers (Gemma 3)."""
    sees = torch.ones(2, 1, 1, 12, dtype=torch.bool)
    each = {"full_attention": sees, "sliding_attention": sees[..., -3:]}
    for fields, mask in ((LAYERS, each), ({"sliding_window": 3}, each["sliding_attention"])):
        model = tiny_model(TfmGPTModel, **fields, position_embedding_type="rotary", use_cache=True)
        expected = model(IDS, use_cache=False).last_hidden_state[:, -1:]
        past = model(IDS[:, :-1]).past_key_values
        with pytest.raises(ValueError, match=r"^attention_mask covers 12 keys, and the cache holds 3 for layers with"):
            model(IDS[:, -1:], past_key_values=past, attention_mask=sees)
        assert_same(model(IDS[:, -1:], past_key_values=past, attention_mask=mask).last_hidden_state, expected)


@torch.no_grad()
def test_other_orders_of_positions_are_no_documents():
    """Padding whose positions are arbitrary, tokens in another order, and positions that are all the same."""
    decoder, encoder = tiny_model(TfmGPTModel), tiny_model(TfmBertModel)
    left = PADDED.flip(1)
    counted = (left.cumsum(dim=1) - 1).clamp(min=1).masked_fill(left.cumsum(dim=1) == 1, 0)  # as `generate` counts
    assert decoder(IDS, attention_mask=left, position_ids=counted, use_cache=True).past_key_values is not None
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    expected = encoder(IDS).last_hidden_state[:, order]
    assert_same(encoder(IDS[:, order], position_ids=order[None]).last_hidden_state, expected)
    same = encoder(IDS, position_ids=torch.zeros_like(IDS)).last_hidden_state
    assert not torch.allclose(same[0, 0], encoder(IDS[:1, :1]).last_hidden_state[0, 0], atol=1e-3)


HOLES = torch.tensor([[1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0]])
OF_REAL = HOLES.cumsum(1) - HOLES  # as trl counts, at padding too


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "rotary", "target"])
@torch.no_grad()
def test_padding_inside_a_row_begins_no_document(name):
    """Only positions of real tokens count: theirs rise, so that each row is one document, with and without a cache."""
    others = {"rotary": (TfmGPTModel, {"position_embedding_type": "rotary"}), "target": (TfmEncoderDecoderModel, {})}
    head, fields = (others | MODELS)[name]
    model, nothing = tiny_model(head, **fields), torch.tensor(0)
    side, source = ("decoder_", {"input_ids": IDS}) if name == "target" else ("", {})
    cases = [(torch.bool, OF_REAL), (torch.float, nothing + 1), (torch.long, nothing), (torch.long, OF_REAL + 1)]
    for options in [{}] if name == "BERT" else [{"use_cache": True}, {"use_cache": False}]:
        for dtype, at_padding in cases:
            padded = {"input_ids": IDS, "attention_mask": HOLES.to(dtype)}
            padded["position_ids"] = torch.where(HOLES == 1, OF_REAL, at_padding)
            padded = {f"{side}{key}": value for key, value in padded.items()}
            states = model(**source | padded, **options).last_hidden_state
            for row, real in enumerate(HOLES.bool()):
                alone = {key: ids[row : row + 1] for key, ids in source.items()}
                alone[f"{side}input_ids"] = IDS[row : row + 1, real]
                assert_same(states[row, real], model(**alone, **options).last_hidden_state[0], f"{dtype}")
