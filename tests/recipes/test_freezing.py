"""Parameters that are frozen by name stay as they are, in every recipe."""

import pytest
import torch
from safetensors.torch import load_file


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
