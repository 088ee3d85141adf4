"""`python -m benchmarks figures --before CHECKOUT`: do recipes give the figures that an earlier checkout gives?

Each of the short runs starts a recipe as a program, there and here, with the same options and seed, and with one
thread, so that sums have one order. What the two trainings have logged and found is compared, a figure at a time;
clocks and memory are left out. A figure that one checkout alone has counts as an infinite difference. Runs that read
`../shared` are left out where it is missing.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from math import inf, isnan
from pathlib import Path
from typing import Annotated, Any

import typer

from tests.fields import fields_by_name

from .batches import SHARED
from .timing import table

ROOT = Path(__file__).parents[1]
WORK = ROOT / "runs/figures"
LIMIT = 1e-6  # the largest relative difference that passes
RESULTS = ("trainer_state.json", "all_results.json", "comparison.json")
CLOCKS = re.compile("runtime|per_second|memory")  # in the names of what differs between two equal runs

#: options by run
RUNS = fields_by_name("""
SHORT: max_train_steps=12 eval_steps=5 max_eval_samples=50 logging_steps=1
GENERATED: SHORT dataset_name=generated
SMALL: tokenizer_vocab_size=1000
    config_overrides=hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64
classification: GENERATED recipe=finetune_classification max_seq_length=64
classification-imdb: classification config=recipes/configs/imdb.yaml max_train_samples=160
    model_name_or_path=SHARED/checkpoints/all-MiniLM-L6-v2 dataset_name=SHARED/datasets/imdb
classification-by-length: classification group_by_length=True gradient_accumulation_steps=2
classification-frozen: classification max_train_samples=80 freeze=embeddings
classification-mean: classification classifier_pooling=mean
classification-native: classification model_class=native pad_to_max_length=True
classification-bf16: classification mixed_precision=bf16
token-classification: GENERATED recipe=finetune_token_classification
question-answering: GENERATED recipe=finetune_question_answering max_seq_length=48 doc_stride=12
WRITING: SHORT recipe=finetune_causal_lm sample_length=20 block_size=64
    train_file=SHARED/datasets/tiny_shakespeare/input.txt
language-model: WRITING config=recipes/configs/tiny_shakespeare.yaml greater_is_better=True
    config_overrides=n_embd=64,n_layer=2,n_head=2
language-model-streaming: WRITING streaming=True SMALL
pretraining: GENERATED SMALL recipe=pretrain_bert max_seq_length=64
pretraining-streaming: pretraining -dataset_name train_file=SHARED/datasets/tiny_shakespeare/input.txt streaming=True
pretraining-masked-tokens: pretraining next_sentence_prediction=False whole_word_mask=True
denoising: GENERATED SMALL recipe=pretrain_t5 max_seq_length=64
translation: GENERATED recipe=train_translation max_train_samples=2000 num_eval_translations=20
translation-multi30k: translation config=recipes/configs/multi30k.yaml dataset_name=SHARED/datasets/multi30k
    config_overrides=d_model=64,encoder_layers=2,decoder_layers=2,encoder_ffn_dim=128,decoder_ffn_dim=128
    tokenizer_vocab_size=1000 num_beams=1
summarization: GENERATED recipe=finetune_summarization max_train_samples=500 num_eval_summaries=10
comparison: SHORT SMALL recipe=compare_architectures block_size=64
    variants={"base":{},"post-norm":{"norm_position":"post","learning_rate":1e-3}}
""")


def command(name: str, output_dir: Path) -> list[str]:
    """The recipe of a run, and the words of its command line."""
    fields = {key: json.dumps(value) if isinstance(value, dict) else str(value) for key, value in RUNS[name].items()}
    recipe, shared = fields.pop("recipe"), str(SHARED.resolve())
    words = (f"--{key}={value}".replace("SHARED", shared) for key, value in fields.items())
    return [f"recipes/{recipe}.py", *words, f"--output_dir={output_dir}"]


def train(checkout: Path, name: str, folder: Path) -> str:
    """Does a run anew; its output goes to a log. Returns the last line of it if the recipe fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    own, log = checkout / ".venv/bin/python", folder.with_suffix(".log")
    python = own if own.exists() else sys.executable
    with tempfile.TemporaryDirectory() as cache, log.open("w", encoding="utf-8") as output:
        env = {"PYTHONPATH": str(checkout), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        env["HF_DATASETS_CACHE"] = cache  # what other code has tokenized must not be found
        streams = {"stdout": output, "stderr": subprocess.STDOUT}
        ended = subprocess.run([python, *command(name, folder)], cwd=checkout, env=os.environ | env, **streams)
    return (log.read_text("utf-8").splitlines() or ["no output"])[-1] if ended.returncode else ""


def figures_of(folder: Path) -> dict[tuple, float]:
    """What a run, or each variant of a comparison, has logged and found, by where it stands."""
    found = {}
    for path in (path for name in RESULTS for path in folder.rglob(name) if "checkpoint-" not in path.parent.name):
        content = json.loads(path.read_text("utf-8"))
        found |= numbers(content.get("log_history", content), (str(path.relative_to(folder)),))
    return found


def numbers(value: Any, place: tuple) -> Iterator[tuple[tuple, float]]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(part, (*place, key))
    elif isinstance(value, int | float) and not CLOCKS.search(str(place[-1])):
        yield place, value


def difference(before: float | None, after: float | None) -> float:
    """The relative one."""
    if before == after:
        return 0.0
    relative = inf if None in (before, after) else abs(before - after) / max(abs(before), abs(after))
    return inf if isnan(relative) else relative


def compared(name: str, sides: dict[str, Path]) -> tuple[int, float, str]:
    """How many figures two checkouts give, the largest relative difference, and where it is; or an error."""
    for side, checkout in sides.items():
        if error := train(checkout, name, WORK / side / name):
            return 0, inf, f"{side}: {error}"
    found = [figures_of(WORK / side / name) for side in sides]
    differences = {place: difference(*(each.get(place) for each in found)) for place in {**found[0], **found[1]}}
    place, worst = max(differences.items(), key=lambda each: each[1], default=(("no figures",), inf))
    return len(differences), worst, ", ".join(map(str, place))


def main(
    before: Annotated[Path, typer.Option(help="The earlier checkout.")],
    only: Annotated[str, typer.Option(help="Runs whose name holds this.")] = "",
) -> None:
    """Prints a table of the largest relative differences; exit code 1 if one is above 1e-6."""
    sides, failed = {"before": before.resolve(), "here": ROOT}, []
    names = [name for name in RUNS if name.islower() and only in name]
    names = [name for name in names if SHARED.exists() or "SHARED" not in str(RUNS[name])]

    def rows() -> Iterator[list]:
        for name in names:
            count, worst, where = compared(name, sides)
            failed.extend([name] if worst > LIMIT else [])
            yield [name, count, f"{worst:.2g}", where if worst > LIMIT else ""]

    table(["run", "figures", "largest difference", "where"], rows())
    raise typer.Exit(bool(failed))
