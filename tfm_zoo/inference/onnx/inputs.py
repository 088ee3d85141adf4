"""Random inputs of any size for a model: to export it with, and to check the export on."""

import torch
from transformers import PreTrainedModel

from ...models.modeling_tfm_bert import TfmBertForMultipleChoice, TfmBertPreTrainedModel
from ...models.modeling_tfm_encoder_decoder import TfmEncoderDecoderPreTrainedModel
from ...models.modeling_tfm_gpt import TfmGPTForCausalLM, TfmGPTPreTrainedModel

CHOICES = 2


def random_inputs(model: PreTrainedModel, rows: int, length: int) -> dict[str, torch.LongTensor]:
    """The inputs that the model's ONNX graphs take, for `rows` sequences, one with all of `length` tokens.

    The others are padded: those of a decoder on the left, as `generate` needs it, and all others on the right.

    Returns:
        `input_ids`, `attention_mask` and what else the model reads, each `(rows, length)`, for a multiple-choice head
        `(rows, 2, length)`; the target of an encoder-decoder is shorter.
    """
    config = model.config
    if isinstance(model, TfmBertForMultipleChoice):
        inputs = padded_ids(config, CHOICES * rows, length)
    else:
        inputs = padded_ids(config, rows, length)
    if isinstance(model, TfmGPTPreTrainedModel):
        inputs = {name: ids.flip(1) for name, ids in inputs.items()}
    if isinstance(model, TfmBertPreTrainedModel) and config.type_vocab_size > 1:
        inputs["token_type_ids"] = inputs["input_ids"] % 2 * inputs["attention_mask"]
    if isinstance(model, TfmBertForMultipleChoice):
        inputs = {name: ids.unflatten(0, (rows, CHOICES)) for name, ids in inputs.items()}
    if isinstance(model, TfmGPTForCausalLM):
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
    if isinstance(model, TfmEncoderDecoderPreTrainedModel) and model.reads_target:
        inputs["decoder_input_ids"] = inputs["input_ids"][:, : length // 2 + 1] % config.decoder_vocab_size
    return inputs


def padded_ids(config, rows: int, length: int) -> dict[str, torch.LongTensor]:
    """`input_ids` and `attention_mask`, `(rows, length)`: ordinary tokens, the end of the sequence, then padding."""
    generator = torch.Generator().manual_seed(rows)
    ends = [config.eos_token_id] if isinstance(config.eos_token_id, int) else config.eos_token_id or []
    ends = [token for token in ends if token < config.vocab_size]
    special = {*ends, config.pad_token_id, config.bos_token_id}
    ordinary = torch.tensor([token for token in range(config.vocab_size) if token not in special] or [0])
    ids = ordinary[torch.randint(len(ordinary), (rows, length), generator=generator)]
    counts = torch.randint(1, length + 1, (rows, 1), generator=generator)
    counts[0] = length
    mask = (torch.arange(length) < counts).long()
    if ends:
        ids = ids.scatter(1, counts - 1, ends[0])
    return {"input_ids": ids.masked_fill(mask == 0, config.pad_token_id or 0), "attention_mask": mask}
