"""Promises that each recipe keeps."""

import pytest
import torch
from safetensors.torch import load_file

from .conftest import ROOT, Recipe, imported


@pytest.mark.parametrize(
    ("train", "pattern"),
    [("finetune", "embeddings"), ("train_lm", "embed_positions"), ("train_translation", "encoder.layers")],
)
def test_frozen_in_every_recipe(train, pattern, request, tmp_path):
    """Not one bit moves, whatever weight decay would do; everything else learns."""
    options = {"freeze": [pattern, "mlp.up_proj.bias"], "checkpointing_steps": 1, "max_train_steps": 2}
    options |= {"weight_decay": 0.1, "warmup_steps": 0, "sample_length": 0 if train == "train_lm" else None}
    options |= {"gradient_checkpointing": train == "finetune"}
    request.getfixturevalue(train)(**options)
    run = tmp_path / "run"
    before, after = (load_file(run / f"checkpoint-{step}" / "model.safetensors") for step in (1, 2))
    frozen = {name for name in before if f".{pattern}." in name or name.endswith("mlp.up_proj.bias")}
    assert len(frozen) > 1
    assert {name for name in before if not torch.equal(before[name], after[name])} == before.keys() - frozen
    card = (run / "README.md").read_text()
    assert f"| frozen | `{pattern}`, `mlp.up_proj.bias` |" in card
    assert "gradual unfreezing" not in card and "learning rate of a layer" not in card


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("finetune_classification", {"dataset_name": "generated"}),
        ("pretrain_bert", {"dataset_name": "generated", "config_overrides": "max_position_embeddings=30"}),
    ],
)
def test_a_length_that_is_no_multiple_of_8_in_mixed_precision(name, options, tmp_path):
    """Batches are padded to no more than the positions that the model has, of rows or of pieces of documents."""
    options |= {"max_seq_length": 30, "mixed_precision": "bf16", "max_train_steps": 2, "output_dir": tmp_path / "run"}
    options |= {"max_train_samples": 40, "max_eval_samples": 10}
    loop = Recipe(imported(ROOT / "recipes" / f"{name}.py"), options).trained()
    assert (loop.state.step, loop.model.config.max_position_embeddings) == (2, 30)
