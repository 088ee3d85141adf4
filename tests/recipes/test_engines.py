"""Two processes that share a model take the steps of one, and leave the folder that one would leave."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env
from safetensors.torch import load_file
from transformers import AutoConfig

import tfm_zoo
from tfm_zoo.hub import verify
from tfm_zoo.hub.manifest import FILE

from ..forks import Forks
from ..hub import plain
from ..hub.conftest import make_environment, run_jobs
from ..tiny import tiny_model
from . import in_a_row
from .conftest import (
    CLOCK,
    LM_RECIPE,
    PRETRAINING_RECIPE,
    RECIPE,
    ROOT,
    TEXT,
    TRANSLATION_RECIPE,
    as_argv,
    defaults,
    imported,
    lm_defaults,
    pretraining_defaults,
    run_here,
    run_in_a_row,
    run_python,
    translation_defaults,
)

pytestmark = pytest.mark.slow

CONFIGS = ROOT / "recipes" / "accelerate"
ENGINES = ("fsdp", "zero2", "zero3")
SIZES = "hidden_size=16,num_hidden_layers=2,num_attention_heads=2,intermediate_size=24"
SMALL = {"config_overrides": f"{SIZES},hidden_dropout=0,attention_dropout=0"}
HEADS = {  # the last three with tied tables, the last with one for encoder, decoder and head
    "classifier": tfm_zoo.TfmBertForSequenceClassification,
    "encoder": tfm_zoo.TfmBertForPreTraining,
    "decoder": tfm_zoo.TfmGPTForCausalLM,
    "translator": tfm_zoo.TfmEncoderDecoderForConditionalGeneration,
}
#: an official model beside them, and what FSDP is told of its layers
OFFICIAL = {"llama": "LlamaDecoderLayer"}
#: what each engine trains. DeepSpeed is told of no layers, and its stage 2 leaves models whole.
NAMES = {
    "fsdp": (*HEADS, "bf16", "llama"),
    "zero2": ("classifier", "bf16"),
    "zero3": ("decoder", "translator", "bf16", "llama"),
}
#: those that the same processes train, one after the other, by the configuration that starts them
LAUNCHES = {"fsdp": ["fsdp"], "zero3": ["zero2", "zero3"]}
EVERY_ENGINE = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(scope="module")
def jobs(files, checkpoint, documents, pairs, tmp_path_factory) -> dict[str, tuple[Path, dict]]:
    """Recipe and options of each model. The best classifier is not the last."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "text.txt").write_text(TEXT)
    steps = {"max_train_steps": 4, "eval_steps": 2, "mixed_precision": "no", "learning_rate": 3e-2}
    classifier = defaults(files, checkpoint) | steps | {"metric_for_best_model": "loss", "max_eval_samples": 13}
    decoder = lm_defaults(folder) | steps | {"sample_length": 3, "sync_each_batch": True}
    llama = {"model_type": "llama", "config_overrides": SIZES, "model_class": "native", "checkpointing_steps": 2}
    short = {"max_eval_samples": 5, "test_file": None, "num_samples": 0, "num_beams": 1}
    return {
        "classifier": (RECIPE, classifier),
        "encoder": (PRETRAINING_RECIPE, pretraining_defaults(documents) | steps | SMALL),
        "decoder": (LM_RECIPE, decoder | SMALL),
        "translator": (TRANSLATION_RECIPE, translation_defaults(pairs) | steps | SMALL | short),
        "bf16": (RECIPE, classifier | {"mixed_precision": "bf16"}),
        "llama": (LM_RECIPE, decoder | llama),
    }


