"""Tiny models in place of those that the documents name, a Hub that holds them, and a clone to work in."""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from transformers import PreTrainedTokenizerFast

import tfm_zoo
from tfm_zoo.training.tokenizers import byte_level_bpe, joint_bpe, word_piece_tokenizer

from ..hub.server.store import Repository
from ..natives import BY_NAME, build_tiny
from .document import PARTS

TEXTS = ["The Transformer is a model.", "Two dogs play in the snow.", "Zwei Hunde spielen im Schnee."]


class Family(NamedTuple):
    """The official checkpoint of its examples and what that holds, the zoo model of its examples and their recipes."""

    official: str
    native: str
    fields: dict
    tokenizer: PreTrainedTokenizerFast
    zoo: str
    recipes: tuple[str, ...]


FAMILIES = [
    Family(
        "google-bert/bert-base-uncased",
        "BertForPreTraining",
        {},
        word_piece_tokenizer(TEXTS),
        "TfmBertForSequenceClassification",
        ("recipes/finetune_classification.py", "recipes/pretrain_bert.py"),
    ),
    Family(
        "openai-community/gpt2",
        "GPT2LMHeadModel",
        {"n_positions": 199},
        byte_level_bpe(TEXTS, 300),
        "TfmGPTForCausalLM",
        ("recipes/finetune_causal_lm.py",),
    ),
    Family(
        "Helsinki-NLP/opus-mt-en-de",
        "MarianMTModel",
        {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 2},
        joint_bpe(TEXTS, 300),
        "TfmEncoderDecoderForConditionalGeneration",
        ("recipes/train_translation.py",),
    ),
]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """Folders of the official checkpoints by their name on the Hub, and of zoo models by family and by recipe."""
    folders = {}
    for family in FAMILIES:
        native = build_tiny(BY_NAME[family.native], vocab_size=len(family.tokenizer), **family.fields)
        zoo = tfm_zoo.from_official(native, getattr(tfm_zoo, family.zoo))
        for model, names in ((native, [family.official]), (zoo, [zoo.config.model_type, *family.recipes])):
            folder = tmp_path_factory.mktemp("model")
            model.save_pretrained(folder)
            family.tokenizer.save_pretrained(folder)
            folders |= dict.fromkeys(names, folder)
    return folders


@pytest.fixture
def hold(hub_server, checkpoints) -> Callable[[str, Path], None]:
    """Puts a folder into a repository of that Hub, whoever owns it; the official checkpoints are there."""

    def hold(name: str, folder: Path) -> None:
        repository = hub_server.repositories[name] = Repository(name)
        files = {file.name: b64encode(file.read_bytes()).decode() for file in folder.iterdir()}
        changes = [{"key": "file", "value": {"path": path, "content": content}} for path, content in files.items()]
        repository.commit("main", "someone", {"summary": "All"}, changes)

    for family in FAMILIES:
        hold(family.official, checkpoints[family.official])
    return hold


@pytest.fixture
def clone(tmp_path, monkeypatch) -> Path:
    """The current folder: all of the repository, with room for what commands write."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for part in PARTS:
        (folder / part.name).symlink_to(part)
    monkeypatch.chdir(folder)
    return folder
