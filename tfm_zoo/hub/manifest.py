"""`zoo_manifest.json`: what a checkpoint is and computes, so that anybody can check it later."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from .. import __version__
from ..models.configuration_tfm import TfmConfig
from ..models.encoder_decoder_stacks import TfmDecoderStack
from ..models.modeling_tfm_bert import TfmBertForMultipleChoice
from ..models.pretrained import TfmPreTrainedModel
from .contents import code_in, digests_of_files, digests_of_tensors, outputs_of, settings_in

FILE = "zoo_manifest.json"

logger = transformers.logging.get_logger(__name__)


def write_manifest(model: TfmPreTrainedModel, folder: Path, state_dict: dict[str, torch.Tensor] | None = None) -> None:
    """Writes the manifest of the checkpoint in `folder`: versions, settings, the SHA-256 of every code file and every
    tensor, and a fingerprint: fixed inputs with the outputs that the model gives for them. `state_dict`: the weights
    that were saved, where they are not the model's own.
    """
    settings = settings_in(folder)
    manifest = {
        "tfm_zoo": __version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "settings": settings,
        "code": digests_of_files(folder, code_in(folder, settings["config.json"])),
        "weights": digests_of_tensors(folder),
        "fingerprint": None,
    }
    # A model that cannot be run now (offloaded, sharded, quantised) is still worth saving.
    try:
        manifest["fingerprint"] = fingerprint(model, state_dict)
    except Exception as error:
        logger.warning(f"{FILE} in {folder} keeps no outputs to compare with later: {error!r}")
    (folder / FILE).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def fingerprint(model: TfmPreTrainedModel, state_dict: dict[str, torch.Tensor] | None = None) -> dict[str, Any]:
    """Fixed inputs; of each floating-point output for them, its shape and some of its values.

    `state_dict`: weights to compute with, where they are not the model's own.
    """
    is_plain = all(type(parameter) is nn.Parameter and not parameter.is_meta for parameter in model.parameters())
    quantization = getattr(getattr(model, "hf_quantizer", None), "quantization_config", None)
    is_plain &= quantization is None or quantization.quant_method == "tfm_zoo"
    if not is_plain or (getattr(model, "_tp_size", None) or 1) > 1:
        raise RuntimeError("the model is offloaded, sharded or quantised")
    inputs, parameters = fixed_inputs(model), model.state_dict()
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    weights = {name: value.to(parameters[name]) for name, value in (state_dict or {}).items() if name in parameters}
    weights = {name: value for name, value in weights.items() if tied.get(name) not in weights}
    return {
        "dtype": str(quantization.dtype if quantization else model.dtype).removeprefix("torch."),
        "inputs": {name: ids.tolist() for name, ids in inputs.items()},
        "outputs": outputs_of(model, inputs, weights),
    }


def fixed_inputs(model: TfmPreTrainedModel) -> dict[str, torch.Tensor]:
    """What the fingerprint of a model is computed from: sequences, and what else its class reads."""
    config = model.config
    if isinstance(model, TfmDecoderStack):  # of an encoder-decoder, by itself
        states = torch.linspace(-1, 1, 6 * config.hidden_size, dtype=model.dtype).view(2, 3, -1)
        return sequences(config, config.decoder_vocab_size, length=5) | {"encoder_hidden_states": states}
    inputs = sequences(config, config.vocab_size)
    if isinstance(model, TfmBertForMultipleChoice):
        return {name: ids.unsqueeze(0) for name, ids in inputs.items()}  # one question of two choices
    if getattr(model, "reads_target", False):
        inputs["decoder_input_ids"] = sequences(config, config.decoder_vocab_size, length=5)["input_ids"]
    return inputs


def sequences(config: TfmConfig, vocab_size: int, length: int = 12) -> dict[str, torch.LongTensor]:
    """Two sequences of ids from all over the vocabulary, the second padded at its end, and their mask: `(2, length)`.

    They end with the model's end-of-sequence token, and are shorter if it has fewer positions.
    """
    length = max(2, min(length, config.max_position_embeddings - config.first_position))
    ends = [config.eos_token_id] if isinstance(config.eos_token_id, int) else config.eos_token_id or []
    special = {*ends, config.pad_token_id, config.bos_token_id}
    ordinary = [token for token in range(vocab_size) if token not in special] or [0]
    ids = torch.tensor([ordinary[place * len(ordinary) // (2 * length)] for place in range(2 * length)]).view(2, length)
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, length // 2 :] = 0
    ids = ids.masked_fill(mask == 0, config.pad_token_id or 0)
    if ends and ends[0] < vocab_size:
        ids[[0, 1], mask.sum(dim=1) - 1] = ends[0]
    return {"input_ids": ids, "attention_mask": mask}