def divided(options: dict, processes: int) -> dict:
    """The options with the same global batches, of one forward pass or of two in each of two processes."""
    of, size = ("tokens", 480) if "source_lang" in options else ("size", 8)
    passes = {"gradient_accumulation_steps": processes, "per_device_eval_batch_size": 5}
    return options | passes | {f"per_device_train_batch_{of}": size // processes**2}


@pytest.fixture(scope="module")
def one(jobs, tmp_path_factory) -> Path:
    """Each model, trained by one process."""
    folder = tmp_path_factory.mktemp("one")
    for name, (recipe, options) in jobs.items():
        if name != "bf16":
            run_here(imported(recipe), divided(options, 1) | {"output_dir": folder / name})
    in_a_row.start_anew()
    in_a_row.unequal(folder / "unequal no.json")
    return folder


def deepspeed_environment(engine: str) -> dict[str, str]:
    """What Accelerate's launcher tells processes of the engine's configuration."""
    command = ["--config_file", str(CONFIGS / f"{engine}.yaml"), "--mixed_precision", "no", "script.py"]
    args, config, _ = _validate_launch_command(launch_command_parser().parse_args(command))
    args.deepspeed_fields_from_accelerate_config = ",".join(config.deepspeed_config)
    _, environment = prepare_deepspeed_cmd_env(args)
    return {name: value for name, value in environment.items() if name.startswith("ACCELERATE_")}


@pytest.fixture(scope="module")
def two(jobs, tmp_path_factory) -> dict[str, Path]:
    """Each model, trained by two processes with each engine, as its launcher starts them."""
    folders = {engine: tmp_path_factory.mktemp(engine) for engine in ENGINES}

    def listed(engine: str) -> list[dict]:
        folder, told = folders[engine], {} if engine == "fsdp" else deepspeed_environment(engine)
        listed = []

        def add(function: str, *arguments: object, layer: str = "TfmLayer") -> None:
            environment = told | {"FSDP_TRANSFORMER_CLS_TO_WRAP": layer}
            listed.append({"function": function, "arguments": arguments, "environment": environment})

        for name in NAMES[engine]:
            recipe, options = jobs[name]
            argv = as_argv(divided(options, 2) | {"output_dir": folder / name})
            add("run", str(recipe), argv, layer=OFFICIAL.get(name, "TfmLayer"))
            if name == "llama":  # resumed from the middle of its training
                argv = [*argv, "--resume_from_checkpoint", str(folder / "llama" / "checkpoint-2")]
                add("run", str(recipe), argv, layer=OFFICIAL[name])
        add("save", str(folder))
        for precision in ("no", "bf16"):
            add("unequal", str(folder / f"unequal {precision}.json"), precision)
        return listed

    for launcher, engines in LAUNCHES.items():
        run_in_a_row([job for engine in engines for job in listed(engine)], launcher, folders[launcher])
    return folders


def history(folder: Path) -> list[dict]:
    """The log without samples, which are not drawn of a sharded model, and without times."""
    entries = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [{key: entry[key] for key in entry.keys() - CLOCK} for entry in entries if "samples" not in entry]


def same_history(one: Path, two: Path, tolerance: float = 1e-5) -> None:
    assert len(history(one)) == 6
    for before, after in zip(history(one), history(two), strict=True):
        assert after == pytest.approx(before, rel=tolerance, abs=tolerance), two


@EVERY_ENGINE
def test_the_losses_of_one_process(engine, one, two):
    """The last model's after it was resumed."""
    for name in set(NAMES[engine]) - {"bf16"}:
        same_history(one / name, two[engine] / name)


@EVERY_ENGINE
def test_processes_with_unequal_numbers_of_labels(engine, one, two):
    """One makes so few logits that it makes them at once, another many, or none. Their losses are not rounded."""
    wanted, found, rounded = (
        json.loads((folder / f"unequal {precision}.json").read_text())
        for folder, precision in ((one, "no"), (two[engine], "no"), (two[engine], "bf16"))
    )
    for values, tolerance in ((found, 1e-5), (rounded, 2e-2)):
        for kind in ("losses", "norms"):
            assert values[kind] == pytest.approx(wanted[kind], rel=tolerance)
        assert {*values["types"], *values["weights"]} == {"torch.float32"}
    assert rounded["norms"] != pytest.approx(wanted["norms"], rel=1e-5)


@EVERY_ENGINE
def test_what_is_trained_in_bf16_is_saved_in_float32(engine, one, two):
    same_history(one / "classifier", two[engine] / "bf16", tolerance=5e-2)
    weights, config = (two[engine] / "bf16" / name for name in ("model.safetensors", "config.json"))
    assert json.loads(config.read_text())["dtype"] == "float32"
    for weight in load_file(weights).values():
        assert weight.dtype == torch.float32
        assert weight.ndim < 2 or not torch.equal(weight, weight.bfloat16().float())


def test_two_machines(jobs, one, tmp_path):
    """Each with a launcher of its own, which finds the other at an address. The first one has the results."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    recipe, options = jobs["classifier"]
    launcher = ["--config_file", CONFIGS / "two_nodes.yaml", "--mixed_precision", "no"]

    def launch(rank: int) -> None:
        place = ["--machine_rank", rank, "--main_process_port", port]
        argv = as_argv(divided(options, 2) | {"output_dir": tmp_path / str(rank)})
        run_python("-m", "accelerate.commands.launch", *launcher, *place, recipe, *argv)

    with ThreadPoolExecutor() as machines:
        list(machines.map(launch, range(2)))
    same_history(one / "classifier", tmp_path / "0")
    assert json.loads((tmp_path / "0" / "trainer_state.json").read_text())["run"]["num_processes"] == 2
    assert not (tmp_path / "1").exists()


@EVERY_ENGINE
def test_the_folder_that_one_process_leaves(engine, one, two):
    """Files, code and settings; the figures are those of the best model, which lies there."""
    for name in HEADS.keys() & NAMES[engine]:
        before, after = one / name, two[engine] / name
        assert {path.name for path in after.iterdir()} == {path.name for path in before.iterdir()}
        for file in [*before.glob("*.py"), before / "config.json"]:
            assert (after / file.name).read_bytes() == file.read_bytes()
        one_manifest, manifest = (json.loads((folder / FILE).read_text()) for folder in (before, after))
        assert manifest["weights"].keys() == one_manifest["weights"].keys() and manifest["fingerprint"]
        wanted, found = (json.loads((folder / "all_results.json").read_text()) for folder in (before, after))
        assert found["best_step"] == wanted["best_step"]
        assert {key: found[key] for key in wanted if key.endswith(("loss", "perplexity", "bleu"))} == pytest.approx(
            {key: wanted[key] for key in wanted if key.endswith(("loss", "perplexity", "bleu"))}, rel=1e-5
        )
        parameters = f"{HEADS[name].from_pretrained(after).num_parameters():,} parameters"
        assert f"`{HEADS[name].__name__}`, {parameters}" in (after / "README.md").read_text()


def test_without_the_zoo_the_outputs_are_the_same(two, tmp_path):
    sources = [*(two["fsdp"] / name for name in HEADS), two["zero3"] / "translator"]
    listed = []
    for source in sources:
        config = AutoConfig.from_pretrained(source)
        auto_class = next(auto for auto, head in config.auto_classes.items() if head == config.architectures[0])
        options = {"use_cache": False} if hasattr(config, "use_cache") else {}
        options |= {"source": str(source), "auto_class": auto_class, "trust_remote_code": True}
        listed.append(("outputs", options))
    python = make_environment(tmp_path / "plain", "torch", "transformers")
    with Forks(python) as forks:
        answers = run_jobs(listed, forks, tmp_path)
    for source, found in zip(sources, answers, strict=True):
        with torch.no_grad():
            wanted = plain.run(HEADS[source.name].from_pretrained(source).eval())
        wanted.pop("past_key_values", None)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("forked")
def test_verified(two):
    for source in (two["fsdp"] / "translator", two["zero3"] / "decoder", two["zero3"] / "bf16", two["zero2"] / "bf16"):
        verdict = verify(source)
        assert verdict.ok and max(verdict.figures["drift"].values()) < 1e-6, verdict


@EVERY_ENGINE
def test_saved_as_users_save(engine, two, tmp_path):
    """By Accelerate's way, the Trainer's, their own and sharded by transformers: byte for byte as if it were whole."""
    tiny_model(tfm_zoo.TfmGPTForCausalLM).save_pretrained(tmp_path)
    wanted = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for way in ("accelerate", "trainer", *(["own", "transformers"] if engine == "fsdp" else [])):
        found = {path.name: path.read_bytes() for path in (two[engine] / way).iterdir()}
        assert found.keys() == wanted.keys()
        assert not [name for name in wanted if found[name] != wanted[name]], way
