"""The metadata of the model cards: the Hub accepts it, `huggingface_hub` reads all of it, and the text agrees."""

import re

import pytest
from huggingface_hub import ModelCard

from tfm_zoo.hub.model_card import PIPELINES
from tfm_zoo.plugin.families import FAMILIES

from ..hub.server import metadata
from .document import CARDS, ROOT

TYPES = {config_class.model_type for config_class in FAMILIES.values()}
RESULTS = [card for card in CARDS if card.path.stem not in TYPES]
NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)( ?%)?")
CARD = """---
datasets: [stanfordnlp/imdb]
model-index:
- name: model
  results:
  - task: {type: text-classification}
    dataset: {type: stanfordnlp/imdb, name: IMDB}
    metrics: [{type: accuracy, value: 0.8765}]
---
"""


def test_the_torch_that_readme_names_is_that_of_the_constraints():
    (pinned,) = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"CPU build of torch {pinned} " in (ROOT / "README.md").read_text().replace("\n", " ")


def untold(card: ModelCard) -> list[str]:
    """Metrics whose value is in no line of the text that names them, to as many digits."""

    def states(line: str, metric: str, value: float) -> bool:
        numbers = [float(number.replace(",", "")) / (100 if percent else 1) for number, percent in NUMBER.findall(line)]
        digits = len(str(value).partition(".")[2])
        return metric in line.lower() and value in [round(number, digits) for number in numbers]

    values = {result.metric_type: result.metric_value for result in card.data.eval_results}
    lines = card.text.splitlines()
    return [metric for metric, value in values.items() if not any(states(line, metric, value) for line in lines)]


@pytest.mark.parametrize("document", CARDS, ids=str)
def test_metadata(document):
    written = metadata.read(document.text)
    assert metadata.errors(written) == []
    data = ModelCard.load(document.path).data
    assert data.to_dict() == written  # nothing was lost
    assert data.library_name == "transformers" and data.pipeline_tag in {*PIPELINES.values(), "text2text-generation"}
    assert data.tags[0] == "tfm_zoo" and data.tags[1] in TYPES


@pytest.mark.parametrize("document", RESULTS, ids=str)
def test_results(document):
    card = ModelCard.load(document.path)
    results = card.data.eval_results
    assert card.data.model_name == document.path.stem
    assert [result.metric_type for result in results] == card.data.metrics
    assert {result.dataset_type for result in results} == set(card.data.datasets)
    assert all(result.metric_name and result.task_type == card.data.pipeline_tag for result in results)
    assert untold(card) == []


def test_every_family_has_a_card_with_a_licence():
    families = {card.path.stem: ModelCard(card.text).data.license for card in CARDS if card not in RESULTS}
    assert families == dict.fromkeys(TYPES, "apache-2.0")
    assert len(RESULTS) >= 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[stanfordnlp/imdb]", "[the imdb]"),
        ("datasets:", "license: Apache 2.0\ndatasets:"),
        ("datasets:", "base_model: a/b/c\ndatasets:"),
        (", name: IMDB", ""),
        (", value: 0.8765", ""),
        ("datasets: [", "datasets: [["),
    ],
)
def test_what_the_hub_refuses_is_found(old, new):
    assert metadata.errors(metadata.read(CARD)) == []
    with pytest.raises((ValueError, AssertionError)):
        assert metadata.errors(metadata.read(CARD.replace(old, new))) == []


@pytest.mark.parametrize("text", ["Accuracy: 0.8765", "| accuracy, over 1,000 texts | 87.651 % |"])
def test_a_figure_in_the_text(text):
    assert untold(ModelCard(CARD + text)) == []


@pytest.mark.parametrize(
    "text", ["accuracy 87.66 %", "accuracy 88 %", "accuracy 0.876", "F1 87.65 %", "accuracy 87.65"]
)
def test_a_figure_that_is_not_in_the_text_is_found(text):
    assert untold(ModelCard(CARD + text)) == ["accuracy"]
