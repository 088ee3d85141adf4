"""The comparison of architectures: all variants alike but for what they change, whatever becomes of one of them."""

import json
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from accelerate import Accelerator

from tfm_zoo.data.options import parse_options
from tfm_zoo.training.tokenizers import byte_level_bpe

from .conftest import ROOT, TEXT, Recipe, history, imported, same_weights

RECIPE = imported(ROOT / "recipes" / "compare_architectures.py")  # after which its own modules can be imported
report = import_module("comparison.results")
POST = {"norm_position": "post"}


@pytest.fixture
def compare(recipe, monkeypatch) -> Recipe:
    monkeypatch.setattr(report, "plot_comparison", lambda *_: None)  # a second saved
    return recipe("comparison")


def folder_of(tmp_path: Path, variant: str) -> Path:
    return tmp_path / "run" / "variants" / variant


@pytest.mark.slow
def test_each_is_what_the_recipe_of_language_modelling_trains(compare, tmp_path, monkeypatch):
    """Whichever were trained before it. Their figures are told in a table and a picture."""
    monkeypatch.undo()  # with its picture
    own = {"attention_type": "linear", "learning_rate": 2e-3, "warmup_steps": 0}
    variants = {"base": {}, "post-norm, again": POST, "linear": own, "wide": {"intermediate_size": 128}, "last": POST}
    results = compare(variants=variants, save_models=True)
    assert [result.name for result in results] == [*variants]
    base, post, _, wide, _ = results
    assert wide.parameters - base.parameters == 2 * 2 * 64 * 32 + 2 * 64  # in each of two layers
    assert base.parameters - post.parameters == 64  # the norm after the last layer
    for result in results:
        assert result.tokens_per_step == 4 * 32 and result.tokens_per_second > 0 and result.peak_memory > 0
        losses = history(folder_of(tmp_path, result.name), "eval_loss")
        assert len(losses) == 2 and losses[-1] == result.final_loss
    rates = {result.name: history(folder_of(tmp_path, result.name), "learning_rate") for result in results}
    assert rates["base"] == rates["wide"] and rates["base"][:2] == pytest.approx([1.5e-3, 3e-3])
    assert rates["linear"][0] == pytest.approx(2e-3 * 3 / 4)
    assert f"{post.parameters:,} | {post.final_loss:.3f}" in (tmp_path / "run" / "comparison.md").read_text()
    assert (tmp_path / "run" / "comparison.png").stat().st_size > 20_000

    sizes = f"{compare.options['config_overrides']},hidden_dropout=0,attention_dropout=0,norm_position=post"
    alone = compare.options | {"output_dir": tmp_path / "alone", "config_overrides": sizes, "sample_length": 0}
    Recipe("finetune_causal_lm", alone).trained()
    for name in ("post-norm, again", "last"):
        folder = folder_of(tmp_path, name)
        for key in ("loss", "grad_norm", "eval_loss"):
            assert history(folder, key) == history(tmp_path / "alone", key), (name, key)
        assert same_weights(folder, tmp_path / "alone")


@pytest.mark.slow
def test_one_that_diverges_does_not_end_the_comparison(compare, tmp_path):
    too_fast = {"learning_rate": 1e30, "warmup_steps": 0}
    options = {"variants": {"before": {}, "too fast": too_fast, "after": {}}, "max_grad_norm": 0}
    before, diverged, after = compare(**options)
    assert before.final_loss == after.final_loss and before.diverged_at is None
    assert diverged.diverged_at == diverged.steps <= 4 and diverged.final_loss is None
    outcome = f"diverged at step {diverged.steps}"
    told = json.loads((tmp_path / "run" / "comparison.json").read_text(), parse_constant=pytest.fail)["variants"]
    assert told[1]["outcome"] == outcome and outcome in (tmp_path / "run" / "comparison.md").read_text()
    assert compare(**options)[1] == diverged  # not once more


@pytest.mark.slow
def test_what_is_trained_is_not_trained_again(compare, tmp_path, monkeypatch):
    trained, train = [], RECIPE.Comparison.train
    monkeypatch.setattr(RECIPE.Comparison, "train", lambda *args: trained.append(args[2].name) or train(*args))
    first = compare(variants={"a": {}, "b": POST})
    (folder_of(tmp_path, "b") / "result.json").unlink()  # as if it had been stopped before its end
    again = compare(variants={"c": {"norm_type": "rmsnorm"}, "a": {}, "b": POST})
    assert trained == ["a", "b", "c", "b"] and [result.name for result in again] == ["c", "a", "b"]
    assert again[1] == first[0] and again[2].final_loss == first[1].final_loss

    (tmp_path / "text.txt").write_text(TEXT.replace("cat", "cow"))
    for message, options in {
        r"learning_rate was 0\.003 and is 0\.01\.": {"learning_rate": 1e-2},
        r"config\.norm_position was pre and is post\.": {"variants": {"a": POST}},
        "text and tokenizer was": {"train_file": tmp_path / "text.txt"},
    }.items():
        assert re.search(f"'a' of other settings: {message}", compare.refusal(**{"variants": {"a": {}}} | options))
    assert len(trained) == 4
    with pytest.raises(ConnectionError), pytest.MonkeyPatch.context() as patch:  # what is refused keeps its result
        patch.setattr(Accelerator, "init_trackers", Mock(side_effect=ConnectionError))
        compare(variants={"a": {}}, overwrite_output_dir=True)
    assert (folder_of(tmp_path, "a") / "result.json").exists() and trained.pop() == "a"
    compare(variants={"a": {}}, overwrite_output_dir=True)
    assert trained[4:] == ["a"]


def variants_of(*words: object) -> list:
    options = replace(parse_options(RECIPE.ComparisonOptions, [*map(str, words)]), block_size=32)
    return RECIPE.make_variants(options, byte_level_bpe([TEXT], 280))


def test_variants_in_a_file_of_their_own_and_as_shipped(tmp_path):
    for name in ("architectures", "later_axes", "experts", "post_or_pre_norm"):
        config = ROOT / "recipes" / "configs" / f"{name}.yaml"
        wanted = yaml.safe_load(config.read_text())["variants"]
        assert [each.name for each in variants_of("--config", config)] == [*wanted]
    (mine := tmp_path / "mine.yaml").write_text("variants:\n  1: {norm_type: rmsnorm, norm_eps: 1e-3}\n  plain:\n")
    one, plain = variants_of("--config", config, "--variants", mine, "--base", "hidden_size=48")
    assert (one.name, plain.name, one.folder.name) == ("1", "plain", "1")
    assert (one.config.norm_eps, one.config.norm_type, plain.config.norm_type) == (1e-3, "rmsnorm", "layernorm")
    assert one.config.hidden_size == plain.config.hidden_size == 48
