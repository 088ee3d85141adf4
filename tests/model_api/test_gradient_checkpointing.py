"""Gradient checkpointing gives the same gradients."""

import pytest
import torch

from ..tiny import (
    DECODERS,
    ENCODER_DECODERS,
    ENCODERS,
    ragged_batch,
    tiny_model,
)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(
    ("head", "fields"),
    [(head, {"skip_padding": skip}) for head in ENCODERS for skip in (True, False)]
    + [(head, {"use_cache": cached}) for head in DECODERS for cached in (True, False)]
    + [(head, {"use_cache": True, "skip_padding": skip}) for head in ENCODER_DECODERS for skip in (True, False)],
)
def test_gradient_checkpointing(head, fields, reentrant):
    batch = ragged_batch(head, labels=True)

    def gradients(checkpoint: bool) -> dict:
        model = tiny_model(head, **fields).train()  # dropout must be the same in both passes
        if checkpoint:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            # Re-entrant checkpointing follows the inputs' gradients; this is what the Trainer calls for that.
            model.enable_input_require_grads()
        torch.manual_seed(1)
        outputs = model(**batch)
        (outputs.loss if "loss" in outputs else outputs[0].square().sum() + outputs[-1].sum()).backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    ours, theirs = gradients(True), gradients(False)
    scale = torch.stack([gradient.norm() for gradient in theirs.values() if gradient is not None]).norm()
    for name, wanted in theirs.items():
        assert (ours[name] is None) == (wanted is None), name
        if wanted is not None:  # (that of a key's bias is rounding alone)
            assert (ours[name] - wanted).norm() <= 1e-5 * wanted.norm() + 1e-7 * scale, name
