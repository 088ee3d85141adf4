"""Tiny models instead of those that the documents name, a Hub with these models, and a clone to work in."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import tfm_zoo
from tfm_zoo.training.tokenizers import byte_level_bpe, joint_bpe, word_piece_tokenizer

from .. import tutorials
from ..hub.server import Repository
from ..official_models import BY_NAME, build_tiny
from .document import PARTS

TEXTS = ["The Transformer is a model.", "Two dogs play in the snow.", "Zwei Hunde spielen im Schnee."]
ENDS = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 2}
TRANSLATOR = "TfmEncoderDecoderForConditionalGeneration"
BERT, GPT2, MARIAN = "google-bert/bert-base-uncased", "openai-community/gpt2", "Helsinki-NLP/opus-mt-en-de"
CLIP = "openai/clip-vit-base-patch32"
#: official checkpoints: class, fields, tokenizer
OFFICIAL = {
    BERT: ("BertForPreTraining", {}, word_piece_tokenizer(TEXTS)),
    GPT2: ("GPT2LMHeadModel", {"n_positions": 199}, byte_level_bpe(TEXTS, 300)),
    MARIAN: ("MarianMTModel", ENDS, joint_bpe(TEXTS, 300)),
    CLIP: ("CLIPTextModelWithProjection", {}, byte_level_bpe(TEXTS, 300)),
}
#: zoo models by family, and by the recipe that trains them: class, and what it is converted from
ZOO = {
    "tfm_bert": ("TfmBertForSequenceClassification", BERT),
    "tfm_gpt": ("TfmGPTForCausalLM", GPT2),
    "tfm_encoder_decoder": (TRANSLATOR, MARIAN),
    "tfm_text_tower": ("TfmTextTowerForProjection", CLIP),
    "recipes/finetune_classification.py": ("TfmBertForSequenceClassification", BERT),
    "recipes/finetune_token_classification.py": ("TfmBertForTokenClassification", BERT),
    "recipes/finetune_question_answering.py": ("TfmBertForQuestionAnswering", BERT),
    "recipes/pretrain_bert.py": ("TfmBertForPreTraining", BERT),
    "recipes/finetune_causal_lm.py": ("TfmGPTForCausalLM", GPT2),
    "recipes/pretrain_t5.py": (TRANSLATOR, MARIAN),
    **{f"recipes/{name}.py": (TRANSLATOR, MARIAN) for name in ("train_translation", "finetune_summarization")},
}
OWN_MODELS = {
    **{"my-bert.pt": tutorials.BERT, "my-classifier.pt": tutorials.TextClassifier, "my-gpt.pt": tutorials.GPT},
    **{"my-translator.pt": tutorials.Transformer, "my-seq2seq.pt": tutorials.Seq2SeqTransformer},
}


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """Folders of official checkpoints by their names on the Hub, and of zoo models by family and by recipe."""
    models = {
        name: build_tiny(BY_NAME[official_class], vocab_size=len(tokenizer), **fields)
        for name, (official_class, fields, tokenizer) in OFFICIAL.items()
    }
    models |= {name: tfm_zoo.from_official(models[of], getattr(tfm_zoo, head)) for name, (head, of) in ZOO.items()}
    folders = {name: tmp_path_factory.mktemp("model") for name in models}
    for name, model in models.items():
        model.save_pretrained(folders[name])
        OFFICIAL[ZOO[name][1] if name in ZOO else name][2].save_pretrained(folders[name])
    return folders


@pytest.fixture
def hold(hub_server, checkpoints) -> Callable[[str, Path], None]:
    """Puts a folder into a repository of the Hub, whoever owns it. The official checkpoints are already there."""

    def hold(name: str, folder: Path) -> None:
        repository = hub_server.repositories[name] = Repository(name)
        repository.add({file.name: file.read_bytes() for file in folder.iterdir()})

    for name in OFFICIAL:
        hold(name, checkpoints[name])
    hold("sentence-transformers/all-MiniLM-L6-v2", checkpoints[BERT])
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
    (folder := tmp_path / "clone").mkdir()
    for part in (*PARTS, *own_models):
        (folder / part.name).symlink_to(part)
    monkeypatch.chdir(folder)
    return folder
