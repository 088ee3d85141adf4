"""Pytest's plug-in for the tests of peers: whose classes load models, data sets in place of the Hub's, and a record."""

import contextlib
import functools
import importlib.machinery
import importlib.util
import json
import os
import random
import sys
import types
from pathlib import Path

import datasets
import transformers
from huggingface_hub import constants, file_download
from peer_comparison import outcomes

KIND = os.environ["PEER_KIND"]
if KIND == "zoo":
    import tfm_zoo  # noqa: F401

RECORD = Path(os.environ["PEER_RECORD"])
#: of sentence-transformers: architecture -> the name of a tiny model
ARCHITECTURES = Path("tests/base/modules/transformer/transformers_tiny_models.json")
PARTS = (
    ["a man", "two dogs", "the girl", "an old woman", "some children", "a band", "the player", "three birds"],
    ["runs along", "looks at", "jumps over", "sits near", "paints", "walks past", "plays beside", "sleeps under"],
    ["the river", "a red car", "tall trees", "the stage", "an empty street", "a wooden bench", "some flowers"],
)


def sentences(rows: int, seed: int) -> list[tuple[str, str, float]]:
    """Pairs of sentences, and how alike they are."""
    draw = random.Random(seed)
    pairs = []
    for _ in range(rows):
        words = [draw.choice(each) for each in PARTS]
        others = [draw.choice([word, draw.choice(each)]) for word, each in zip(words, PARTS, strict=True)]
        alike = sum(word == other for word, other in zip(words, others, strict=True)) / 3
        pairs.append((" ".join(words) + ".", " ".join(others) + ".", round(alike, 3)))
    return pairs


def preferences(name: str) -> dict[str, list[dict]]:
    """Rows of trl's small data set: `standard` or `conversational`, then what a row holds."""
    style, _, kind = name.partition("_")
    talks = style == "conversational"
    rows = []
    for i, (text, other, _) in enumerate(sentences(20, 6)):
        prompt, good, bad = text.split(" ")[0], " " + text.partition(" ")[2], " " + other.partition(" ")[2] + " no"
        say = (lambda role, words: [{"role": role, "content": words}]) if talks else lambda role, words: words
        asked = say("user", prompt)
        chosen, rejected = say("assistant", good), say("assistant", bad)
        rows.append(
            {
                "language_modeling": {"messages" if talks else "text": asked + chosen},
                "prompt_only": {"prompt": asked},
                "prompt_completion": {"prompt": asked, "completion": chosen},
                "preference": {"prompt": asked, "chosen": chosen, "rejected": rejected},
                "implicit_prompt_preference": {"chosen": asked + chosen, "rejected": asked + rejected},
                "unpaired_preference": {"prompt": asked, "completion": chosen, "label": bool(i % 2)},
            }[kind]
        )
    return {"train": rows[:17], "test": rows[17:]}


def rows_of(name: str, config: str | None) -> dict[str, list[dict]] | None:
    """The rows of a data set of the Hub, by split."""
    match name:
        case "sentence-transformers/stsb":
            parts = {"train": sentences(600, 0), "validation": sentences(200, 1), "test": sentences(300, 2)}
            columns = ("sentence1", "sentence2", "score")
            return {part: [dict(zip(columns, row, strict=True)) for row in rows] for part, rows in parts.items()}
        case "sentence-transformers/all-nli":
            rows = sentences(2000, 3)
            return {"train": [{"premise": a, "hypothesis": b, "label": min(2, int(s * 3))} for a, b, s in rows]}
        case "sentence-transformers/natural-questions":
            return {"train": [{"query": a, "answer": b} for a, b, _ in sentences(500, 4)]}
        case "stanfordnlp/imdb":
            rows = [{"text": a, "label": int(s > 0.5)} for a, _, s in sentences(200, 5)]
            return {"train": rows, "test": rows}
        case "trl-internal-testing/zen":
            return preferences(config)


