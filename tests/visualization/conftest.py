"""Models of every kind, small enough to look into, and checkpoints of them with a tokenizer."""

from pathlib import Path

import pytest

import tfm_zoo

from ..tiny import tiny_model
from ..words import make_tokenizer

TEXT = "the actor saw a short film and was not bad"
TARGET = "a bright film"
#: the tokenizer's ids, where a model needs to know them
ENDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
MODELS = {
    "encoder": (tfm_zoo.TfmBertForMaskedLM, {}),
    "classifier": (tfm_zoo.TfmBertForSequenceClassification, {"id2label": {0: "bad", 1: "good"}}),
    "decoder": (tfm_zoo.TfmGPTForCausalLM, {"position_embedding_type": "rotary"}),
    "translator": (tfm_zoo.TfmEncoderDecoderForConditionalGeneration, ENDS),
}


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer()


def model_of(kind: str):
    model_class, fields = MODELS[kind]
    return tiny_model(model_class, **fields)


@pytest.fixture(scope="session")
def folders(tmp_path_factory, tokenizer) -> dict[str, Path]:
    """A checkpoint of each of `MODELS`, with its tokenizer."""
    root = tmp_path_factory.mktemp("models")
    for kind in MODELS:
        model_of(kind).save_pretrained(root / kind)
        tokenizer.save_pretrained(root / kind)
    return {kind: root / kind for kind in MODELS}
