"""Eight bits with roundings that were found on texts: nearer than the bound, the same once saved and loaded; and a text
has the same numbers, bit for bit, whatever stands beside it."""

import copy
import json
import random
from functools import partial

import pandas
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel

import tfm_zoo
from tfm_zoo import TfmBertForSequenceClassification, TfmBertModel, pack_weights
from tfm_zoo import TfmEncoderDecoderForConditionalGeneration as Translator
from tfm_zoo.hub.pushing import card_of_folder
from tfm_zoo.inference.packing import attention
from tfm_zoo.inference.packing.calibration import Choice, kept_to
from tfm_zoo.inference.packing.products import CalibratedProduct, ManyRowsInt8Product, has_bfloat16, levels_of
from tfm_zoo.inference.packing.roundings import TOP, Rounding
from tfm_zoo.inference.packing.weights import CalibratedWeight

from ..tiny import ragged_batch, tiny_decoder, tiny_model
from ..words import SENTENCES, make_tokenizer

pytestmark = pytest.mark.skipif(not levels_of(ManyRowsInt8Product), reason="oneDNN multiplies no integers here")

ENCODER, IDS = partial(tiny_model, TfmBertModel), {"input_ids": torch.arange(1, 7)[None]}
COUNT, LONGEST = 128, 24
GATED = {"norm_position": "pre", "mlp_type": "gated", "hidden_act": "silu", "position_embedding_type": "rotary"}


def calibrated(model, least_cosine: float = 0.0, **options):
    inputs = {name: each for name, each in ragged_batch(type(model)).items() if name != "labels"}
    return pack_weights(model, "int8", calibrate=[inputs], least_cosine=least_cosine, **options)


def vectors(model, batch: dict) -> torch.Tensor:
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model.base_model
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in batch}
    with torch.no_grad():
        states, mask = encoder(**inputs).last_hidden_state, batch["attention_mask"][..., None]
    return (states * mask).sum(1) / mask.sum(1)


def cosine(model, other, batch: dict) -> float:
    return F.cosine_similarity(vectors(model, batch), vectors(other, batch), dim=-1).min().item()


@pytest.mark.parametrize("size", [1, 48])
def test_a_product(size):
    """Is that of what its bytes stand for, by one scale or one of each channel, and writes the bytes of a GELU."""
    torch.manual_seed(0)
    inputs, weight, bias = torch.randn(7, 48) * 2 + 1, torch.randn(32, 48), torch.randn(32)
    low, high = inputs.amin(0), inputs.amax(0)
    rounding = Rounding.of(low, high) if size == 48 else Rounding.of(low.amin()[None], high.amax()[None])
    whole = CalibratedWeight.of(weight, rounding)
    product = CalibratedProduct(whole, bias)
    wanted = rounding.real(inputs) @ whole.real().t() + bias
    error = 1e-5 if product.top == TOP else 0.05
    assert (product(inputs) - wanted).norm() < error * wanted.norm()
    assert (product(inputs) - inputs @ weight.t() - bias).norm() < 0.05 * wanted.norm()
    assert copy.deepcopy(product)(inputs).equal(product(inputs))
    product.activation, product.out = ("gelu", "none"), Rounding.of(torch.tensor([-0.2]), wanted.amax()[None])
    levels = product(inputs, torch.uint8)
    scales, zeros = product.out.within(product.top)
    assert levels.dtype == torch.uint8 and levels.max() <= product.top
    assert ((levels - zeros) * scales - F.gelu(wanted)).abs().max() <= 0.6 * scales + error * wanted.abs().max()


NEAR = [
    (TfmBertModel, {}),
    (tfm_zoo.TfmBertForMaskedLM, GATED),
    (Translator, {"mlp_type": "gated"}),
    (tfm_zoo.TfmDebertaModel, {"share_att_key": False}),
]


