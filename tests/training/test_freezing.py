"""What the options name learns; and nothing else moves."""

import re
from contextlib import nullcontext

import pytest
import torch

import tfm_zoo
from tfm_zoo.training.learning_parts import freeze

from ..tiny import tiny_model
from .conftest import classifier

BERT, GPT = tfm_zoo.TfmBertForSequenceClassification, tfm_zoo.TfmGPTForCausalLM


def learning(model) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


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
    model = tiny_model(GPT) if is_tied else tiny_model(BERT, num_hidden_layers=11)
    with pytest.raises(ValueError, match=refused) if refused else nullcontext():
        freeze(model, patterns)
        expected = {name for name, _ in model.named_parameters() if re.fullmatch(frozen, name)}
        assert expected and learning(model) == {name for name, _ in model.named_parameters()} - expected


def test_matrices_alone_decay_and_what_is_frozen_never_moves(loop):
    made = loop(freeze=["embeddings"], num_train_epochs=1)
    start, names = classifier().state_dict(), {parameter: name for name, parameter in made.model.named_parameters()}
    of = {names[p]: group["weight_decay"] for group in made.optimizer.param_groups for p in group["params"]}
    assert of == {name: 0 if name.endswith("bias") or "norm" in name else 0.01 for name in names.values()}
    made.train()
    assert moved(start, made.model.state_dict()) == {name for name in start if "embeddings" not in name}
