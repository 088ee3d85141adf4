"""What each way to compute attention costs on one device, and which kernels it ran: a part of `make gpu`."""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from statistics import median
from time import monotonic

import torch
from transformers import PreTrainedModel

from . import batches
from .pairs import Settings, Step, forward, pair, train
from .timing import seconds

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


@dataclass
class Way:
    """A model with one implementation of attention.

    Args:
        kernels: those that one call ran, by name.
        drift: of its logits from those of the official class in float32, as a share of the largest.
        failure: why it does not run here.
    """

    side: str
    attention: str
    model: PreTrainedModel
    step: Step
    kernels: str = ""
    drift: str = ""
    failure: str = ""
    times: list[float] = field(default_factory=list)

    def prepare(self, inputs: list[dict], exact: torch.Tensor) -> None:
        """Compiles what has to be compiled, and notes which kernels run, and how near the logits are."""
        try:
            self.model.set_attn_implementation(self.attention)
            for batch in inputs:
                self.step(batch)
            self.kernels = kernels_of(lambda: self.step(inputs[0]))
            with torch.no_grad():
                logits = self.model(**inputs[0]).logits.float()
            self.drift = f"{float((logits - exact).abs().max() / exact.abs().max()):.1e}"
        except Exception as error:  # each back-end has errors of its own, and the others are still worth a look
            self.failure = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"

    def time(self, batch: dict) -> None:
        if not self.failure:
            self.model.set_attn_implementation(self.attention)
            self.times.append(seconds(self.step, batch))


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
            ways = [Way(side, each, models[side], make(models[side])) for side, each in WAYS]
            for way in ways:
                if monotonic() > until:
                    way.failure = f"not run: {MINUTES} minutes were over"
                else:
                    way.prepare(inputs, exact)
            for batch in inputs:
                for way in ways:
                    way.time(batch)
            base = median(ways[0].times or [0.0])
            for way in ways:
                cells = [way.failure, "", "", ""]
                if way.times:
                    own = median(way.times)
                    cells = [way.kernels, f"{1000 * own:.2f} ms", f"{base / own:.2f}", way.drift]
                rows.append([title, what, way.side, way.attention, *cells])
    return ["model", "what", "class", "attention", "ran", "time", "times as fast as the first", "drift"], rows
