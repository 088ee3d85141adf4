"""`make gpu`, or `python -m benchmarks gpu --part PART`: what only a CUDA device can show, into a dated file.

It needs torch, transformers and the checkout. Each part is a process of its own, of at most eight minutes.
"""

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import transformers
import typer
from transformers.utils import is_flash_attn_2_available

import tfm_zoo
from tests.equivalence.comparison import labels_for, ragged_batch
from tests.official_models import BY_NAME, OfficialClass, build_tiny
from tests.padding.test_packed_documents import IDS, MODELS, POSITIONS, documents
from tests.tiny import tiny_model
from tfm_zoo.models.batch import CACHE

from . import batches
from .attention import Table, backends
from .pairs import Settings, train
from .speed import MEMORY, results
from .timing import seconds, table

MINUTES = 8  # of a part
LANGUAGE = ("MaskedLM", "CausalLM", "LMHeadModel", "ConditionalGeneration", "MTModel")
LENGTHS = [33, 12, 1, 20]
SHARE = 1.5  # of the official class's error in the same type


def batch_of(official_class: OfficialClass, model: torch.nn.Module, is_full: bool, device: str) -> dict:
    batch = ragged_batch(official_class, model, "right", [max(LENGTHS)] * len(LENGTHS) if is_full else LENGTHS)
    batch |= labels_for(official_class, model, batch, everywhere=False)
    return {name: each.to(device) if isinstance(each, torch.Tensor) else each for name, each in batch.items()}


def results_of(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, list[torch.Tensor]]:
    """What a model computes: logits at labels, loss and gradients, and the logits of a step with a cache."""
    real = batch["labels"] != -100
    model.zero_grad()
    loss = model.train()(**batch).loss
    loss.backward()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    is_zoo = type(model).__module__.startswith("tfm_zoo")
    with torch.no_grad():
        logits = model.eval()(**batch, **({"return_logits": True} if is_zoo else {})).logits[real]
        results = {"logits": [logits], "loss": [loss], "gradients": gradients}
        ids = batch["input_ids"][:1]
        writes = not model.config.is_encoder_decoder and "MaskedLM" not in type(model).__name__
        first = model(input_ids=ids[:, :-4], use_cache=True) if writes else {}
        if CACHE in first:  # (OpenAI's first GPT has none)
            steps = [first.logits]
            for place in range(ids.shape[1] - 4, ids.shape[1]):
                given = {"input_ids": ids[:, place : place + 1], CACHE: first[CACHE], "use_cache": True}
                steps.append(model(**given).logits)
            results["steps"] = steps
    return {name: [each.detach().double() for each in some] for name, some in results.items()}


