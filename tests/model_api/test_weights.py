"""Weights: their names, and their values before training."""

from unittest import mock

import pytest
import torch

from tfm_zoo import (
    TfmBertForMaskedLM,
    TfmBertForPreTraining,
    TfmEncoderDecoderForConditionalGeneration,
    TfmGPTForCausalLM,
)

from ..tiny import ragged_batch, tiny_config, tiny_model

BY_TYPE = {name: {"rope_type": "default", "rope_theta": 1e4} for name in ("full_attention", "sliding_attention")}
LONGROPE = {"long_factor": [2.0] * 4, "short_factor": [1.5] * 4, "original_max_position_embeddings": 8}


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


def empty(model, way: str):
    """A model without weights, whose memory holds sevens, and then the state dict of this one, in one of four ways."""
    with torch.device("cpu" if way == "in use" else "meta"):
        other = type(model)(model.config)
    with mock.patch("torch.empty_like", lambda tensor, **options: torch.full_like(tensor, 7, **options)):
        for module in reversed([*other.modules()]) if way == "module by module" else [other]:
            if way != "assigned":
                module.to_empty(device="cpu", recurse=module is other)
    other.load_state_dict(model.state_dict(), assign=way == "assigned")
    return other.eval()


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        (TfmEncoderDecoderForConditionalGeneration, {}),
        (TfmBertForMaskedLM, {"position_embedding_type": "alibi"}),
        (TfmGPTForCausalLM, {"position_embedding_type": "alibi", "position_ids_from_mask": True}),
        *(
            (TfmGPTForCausalLM, {"position_embedding_type": "rotary", "rope_parameters": parameters} | fields)
            for parameters, fields in (
                (None, {}),
                ({"rope_type": "dynamic", "factor": 2.0}, {"max_position_embeddings": 6}),
                ({"rope_type": "longrope", "factor": 2.0} | LONGROPE, {}),
                (BY_TYPE, {"layer_types": [*BY_TYPE], "sliding_window": 3}),
            )
        ),
    ],
)
def test_no_state_dict_holds_what_follows_from_the_configuration(head, fields):
    model, batch = tiny_model(head, **fields), ragged_batch(head)
    wanted = model(**batch).logits
    for way in ("meta", "assigned", "in use", "module by module"):
        other = empty(model, way)
        assert other(**batch).logits.equal(wanted), way
        halved = other.bfloat16()(**batch).logits
        assert halved.dtype == torch.bfloat16, way
        assert halved.float().allclose(wanted, atol=0.1 * wanted.abs().max().item()), way
