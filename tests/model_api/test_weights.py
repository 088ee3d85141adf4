"""Weights: their names, and their values before training."""

import pytest

from tfm_zoo import TfmBertForMaskedLM, TfmBertForPreTraining

from ..tiny import (
    tiny_config,
    tiny_model,
)


def test_initial_weights():
    config = tiny_config(hidden_size=64, intermediate_size=256, position_ids_from_padding=True, pad_token_id=1)
    for name, tensor in TfmBertForPreTraining(config).state_dict().items():
        if name.endswith("norm.weight"):
            assert tensor.eq(1).all(), name
        elif tensor.dim() == 1:
            assert tensor.eq(0).all(), name
        else:
            assert tensor.std().item() == pytest.approx(config.initializer_range, rel=0.15), name
            if "embed_tokens" in name or "embed_positions" in name:
                assert tensor[1].eq(0).all(), name


def test_module_names():
    """The names that tensor-parallel plans, adapters and quantisers look for."""
    gated = tiny_model(TfmBertForMaskedLM, num_hidden_layers=1, mlp_type="gated", attention_bias=False, mlp_bias=False)
    names = {name.removesuffix(".weight") for name in gated.state_dict() if name.endswith("weight")}
    block = [f"self_attn.{name}_proj" for name in "qkvo"] + ["self_attn_norm", "mlp_norm"]
    block += [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    tables = ["embed_tokens", "embed_positions", "embed_token_types", "norm"]
    wanted = {f"model.layers.0.{name}" for name in block} | {f"model.embeddings.{name}" for name in tables}
    assert names == wanted | {"head.dense", "head.norm", "lm_head"}
    assert not [name for name in gated.state_dict() if "proj.bias" in name]
