"""A tiny encoder with a tokenizer, of an official class, as it would lie on the Hub."""

import string
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, BertTokenizer, PreTrainedModel

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def save_tiny_encoder(folder: Path, model_class: type[PreTrainedModel] = BertModel, **fields) -> None:
    """Saves a model of random weights that reads up to 64 letters of a text."""
    letters = [*string.ascii_lowercase, *string.digits, *".,!?"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    torch.manual_seed(0)
    fields |= {"vocab_size": len(tokens)} | SIZES
    config = BertConfig(max_position_embeddings=64, initializer_range=0.2, **fields)
    model_class(config).save_pretrained(folder)
    BertTokenizer(vocabulary, model_max_length=64).save_pretrained(folder)
