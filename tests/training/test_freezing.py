"""What the options name learns, when they say so, as fast as they say; and nothing else moves."""

import re
import shutil
from contextlib import nullcontext

import pytest
import torch
from safetensors.torch import load_file

import tfm_zoo
from tfm_zoo.training.freezing import depths, freeze
from tfm_zoo.training.loop import train

from ..official_models import BY_NAME, build_tiny
from ..recipes.conftest import logged
from ..tiny import tiny_model
from .conftest import classifier

BERT = "TfmBertForSequenceClassification"
#: by model: parameters of each depth. Layers: 2, of the zoo's decoder beside an encoder 3; of native models 3, of their
#: decoders beside an encoder 2.
DEPTHS = {
    BERT: """
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
    # not tied
    "LlamaForCausalLM": "lm_head.weight model.norm.weight | | | model.layers.0.mlp.gate_proj.weight"
    " | model.embed_tokens.weight",
    "MBartForSequenceClassification": """
        classification_head.dense.weight model.encoder.layer_norm.weight model.decoder.layer_norm.bias
        | model.encoder.layers.2.fc1.weight model.decoder.layers.1.fc1.weight
        | model.encoder.layers.1.fc1.weight model.decoder.layers.0.fc1.weight | model.encoder.layers.0.fc1.weight
        | model.shared.weight model.decoder.embed_positions.weight model.encoder.layernorm_embedding.bias""",
}


def model_of(name: str, **fields):
    head = getattr(tfm_zoo, name, None)
    return tiny_model(head, **fields) if head else build_tiny(BY_NAME[name], **fields)


def learning(model) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def weights(made, step: int) -> dict[str, torch.Tensor]:
    return load_file(made.output_dir / f"checkpoint-{step}" / "model.safetensors")


@pytest.mark.parametrize("name", DEPTHS)
def test_depths(name):
    model, wanted = model_of(name), [part.split() for part in DEPTHS[name].split("|")]
    found = depths(model)
    assert found.keys() == {name for name, _ in model.named_parameters()}
    assert found | {name: depth for depth, names in enumerate(wanted) for name in names} == found
    assert set(found.values()) == set(range(len(wanted)))


@pytest.mark.parametrize(
    ("patterns", "frozen", "refused"),
    [
        (["embeddings.*", "classifier"], r"model\.embeddings\..*|classifier\..*", None),
        (["layers.1"], r"model\.layers\.1\..*", None),  # and not the tenth
        (["layers.[0-1].*.weight"], r"model\.layers\.[01]\..*\.weight", None),
        (["*norm"], r".*norm\.(weight|bias)", None),
        # a tied weight by either name
        (["lm_head"], r"model\.embeddings\.embed_tokens\.weight", None),
        (["embed_tokens"], r"model\.embeddings\.embed_tokens\.weight", None),
        (["embedings.*"], "", r"freeze 'embedings\.\*': Tfm.* has no parameter of that name; near: \['embeddi"),
        (["classifier", "layer.[0-3]"], "", r"freeze 'layer\.\[0-3\]': .* near: \['layers\."),
        (["model", "classifier"], "", r"freeze \['model', 'classifier'\]: nothing is left to learn"),
    ],
    ids=str,
)
def test_names_that_are_frozen(patterns, frozen, refused):
    is_tied = "embed_tokens" in frozen
    model = model_of("TfmGPTForCausalLM") if is_tied else model_of(BERT, num_hidden_layers=11)
    with pytest.raises(ValueError, match=refused) if refused else nullcontext():
        freeze(model, patterns)
        expected = {name for name, _ in model.named_parameters() if re.fullmatch(frozen, name)}
        assert expected and learning(model) == depths(model).keys() - expected


@pytest.mark.parametrize("decay", [None, 0.5])
def test_rates_by_depth_and_decay_of_matrices_alone(loop, decay):
    """What is frozen now may learn later, and is in the optimiser."""
    options = {"lr_scheduler_type": "constant", "warmup_steps": 0, "learning_rate": 0.1, "freeze_epochs": 1}
    made = loop(layerwise_lr_decay=decay, **options)
    names = {parameter: name for name, parameter in made.model.named_parameters()}
    groups = made.optimizer.param_groups
    of = {names[p]: (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(of) == len(names)
    for name, depth in depths(classifier()).items():
        decays = not (name.endswith("bias") or "norm" in name)
        assert of[name] == (pytest.approx(0.1 * (decay or 1) ** depth), 0.01 if decays else 0), name


def test_the_frozen_phase_trains_the_head_alone_with_its_own_rate_and_schedule(loop, trained, tmp_path, caplog):
    """4 steps, an epoch, at a large rate, and 8 of everything at a small one. Resumed in either phase. What is frozen
    by name never learns."""
    options = {"freeze_epochs": 1, "frozen_learning_rate": 0.1, "num_train_epochs": 3, "warmup_steps": 0.25}
    options |= {"learning_rate": 1e-3, "save_total_limit": 9, "freeze": ["embeddings", "classifier.dense"]}
    whole = loop(checkpointing_steps=2, **options)
    results = train(whole)
    told = [line for line in caplog.messages if line.startswith("epoch") and "parameters learn" in line]
    assert told[0].startswith("epoch 1, one of 1 with the base model frozen: ") and len(told) == 2
    assert told[1].startswith("epoch 2, the first with the whole model: ")
    rates = logged(whole, "learning_rate")  # after each step, those of the next
    head, everything = (1, 2 / 3, 1 / 3), (0, 1 / 2, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0)
    assert rates == pytest.approx([0.1 * factor for factor in head] + [1e-3 * factor for factor in everything])
    start, first, last = classifier().state_dict(), weights(whole, 4), weights(whole, 12)
    assert moved(start, first) == {"classifier.out_proj.weight", "classifier.out_proj.bias"}
    frozen = {name for name in start if name.startswith(("model.embeddings.", "classifier.dense."))}
    assert moved(first, last) == start.keys() - frozen
    for step in (2, 6):
        folder = tmp_path / f"from {step}"
        shutil.copytree(whole.output_dir, folder)
        for later in range(step + 2, 13, 2):
            shutil.rmtree(folder / f"checkpoint-{later}")
        resumed = trained(checkpointing_steps=12, output_dir=folder, resume_from_checkpoint="auto", **options)
        assert resumed.results()["train_loss"] == results["train_loss"]
        assert logged(resumed, "learning_rate") == rates
        assert not moved(last, weights(resumed, 12))
    card = (whole.output_dir / "README.md").read_text()
    assert "| epochs with the base model frozen | 1, at a learning rate of 0.1" in card
    other = options | {"max_train_steps": 12, "per_device_train_batch_size": 8}  # with 8 steps an epoch
    with pytest.raises(ValueError, match="another run: global_batch_size was 16 and is 8"):
        trained(output_dir=whole.output_dir, resume_from_checkpoint="auto", **other)
    with pytest.raises(ValueError, match=r"freeze \['classifier'\]: nothing is left to learn"):
        trained(freeze=["classifier"], freeze_epochs=1)