def error(ours: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """The norm of the difference, as a share of that of the exact result."""
    norm = sum(each.square().sum() for each in exact).sqrt()
    return float(sum((a - b).square().sum() for a, b in zip(ours, exact, strict=True)).sqrt() / norm)


def correctness(
    device: str,
    names: Iterable[str] | None = None,
    dtypes: Iterable[torch.dtype] = (torch.bfloat16, torch.float16),
) -> Table:
    """No further off than the official class in the same type, times 1.5; each beside its own results in float32."""
    rows, wrong = [], []
    for name in names or [name for name in BY_NAME if name.endswith(LANGUAGE)]:
        official = build_tiny(BY_NAME[name]).to(device)
        zoo = tfm_zoo.from_official(official).to(device)
        if getattr(zoo.config, "num_local_experts", None):  # rounding may choose another expert, in each class another
            continue
        has_cap = zoo.config.attn_logit_softcapping is not None
        for kind in ("ragged", "full"):
            batch = batch_of(BY_NAME[name], official, kind == "full", device)
            exact = [results_of(model, batch) for model in (official, zoo)]
            for dtype in dtypes:
                low = [deepcopy(model).to(dtype) for model in (official, zoo)]
                low[1].set_attn_implementation("eager" if has_cap else "varlen")
                theirs, ours = (results_of(model, batch) for model in low)
                for what in theirs:
                    floor = torch.finfo(dtype).eps
                    errors = [error(each[what], one[what]) for each, one in zip((theirs, ours), exact, strict=True)]
                    is_right = errors[1] <= SHARE * max(errors[0], floor)
                    case = [name, str(dtype).removeprefix("torch."), kind, what]
                    rows.append([*case, *(f"{each:.1e}" for each in errors), "yes" if is_right else "NO"])
                    wrong += [] if is_right else [case]
    print(f"{len(rows) - len(wrong)} of {len(rows)} within {SHARE} times the official class's error")
    return ["class", "type", "batch", "what", "official", "zoo", "within"], rows


@torch.no_grad()
def packing(device: str) -> Table:
    """Other tokens in one document leave the others of its row as they are, to a bit."""
    rows = []
    for name, (head, fields) in MODELS.items():
        model = tiny_model(head, **fields).to(device, torch.bfloat16)
        model.set_attn_implementation("varlen")
        for mask in (None, torch.ones_like(IDS).to(device)):
            moved = []
            for changed in documents():
                ids = IDS.clone()
                ids[changed[0], changed[1]] = 60 - ids[changed[0], changed[1]] % 50
                given = {"position_ids": POSITIONS.to(device), "attention_mask": mask}
                before, after = (model(each.to(device), **given).last_hidden_state for each in (IDS, ids))
                others = [each for each in documents() if each != changed]
                moved += [not torch.equal(before[row, places], after[row, places]) for row, places in others]
                assert not torch.equal(before[changed], after[changed])
            rows.append([name, "no mask" if mask is None else "ones", "LEAKS" if any(moved) else "apart"])
    return ["model", "mask", "documents"], rows


SPEED = ("MiniLM, training step at 256", "BERT, inference", "BERT, inference, no padding", "BERT, training step")
SPEED += ("BERT, MLM step", "modernbert-base, inference, ragged", "GPT-2, training step, full")
SPEED += ("GPT-2, decoding, batch 8", "Marian, opus-mt, training step", "Marian, opus-mt, beam search")


def timings(device: str, names: Iterable[str], of_memory: bool = False) -> Table:
    """The cases of `speed.py` under each implementation of attention."""
    rows = []
    for attention in ("sdpa", "varlen", *(("flash_attention_2",) if is_flash_attn_2_available() else ())):
        settings = Settings(device, torch.bfloat16, attention)
        title = f"official {settings.official_attention}, zoo {attention}"
        for name, *cells, _ in results(settings, names, of_memory):
            rows.append([name, title, *cells])
            print(*rows[-1], sep=", ", flush=True)
    return ["benchmark", "attention", "official", "zoo", "ratio"], rows


def ragged_batches(device: str, count: int, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    """Batches of other lengths each, whose labels are classes, for the vocabulary of a tiny model."""
    make = partial(batches.ragged, size=8, longest=63, lengths=batches.SENTENCES, seed=seed)
    return [{name: (each % 61).to(device) for name, each in one.items()} for one in batches.classified(count, make)]


def small_encoder(device: str, dtype: torch.dtype) -> torch.nn.Module:
    fields = {"attention_dropout": 0.0, "max_position_embeddings": 64, "hidden_size": 256, "intermediate_size": 512}
    model = tiny_model(tfm_zoo.TfmBertForSequenceClassification, **fields).to(device, dtype)
    model.set_attn_implementation("varlen")
    return model.train()


def waits(device: str) -> Table:
    """How often a training batch and a decoding step wait for the device, as torch's debug mode sees it."""

    def counted(run: Callable[[], object]) -> int:
        run()  # what is made once
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            run()
        torch.cuda.set_sync_debug_mode("default")
        return sum("synchronizing" in str(each.message) for each in seen)

    model, [batch] = small_encoder(device, torch.bfloat16), ragged_batches(device, 1)
    writer = tiny_model(tfm_zoo.TfmGPTForCausalLM, use_cache=True).to(device, torch.bfloat16).eval()
    with torch.no_grad():
        past = writer(IDS.to(device), use_cache=True)[CACHE]
        step = counted(lambda: writer(IDS[:, :1].to(device), **{CACHE: past}, use_cache=True))
    trained = counted(lambda: model(**batch).loss.backward())
    return ["what", "waits"], [["a training batch of BERT", str(trained)], ["a decoding step of GPT-2", str(step)]]


def compiled(device: str) -> Table:
    """Graphs made by ragged batches of training, and seconds a step beside the same model that is not compiled. Each
    block is compiled by itself, so that padding is dropped before them."""
    from torch._dynamo.utils import counters

    counters.clear()
    plain, model = (small_encoder(device, torch.bfloat16) for _ in range(2))
    for layer in model.base_model.layers:
        layer.compile(dynamic=True)
    steps, graphs = [train(each) for each in (plain, model)], []
    for batch in ragged_batches(device, 12):
        for step in steps:
            step(batch)
        graphs.append(counters["stats"]["unique_graphs"])
    last = ragged_batches(device, 20, seed=50)
    times = [sum(seconds(step, batch) for batch in last) / len(last) for step in steps]
    row = [", ".join(map(str, graphs)), *(f"{1000 * each:.2f} ms" for each in times)]
    return ["graphs after each of 12 batches", "plain", "compiled"], [row]


PARTS: dict[str, Callable[[str], Table]] = {
    "backends": backends,
    "correctness": correctness,
    "packing": packing,
    "waits": waits,
    "compiled": compiled,
    "memory": lambda device: timings(device, MEMORY, of_memory=True),
    "speed": lambda device: timings(device, SPEED),
}


def write(part: str, found: Table, folder: Path) -> Path:
    """Adds a part's table to the file of today and of this device."""
    name = torch.cuda.get_device_name()
    path = folder / f"gpu_{name.lower().replace(' ', '_')}_{date.today()}.md"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, tfm_zoo {tfm_zoo.__version__}"
    if not path.exists():
        path.write_text(f"# {name}, {date.today()}\n\n`make gpu`, with {versions}.\n\n")
    with path.open("a") as file:
        print(f"## {part}\n\n{PARTS[part].__doc__ or ''}\n", file=file)
        table(*found, file)
    return path


def main(
    part: Annotated[str, typer.Option(help=f"One of {', '.join(PARTS)}; all of them by default.")] = "",
    folder: Annotated[Path, typer.Option(help="Where the file is written.")] = Path("recipes/results"),
) -> None:
    """Runs one part, or all, each in a process of its own."""
    if not torch.cuda.is_available():
        sys.exit("make gpu needs a CUDA device, and torch finds none here.")
    if part and part not in PARTS:
        sys.exit(f"There is no part {part!r}: it should be one of {', '.join(PARTS)}.")
    if part:
        found = PARTS[part]("cuda")
        print(f"{part}: {write(part, found, folder)}")
        sys.exit(any(cell in ("NO", "LEAKS") for row in found[1] for cell in row))
    failed = []
    for each in PARTS:
        command = [sys.executable, "-m", "benchmarks", "gpu", "--part", each, "--folder", str(folder)]
        try:
            done = subprocess.run(command, timeout=60 * MINUTES).returncode == 0
        except subprocess.TimeoutExpired:
            done = False
        failed += [] if done else [each]
    sys.exit(f"These parts failed, or took longer than {MINUTES} minutes: {', '.join(failed)}." if failed else 0)