@pytest.mark.parametrize("head, fields", NEAR)
def test_near_and_saved(head, fields, tmp_path, caplog):
    """The vectors are near those of the whole model, and the same bit for bit once the model is loaded again."""
    model, batch = tiny_model(head, **fields), ragged_batch(head)
    twin = calibrated(copy.deepcopy(model))
    assert any(isinstance(getattr(each, "product", None), CalibratedProduct) for each in twin.modules())
    if head is TfmBertModel:  # bytes go from product to product, through a feed-forward whose GELU the first computes
        assert all(layer.mlp.up_proj.dtype == torch.uint8 for layer in twin.layers)
        assert twin.state_dict()["layers.0.mlp.down_proj.weight"].dtype == torch.int8
    assert 0.97 < cosine(model, twin, batch) < 1 and "Calibrated" in caplog.text and "in the mean" in caplog.text
    twin.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert config["dtype"] == "int8" and {*config["inputs"].values()} <= {"tensor", "channels"}
    assert "by scales that were found on texts" in str(card_of_folder(tmp_path, "user/model"))
    loaded, info = head.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert vectors(loaded, batch).equal(vectors(twin, batch))
    assert all(map(torch.equal, loaded.state_dict().values(), twin.state_dict().values()))
    if head is Translator:
        assert "layers read no text, and stay by rows" in caplog.text
        assert not [name for name in config["inputs"] if "decoder.layers" in name]


def test_the_bound_is_kept(tmp_path, caplog):
    """By some layers that fall back, or all, to bfloat16 if need be; they are saved, and loaded so; the log says it."""
    model, batch = tiny_model(TfmBertModel), ragged_batch()
    plain, exact = (calibrated(copy.deepcopy(model), bound) for bound in (0.0, 1.0))
    assert {*exact.config.quantization_config.inputs.values()} == {"bfloat16"}
    assert "No layer fell back" in caplog.text and "below least_cosine=1.0" in caplog.text
    least, most = (cosine(model, each, batch) for each in (plain, exact))
    assert 0.999 < least < most < 1
    caplog.clear()
    twin = calibrated(copy.deepcopy(model), bound := (least + most) / 2)
    assert cosine(model, twin, batch) >= bound - 1e-6
    kinds = {*twin.config.quantization_config.inputs.values()}
    assert "Fell back: " in caplog.text and "bfloat16" in kinds and kinds & {"tensor", "channels"}
    exact.save_pretrained(tmp_path)
    assert load_file(tmp_path / "model.safetensors")["layers.0.mlp.up_proj.weight"].dtype == torch.bfloat16
    assert vectors(AutoModel.from_pretrained(tmp_path), batch).equal(vectors(exact, batch))


def test_as_few_as_needed_fall_back():
    """What loses most first, and no more than keep the bound."""
    ladders = [[Choice((str(i),), "tensor", float(i)), Choice((str(i),), "bfloat16", 0.0)] for i in range(1, 8)]

    def least(choices: list[Choice]) -> tuple[float, float]:
        return 1 - sum(choice.loss for choice in choices) / 100, 1.0

    for bound, wanted in ((0.5, 0), (0.78, 1), (0.85, 2), (0.98, 6), (1.1, 7)):
        choices, _ = kept_to(ladders, least, bound)
        assert [c.layers[0] for c in choices if c.kind == "bfloat16"] == [str(i) for i in range(8 - wanted, 8)]


def test_every_fourth_text_is_held_out(tmp_path, caplog):
    """Of 16: it gives no scale, and the log tells its cosine. The tokenizer is given, or that of the model's folder."""
    model, tokenizer = tiny_model(TfmBertModel), make_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    texts = [f"{one} {other}" for one in SENTENCES for other in SENTENCES]
    given = pack_weights(model, "int8", calibrate=texts * 2, tokenizer=tokenizer, least_cosine=0)
    del texts[3::4]
    found = pack_weights(TfmBertModel.from_pretrained(tmp_path), "int8", calibrate=texts, least_cosine=0)
    assert vectors(given, ragged_batch()).equal(vectors(found, ragged_batch()))
    held_out, few = (each for each in caplog.messages if "on 12 texts" in each)
    assert "On 4 held-out texts" in held_out and "On them" in few and "others may lose more" in few


