"""Two processes have the losses of one, and go on where one was, as one goes on where they were; started but once."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tfm_zoo

from . import in_a_row
from .conftest import (
    CLOCK,
    LM_RECIPE,
    OWN,
    PRETRAINING_RECIPE,
    RECIPE,
    ROOT,
    TEXT,
    TRANSLATION_RECIPE,
    as_argv,
    defaults,
    history,
    imported,
    lm_defaults,
    pretraining_defaults,
    run_here,
    run_in_a_row,
    translation_defaults,
    validated,
)

pytestmark = pytest.mark.slow
SIZES = "hidden_size=32,num_hidden_layers={},num_attention_heads=2,hidden_dropout=0,attention_dropout=0"
LM = {"config_overrides": SIZES.format(2), "num_train_epochs": 2, "freeze": "embed_positions"}
LM |= {"gradual_unfreezing": 5, "layerwise_lr_decay": 0.8}  # a layer in 5 steps
LM_BATCHES = ({"per_device_train_batch_size": 4}, {"per_device_train_batch_size": 2, "per_device_eval_batch_size": 2})


@pytest.fixture(scope="module")
def jobs(files, checkpoint, documents, pairs, tmp_path_factory) -> dict[str, tuple[Path, dict, dict, dict]]:
    """Each recipe, its options, and those with which one process and two have the same batches."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "text.txt").write_text(TEXT)
    classification = defaults(files, checkpoint) | {"group_by_length": True, "freeze_epochs": 1}
    (folder / "ones").mkdir()
    (folder / "ones" / "ones.py").write_text(OWN.replace("{RESULTS}", '{"ones": np.mean(predictions)}'))
    classification |= {"metrics": ["accuracy", "f1", folder / "ones"]}
    translation = {"config_overrides": f"{SIZES.format(1)},intermediate_size=32", "label_smoothing_over": "all"}
    # Pairs to evaluate on, and to translate, that two processes cannot share evenly.
    translation |= {"max_train_steps": 6, "eval_steps": 3, "max_eval_samples": 13, "num_eval_translations": 7}
    pretraining = {"streaming": True, "max_train_steps": 15, "eval_steps": 5}
    accumulated = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    questions = {"max_train_samples": 20, "max_eval_samples": 7, "max_seq_length": 24, "doc_stride": 4}
    questions |= {
        "config_overrides": f"{SIZES.format(1)},intermediate_size=32",
        "max_train_steps": 3,
        "logging_steps": 1,
    }
    streamed = validated(folder, {"streaming": True, "max_train_steps": 21})
    return {
        # Of 61 examples the last batch holds 5, of which one process computes 3 and the other 2.
        "classifier": (RECIPE, classification, {"per_device_train_batch_size": 8}, accumulated),
        # The last batch holds 1, which both processes compute.
        "single": (
            RECIPE,
            defaults(files, checkpoint) | {"num_train_epochs": 1},
            {"per_device_train_batch_size": 12},
            {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2},
        ),
        # A last batch of one block, which both compute; and 3 blocks to evaluate on, in batches of 2 for each.
        "decoder": (LM_RECIPE, lm_defaults(folder) | LM, *LM_BATCHES),
        "stream": (LM_RECIPE, lm_defaults(folder) | LM | streamed, *LM_BATCHES),
        "translator": (
            TRANSLATION_RECIPE,
            translation_defaults(pairs) | translation,
            {"per_device_train_batch_tokens": 480},
            {"per_device_train_batch_tokens": 240, "per_device_eval_batch_size": 4},
        ),
        # Windows of a question, of which each process may compute some.
        "answerer": (
            ROOT / "recipes" / "finetune_question_answering.py",
            questions,
            {"per_device_train_batch_size": 4},
            {"per_device_train_batch_size": 2, "per_device_eval_batch_size": 3},
        ),
        # Either process masks another number of tokens; the examples to evaluate on cannot be shared evenly.
        "encoder": (
            PRETRAINING_RECIPE,
            pretraining_defaults(documents) | pretraining,
            {"per_device_train_batch_size": 8},
            accumulated | {"per_device_eval_batch_size": 7},
        ),
    }


