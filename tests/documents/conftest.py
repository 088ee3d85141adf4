"""Tiny models in the place of those that the documents name, a Hub with these models, and a clone to work in."""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn
from transformers import PreTrainedTokenizerFast

import tfm_zoo
from tfm_zoo.training.tokenizers import byte_level_bpe, joint_bpe, word_piece_tokenizer

from .. import tutorials
from ..hub.server.store import Repository
from ..official_models import BY_NAME, build_tiny
from .document import PARTS

TEXTS = ["The Transformer is a model.", "Two dogs play in the snow.", "Zwei Hunde spielen im Schnee."]


class Family(NamedTuple):
    """What a family's examples use: an official checkpoint, a zoo model, and recipes that train one."""

    checkpoint: str
    official_class: str
    fields: dict
    tokenizer: PreTrainedTokenizerFast
    zoo_class: str
    recipes: dict[str, str]  # and the class that each trains


FAMILIES = [
    Family(
        "google-bert/bert-base-uncased",
        "BertForPreTraining",
        {},
        word_piece_tokenizer(TEXTS),
        "TfmBertForSequenceClassification",
        {
            "recipes/finetune_classification.py": "TfmBertForSequenceClassification",
            "recipes/finetune_token_classification.py": "TfmBertForTokenClassification",
            "recipes/finetune_question_answering.py": "TfmBertForQuestionAnswering",
            "recipes/pretrain_bert.py": "TfmBertForPreTraining",
        },
    ),
    Family(
        "openai-community/gpt2",
        "GPT2LMHeadModel",
        {"n_positions": 199},
        byte_level_bpe(TEXTS, 300),
        "TfmGPTForCausalLM",
        {"recipes/finetune_causal_lm.py": "TfmGPTForCausalLM"},
    ),
    Family(
        "Helsinki-NLP/opus-mt-en-de",
        "MarianMTModel",
        {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 2},
        joint_bpe(TEXTS, 300),
        "TfmEncoderDecoderForConditionalGeneration",
        dict.fromkeys(
            ("recipes/train_translation.py", "recipes/finetune_summarization.py", "recipes/pretrain_t5.py"),
            "TfmEncoderDecoderForConditionalGeneration",
        ),
    ),
    Family(
        "openai/clip-vit-base-patch32",
        "CLIPTextModelWithProjection",
        {},
        byte_level_bpe(TEXTS, 300),
        "TfmTextTowerForProjection",
        {},
    ),
]

OWN_MODELS = {
    "my-bert.pt": tutorials.BERT,
    "my-classifier.pt": tutorials.TextClassifier,
    "my-gpt.pt": tutorials.GPT,
    "my-translator.pt": tutorials.Transformer,
    "my-seq2seq.pt": tutorials.Seq2SeqTransformer,
}


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """Folders of official checkpoints by their names on the Hub, and of zoo models by family and by recipe."""
    folders = {}
    for family in FAMILIES:
        official = build_tiny(BY_NAME[family.official_class], vocab_size=len(family.tokenizer), **family.fields)
        names = {None: [family.checkpoint], family.zoo_class: []}
        for recipe, trained in family.recipes.items():
            names.setdefault(trained, []).append(recipe)
        for zoo_class, known_as in names.items():
            model = tfm_zoo.from_official(official, getattr(tfm_zoo, zoo_class)) if zoo_class else official
            if zoo_class == family.zoo_class:
                known_as.append(model.config.model_type)
            folder = tmp_path_factory.mktemp("model")
            model.save_pretrained(folder)
            family.tokenizer.save_pretrained(folder)
            folders |= dict.fromkeys(known_as, folder)
    return folders


@pytest.fixture
def hold(hub_server, checkpoints) -> Callable[[str, Path], None]:
    """Puts a folder into a repository of the Hub, whoever owns it. The official checkpoints are already there."""

    def hold(name: str, folder: Path) -> None:
        repository = hub_server.repositories[name] = Repository(name)
        files = {file.name: b64encode(file.read_bytes()).decode() for file in folder.iterdir()}
        changes = [{"key": "file", "value": {"path": path, "content": content}} for path, content in files.items()]
        repository.commit("main", "someone", {"summary": "All"}, changes)

    for family in FAMILIES:
        hold(family.checkpoint, checkpoints[family.checkpoint])
    hold("sentence-transformers/all-MiniLM-L6-v2", checkpoints["google-bert/bert-base-uncased"])
    return hold


@pytest.fixture(scope="session")
def own_models(tmp_path_factory) -> dict[Path, nn.Module]:
    """Models of a reader's own, by the files with their weights."""
    folder, models = tmp_path_factory.mktemp("weights"), {}
    for name, model_class in OWN_MODELS.items():
        torch.manual_seed(0)
        models[folder / name] = model_class().eval()
        torch.save(models[folder / name].state_dict(), folder / name)
    return models


@pytest.fixture
def clone(tmp_path, monkeypatch, own_models) -> Path:
    """The current folder: a copy of the repository by links, into which commands may write."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for part in (*PARTS, *own_models):
        (folder / part.name).symlink_to(part)
    monkeypatch.chdir(folder)
    return folder
