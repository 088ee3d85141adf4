"""Models small enough for a test, and batches for them."""

from collections.abc import Callable

import torch

import tfm_zoo
from tfm_zoo import TfmBertConfig, TfmDebertaConfig, TfmEncoderDecoderConfig, TfmGPTConfig
from tfm_zoo.configurations.names import by_field, merged
from tfm_zoo.models.configuration_tfm import TfmConfig

SIZES = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 48, "max_position_embeddings": 24, "initializer_range": 0.2}  # varied attention
NO_DROPOUT = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
#: of each family, what a test does not want as it is
FIELDS = {
    TfmBertConfig: {},
    TfmDebertaConfig: {"position_buckets": 6},
    TfmGPTConfig: {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False},
    TfmEncoderDecoderConfig: {"decoder_layers": 3, "weight_init": "normal", "use_cache": False},
}


def heads_of(family: type[TfmConfig]) -> list[type]:
    left_out = ("AutoConfig", "AutoModelForTextEncoding")
    return [getattr(tfm_zoo, name) for auto, name in family.auto_classes.items() if auto not in left_out]


ENCODERS, DECODERS = heads_of(TfmBertConfig), heads_of(TfmGPTConfig)
#: with the encoder alone, which `AutoModelForTextEncoding` makes
ENCODER_DECODERS = [*heads_of(TfmEncoderDecoderConfig), tfm_zoo.TfmEncoderDecoderEncoder]
HEADS = ENCODERS + DECODERS + ENCODER_DECODERS
#: of them, those that read both sides
ONE_SIDE = (tfm_zoo.TfmEncoderDecoderEncoder, tfm_zoo.TfmEncoderDecoderForTokenClassification)
TWO_STACKS = [head for head in ENCODER_DECODERS if head not in ONE_SIDE]
LENGTHS = (9, 4, 1, 6)
TARGET_LENGTHS = (5, 1, 7, 3)


def tiny_config(family: type[TfmConfig] = TfmBertConfig, **fields) -> TfmConfig:
    return family(**merged(family, SIZES | FIELDS[family], by_field(family, fields)))


def tiny_model(head: type, seed: int = 0, **fields):
    """A model in evaluation mode, with biases and norms that are not at their initial zeros and ones."""
    torch.manual_seed(seed)
    model = head(tiny_config(head.config_class, **fields)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def tiny_decoder(**fields) -> tfm_zoo.TfmGPTForCausalLM:
    """A language model that returns a cache, as those of the default configuration do, and does not end by itself."""
    return tiny_model(tfm_zoo.TfmGPTForCausalLM, use_cache=True, eos_token_id=None, **fields)


def recompute_activations(model, use_reentrant: bool = False) -> None:
    """In the backward pass, by the method's name of today or by its earlier one."""
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": use_reentrant})


def without_kernels(test: Callable) -> Callable:
    """Flex attention is not compiled, which takes a minute for each kind of mask."""
    return torch.compiler.set_stance("force_eager")(test)


def ragged_mask(lengths: tuple[int, ...] = LENGTHS, side: str = "right") -> torch.LongTensor:
    """1 at real tokens; padding at the right, at the left, or in holes everywhere."""
    places = torch.arange(max(lengths)).expand(len(lengths), -1)
    counts = torch.tensor(lengths)[:, None]
    if side == "holes":
        generators = (torch.Generator().manual_seed(n) for n in lengths)
        places = torch.stack([torch.randperm(max(lengths), generator=each) for each in generators])
    return (places >= max(lengths) - counts if side == "left" else places < counts).long()


def ragged_batch(head: type | None = None, side: str = "right", labels: bool = False, seed: int = 0) -> dict:
    """Token ids, mask and an encoder's segments (and labels) of a batch for `head`, padded at one `side`; for an
    encoder with a decoder, those of the source, and the target's ids."""
    generator = torch.Generator().manual_seed(seed)
    mask = ragged_mask(side=side)
    ids = torch.randint(1, SIZES["vocab_size"], mask.shape, generator=generator)
    segments = torch.randint(0, 2, mask.shape, generator=generator)
    batch = {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": segments * mask}
    if head in DECODERS + ENCODER_DECODERS:
        del batch["token_type_ids"]
    name = "Model" if head is None else head.__name__.partition("For")[2] or "Model"
    if name == "SequenceClassification" and head in ENCODER_DECODERS:
        end = mask.flip(1).argmax(dim=1, keepdim=True)
        batch["input_ids"].scatter_(1, mask.shape[1] - 1 - end, head.config_class.eos_token_id)
    elif head in TWO_STACKS:
        target = ragged_mask(TARGET_LENGTHS)
        ids = torch.randint(3, SIZES["vocab_size"], target.shape, generator=generator)
        batch["decoder_input_ids"] = torch.cat((torch.ones_like(ids[:, :1]), (ids * target)[:, :-1]), dim=1)
        mask = target
    if name == "MultipleChoice":  # (batch, choices, length)
        batch = {key: torch.stack((value, value.flip(0)), dim=1) for key, value in batch.items()}
    if labels:
        batch |= make_labels(name, ids, mask)
    return batch


def make_labels(name: str, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    sentence = torch.arange(len(ids)) % 2
    tokens = torch.where((ids % 3 == 0) & mask.bool(), ids, -100)
    tokens[0, mask[0].argmax()] = 7  # at least one
    return {
        "Model": {},
        "MaskedLM": {"labels": tokens},
        "ConditionalGeneration": {"labels": torch.where(mask.bool(), ids, -100)},
        "CausalLM": {"labels": torch.where(mask.bool(), ids, -100)},
        "PreTraining": {"labels": tokens, "next_sentence_label": sentence},
        "TokenClassification": {"labels": torch.where(mask.bool(), ids % 2, -100)},
        "QuestionAnswering": {"start_positions": mask.argmax(dim=1), "end_positions": mask.argmax(dim=1)},
    }.get(name, {"labels": sentence})