@pytest.fixture(scope="module")
def noted(documents, tmp_path_factory) -> Callable[..., list]:
    """Gives the arguments of `in_a_row.noted`: for a stream (of four readers, in a second pass) or a text in memory, on
    a number of processes."""
    folder = tmp_path_factory.mktemp("noted")
    (folder / "text.txt").write_text(TEXT)
    sizes = {"config_overrides": f"{SIZES.format(1)},intermediate_size=32", "checkpointing_steps": 3}
    stream = {"block_documents": 64, "streaming": True, "max_train_steps": 18}
    recipes = {
        "stream": (PRETRAINING_RECIPE, pretraining_defaults(documents) | sizes | stream),
        "memory": (LM_RECIPE, lm_defaults(folder) | sizes | {"num_train_epochs": 4, "sample_length": 0}),
    }

    def noted(kind: str, name: str, processes: int, last: int = -1) -> list:
        recipe, options = recipes[kind]
        read = folder / kind / f"{name}-{processes}"
        read.mkdir(parents=True)
        batches = {"per_device_train_batch_size": 4 // processes, "gradient_accumulation_steps": 2}
        place = {"output_dir": folder / kind / name, "resume_from_checkpoint": "auto"}
        return [str(recipe), as_argv(options | batches | place), str(read), last]

    return noted


def note_here(arguments: list) -> Path:
    """Run `in_a_row.noted` in this process; returns the folder of its notes."""
    in_a_row.start_anew()
    in_a_row.noted(*arguments)
    return Path(arguments[2])


@pytest.fixture(scope="module")
def whole(noted) -> dict[str, Path]:
    return {kind: note_here(noted(kind, "whole", 1)) for kind in ("stream", "memory")}


@pytest.fixture(scope="module")
def one(jobs, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    for name, (recipe, options, batches, _) in jobs.items():
        run_here(imported(recipe), options | batches | {"output_dir": folder / name})
    return folder


@pytest.fixture(scope="module")
def parts(noted) -> dict[str, list[list]]:
    """Each kind's run in two parts, the first of which is stopped: of a stream on two processes, then on one; in memory
    the other way round."""
    numbers = {"stream": (2, 1), "memory": (1, 2)}
    found = {
        kind: [noted(kind, "parts", n, last) for n, last in zip(both, (8, -1), strict=True)]
        for kind, both in numbers.items()
    }
    note_here(found["memory"][0])
    return found


@pytest.fixture(scope="module")
def two(jobs, parts, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    stopped = [
        {"function": "noted", "arguments": parts[kind][i], "environment": {}}
        for kind, i in (("stream", 0), ("memory", 1))
    ]
    listed = stopped + [
        {
            "function": "run",
            "arguments": [str(recipe), as_argv(options | batches | {"output_dir": folder / name})],
            "environment": {},
        }
        for name, (recipe, options, _, batches) in jobs.items()
    ]
    (folder / "stderr.txt").write_text(run_in_a_row(listed, "cpu", folder))
    return folder


def same_losses(one: Path, two: Path, count: int) -> None:
    """Two runs, of one process and of two, have the same history, with so many losses."""
    before, after = (json.loads((folder / "trainer_state.json").read_text()) for folder in (one, two))
    assert (before["run"]["num_processes"], after["run"]["num_processes"]) == (1, 2)
    assert len(before["log_history"]) == len(after["log_history"])
    for expected, found in zip(before["log_history"], after["log_history"], strict=True):
        assert expected.keys() == found.keys()
        for key in expected.keys() - {*CLOCK, "samples"}:
            assert found[key] == pytest.approx(expected[key], rel=1e-5, abs=1e-5), key
    assert len(history(two, "loss")) == count


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("classifier", 16),
        ("single", 6),
        ("decoder", 12),
        ("stream", 21),
        ("translator", 6),
        ("answerer", 3),
        ("encoder", 15),
    ],
)
def test_the_losses_of_one(name, count, one, two):
    same_losses(one / name, two / name, count)


def test_what_else_one_process_leaves(one, two):
    for name in ("decoder", "stream"):
        assert history(two / name, "samples") == history(one / name, "samples")
    assert len(history(two / "translator", "eval_chrf")) == 2
    translations = [
        (folder / "translator" / "generated_predictions.txt").read_text().splitlines() for folder in (one, two)
    ]
    assert translations[0] == translations[1] and len(translations[1]) == 13
    models = [tfm_zoo.TfmBertForPreTraining.from_pretrained(folder / "encoder") for folder in (one, two)]
    torch.testing.assert_close(*(model.state_dict() for model in models), rtol=0, atol=1e-6)


def digests(folder: Path) -> dict[int, list[str]]:
    """What each step read, of all processes."""
    read = {}
    for process in sorted(folder.iterdir()):
        for step, rows in map(json.loads, process.read_text().splitlines()):
            read[step] = sorted(read.get(step, []) + rows)
    return read


@pytest.mark.parametrize(("kind", "before", "after"), [("stream", 2, 1), ("memory", 1, 2)])
def test_a_run_goes_on_with_another_number_of_processes(whole, parts, two, caplog, kind, before, after):
    """It reads what is left, no row twice, and has the losses of the run that was not stopped."""
    if kind == "stream":
        note_here(parts[kind][1])
    warned = caplog.text if after == 1 else (two / "stderr.txt").read_text()
    assert warned.count(f"Continuing with num_processes {after}, which was {before}") == 1
    every_step = digests(whole[kind])
    first, second = (digests(Path(arguments[2])) for arguments in parts[kind])
    assert sorted(first) == [*range(8)] and sorted(second) == [*range(6, len(every_step))]
    assert first | second == second | first == every_step
    logs = [json.loads((whole[kind].parent / name / "trainer_state.json").read_text()) for name in ("whole", "parts")]
    one, other = (log["log_history"] for log in logs)
    assert len(one) == len(other) > 10
    for expected, found in zip(one, other, strict=True):
        for key in expected.keys() - CLOCK:
            assert found[key] == pytest.approx(expected[key], rel=1e-5, abs=1e-5), key
