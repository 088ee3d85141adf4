"""Models in CTranslate2, which takes tokens without padding."""

import copy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from transformers import PreTrainedModel

from .tasks import EMBED, TRANSLATE, Given, Runner, pooled


def load(dtype: str, given: Given) -> Runner:
    import ctranslate2

    model, kind, _, folder = given
    if not (folder / "ctranslate2").exists():
        convert(copy.deepcopy(model), folder)  # a copy: the converter takes some models apart
    engine = {EMBED: ctranslate2.Encoder, TRANSLATE: ctranslate2.Translator}.get(kind, ctranslate2.Generator)
    options = {"compute_type": dtype, "intra_threads": torch.get_num_threads()}
    loaded = engine(str(folder / "ctranslate2"), **options)

    def run(batch: dict) -> np.ndarray:
        if kind == EMBED:
            states = torch.from_numpy(np.array(loaded.forward_batch(real_ids(batch)).last_hidden_state))
            return pooled(states, batch["attention_mask"])
        steps = batch["steps"]
        if kind == TRANSLATE:
            lengths = {"max_decoding_length": steps, "min_decoding_length": steps}
            found = loaded.translate_batch(words(batch), beam_size=batch["beams"], **lengths)
            return np.array([list(map(int, each.hypotheses[0])) for each in found])
        if not steps:
            return np.array(loaded.forward_batch(real_ids(batch)))
        lengths = {"max_length": steps, "min_length": steps}
        found = loaded.generate_batch(words(batch), sampling_topk=1, include_prompt_in_result=False, **lengths)
        return np.array([each.sequences_ids[0] for each in found])

    return run


def convert(model: PreTrainedModel, folder: Path) -> None:
    """Converts a model in memory. Its tokens are called 0, 1, 2, ..."""
    from ctranslate2.converters import TransformersConverter

    class Converter(TransformersConverter):
        def load_model(self, model_class: type, *args, **kwargs) -> PreTrainedModel:
            model.config.position_embedding_type = "absolute"  # which is no longer a field of transformers' BERT
            return model

        def load_tokenizer(self, *args, **kwargs) -> SimpleNamespace:
            names = {str(index): index for index in range(model.config.vocab_size)}
            if model.config.is_encoder_decoder:
                names["<pad>"] = names.pop(str(model.config.pad_token_id))
            tokens = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "0")
            return SimpleNamespace(get_vocab=lambda: names, **tokens)

    model.config.save_pretrained(folder / "ctranslate2-config")
    Converter(str(folder / "ctranslate2-config")).convert(str(folder / "ctranslate2"))


def real_ids(batch: dict) -> list[list[int]]:
    """The tokens of each sequence, without padding."""
    mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
    return [ids[real].tolist() for ids, real in zip(batch["input_ids"], mask, strict=True)]


def words(batch: dict) -> list[list[str]]:
    return [list(map(str, ids)) for ids in real_ids(batch)]
