"""Tiny encoders, with files of sentence-transformers and without, and texts for them."""

import json
import random
import string
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedModel, PreTrainedTokenizerFast

LETTERS = [*string.ascii_letters, *string.digits, *".,:!?"]
TOKENS = ["<s>", "<pad>", "</s>", "<unk>", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
WORDS = ("a", "Warm", "film", "dull", "From", "start", "to", "end", "b2", "Zebra")
NAMES = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
FIELDS = SIZES | {"vocab_size": len(TOKENS), "pad_token_id": 1, "max_position_embeddings": 80, "initializer_range": 0.2}
#: tokens to which texts are cut
CUT = 40
PROMPT = "query: "


def texts(count: int = 150, words: int = 20) -> list[str]:
    """Texts of many lengths, some longer than those that they are cut to."""
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, words))) for _ in range(count)]


def tokenizer(lower_case: bool = False) -> PreTrainedTokenizerFast:
    """One token a letter."""
    letters = Tokenizer(models.WordPiece({token: index for index, token in enumerate(TOKENS)}, unk_token="<unk>"))
    letters.normalizer = normalizers.Lowercase() if lower_case else None
    letters.pre_tokenizer = pre_tokenizers.Whitespace()
    letters.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=letters, model_max_length=70, **NAMES)


@torch.no_grad()
def make(name: str = "BertModel", seed: int = 0, noise: float = 0.1, **fields) -> PreTrainedModel:
    """A model of an official class, with biases and norms that are off their initial zeros and ones by `noise`."""
    torch.manual_seed(seed)
    model_class = getattr(transformers, name)
    model = model_class(model_class.config_class(**FIELDS | fields)).eval()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=noise)
    return model


def save(folder: Path, name: str = "BertModel", files: bool = True, seed: int = 0, **fields) -> PreTrainedModel:
    """Saves a model of an official class; `files` of sentence-transformers say: a prompt, a cut, the mean, length 1."""
    model = make(name, seed, **fields)
    for saved in (model, tokenizer()):
        saved.save_pretrained(folder)
    if files:
        write_files(folder)
    return model


def write_files(
    folder: Path, pooling: str = "mean", normalize: bool = True, cut: int = CUT, prompt: str = PROMPT
) -> None:
    kinds = {"Transformer": "", "Pooling": "1_Pooling"} | ({"Normalize": "2_Normalize"} if normalize else {})
    named = [(kind, f"sentence_transformers.models.{kind}", path) for kind, path in kinds.items()]
    write(folder / "modules.json", [{"idx": i, "name": n, "type": t, "path": p} for i, (n, t, p) in enumerate(named)])
    mode = "pooling_mode_cls_token" if pooling == "cls" else f"pooling_mode_{pooling}_tokens"
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": 32, mode: True})
    write(folder / "sentence_bert_config.json", {"max_seq_length": cut, "do_lower_case": False})
    prompts = {"prompts": {"query": prompt} if prompt else {}, "default_prompt_name": "query" if prompt else None}
    write(folder / "config_sentence_transformers.json", prompts)


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
