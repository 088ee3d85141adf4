"""The metadata of the model cards: the Hub accepts it, `huggingface_hub` reads all of it, and the text agrees."""

import re

import pytest
from huggingface_hub import ModelCard

from tfm_zoo.families.auto_classes import FAMILIES
from tfm_zoo.hub.model_card import PIPELINES

from ..hub.server import metadata
from .document import CARDS, ROOT

TYPES = {config_class.model_type for config_class in FAMILIES.values()}
RESULTS = [card for card in CARDS if card.path.stem not in TYPES]
NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)( ?%)?")


def test_the_torch_that_readme_names_is_that_of_the_constraints():
    (pinned,) = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"CPU build of torch {pinned} " in (ROOT / "README.md").read_text().replace("\n", " ")


@pytest.mark.parametrize("document", CARDS, ids=str)
def test_metadata(document):
    written = metadata.read(document.text)
    assert metadata.errors(written) == []
    data = ModelCard.load(document.path).data
    assert data.to_dict() == written  # nothing was lost
    assert data.library_name == "transformers" and data.pipeline_tag in {*PIPELINES.values(), "text2text-generation"}
    assert data.tags[0] == "tfm_zoo" and data.tags[1] in TYPES


def tells(line: str, metric: str, value: float) -> bool:
    """Whether a line of text gives a metric this value, to as many digits."""
    numbers = [float(number.replace(",", "")) / (100 if percent else 1) for number, percent in NUMBER.findall(line)]
    digits = len(str(value).partition(".")[2])
    return metric in line.lower() and value in [round(number, digits) for number in numbers]


@pytest.mark.parametrize("document", RESULTS, ids=str)
def test_results(document):
    card = ModelCard.load(document.path)
    results, lines = card.data.eval_results, card.text.splitlines()
    assert card.data.model_name == document.path.stem
    assert [result.metric_type for result in results] == card.data.metrics
    assert {result.dataset_type for result in results} == set(card.data.datasets)
    for result in results:
        assert result.metric_name and result.task_type == card.data.pipeline_tag
        assert any(tells(line, result.metric_type, result.metric_value) for line in lines), result.metric_type


def test_every_family_has_a_card_with_a_licence():
    families = {card.path.stem: ModelCard(card.text).data.license for card in CARDS if card not in RESULTS}
    assert families == dict.fromkeys(TYPES, "apache-2.0")
    assert len(RESULTS) >= 3
