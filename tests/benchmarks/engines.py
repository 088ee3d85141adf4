"""Official models in CTranslate2, the engine that people take for a CPU, with as many threads as torch has.

Each runs in a process of its own. In one process both would have more threads than there are cores, and let them sleep
between products: torch then took a third longer.
"""

import copy
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import ctranslate2
import torch
from ctranslate2.converters import TransformersConverter
from transformers import PreTrainedModel

from . import decoder, encoder_decoder

TYPES = {"float32": "float32", "int8": "int8_float32"}


class Converter(TransformersConverter):
    """Converts a model in memory. Its tokens are called 0, 1, 2, ..."""

    def __init__(self, model: PreTrainedModel, folder: Path):
        model.config.save_pretrained(folder)
        super().__init__(str(folder))
        self.model = model

    def load_model(self, model_class: type, *args, **kwargs) -> PreTrainedModel:
        self.model.config.position_embedding_type = "absolute"  # which is no longer a field of transformers' BERT
        return self.model

    def load_tokenizer(self, *args, **kwargs) -> SimpleNamespace:
        names = {str(index): index for index in range(self.model.config.vocab_size)}
        if self.model.config.is_encoder_decoder:
            names["<pad>"] = names.pop(str(self.model.config.pad_token_id))
        tokens = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "0")
        return SimpleNamespace(get_vocab=lambda: names, **tokens)


class Engine:
    """A model in CTranslate2.

    Args:
        model: an official model.
        dtype: a key of `TYPES`.
    """

    def __init__(self, model: PreTrainedModel, dtype: str):
        kind = "Translator" if model.config.is_encoder_decoder else "Generator"
        kind = kind if model.can_generate() else "Encoder"
        self.process = ProcessPoolExecutor(1, get_context("spawn"))
        with tempfile.TemporaryDirectory() as folder:
            # A copy: the converter takes some models apart.
            output = Converter(copy.deepcopy(model), Path(folder) / "config").convert(str(Path(folder) / "model"))
            options = {"compute_type": TYPES[dtype], "intra_threads": torch.get_num_threads()}
            self.process.submit(load, kind, output, options).result()

    def __call__(self, method: str, inputs: list[list], **options) -> None:
        self.process.submit(run, method, inputs, options).result()


loaded = None  # in the process of an engine


def load(kind: str, folder: str, options: dict) -> None:
    global loaded
    loaded = getattr(ctranslate2, kind)(folder, **options)


def run(method: str, inputs: list[list], options: dict) -> None:
    getattr(loaded, method)(inputs, **options)


def real_ids(batch: dict) -> list[list[int]]:
    """The tokens of each sequence, without padding."""
    mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
    return [ids[real].tolist() for ids, real in zip(batch["input_ids"], mask, strict=True)]


def words(batch: dict) -> list[list[str]]:
    return [list(map(str, ids)) for ids in real_ids(batch)]


def encode(model: PreTrainedModel, dtype: str) -> Callable[[dict], None]:
    engine = Engine(model, dtype)
    return lambda batch: engine("forward_batch", real_ids(batch))


def decode(model: PreTrainedModel, dtype: str) -> Callable[[dict], None]:
    engine, steps = Engine(model, dtype), decoder.NEW_TOKENS
    options = {"max_length": steps, "min_length": steps, "sampling_topk": 1, "include_prompt_in_result": False}
    return lambda batch: engine("generate_batch", words(batch), **options)


def translate(model: PreTrainedModel, dtype: str) -> Callable[[dict], None]:
    engine = Engine(model, dtype)

    def translated(batch: dict) -> None:
        steps = batch["labels"].shape[1]
        lengths = {"max_decoding_length": steps, "min_decoding_length": steps}
        engine("translate_batch", words(batch), beam_size=encoder_decoder.BEAMS, **lengths)

    return translated
