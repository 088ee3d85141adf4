"""Models in CTranslate2, which takes tokens without padding."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from .tasks import EMBED, TRANSLATE, pooled


def load(
    dtype: str, model: PreTrainedModel, kind: str, batches: list[dict], folder: Path
) -> Callable[[dict], np.ndarray]:
    import ctranslate2

    from ..engines import Converter, real_ids, words

    if not (folder / "ctranslate2").exists():
        # A copy: the converter takes some models apart.
        Converter(copy.deepcopy(model), folder / "ctranslate2-config").convert(str(folder / "ctranslate2"))
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