REFUSED = [
    (ENCODER, {"dtype": "bfloat16", "calibrate": [{}]}, "calibrate is for dtype='int8', not for 'bfloat16'"),
    (ENCODER, {"calibrate": "a text"}, "not the str given"),
    (ENCODER, {"calibrate": []}, "calibrate is empty"),
    (ENCODER, {"calibrate": [""] * 20, "tokenizer": str}, "calibrate holds empty texts alone"),
    (ENCODER, {"calibrate": pandas.DataFrame({"text": SENTENCES})}, "not the DataFrame given"),
    (ENCODER, {"calibrate": [{"text": "a film"}]}, "it holds a dict of text without tensors"),
    (ENCODER, {"calibrate": [1, 2]}, "it holds the int '1'"),
    (ENCODER, {"calibrate": [{}], "least_cosine": 2}, "least_cosine=2 should be a number from 0 to 1"),
    (ENCODER, {"calibrate": SENTENCES}, "Texts to calibrate with need"),
    (tiny_decoder, {"dtype": "int8", "calibrate": [IDS]}, "TfmGPTForCausalLM writes text"),
]


@pytest.mark.parametrize("make, options, reason", REFUSED)
def test_refused(make, options, reason):
    model = make()
    with pytest.raises(ValueError, match=reason):
        pack_weights(model, **options)
    assert isinstance(model.base_model.layers[0].mlp.up_proj, torch.nn.Linear)


@pytest.mark.skipif(not has_bfloat16(), reason="attention is not computed in bfloat16 here")
def test_attention_is_that_of_the_implementation():
    """Together and one by one, in batches with padding and without."""
    model, batch, ways = pack_weights(tiny_model(TfmBertModel), "bfloat16"), ragged_batch(), []
    for is_together in (True, False, None):
        for module in model.modules():
            if hasattr(module, "kernel"):
                module.choose_packed_kernel = None if is_together is None else attention.CpuAttention()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention, "is_faster_together", lambda *_, way=is_together: way)
            ways.append(vectors(model, batch))
    assert (ways[0] - ways[2]).norm() < 0.02 * ways[2].norm() and (ways[1] - ways[2]).norm() < 0.02 * ways[2].norm()


def padded(rows: list[list[int]]) -> dict[str, torch.Tensor]:
    ids = pad_sequence([*map(torch.tensor, rows)], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


@torch.inference_mode()
def computed(model, rows: list[list[int]], size: int) -> list[list[torch.Tensor]]:
    """What a model gives for each text, of its own tokens alone, in batches of this size."""
    found = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        outputs = [each for each in model(**padded(part)).to_tuple() if isinstance(each, torch.Tensor)]
        for index, row in enumerate(part):
            found.append([each[index, : len(row)] if each.dim() == 3 else each[index] for each in outputs])
    return found


@pytest.mark.parametrize("head, fields", [(TfmBertModel, {}), (TfmBertForSequenceClassification, GATED)])
def test_same_vector(head, fields, request):
    """Alone, in batches of 2 to 128, in another order, on one thread and on two."""
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    numbers, model = random.Random(0), tiny_model(head, **fields)
    rows = [[numbers.randrange(1, 61) for _ in range(numbers.randint(1, LONGEST))] for _ in range(COUNT)]
    pack_weights(model, "int8", calibrate=[padded(rows[:32])], least_cosine=0)
    wanted = computed(model, rows, 1)
    places = numbers.sample(range(COUNT), COUNT)
    for count, size in ((1, 2), (1, 17), (2, 5), (2, 32), (2, COUNT)):
        torch.set_num_threads(count)
        for place, outputs in zip(places, computed(model, [rows[place] for place in places], size), strict=True):
            assert all(map(torch.equal, outputs, wanted[place])), (count, size, rows[place])
