"""Checkpoints under other releases of transformers: `make versions`, or `python other_releases.py RELEASE...`;
`--only PATTERN` takes those checkpoints whose names have it in them (a regular expression).

Each release has an environment of its own, with no zoo in it. Every kind of checkpoint is loaded there by its own code,
and gives the outputs and tokens that it gives here: every head, every architecture that converts, and those of earlier
versions. What is saved there, a zoo model and an official one, gives the same outputs here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
import transformers
from rich.console import Console
from rich.table import Table

from tests.hub import plain
from tests.hub.conftest import VARIANTS
from tests.hub.test_earlier_versions import VERSIONS, WHOLE, assert_replayed, extracted
from tests.official_models import BY_NAME, build_tiny
from tests.tiny import HEADS, tiny_model
from tfm_zoo import TfmGPTForCausalLM
from tfm_zoo.converters import ARCHITECTURES, from_official
from tfm_zoo.converters.choosing import is_installed
from tfm_zoo.proof.matrix import environment, requirements_of
from tfm_zoo.proof.origin import TESTED

#: what an official model is saved as by the oldest release, and loaded by the newest
OFFICIAL = ("BertForSequenceClassification", "GPT2LMHeadModel", "LlamaForCausalLM", "BartForConditionalGeneration")
#: zoo models that are trained and saved there
AUTO_CLASSES = {
    "TfmBertForSequenceClassification": "AutoModelForSequenceClassification",
    "TfmGPTForCausalLM": "AutoModelForCausalLM",
    "TfmEncoderDecoderForConditionalGeneration": "AutoModelForSeq2SeqLM",
}
#: what differs (a release of transformers, a version of the zoo, a checkpoint, the error), and why it cannot be mended
KNOWN = {
    r"5\.1[23]\.\d+: 0\..*'bool' object": "the code of these versions reads dicts that came with transformers 5.14",
    r"5\.(2[4-9]|[3-9]\d)\.\d+: 0\..*(attention_mask of shape| writes )": "their code knows a cache by its older name",
    r"5\.17\.\d+: 0\.2.*'float' object": "5.17 takes a rope_theta of all layers for parameters by type of layer",
    r"5\.1[2-7]\.\d+: today, from-fsmt: .* is invalid for input": "beam search reads the source's vocabulary size",
}
TRUST = {"trust_remote_code": True}
PROMPT = {"input_ids": torch.tensor([[0, 5, 9], [11, 12, 13]]), "attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1]])}


def models() -> Iterator[tuple[str, transformers.PreTrainedModel]]:
    """Every kind of model, tiny: each head, the variants of tests, and each architecture that converts."""
    yield from ((head.__name__, tiny_model(head)) for head in HEADS)
    yield from ((name, tiny_model(head, **fields)) for name, (head, fields) in VARIANTS.items())
    yield "linear", tiny_model(TfmGPTForCausalLM, attention_type="linear")  # with a cache of its own kind
    for architecture in ARCHITECTURES.values():
        heads = [head.official for head in architecture.heads if head.official in BY_NAME and not head.is_bare]
        if heads and is_installed(architecture):
            yield f"from-{architecture.model_type}", from_official(build_tiny(BY_NAME[heads[0]]))


def save(model: transformers.PreTrainedModel, folder: Path) -> Path:
    """Saves a model, with inputs and what it gives for them, as `plain.replay` reads them."""
    model.save_pretrained(folder)
    recorded = {"inputs": plain.batch_for(model)} | ({"prompt": PROMPT} if model.can_generate() else {})
    if getattr(model, "reads_target", False):
        recorded["inputs"]["decoder_input_ids"] = PROMPT["input_ids"][[0, 1, 1]]
    torch.save(recorded, folder / "recorded.pt")
    answers = plain.replay(str(folder), type(model))
    torch.save(recorded | answers, folder / "recorded.pt")
    return folder


def do(python: str, function: str, folder: Path, **arguments) -> list:
    """Runs a function of `plain.py` in an environment."""
    hub = {"HF_HOME": str(folder / "home"), "HF_MODULES_CACHE": str(folder / "code"), "HF_HUB_OFFLINE": "1"}
    command = [python, "-I", plain.__file__, str(folder / "result.pt")]
    job, result = json.dumps((function, arguments)), folder / "result.pt"
    done = subprocess.run(command, input=job, env=os.environ | hub, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["killed"])[-1])
    return torch.load(result)


def main(releases: list[str], only: str) -> int:
    """A line for each release; 0 if all is the same everywhere, but for what is known."""
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    table = Table("transformers", "environment", "loaded and run", "checkpoints", "differ", "saved there, loaded here")
    failed = False
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        folders = {"today": [save(model, root / "today" / name) for name, model in models() if re.search(only, name)]}
        for version in VERSIONS:
            earlier = extracted(version, root / version)
            folders[version] = [earlier / name for each, name in WHOLE if each == version and re.search(only, name)]
        for requirement in requirements_of(f"transformers=={','.join(releases)}"):
            start, place = perf_counter(), root / requirement
            python, installed = environment(place, requirement)
            made = perf_counter()
            differ = [f"{installed}: {line}" for each in folders.values() for line in differences(python, each, place)]
            ended = perf_counter()
            back = [f"{installed}: {line}" for line in saved_there(python, folders["today"], place)]
            known = {line: why for line in differ for error, why in KNOWN.items() if re.match(error, line)}
            wrong = [line for line in differ if line not in known]
            for line in differ + back:
                print(line + (f" (known: {known[line]})" if line in known else ""))
            count = sum(map(len, folders.values()))
            times = (f"{made - start:.0f} s", f"{ended - made:.0f} s")
            found = str(len(wrong)) + (f", and {len(known)} known" if known else "")
            table.add_row(installed, *times, str(count), found, f"{len(back)} differ" if back else "same")
            failed |= bool(wrong or back)
            shutil.rmtree(place)
    Console(width=100).print(table)
    return int(failed)


def differences(python: str, folders: list[Path], place: Path) -> list[str]:
    """What checkpoints compute otherwise in an environment. One process has one code for each family, so all of them
    were saved by one version."""
    try:
        results = do(python, "replay_all", place, sources=list(map(str, folders)), trust_remote_code=True)
    except RuntimeError as error:
        return [f"{folders[0].parent.name}: {error}"]
    wrong = []
    for folder, result in zip(folders, results, strict=True):
        try:
            assert_replayed(result, folder)
        except AssertionError as error:
            wrong.append(f"{folder.parent.name}, {folder.name}: {str(error).strip().splitlines()[0]}")
    return wrong


def saved_there(python: str, folders: list[Path], place: Path) -> list[str]:
    """What is saved in an environment and is not the same here: zoo models by their own code, and official models."""
    zoo = {folder.name: folder for folder in folders if folder.name in AUTO_CLASSES}
    official = {name: build_tiny(BY_NAME[name]).config.to_dict() for name in OFFICIAL}
    target = {name: str(place / "saved" / name) for name in (*zoo, *official)}
    jobs = [
        ("train_and_save", {"source": str(folder), "auto_class": AUTO_CLASSES[name], "target": target[name]} | TRUST)
        for name, folder in zoo.items()
    ]
    jobs += [
        ("make_and_save", {"class_name": name, "config": config, "target": target[name]})
        for name, config in official.items()
    ]
    wrong = []
    for name, there in zip(target, do(python, "each_of", place, jobs=jobs), strict=True):
        wrong += compared(there, plain.load(target[name], AUTO_CLASSES.get(name, name)), name)
        if name in official:
            # (The states of an encoder at padding, which nothing reads, are zeros in the zoo.)
            wrong += compared({"logits": there["logits"]}, from_official(target[name]), f"{name}, converted")
    return wrong


@torch.no_grad()
def compared(there: dict[str, torch.Tensor], model: transformers.PreTrainedModel, name: str) -> list[str]:
    here = plain.run(model)
    both = [output for output in there if output in here]
    wrong = [output for output in both if not torch.allclose(there[output], here[output], rtol=1e-6, atol=1e-5)]
    return [f"{name}, saved there: {output} differs here" for output in wrong or (() if both else ("everything",))]


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("releases", nargs="*", default=[*TESTED[:-1], "latest"])
    parser.add_argument("--only", default="")
    sys.exit(main(**vars(parser.parse_args())))
