"""Official models in CTranslate2, the engine that people take for a CPU: converted in memory, with torch's threads."""

import copy
import tempfile
from collections.abc import Callable
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


def engine(model: PreTrainedModel, dtype: str) -> ctranslate2.Generator | ctranslate2.Encoder | ctranslate2.Translator:
    kind = ctranslate2.Translator if model.config.is_encoder_decoder else ctranslate2.Generator
    kind = kind if model.can_generate() else ctranslate2.Encoder
    with tempfile.TemporaryDirectory() as folder:
        # A copy: the converter takes some models apart.
        output = Converter(copy.deepcopy(model), Path(folder) / "config").convert(str(Path(folder) / "model"))
        return kind(output, compute_type=TYPES[dtype], intra_threads=torch.get_num_threads())


def real_ids(batch: dict) -> list[list[int]]:
    """The tokens of each sequence, without padding."""
    mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
    return [ids[real].tolist() for ids, real in zip(batch["input_ids"], mask, strict=True)]


def encode(model: PreTrainedModel, dtype: str) -> Callable[[dict], None]:
    encoder = engine(model, dtype)
    return lambda batch: encoder.forward_batch(real_ids(batch))


def decode(model: PreTrainedModel, dtype: str) -> Callable[[dict], None]:
    generator, steps = engine(model, dtype), decoder.NEW_TOKENS
    options = {"max_length": steps, "min_length": steps, "sampling_topk": 1, "include_prompt_in_result": False}
    return lambda batch: generator.generate_batch([list(map(str, ids)) for ids in real_ids(batch)], **options)


def translate(model: PreTrainedModel, dtype: str) -> Callable[[dict], None]:
    translator = engine(model, dtype)

    def run(batch: dict) -> None:
        steps = batch["labels"].shape[1]
        lengths = {"max_decoding_length": steps, "min_decoding_length": steps}
        sources = [list(map(str, ids)) for ids in real_ids(batch)]
        translator.translate_batch(sources, beam_size=encoder_decoder.BEAMS, **lengths)

    return run
