"""What each way to compute attention costs on one device, and which kernels it ran: a part of `make gpu`."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from statistics import median
from time import monotonic

import torch
from transformers import PreTrainedModel as Model
from transformers.utils import is_flash_attn_2_available

import tfm_zoo

from . import batches
from .pairs import Settings, forward, pair, train
from .timing import in_turn, ratio

MODELS = {"BERT-base": ("bert-base", {})}
MODELS["LLaMA (SmolLM-135M)"] = ("smollm-135m", {"pad_token_id": 0, "use_cache": False})
TINY = {"hidden_size": 96, "intermediate_size": 96, "num_attention_heads": 6}
NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0}  # which kernels over real tokens do not have
CLASSIFY = "AutoModelForSequenceClassification"
FLASH = "flash_attention_2"
#: `"sdpa"` of the official class computes padding; the zoo restores it around attention alone
WAYS = [("official", "sdpa"), *(("zoo", each) for each in ("sdpa", "varlen", "flex_attention"))]
WAYS += [("sped up", each) for each in ("sdpa", "varlen")]  # the official object after `tfm_zoo.speed_up`
WAYS += [(side, FLASH) for side in ("official", "zoo")] if is_flash_attn_2_available() else []
#: what the names of kernels hold that compute attention as a whole
KERNELS = re.compile("flash|fmha|efficient_attention|cudnn_attention|flex|varlen")
CALLS = ("aten::", "torch_attn::", "autograd::", "GeneratedBackward")  # names that are not a kernel's
Rows = Iterator[list[str]]
Table = tuple[list[str], list[list[str]]]  # a header, and rows
MINUTES = 7  # after which nothing new begins


def kernels_of(run: Callable[[], object]) -> str:
    """The kernels of attention that a call runs. Products and a softmax by themselves have no such name."""
    with torch.profiler.profile() as profile:
        run()
    found = {re.split(r"[<(]", event.key.removeprefix("void "))[0] for event in profile.key_averages()}
    names = sorted({name[:50] for name in found if KERNELS.search(name)})
    of_device = [name for name in names if not name.startswith(CALLS)]
    return ", ".join(of_device or names) or "written out"


def compared(official: Model, zoo: Model, make: Callable, inputs: list[dict], until: float, rounds: int) -> Rows:
    """Each way in turn. `make` makes a step of a model; none begins after `until`."""
    with torch.no_grad():
        exact = deepcopy(official).float()(**inputs[0]).logits
    cells, steps = {}, {}
    for side, attention in WAYS:
        try:
            if monotonic() > until:
                raise TimeoutError(f"{MINUTES} minutes were over")
            model = deepcopy(zoo if side == "zoo" else official)
            model.set_attn_implementation(attention)
            step = make(tfm_zoo.speed_up(model) if side == "sped up" else model)
            for batch in inputs:  # compiles what has to be compiled
                step(batch)
            ran = kernels_of(lambda step=step: step(inputs[0]))
            with torch.no_grad():
                drift = (model(**inputs[0]).logits.float() - exact).abs().max() / exact.abs().max()
            cells[side, attention], steps[side, attention] = [ran, f"{float(drift):.1e}"], step
        except Exception as error:  # each back-end has errors of its own, and the others are still worth a look
            cells[side, attention] = [f"{type(error).__name__}: {' '.join(str(error).split())[:120]}", ""]
    times = in_turn(steps, [inputs[0], *inputs * rounds])
    for way, (ran, drift) in cells.items():
        took, first = times.get(way), times.get(WAYS[0])
        cell = [f"{1000 * median(took):.2f} ms", f"{ratio(first, took):.2f}" if first else ""] if took else ["", ""]
        yield [*way, ran, *cell, drift]


def backends(device: str, is_tiny: bool = False) -> Table:
    """Texts of which half is padding, in bfloat16, each way in turn; a step is forward, backward and SGD."""
    until, rows = monotonic() + 60 * MINUTES, []
    settings = Settings(device, torch.bfloat16, layers=2 if is_tiny else None)
    rounds, count, lengths = (1, 2, batches.SENTENCES) if is_tiny else (3, 5, batches.REVIEWS)
    for size in (4,) if is_tiny else (16, 128):
        found = batches.classified(count, partial(batches.ragged, size=size, lengths=lengths))
        inputs = [{name: each.to(device) for name, each in batch.items()} for batch in found]
        for title, (name, fields) in MODELS.items():
            for what, make in (("inference", forward), ("training step", train)):
                fields = fields | NO_DROPOUT | (TINY if is_tiny else {})
                models = pair(name, CLASSIFY, settings, make is train, **fields)
                for row in compared(*models, make, inputs, until, rounds):
                    rows.append([title, str(size), what, *row])
                    print(*rows[-1], sep=", ", flush=True)
    head = ["model", "texts in a batch", "what", "class", "attention", "ran", "time", "times as fast as the first"]
    return [*head, "drift"], rows
