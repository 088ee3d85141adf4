"""What the options name learns, when they say so, as fast as they say; and nothing else moves."""

import re
import shutil

import pytest
import torch
from safetensors.torch import load_file

import tfm_zoo
from tfm_zoo.training.freezing import depths, freeze, freeze_base_model
from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.optimization import parameter_groups

from ..official_models import BY_NAME, build_tiny
from ..tiny import ragged_batch, recompute_activations, tiny_model
from .tensors import classifier, logged

#: by model: parameters of each depth. Layers: 2, of the zoo's decoder beside an encoder 3; of native models 3, of their
#: decoders beside an encoder 2.
DEPTHS = {
    "TfmBertForSequenceClassification": """
        classifier.out_proj.weight classifier.dense.bias | model.layers.1.self_attn.q_proj.weight
        model.layers.1.mlp_norm.bias | model.layers.0.mlp.down_proj.bias | model.embeddings.norm.weight""",
    "TfmEncoderDecoderForSequenceClassification": """
        classification_head.out_proj.weight | model.encoder.layers.1.mlp.up_proj.weight
        model.decoder.layers.2.encoder_attn.q_proj.weight | model.decoder.layers.1.encoder_attn.q_proj.weight
        model.encoder.layers.0.mlp.up_proj.weight | model.decoder.layers.0.mlp.up_proj.weight
        | model.encoder.embeddings.embed_tokens.weight""",
    "BertForPreTraining": """
        cls.predictions.bias cls.predictions.transform.dense.weight bert.pooler.dense.weight
        | bert.encoder.layer.2.attention.self.query.weight | | bert.encoder.layer.0.output.LayerNorm.bias
        | bert.embeddings.word_embeddings.weight bert.embeddings.LayerNorm.bias""",
    # names the tied weight after its head
    "XLMRobertaForMaskedLM": """
        lm_head.dense.weight lm_head.bias | | roberta.encoder.layer.1.intermediate.dense.weight |
        | lm_head.decoder.weight roberta.embeddings.position_embeddings.weight""",
    "GPT2LMHeadModel": """
        transformer.ln_f.weight | transformer.h.2.attn.c_attn.weight | | transformer.h.0.ln_1.bias
        | transformer.wte.weight transformer.wpe.weight""",
    # not tied
    "LlamaForCausalLM": "lm_head.weight model.norm.weight | | | model.layers.0.mlp.gate_proj.weight"
    " | model.embed_tokens.weight",
    "MBartForSequenceClassification": """
        classification_head.dense.weight model.encoder.layer_norm.weight model.decoder.layer_norm.bias
        | model.encoder.layers.2.fc1.weight model.decoder.layers.1.fc1.weight
        | model.encoder.layers.1.fc1.weight model.decoder.layers.0.fc1.weight | model.encoder.layers.0.fc1.weight
        | model.shared.weight model.decoder.embed_positions.weight model.encoder.layernorm_embedding.bias""",
}
FAMILIES = ["TfmBertForSequenceClassification", "TfmGPTForCausalLM", "TfmEncoderDecoderForConditionalGeneration"]
HEAD = {f"classifier.{name}" for name in ("dense.weight", "dense.bias", "out_proj.weight", "out_proj.bias")}


def model_of(name: str, **fields):
    head = getattr(tfm_zoo, name, None)
    return tiny_model(head, **fields) if head else build_tiny(BY_NAME[name], **fields)


def learning(model) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def weights(made: Loop, step: int) -> dict[str, torch.Tensor]:
    return load_file(made.output_dir / f"checkpoint-{step}" / "model.safetensors")


@pytest.mark.parametrize("name", DEPTHS)
def test_depths(name):
    model, wanted = model_of(name), [part.split() for part in DEPTHS[name].split("|")]
    found = depths(model)
    assert found.keys() == {name for name, _ in model.named_parameters()}
    assert found | {name: depth for depth, names in enumerate(wanted) for name in names} == found
    assert set(found.values()) == set(range(len(wanted)))


@pytest.mark.parametrize(
    ("patterns", "frozen"),
    [
        (["embeddings.*", "classifier"], r"model\.embeddings\..*|classifier\..*"),
        (["layers.[0-1]"], r"model\.layers\.[01]\..*"),
        (["layers.1"], r"model\.layers\.1\..*"),  # and not the tenth
        (["model.layers.1?"], r"model\.layers\.10\..*"),
        (["layers.0.*.weight"], r"model\.layers\.0\..*\.weight"),
        (["classifier.dense.bias"], r"classifier\.dense\.bias"),
        (["*norm"], r".*norm\.(weight|bias)"),
        # a tied weight by either name
        (["lm_head"], r"model\.embeddings\.embed_tokens\.weight"),
        (["embed_tokens"], r"model\.embeddings\.embed_tokens\.weight"),
    ],
    ids=str,
)
def test_names_that_are_frozen(patterns, frozen):
    is_tied = "embed_tokens" in frozen
    model = model_of(FAMILIES[is_tied], **({} if is_tied else {"num_hidden_layers": 11}))
    freeze(model, patterns)
    expected = {name for name, _ in model.named_parameters() if re.fullmatch(frozen, name)}
    assert expected and learning(model) == depths(model).keys() - expected