def load_dataset(name, config=None, *args, split=None, streaming=False, **options):
    """In place of `datasets.load_dataset`."""
    rows = rows_of(name, options.get("name", config))
    if rows is None:
        return LOAD(name, config, *args, split=split, streaming=streaming, **options)
    parts = {part: datasets.Dataset.from_list(each) for part, each in rows.items()}
    if split:
        part, _, bounds = split.rstrip("]").partition("[")
        chosen = parts[part]
        start, _, end = bounds.partition(":")
        ends = [int(each[:-1]) * len(chosen) // 100 if each.endswith("%") else int(each or 0) for each in (start, end)]
        parts = {part: chosen.select(range(ends[0], min(ends[1] or len(chosen), len(chosen))))}
    if streaming:
        parts = {part: each.to_iterable_dataset() for part, each in parts.items()}
    whole = datasets.IterableDatasetDict if streaming else datasets.DatasetDict
    return parts[part] if split else whole(parts)


def download(*, cache_dir, repo_id, filename, repo_type, revision, **options):
    """A test with a cache of its own downloads from the one that holds the models."""
    folder = file_download.repo_folder_name(repo_id=repo_id, repo_type=repo_type)
    source, target = Path(constants.HF_HUB_CACHE) / folder, Path(cache_dir) / folder
    if source.is_dir() and source != target:
        names = [Path("refs") / revision]
        commit = (source / names[0]).read_text() if (source / names[0]).exists() else revision
        for name in (*names, Path("snapshots") / commit / filename):
            if (source / name).exists() and not (target / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes((source / name).read_bytes())
    names = {"cache_dir": cache_dir, "repo_id": repo_id, "filename": filename, "repo_type": repo_type}
    return DOWNLOAD(**names, revision=revision, **options)


def speed_up_all() -> None:
    """Every model that transformers loads is sped up, if the zoo computes a part of it."""
    from tfm_zoo.inference import speed_up

    load = transformers.PreTrainedModel.from_pretrained.__func__

    @functools.wraps(load)
    def loaded(kind, *args, **kwargs):
        result = load(kind, *args, **kwargs)
        with contextlib.suppress(ValueError):
            speed_up(result[0] if isinstance(result, tuple) else result)
        return result

    transformers.PreTrainedModel.from_pretrained = classmethod(loaded)


if KIND == "speed_up":
    speed_up_all()
LOAD, datasets.load_dataset = datasets.load_dataset, load_dataset
DOWNLOAD, file_download._hf_hub_download_to_cache_dir = file_download._hf_hub_download_to_cache_dir, download


def absent(name: str):
    """What trl's tests import and its release does not have: a probe of a package, or a private function."""
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *args, **options: importlib.util.find_spec(name[3:-10] or "_") is not None


if Path("tests/test_reward_trainer.py").exists():
    from trl import import_utils
    from trl.trainer import sft_trainer

    import_utils.__getattr__ = sft_trainer.__getattr__ = absent
if Path("tests/testing_common.py").exists() and importlib.util.find_spec("diffusers") is None:
    # PEFT's tests import it, and those of text models do not use it.
    sys.modules["diffusers"] = types.ModuleType("diffusers")
    sys.modules["diffusers"].__spec__ = importlib.machinery.ModuleSpec("diffusers", None)
    sys.modules["diffusers"].StableDiffusionPipeline = type("StableDiffusionPipeline", (), {})


def pytest_collection_modifyitems(config, items) -> None:
    """Leaves out the architectures that the zoo does not convert, and with the zoo what fails with official models."""
    names = json.loads(ARCHITECTURES.read_text()) if ARCHITECTURES.exists() else {}
    official = RECORD.with_name(RECORD.name.replace(f".{KIND}.", ".official."))
    failed = {test for test, (outcome, _) in outcomes(official).items() if outcome} if official.exists() else set()

    def is_wanted(item) -> bool:
        architecture = getattr(getattr(item, "callspec", None), "params", {}).get("arch")
        folder = f"models--{names.get(architecture) or ''}".replace("/", "--")
        is_there = architecture is None or (Path(constants.HF_HUB_CACHE) / folder).exists()
        return is_there and not (official != RECORD and item.nodeid in failed)

    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = filter(is_wanted, items)


def pytest_runtest_logreport(report) -> None:
    if report.when == "call" or report.outcome != "passed":
        lines = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")]
        row = {"test": report.nodeid, "outcome": report.outcome, "error": (lines or [""])[0][:300]}
        with RECORD.open("a") as file:
            file.write(json.dumps(row) + "\n")
