"""What cannot be shown is refused in a line, before a file is written; the model is left as it was."""

from functools import partial

import pytest
import torch

import tfm_zoo
from tfm_zoo.visualization import (
    TrainedModel,
    attention_maps,
    decision_rollout,
    plot_comparison,
    plot_positions,
    plot_schedules,
)

from ..official_models import BY_NAME, build_tiny
from ..tiny import tiny_config, tiny_model
from ..words import make_tokenizer
from .conftest import ENDS, TARGET, TEXT

LEARNED = ENDS | {"position_embedding_type": "learned"}
IDS = torch.ones(1, 9).long()
TRANSLATOR = partial(tiny_model, tfm_zoo.TfmEncoderDecoderForConditionalGeneration, **ENDS)
LONG = partial(tiny_model, tfm_zoo.TfmEncoderDecoderModel, **LEARNED)
LINEAR = partial(tiny_model, tfm_zoo.TfmBertModel, attention_type="linear")
MIXED = {"layer_types": ["full_attention", "linear_attention"]}


def wordless():
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    return tokenizer


def words(text: str, target: str | None = None, tokenizer=make_tokenizer) -> dict:
    return {"tokenizer": tokenizer(), "text": text} | ({"target": target} if target else {})


@pytest.mark.parametrize(
    ("make", "given", "complaint"),
    [
        (partial(tiny_model, tfm_zoo.TfmGPTForCausalLM), words(TEXT, TARGET), "reads no target"),
        (LONG, words(TEXT), "writes no target by itself: give it"),
        (LONG, words(TEXT, "film " * 40), "target has 42 tokens, .* at most 24"),
        (LINEAR, words(TEXT), "TfmBertModel: linear attention has no weights"),
        (lambda: build_tiny(BY_NAME["MarianModel"]), words(TEXT, TARGET), "MarianModel has no head: load the class of"),
        (partial(tiny_model, tfm_zoo.TfmGPTForCausalLM), words("", tokenizer=wordless), "text has no token"),
        (TRANSLATOR, {}, "takes these, or input_ids"),
        (TRANSLATOR, {"input_ids": IDS[0]}, r"input_ids of shape \(9,\) should be of shape \(1, length\)"),
        (TRANSLATOR, {"input_ids": IDS, "target": TARGET}, "target 'a bright film' needs a tokenizer"),
    ],
)
def test_maps(make, given, complaint):
    model = make().train()
    with pytest.raises(ValueError, match=complaint):
        attention_maps(model, **given)
    assert model.training and model.config._attn_implementation == "sdpa"


def rollout(path):
    decision_rollout(tiny_model(tfm_zoo.TfmGPTForSequenceClassification, **MIXED), make_tokenizer(), TEXT)


def of_kind(kind: str):
    return tiny_config(tfm_zoo.TfmBertConfig, position_embedding_type=kind)


def schedules(*names: str, **options):
    return lambda path: plot_schedules(list(names), path=path, **options)


def comparison(count: int, suffix: str = ".png"):
    models = [TrainedModel("a variant", [(1, 4.0)], [], {})] * count
    return lambda path: plot_comparison(models, path.with_suffix(suffix))


@pytest.mark.parametrize(
    ("plot", "complaint"),
    [
        (rollout, r"TfmGPTForSequenceClassification has linear attention \(layers 1\)"),
        (comparison(0), "0 models"),
        (comparison(2, ".gif"), "a.gif"),
        (partial(plot_positions, of_kind("none")), "position_embedding_type='none': the model has no positions"),
        (partial(plot_positions, of_kind("learned")), "which a configuration lacks"),
        (partial(plot_positions, torch.nn.Linear(2, 2)), "Linear is not a model of the zoo: tfm_zoo.from_official"),
        (schedules("linear", "cosign"), "unknown schedule 'cosign'; choose from linear, .*noam"),
        (schedules(), "No schedule is named"),
        (schedules("reduce_lr_on_plateau"), "unknown schedule 'reduce_lr_on_plateau'"),  # it follows the losses
        (schedules("linear", steps=0), "steps 0 should be at least 1"),
        (schedules("linear", warmup_steps=-1), "warmup_steps -1 should be at least 0"),
        (schedules("noam", hidden_size=0), "hidden_size 0 should be at least 1"),
    ],
)
def test_pictures(plot, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        plot(tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
