"""The comparison of architectures: all variants alike but for what they change, whatever becomes of one of them."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml
from accelerate import Accelerator
from accelerate.utils import DistributedType

import tfm_zoo
from tfm_zoo.training.options import parse_options
from tfm_zoo.training.run import Run
from tfm_zoo.training.tokenizers import byte_level_bpe

from .conftest import ROOT, TEXT, Recipe, forget_processes, history, imported

RECIPE = imported(ROOT / "recipes" / "compare_architectures.py")  # after which its own modules can be imported
Comparison, ComparisonOptions, make_variants = RECIPE.Comparison, RECIPE.ComparisonOptions, RECIPE.make_variants
costs, report = import_module("comparison.costs"), import_module("comparison.results")
Result = report.Result
NAMES = ("architectures", "post_or_pre_norm", "later_axes", "experts")
CONFIGS = [ROOT / "recipes" / "configs" / f"{name}.yaml" for name in NAMES]
POST = {"norm_position": "post"}


@pytest.fixture(autouse=True)
def no_picture(request, monkeypatch):
    """A second saved, each time but one."""
    if "leaves" not in request.node.name:
        monkeypatch.setattr(report, "plot_comparison", lambda *_: None)


@pytest.fixture
def compare(recipe, tmp_path) -> Recipe:
    """The recipe on tiny models and a small text, unless told otherwise; takes variants as a mapping."""
    (tmp_path / "text.txt").write_text(TEXT)
    dropped = ("sample_length", "num_train_epochs")
    options = {name: value for name, value in recipe("causal_lm").options.items() if name not in dropped}
    options |= {"train_file": tmp_path / "text.txt", "max_train_steps": 4, "eval_steps": 2, "warmup_steps": 0.5}
    options |= {"per_device_train_batch_size": 4, "lr_scheduler_type": "linear"}

    class Compare(Recipe):
        def argv(self, **options) -> list[str]:
            return super().argv(**options | {"variants": json.dumps(options["variants"])})

    return Compare("compare_architectures", options)


def folder_of(tmp_path: Path, variant: str) -> Path:
    return tmp_path / "run" / "variants" / variant


@pytest.mark.slow
def test_what_it_leaves(compare, tmp_path):
    own = {"attention_type": "linear", "learning_rate": 2e-3, "warmup_steps": 0}
    variants = {"base": {}, "post-norm, again": POST, "linear": own, "wide": {"intermediate_size": 128}}
    results = compare(variants=variants)
    told = json.loads((tmp_path / "run" / "comparison.json").read_text())
    assert [(entry["name"], entry["parameters"]) for entry in told["variants"]] == [
        (result.name, result.parameters) for result in results
    ]
    base, post, _, wide = results
    assert [result.name for result in results] == [*variants]
    assert wide.parameters - base.parameters == 2 * 2 * 64 * 32 + 2 * 64  # in each of two layers
    assert base.parameters - post.parameters == 64  # the norm after the last layer
    for result in results:
        assert result.tokens_per_step == 4 * 32 and result.tokens_per_second > 0 and result.peak_memory > 0
        folder = folder_of(tmp_path, result.name)
        losses = history(folder, "eval_loss")
        assert losses == [entry["eval_loss"] for entry in result.log_history if "eval_loss" in entry]
        assert len(losses) == 2 and losses[-1] == result.final_loss
        assert json.loads((folder / "config.json").read_text())["model_type"] == "tfm_gpt"
        assert not list(folder.glob("*.safetensors"))
    rates = {result.name: history(folder_of(tmp_path, result.name), "learning_rate") for result in results}
    assert rates["base"] == rates["wide"] and rates["base"][:2] == pytest.approx([1.5e-3, 3e-3])
    assert rates["linear"][0] == pytest.approx(2e-3 * 3 / 4)
    text = (tmp_path / "run" / "comparison.md").read_text()
    assert f"| post-norm, again | `norm_position: post` | {post.parameters:,} | {post.final_loss:.3f} |" in text
    assert (tmp_path / "run" / "comparison.png").stat().st_size > 20_000


@pytest.mark.slow
def test_each_is_what_the_recipe_of_language_modelling_trains(compare, tmp_path):
    """Whichever were trained before it."""
    sizes = f"{compare.options['config_overrides']},norm_type=rmsnorm"
    alone = compare.options | {"output_dir": tmp_path / "alone", "config_overrides": sizes, "sample_length": 0}
    Recipe("finetune_causal_lm", alone).trained()
    norm = {"norm_type": "rmsnorm"}
    compare(variants={"first": norm, "between": {"hidden_size": 48}, "last": norm}, save_models=True)
    for name in ("first", "last"):
        for key in ("loss", "grad_norm", "eval_loss"):
            assert history(folder_of(tmp_path, name), key) == history(tmp_path / "alone", key), (name, key)
    folders = (folder_of(tmp_path, "last"), tmp_path / "alone")
    kept, alone = (tfm_zoo.TfmGPTForCausalLM.from_pretrained(folder).state_dict() for folder in folders)
    assert all(map(torch.equal, kept.values(), alone.values()))


@pytest.mark.slow
@pytest.mark.parametrize("rate", [30.0, 1e30], ids=["explodes", "is not a number"])
def test_one_that_diverges_does_not_end_the_comparison(compare, tmp_path, rate):
    too_fast = {"learning_rate": rate, "warmup_steps": 0}
    options = {"variants": {"before": {}, "too fast": too_fast, "after": {}}, "max_grad_norm": 0}
    before, diverged, after = compare(**options)
    assert before.final_loss == after.final_loss and before.diverged_at is None
    assert diverged.diverged_at == diverged.steps <= 4 and diverged.final_loss is None
    row = next(line for line in (tmp_path / "run" / "comparison.md").read_text().splitlines() if "too fast" in line)
    assert f"diverged at step {diverged.steps} |" in row
    told = json.loads((tmp_path / "run" / "comparison.json").read_text(), parse_constant=pytest.fail)
    assert told["variants"][1]["outcome"] == f"diverged at step {diverged.steps}"
    assert compare(**options)[1] == diverged  # not once more


@pytest.mark.slow
def test_what_is_trained_is_not_trained_again(compare, tmp_path, monkeypatch):
    trained, train = [], Comparison.train
    monkeypatch.setattr(Comparison, "train", lambda *args: trained.append(args[2].name) or train(*args))
    first = compare(variants={"a": {}, "b": POST})
    (folder_of(tmp_path, "b") / "result.json").unlink()  # as if it had been stopped before its end
    again = compare(variants={"c": {"norm_type": "rmsnorm"}, "a": {}, "b": POST})
    assert trained == ["a", "b", "c", "b"]
    assert [result.name for result in again] == ["c", "a", "b"] and again[1] == first[0]
    assert again[2].final_loss == first[1].final_loss
    told = json.loads((tmp_path / "run" / "comparison.json").read_text())
    assert [entry["name"] for entry in told["variants"]] == ["c", "a", "b"]

    def refused(message: str, fields: dict | None = None, **options) -> None:
        with pytest.raises(ValueError, match=f"'a' of other settings: {message}"):
            compare(variants={"a": fields or {}}, **options)

    refused(r"learning_rate was 0\.003 and is 0\.01\.", learning_rate=1e-2)
    refused(r"config\.norm_position was pre and is post\.", POST)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(RECIPE, "device", lambda: "an abacus")
        refused(r"device was CPU.* and is an abacus\.")
    (tmp_path / "text.txt").write_text(TEXT.replace("cat", "cow"))
    refused("text and tokenizer was")
    assert len(trained) == 4
    compare(variants={"a": {}}, overwrite_output_dir=True)
    assert trained[4:] == ["a"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"norm_positon": "post"}, "variant 'a': .* no field 'norm_positon'; did you mean 'norm_position'"),
        ({"norm_position": "middle"}, "variant 'a': .*middle"),
        (
            {"attention_type": "linear", "sliding_window": 8},
            "variant 'a': sliding_window=8 has no meaning with attention_type='linear'",
        ),
        ({"num_attention_heads": 3}, "variant 'a': .*hidden_size=32 is not a multiple of num_attention_heads=3"),
        ({"max_position_embeddings": 16}, "variant 'a': block_size 32 is more than the 16 tokens"),
        ({"learning_rate": -1}, "variant 'a': learning_rate must be above 0, not -1"),
        ({"learning_rate": "fast"}, "variant 'a': could not convert string to float: 'fast'"),
        ({"vocab_size": 99}, "variant 'a': tokenizer .* has 280 tokens, more than the 99"),
    ],
)
def test_refused_before_anything_is_trained(compare, tmp_path, fields, message):
    assert re.search(message, compare.refusal(variants={"good": {}, "a": fields}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1", "give variants"),
        ("variants: '[a, b]'", "expected a mapping of names to fields"),
        ("variants: {a: post}", "variant 'a': expected a mapping of fields to values, not 'post'"),
        ("variants: {a/b: {}}", "variant 'a/b': its name should be one that a folder can have"),
        ("variants: {..: {}}", "variant '..': its name should be one that a folder can have"),
        ("variants: nowhere.yaml", "variants 'nowhere.yaml': no such file"),
        ("variant: {a: {}}", "unknown key 'variant'; did you mean 'variants'?"),
        ("variants: {a: {}}\nmodel_name_or_path: gpt2", "unknown key 'model_name_or_path'"),
        ("variants: {a: {}}\npush_to_hub: true", "unknown key 'push_to_hub'"),
    ],
)
def test_bad_options(tmp_path, capsys, text, message):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(SystemExit):
        parse_options(ComparisonOptions, ["--config", str(tmp_path / "config.yaml")])
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_deepspeed_is_refused(monkeypatch):
    """Its optimiser tells nobody that it has taken a step."""
    forget_processes()
    monkeypatch.setattr(Accelerator, "distributed_type", DistributedType.DEEPSPEED)
    run = Run("compare_architectures", Accelerator(cpu=True), ComparisonOptions(variants="{a: {}}"))
    with pytest.raises(ValueError, match="DeepSpeed: a comparison measures the steps of torch's optimisers"):
        Comparison(run, [], None, {}, [])


def test_variants_in_a_file_of_their_own(tmp_path):
    (tmp_path / "mine.yaml").write_text("variants:\n  1: {norm_type: rmsnorm, norm_eps: 1e-3}\n  plain:\n")
    argv = ["--config", str(CONFIGS[1]), "--variants", str(tmp_path / "mine.yaml"), "--base", "hidden_size=48"]
    args = replace(parse_options(ComparisonOptions, argv), block_size=32)
    one, plain = make_variants(args, byte_level_bpe([TEXT], 280))
    assert (one.name, plain.name) == ("1", "plain")
    assert (one.config.norm_eps, one.config.norm_type, plain.config.norm_type) == (1e-3, "rmsnorm", "layernorm")
    assert one.config.hidden_size == plain.config.hidden_size == 48
    assert (one.folder.name, one.folder.parent) == ("1", plain.folder.parent)


def test_by_itself(tmp_path, monkeypatch):
    """Without a configuration or data: the axes, on a built-in text."""

    def untrained(comparison, accelerator, variant) -> Result:
        assert comparison.block_size <= variant.config.max_position_embeddings
        return Result(variant.name, variant.changes, 1, 1, 1, 9.0, 9.0, None, None, None, {})

    monkeypatch.setattr(Comparison, "train", untrained)
    (tmp_path / "run").mkdir()
    results = Recipe("compare_architectures", {"output_dir": tmp_path / "run"})()
    assert [result.name for result in results] == list(yaml.safe_load(CONFIGS[0].read_text())["variants"])
    assert "The text is generated" in (tmp_path / "run" / "comparison.md").read_text()


def shipped(path: Path) -> dict[str, dict]:
    """What the configuration of each variant has otherwise than the first one's."""
    args = parse_options(ComparisonOptions, ["--config", str(path)])
    variants = make_variants(args, byte_level_bpe([TEXT], 280))
    first = variants[0].config.to_dict()
    return {v.name: {key: x for key, x in v.config.to_dict().items() if first.get(key) != x} for v in variants}


