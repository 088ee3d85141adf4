"""Attention by kernels that take the lengths of sequences gives what padded batches give: torch's own (`"varlen"`),
where a machine has it, and flash attention. They need a GPU, and are written out here; `make gpu` runs torch's."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses import FakeTensorMode
from transformers import AutoModel
from transformers.utils import import_utils

import tfm_zoo
from benchmarks import gpu
from tfm_zoo import TfmBertForMaskedLM, TfmGPTForCausalLM, speed_up, to_official
from tfm_zoo.models import kernels
from tfm_zoo.models.kernels import takes_bounds

from ..precision import assert_same, in_single
from ..tiny import NO_DROPOUT, ragged_batch, tiny_model
from ..varlen import FLASH, device, use
from .test_unpadding import SIDES, T5

pytestmark = pytest.mark.usefixtures("double")

WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}
GROUPED = {"num_key_value_heads": 2, "position_embedding_type": "rotary"}
#: what differs from a CUDA device of capability 8.0, bfloat16, and a model without dropout -> does the kernel run
CHOICE = {
    **{"bfloat16": ({}, {}, True), "float32": ({"dtype": torch.float32}, {}, False)},
    **{"an older device": ({"capability": (7, 5)}, {}, False), "no such device": ({"is_cuda": False}, {}, False)},
    "an older torch": ({"torch": "2.10"}, {}, False),
    "a torch without flash attention": ({"flash": False}, {}, False),
    "dropout, inference": ({}, {"attention_dropout": 0.1}, True),
    **{"dropout, training": ({"training": True}, {"attention_dropout": 0.1}, False), "windows": ({}, WINDOWS, True)},
    **{"grouped heads": ({}, GROUPED, True), "a bias": ({}, T5, False)},
    "ALiBi": ({}, {"position_embedding_type": "alibi"}, False),
    "a soft cap": ({}, {"attn_logit_softcapping": 20.0}, False),
    **{"heads of 4": ({}, {"num_attention_heads": 8}, False), "heads of 256": ({}, {"head_dim": 256}, True)},
    **{"heads of 264": ({}, {"head_dim": 264}, False), "sdpa": ({"attention": "sdpa"}, {}, False)},
}


@pytest.mark.parametrize("row", CHOICE)
def test_choice(row, monkeypatch):
    machine, fields, runs = CHOICE[row]
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda *_: machine.get("capability", (8, 0)))
    monkeypatch.setattr(kernels, "has_flash", lambda: machine.get("flash", True))
    if "torch" in machine:
        monkeypatch.setattr(kernels, "varlen_attn", None)
    model = tiny_model(TfmGPTForCausalLM, **NO_DROPOUT | fields).train("training" in machine).model
    model.set_attn_implementation(machine.get("attention", "varlen"))
    dtype = machine.get("dtype", torch.bfloat16)
    states = SimpleNamespace(is_cuda=machine.get("is_cuda", True), device=torch.device("cpu"), dtype=dtype)
    assert takes_bounds(model, states) == runs


def test_an_older_torch_loads_the_code(monkeypatch):
    """Before 2.10 there is no such kernel, and before 2.11 it takes no scale."""
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", None)
    monkeypatch.setattr("transformers.utils.import_utils.get_torch_version", lambda: "2.9.0")
    import_utils.is_torch_greater_or_equal.cache_clear()
    assert runpy.run_module(kernels.__name__)["varlen_attn"] is None
    import_utils.is_torch_greater_or_equal.cache_clear()


@pytest.mark.skipif(kernels.varlen_attn is None, reason="torch has the kernel since 2.11")
def test_torch_takes_what_it_is_given():
    """On tensors without values: the arguments are those of torch's own function."""
    module = SimpleNamespace(sliding_window=3, is_causal=True, num_key_value_groups=2)
    with FakeTensorMode():
        query, key = (torch.empty(1, heads, 20, 8, dtype=torch.bfloat16) for heads in (4, 2))
        bounds = torch.empty(5, dtype=torch.int32)
        given = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": 9, "max_length_k": 9}
        output, weights = kernels.varlen_attention_forward(module, query, key, key, None, scaling=0.5, **given)
    assert output.shape == (1, 20, 4, 8) and weights is None


MODELS = {
    "BERT": (TfmBertForMaskedLM, {}),
    "ModernBERT": (TfmBertForMaskedLM, WINDOWS | {"position_embedding_type": "rotary"}),
    "linear layers": (TfmBertForMaskedLM, {"layer_types": ["linear_attention", "full_attention"]}),
    "GPT-2": (TfmGPTForCausalLM, {}),
    "Mistral": (TfmGPTForCausalLM, WINDOWS | GROUPED),
    "Marian": (SIDES, {}),
}


def batches(head: type) -> Iterator[dict[str, torch.Tensor]]:
    """Padded at either side; of an encoder with a decoder, with one side that is ragged, too."""
    for side in ("right", "left"):
        batch = ragged_batch(head, side=side, labels=True)
        batch.pop("decoder_input_ids", None)  # made of labels
        if head is TfmGPTForCausalLM and side == "left":  # padding would predict the first token
            batch["labels"].scatter_(1, batch["attention_mask"].argmax(dim=1, keepdim=True), -100)
        yield batch
    if head is SIDES:
        yield batch | {"attention_mask": torch.ones_like(batch["attention_mask"])}
        yield batch | {"labels": batch["labels"].clamp(min=1)}