@pytest.mark.parametrize("name", FAMILIES)
def test_what_learns_above_frozen_layers_has_the_gradients_it_would_have(name):
    """Dropout included; and through layers that are recomputed, above inputs that want no gradient."""
    model = model_of(name).train()
    batch = ragged_batch(type(model), labels=True)

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(1)
        model(**batch).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    whole = gradients()
    freeze(model, ["embeddings", "layers.0", "self_attn.v_proj"])
    for prepare in (lambda model: None, recompute_activations):
        prepare(model)
        above = gradients()
        assert above.keys() == learning(model) and len(above) < len(whole)
        assert all(torch.equal(above[name], whole[name]) for name in above)


def test_rates_by_depth_and_decay_of_matrices_alone():
    model = model_of(FAMILIES[0])
    freeze_base_model(model)  # what is frozen now may learn later, and must be in the optimiser
    names = {parameter: name for name, parameter in model.named_parameters()}
    for decay in (None, 0.5):
        groups = parameter_groups(model, 0.1, weight_decay=0.01, layerwise_lr_decay=decay)
        of = {names[p]: (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
        assert sum(len(group["params"]) for group in groups) == len(of) == len(names)
        for name, depth in depths(model).items():
            decays = not (name.endswith("bias") or "norm" in name)
            assert of[name] == (pytest.approx(0.1 * (decay or 1) ** depth), 0.01 if decays else 0), name


def test_the_first_step_is_as_long_as_the_rate_of_the_layer(loop):
    """Adam's first step moves every parameter that has a gradient by the learning rate."""
    options = {"max_train_steps": 1, "warmup_steps": 0, "weight_decay": 0, "adam_epsilon": 1e-20}
    made = loop(layerwise_lr_decay=0.5, lr_scheduler_type="constant", checkpointing_steps=1, **options)
    train(made)
    before, after = classifier(), weights(made, 1)
    for name, depth in depths(before).items():
        step = (after[name] - before.state_dict()[name]).abs().max().item()
        assert step == pytest.approx(1e-3 * 0.5**depth, rel=0.02), name
    assert logged(made, "learning_rate") == [1e-3]
    card = (made.output_dir / "README.md").read_text()
    assert "| learning rate of a layer | 0.5 times that of what is above it |" in card


@pytest.mark.parametrize("frozen", [[], ["embeddings", "classifier.dense"]], ids=str)
def test_frozen_epochs_train_the_head_alone(trained, caplog, frozen):
    """What is frozen by name never learns."""
    made = trained(freeze_epochs=1, checkpointing_steps="epoch", **({"freeze": frozen} if frozen else {}))
    told = [line for line in caplog.messages if line.startswith("epoch") and "parameters learn" in line]
    assert told[0].startswith("epoch 1, one of 1 with the base model frozen: ") and len(told) == 2
    assert told[1].startswith("epoch 2, the first with the whole model: ")
    start, first, second = classifier().state_dict(), weights(made, 4), weights(made, 8)
    never = {name for name in start if frozen and name.startswith(("model.embeddings.", "classifier.dense."))}
    assert moved(start, first) == HEAD - never
    assert moved(first, second) == start.keys() - never
    with pytest.raises(ValueError, match=r"freeze \['classifier'\]: nothing is left to learn"):
        trained(freeze=["classifier"], freeze_epochs=1)


def test_the_frozen_phase_has_its_own_rate_and_schedule(loop, trained, tmp_path):
    """4 steps of the head, an epoch, at a large rate, and 8 of everything at a small one. Resumed in either phase."""
    options = {"freeze_epochs": 1, "frozen_learning_rate": 0.1, "num_train_epochs": 3, "warmup_steps": 0.25}
    options |= {"learning_rate": 1e-3, "save_total_limit": 9}
    whole = loop(checkpointing_steps=2, **options)
    results = train(whole)
    rates = logged(whole, "learning_rate")  # after each step, those of the next
    head, everything = (1, 2 / 3, 1 / 3), (0, 1 / 2, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0)
    assert rates == pytest.approx([0.1 * factor for factor in head] + [1e-3 * factor for factor in everything])
    assert moved(weights(whole, 2), weights(whole, 4)) == HEAD
    for step in (2, 6):
        folder = tmp_path / f"from {step}"
        shutil.copytree(whole.output_dir, folder)
        for later in range(step + 2, 13, 2):
            shutil.rmtree(folder / f"checkpoint-{later}")
        resumed = trained(checkpointing_steps=12, output_dir=folder, resume_from_checkpoint="auto", **options)
        assert resumed.results()["train_loss"] == results["train_loss"]
        assert logged(resumed, "learning_rate") == rates
        assert not moved(weights(whole, 12), weights(resumed, 12))
    card = (whole.output_dir / "README.md").read_text()
    assert "| epochs with the base model frozen | 1, at a learning rate of 0.1" in card
    other = options | {"max_train_steps": 12, "per_device_train_batch_size": 8}  # with 8 steps an epoch
    with pytest.raises(ValueError, match="another run: global_batch_size was 16 and is 8"):
        trained(output_dir=whole.output_dir, resume_from_checkpoint="auto", **other)