def test_shipped_variants_change_what_they_say():
    for path, axes in (
        (CONFIGS[0], "norm_position norm_type position_embedding_type attention_type sliding_window"),
        (CONFIGS[2], "norm_bias norm_position first_norm use_parallel_residual embedding_size layer_types"),
    ):
        changes = shipped(path)
        assert changes.pop("base") == {} and all(changes.values())
        assert {*axes.split()} <= {field for fields in changes.values() for field in fields}


def test_loss_of_frequencies():
    train, validation = (torch.tensor(ids, dtype=torch.int32) for ids in ([2, 2, 2, 0], [2, 1, 2, 2]))
    # Of each one more, of eight in all: 2 is 4 of them, 1 is 1.
    assert report.loss_of_frequencies(train, validation, 4) == pytest.approx((3 * math.log(2) + math.log(8)) / 4)


def test_peak_memory_and_time_of_steps(monkeypatch, tmp_path):
    size = 64 * 2**20
    held, memory = torch.ones(size // 4), costs.PeakMemory(torch.device("cpu"))

    def used(work: Callable = lambda: None) -> int | None:
        memory.start()
        work()
        memory.stop()
        return memory.bytes

    assert used() < size / 4
    assert 0.9 * size < used(lambda: torch.ones(size // 4).add_(held)) < 1.25 * size
    torch.ones(2 * size // 4)  # nobody looks
    assert used() < 1.25 * size
    monkeypatch.setattr(costs, "RESET", tmp_path / "nowhere" / "clear_refs")
    memory = costs.PeakMemory(torch.device("cpu"))
    assert used() is None

    times = iter([0, 1, 3, 100, 103, 110])
    monkeypatch.setattr(costs, "perf_counter", lambda: next(times))
    watch = costs.Stopwatch(torch.device("cpu"))
    assert watch.median is None
    for act in (watch.lap, watch.lap, watch.restart, watch.lap, watch.lap):
        act()
    assert watch.laps == [1, 2, 3, 7] and watch.median == 2.5