def results(model, batch: dict, attention: str) -> tuple:
    """Loss and gradients of training; of inference, logits where the inputs are real. (A decoder's are read at padding,
    too, which is then computed: its loss in their place.)"""
    use(attention, model)
    model.zero_grad()
    loss = model.train()(**batch).loss
    loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    is_decoder = isinstance(model, TfmGPTForCausalLM)
    with torch.no_grad():
        outputs = model.eval()(**batch, return_logits=not is_decoder, use_cache=False)
    return loss.detach(), gradients, outputs.loss if is_decoder else outputs.logits[batch["labels"] != -100]


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_padded_batches(name):
    """A kernel runs in each layer, over all sequences; values and gradients are those of sdpa with padding."""
    head, fields = MODELS[name]
    model, reference = (tiny_model(head, skip_padding=skip, **NO_DROPOUT | fields) for skip in (True, False))
    layers = 1 if name == "linear layers" else 2  # that compare positions, at the least
    for number, batch in enumerate(batches(head)):
        wanted = results(reference, batch, "sdpa")
        for attention in ("varlen", FLASH):
            with device() as kernel:
                assert_same(results(model, batch, attention), wanted, f"{attention}, {number}")
            assert len(kernel.calls) >= 2 * layers, attention


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        (TfmBertForMaskedLM, {"hidden_dropout": 0.0, "attention_dropout": 0.3}),
        (SIDES, NO_DROPOUT | T5),
        (tfm_zoo.TfmDebertaModel, NO_DROPOUT),
    ],
)
def test_elsewhere_it_is_sdpa(head, fields):
    """Under one seed, to a bit: the same function runs, with the same masks."""
    batch, outputs = ragged_batch(head, labels=True), []
    model = tiny_model(head, **fields).train()
    with device() as kernel:
        for attention in ("sdpa", "varlen"):
            model.set_attn_implementation(attention)
            torch.manual_seed(0)
            outputs.append(model(**batch)[0])
    assert not kernel.calls and torch.equal(*outputs)


@torch.no_grad()
def test_an_official_model_that_was_sped_up():
    """`speed_up` computes sdpa by this kernel; the model comes from `to_official`."""
    official, batch = to_official(tiny_model(TfmBertForMaskedLM)), ragged_batch(TfmBertForMaskedLM)
    wanted, real = official(**batch).logits, batch["attention_mask"] == 1
    with device() as kernel:
        logits = speed_up(official)(**batch).logits
    assert_same(logits[real], wanted[real])
    assert len(kernel.calls) == official.config.num_hidden_layers


@torch.no_grad()
@pytest.mark.parametrize(("head", "attention"), [(TfmGPTForCausalLM, "varlen"), (SIDES, "varlen"), (SIDES, FLASH)])
def test_generation(head, attention):
    """A cache is read by sdpa, or by flash attention; sources are encoded without padding."""
    model, batch = tiny_model(head, **GROUPED, use_cache=True, eos_token_id=None), ragged_batch(head, side="left")
    batch.pop("decoder_input_ids", None)
    given = batch | {"max_new_tokens": 5, "num_beams": 2}
    expected = model.generate(**given)
    use(attention, model)
    with device() as kernel:
        assert torch.equal(model.generate(**given), expected)
    assert bool(kernel.calls) == (head is SIDES)


@torch.no_grad()
def test_a_source_without_real_tokens_shows_no_padding_of_others():
    """Nor does a graph, whose number of real tokens nobody knows."""
    model, batch = tiny_model(SIDES, use_cache=False), ragged_batch(SIDES)
    batch["encoder_outputs"] = model.get_encoder()(batch.pop("input_ids"), batch["attention_mask"])
    wanted, batch["attention_mask"] = model(**batch).logits, batch["attention_mask"].clone()
    batch["attention_mask"][0] = 0
    use(FLASH, model)
    with device():
        assert_same(model(**batch).logits[1:], wanted[1:])
        with pytest.raises(ValueError, match="cannot be a graph"):
            torch.compile(model, backend="eager")(**batch)


@in_single()
def test_autocast_gives_the_kernel_one_type():
    """Rotary positions turn queries and keys into float32, and not values."""
    model, batch = tiny_model(tfm_zoo.TfmBertModel, position_embedding_type="rotary"), ragged_batch()
    expected = model(**batch).pooler_output
    model.set_attn_implementation("varlen")
    with device(torch.float32) as kernel, torch.autocast("cpu", torch.bfloat16):
        output = model(**batch).pooler_output
    assert {call.dtype for call in kernel.calls} == {torch.bfloat16}
    torch.testing.assert_close(output.float(), expected, atol=0.1, rtol=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_make_gpu():
    """Each quantity in bfloat16 is as near to float32 as the official class's is, and the kernel ran."""
    with device() as kernel:
        head, rows = gpu.correctness("cpu", ["BertForMaskedLM", "MarianMTModel"], [torch.bfloat16])
    assert {call.dtype for call in kernel.calls} == {torch.bfloat16}
    assert {row[head.index("what")] for row in rows} >= {"logits", "loss", "gradients"}
    assert {row[head.index("within")] for row in rows} == {"yes"}
    with pytest.raises(SystemExit, match="make gpu needs a CUDA device, and torch finds none here"):
        gpu.main("", Path())


def test_it_is_asked_for_and_never_a_default(tmp_path):
    tiny_model(tfm_zoo.TfmBertModel).save_pretrained(tmp_path)
    assert AutoModel.from_pretrained(tmp_path).config._attn_implementation == "sdpa"
    assert AutoModel.from_pretrained(tmp_path, attn_implementation="varlen").config._attn_implementation == "varlen"
