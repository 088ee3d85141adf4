"""What each way to compute attention costs on one device, and which kernels it ran: a part of `make gpu`."""

import re
from collections.abc import Callable
from copy import deepcopy
from math import inf
from statistics import median
from time import monotonic

import torch

from . import batches
from .pairs import Settings, forward, pair, train
from .timing import in_turn

MODELS = {"BERT-base": ("bert-base", {}), "LLaMA (SmolLM-135M)": ("smollm-135m", {"pad_token_id": 0})}
TINY = {"hidden_size": 96, "intermediate_size": 96, "num_attention_heads": 6}
NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0}  # which kernels over real tokens do not have
CLASSIFY = "AutoModelForSequenceClassification"
FLASH = "flash_attention_2"
#: `"sdpa"` of the official class computes padding; the zoo restores it around attention alone
WAYS = [("official", "sdpa"), ("official", FLASH)]
WAYS += [("zoo", each) for each in ("sdpa", "varlen", "flex_attention", FLASH)]
#: what the names of kernels hold that compute attention as a whole
KERNELS = re.compile("flash|fmha|efficient_attention|cudnn_attention|flex|varlen")
MINUTES = 7  # after which nothing new begins


def kernels_of(run: Callable[[], object]) -> str:
    """The kernels of attention that a call runs. Products and a softmax by themselves have no such name."""
    with torch.profiler.profile() as profile:
        run()
    names = {re.split(r"[<(]", event.key.removeprefix("void "))[0] for event in profile.key_averages()}
    return ", ".join(sorted(name for name in names if KERNELS.search(name))) or "written out"


def sentences(rounds: int) -> list[dict]:
    """Small batches of random ids, for a try."""
    drawn = (batches.drawn(4, batches.SENTENCES, 1000, 30000, seed) for seed in range(rounds))
    return [batches.padded(rows) for rows in drawn]


def backends(device: str, is_tiny: bool = False) -> tuple[list[str], list[list[str]]]:
    """Texts of which half is padding, in bfloat16, each way in turn; a step is forward, backward and SGD."""
    until, rows = monotonic() + 60 * MINUTES, []
    settings = Settings(device, torch.bfloat16, layers=2 if is_tiny else None)
    found = batches.classified(2 if is_tiny else 5, sentences if is_tiny else batches.ragged)
    inputs = [{name: each.to(device) for name, each in batch.items()} for batch in found]
    for title, (name, fields) in MODELS.items():
        for what, make in (("inference", forward), ("training step", train)):
            models = pair(name, CLASSIFY, settings, make is train, **fields | NO_DROPOUT | (TINY if is_tiny else {}))
            models = dict(zip(("official", "zoo"), models, strict=True))
            with torch.no_grad():
                exact = deepcopy(models["official"]).float()(**inputs[0]).logits
            cells, runs = {}, {}
            for side, attention in WAYS:
                step = make(models[side])

                def run(model=models[side], attention=attention, step=step) -> None:
                    model.set_attn_implementation(attention)
                    for batch in inputs:
                        step(batch)

                try:
                    if monotonic() > until:
                        raise TimeoutError(f"{MINUTES} minutes were over")
                    run()  # compiles what has to be compiled
                    ran = kernels_of(lambda step=step: step(inputs[0]))
                    with torch.no_grad():
                        drift = (models[side](**inputs[0]).logits.float() - exact).abs().max() / exact.abs().max()
                    cells[side, attention], runs[side, attention] = [ran, f"{float(drift):.1e}"], run
                except Exception as error:  # each back-end has errors of its own, and the others are still worth a look
                    cells[side, attention] = [f"{type(error).__name__}: {' '.join(str(error).split())[:120]}", ""]
            times = {way: median(each) / len(inputs) for way, each in in_turn(runs, 1 if is_tiny else 3).items()}
            for way, (ran, drift) in cells.items():
                timed = ["", ""]
                if way in times:
                    timed = [f"{1000 * times[way]:.2f} ms", f"{times.get(WAYS[0], inf) / times[way]:.2f}"]
                rows.append([title, what, *way, ran, *timed, drift])
    return ["model", "what", "class", "attention", "ran", "time", "times as fast as the first", "drift"], rows
