"""The cards that the zoo writes: the Hub takes them, and they say what is so."""

import re

import pytest
from huggingface_hub import ModelCard
from typer.testing import CliRunner

from tfm_zoo.cli import app
from tfm_zoo.converters import ARCHITECTURES
from tfm_zoo.hub import push
from tfm_zoo.hub.cards import write_card
from tfm_zoo.hub.model_card import MARK, card_of_model

from ..official_models import BY_NAME, build_tiny
from ..tiny import HEADS, tiny_model
from ..words import make_tokenizer

MARIAN = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1, "forced_eos_token_id": 1}
NATIVE = {"fill-mask": ("BertForMaskedLM", {}), "text-generation": ("GPT2LMHeadModel", {})}
NATIVE["translation"] = ("MarianMTModel", MARIAN)


@pytest.mark.parametrize("pipeline", NATIVE)
def test_card_of_a_converted_checkpoint(pipeline, tmp_path, online, hub_server):
    """It is pushed with the repository's name; a card of a person's own stays."""
    name, fields = NATIVE[pipeline]
    native, folder = build_tiny(BY_NAME[name], **fields), tmp_path / "zoo"
    native.save_pretrained(tmp_path / "official")
    (tmp_path / "official/README.md").write_text("---\nlicense: mit\n---\nThe original.")
    done = CliRunner().invoke(app, ["convert", str(tmp_path / "official"), str(folder)])
    assert done.exit_code == 0, done.output
    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == pipeline and card.data.license == "mit"
    assert {"tfm_zoo", native.config.model_type} <= set(card.data.tags)
    sinusoids = sum(table.numel() for table in native.parameters() if not table.requires_grad)
    for line in (
        f"hidden states of {ARCHITECTURES[native.config.model_type].title} models agree with the official class",
        f"| parameters | {native.num_parameters() - sinusoids:,} |",
        '.from_pretrained("zoo", trust_remote_code=True)',
        "`tfm-zoo verify zoo`",
        "The checkpoint had no tokenizer",
    ):
        assert line in card.text
    push(folder, "user/model")  # the Hub reads its metadata
    changes = {'.from_pretrained("zoo"': '.from_pretrained("user/model"', "verify zoo": "verify user/model"}
    expected = card.content
    for old, new in (changes | {MARK.format("zoo"): MARK.format("user/model")}).items():
        expected = expected.replace(old, new)
    assert hub_server.repositories["user/model"].read("README.md", "main").decode() == expected
    assert (folder / "README.md").read_text() == card.content  # what is here stays
    (folder / "README.md").write_text("my own")
    assert not write_card(folder, "text", card.data, "zoo")
    assert (folder / "README.md").read_text() == "my own"


@pytest.mark.parametrize(
    "way", ["MaskedLM", "MultipleChoice", "CausalLM", "EncoderDecoderModel", "ForConditionalGeneration"]
)
def test_the_example_of_a_card_runs(way, tmp_path):
    """It loads the model and its tokenizer, and uses them as heads of this kind are used."""
    model = tiny_model(next(head for head in HEADS if head.__name__.endswith(way)))
    model.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    found = {}
    exec(re.search(r"```python\n(.+?)```", card_of_model(model, str(tmp_path)).text, re.DOTALL)[1], found)
    assert found.keys() & {"outputs", "texts"} and found["tokenizer"].vocab_size < 61
