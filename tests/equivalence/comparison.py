"""Zoo model against official model, within the bounds of DESIGN section 5."""

from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from tests.official_models import OfficialClass
from tfm_zoo.converters.config_rules import Constant
from tfm_zoo.converters.official_names import canonical_name, is_converted
from tfm_zoo.converters.tensor_matching import zoo_names
from tfm_zoo.converters.tensor_rules import plan
from tfm_zoo.visualization.attention_maps import choose_attention

Batch = dict[str, torch.Tensor]
FIRST = 5  # of the ids that are not special tokens

#: official class -> the names that it has for labels and outputs of the zoo
OTHER_NAMES = {
    "AlbertForPreTraining": {
        "next_sentence_label": "sentence_order_label",
        "seq_relationship_logits": "sop_logits",
    }
}
MAX_DIFFERENCE = 1e-5
MAX_DIFFERENCE_TO_LARGEST = 1e-6
MAX_LOSS_DIFFERENCE = 1e-6
MAX_GRADIENT_DIFFERENCE = 1e-5
#: a gradient that is zero but for rounding is measured against all of them together
ROUNDING = 1e-7
#: biases that add one number to all that a softmax compares: their gradient is zero but for rounding
UNSEEN = ("self_attn.k_proj.bias", "self_attn.pos_key_proj.bias", "encoder_attn.k_proj.bias", "qa_outputs.bias")
UNSEEN_OF_CHOICES = (*UNSEEN, "classifier.bias")
#: the same, where a softmax over positions reads what the last norm gives: the final one, or that of the last block
UNSEEN_OF_ANSWERS = (
    *UNSEEN,
    *("model.norm.bias", "model.layers.2.mlp_norm.bias"),
    *("model.decoder.norm.bias", "model.decoder.layers.1.mlp_norm.bias"),
)
#: in deep models of random weights all positions come to look alike: what their queries and keys get is a small
#: difference of large numbers, and the official class's eager and sdpa differ in it as much
ALIKE = tuple(
    f"{attention}.{name}"
    for attention in ("self_attn", "encoder_attn")
    for name in ("q_proj.weight", "q_proj.bias", "k_proj.weight")
)


class Pair(NamedTuple):
    """An official model, and the zoo models that it is converted to: made once for many tests."""

    official_class: OfficialClass
    official: PreTrainedModel
    zoo_models: list[PreTrainedModel]

    def prepare(self, attention: str = "sdpa", training: bool = False) -> None:
        for model in (self.official, *self.zoo_models):
            if attention == "eager" or model._supports_sdpa:
                choose_attention(model, attention)
            model.train(training).zero_grad()


def ragged_batch(
    official_class: OfficialClass, model: PreTrainedModel, side: str, lengths: list[int], seed: int = 1
) -> Batch:
    """Random sequences of these lengths, padded to the longest on `side`, with segments where the model has them."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    segments = getattr(config, "type_vocab_size", 1)
    if Constant("token_types_as_tokens", True) in official_class.architecture.config:
        segments = config.vocab_size
    if official_class.takes_choices:
        choices = [sequences(config, side, order, generator, segments) for order in (lengths, lengths[::-1])]
        return {name: torch.stack([choice[name] for choice in choices], dim=1) for name in choices[0]}
    batch = sequences(config, side, lengths, generator, segments)
    if official_class.architecture.model_type == "clip_text_model":
        mask = batch["attention_mask"]
        ends = (mask * torch.arange(mask.shape[1])).argmax(dim=1)
        batch["input_ids"][torch.arange(len(mask)), ends] = config.eos_token_id
    return with_target(official_class, batch, config, side, generator) if official_class.is_encoder_decoder else batch


def with_target(official_class: OfficialClass, batch: Batch, config, side: str, generator: torch.Generator) -> Batch:
    """The batch with something to decode: of lengths of its own, with a mask only where no result is without it.

    A classifier decodes its source, and reads the state at its last end of the sentence.
    """
    batch["use_cache"] = False  # FSMT sees ahead with a cache
    if official_class.head.official.endswith("SequenceClassification"):
        mask = batch["attention_mask"]
        ends = (mask * torch.arange(mask.shape[1])).argmax(dim=1)
        batch["input_ids"][torch.arange(len(mask)), ends] = config.eos_token_id
        return batch
    lengths = [length // 2 + 1 for length in batch["attention_mask"].sum(dim=1).flip(0).tolist()]
    target = sequences(config, side, lengths, generator, segments=0, vocab_size=target_vocab_size(config))
    batch["decoder_input_ids"] = target["input_ids"]
    # Without one FSMT makes its own.
    if side == "left" or official_class.architecture.model_type == "fsmt":
        batch["decoder_attention_mask"] = target["attention_mask"]
    return batch


def target_vocab_size(config) -> int:
    return getattr(config, "decoder_vocab_size", config.vocab_size)


def target_mask(batch: Batch) -> torch.Tensor:
    """1 at real tokens of what the model gives states and logits of."""
    if "decoder_input_ids" not in batch:
        return batch["attention_mask"]
    return batch.get("decoder_attention_mask", (batch["decoder_input_ids"] >= FIRST).long())


def positions_of(batch: Batch) -> torch.LongTensor:
    """Positions counted over the tokens that are not padding, as `generate` counts them."""
    return (batch["attention_mask"].cumsum(dim=-1) - 1).clamp(min=0)


def sequences(
    config, side: str, lengths: list[int], generator: torch.Generator, segments: int, vocab_size: int | None = None
) -> Batch:
    longest = max(lengths)
    shape = (len(lengths), longest)
    positions = torch.arange(longest)
    from_start = torch.stack([positions if side == "right" else longest - 1 - positions] * len(lengths))
    mask = (from_start < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(FIRST, vocab_size or config.vocab_size, shape, generator=generator)
    batch = {"input_ids": ids.where(mask == 1, config.pad_token_id or 0), "attention_mask": mask}
    if segments > 1:
        batch["token_type_ids"] = torch.randint(0, segments, shape, generator=generator) * mask
    return batch


def labels_for(
    official_class: OfficialClass, model: PreTrainedModel, batch: Batch, everywhere: bool, seed: int = 2
) -> Batch:
    """Labels for the head; those of single tokens at padded positions too if `everywhere`."""
    generator = torch.Generator().manual_seed(seed)
    mask, head = target_mask(batch), official_class.head.zoo.__name__

    def random(high: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=generator)

    def of_tokens(high: int) -> torch.Tensor:
        labels = random(high, mask.shape)
        ignored = torch.rand(mask.shape, generator=generator) < 0.4
        return labels.masked_fill(ignored | (mask == 0) & (not everywhere), -100)

    size = (mask.shape[0],)
    if not official_class.has_loss:
        return {}
    if head.endswith("CausalLM"):
        labels = of_tokens(model.config.vocab_size)
        if not everywhere:  # nor the first token after padding, which padding would predict
            labels[:, 1:][mask[:, :-1] == 0] = -100
        return {"labels": labels}
    if head.endswith(("MaskedLM", "ConditionalGeneration")):
        return {"labels": of_tokens(target_vocab_size(model.config))}
    if head.endswith("ReplacedTokenDetection"):
        return {"labels": random(2, mask.shape)}
    if head.endswith("PreTraining"):
        return {"labels": of_tokens(model.config.vocab_size), "next_sentence_label": random(2, size)}
    if head.endswith("TokenClassification"):
        return {"labels": of_tokens(model.config.num_labels)}
    if head.endswith("QuestionAnswering"):
        return {"start_positions": random(mask.shape[1], size), "end_positions": random(mask.shape[1] + 3, size)}
    if head.endswith(("NextSentencePrediction", "MultipleChoice")):
        return {"labels": random(2, size)}
    return {"labels": random(model.config.num_labels, size)}


def loss_of(model: PreTrainedModel, official_class: OfficialClass, batch: Batch, labels: Batch) -> torch.Tensor:
    """The loss of the head; for a model that has none, a sum over all that it gives at real positions."""
    names = OTHER_NAMES.get(type(model).__name__, {})
    outputs = model(**batch, **{names.get(name, name): values for name, values in labels.items()})
    if official_class.has_loss:
        return outputs.loss
    real = target_mask(batch).unsqueeze(-1)
    loss = (outputs.last_hidden_state * real).square().mean()
    pooled = outputs.get("pooler_output", outputs.get("text_embeds"))
    return loss if pooled is None else loss + pooled.square().mean()


def assert_close(zoo: torch.Tensor, official: torch.Tensor, what: str) -> None:
    bound = max(MAX_DIFFERENCE, MAX_DIFFERENCE_TO_LARGEST * official.abs().max().item())
    difference = (zoo - official).abs().max().item()
    assert difference <= bound, f"{what}: differs by {difference:.2e}, allowed are {bound:.2e}"


def assert_same_outputs(zoo, official, mask: torch.Tensor, decoder_mask: torch.Tensor | None = None) -> None:
    """Every tensor that the official model gives, every hidden state and all attention weights, at real positions.

    Args:
        mask: 1 at real tokens; of an encoder-decoder, those of the source.
        decoder_mask: of an encoder-decoder, those of the target.
    """
    zoo_names = {other: name for names in OTHER_NAMES.values() for name, other in names.items()}
    for name, tensors in official.items():
        if isinstance(tensors, torch.Tensor):
            assert_same_output(name, zoo[zoo_names.get(name, name)], tensors, mask, decoder_mask)
        elif isinstance(tensors, tuple):
            assert len(zoo[name]) == len(tensors), name
            for index, expected in enumerate(tensors):
                assert_same_output(f"{name}.{index}", zoo[name][index], expected, mask, decoder_mask)


def assert_same_output(
    name: str, value: torch.Tensor, expected: torch.Tensor, mask: torch.Tensor, decoder_mask: torch.Tensor | None
) -> None:
    assert value.shape == expected.shape, name
    real = (mask if decoder_mask is None or name.startswith("encoder") else decoder_mask).flatten(0, -2).bool()
    if "attentions" in name:  # (batch, heads, queries, keys)
        value, expected = value.transpose(1, 2), expected.transpose(1, 2)
    if expected.shape[:2] == real.shape:
        value, expected = value[real], expected[real]
    assert_close(value, expected, name)


def assert_same_loss(zoo: torch.Tensor, official: torch.Tensor) -> None:
    difference = (zoo - official).abs().item() / official.abs().item()
    assert difference <= MAX_LOSS_DIFFERENCE, (
        f"loss {zoo.item():.8f} for {official.item():.8f}, relative {difference:.1e}"
    )


def assert_same_gradients(
    zoo: PreTrainedModel, official: PreTrainedModel, official_class: OfficialClass, deep: bool = False
) -> None:
    """The gradient of every parameter, which the converter's table takes to where the official model has it."""
    unseen_of = {"MultipleChoice": UNSEEN_OF_CHOICES, "QuestionAnswering": UNSEEN_OF_ANSWERS}
    rounded = unseen_of.get(official_class.head.official.rpartition("For")[2], UNSEEN) + (ALIKE if deep else ())
    expected = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in official.named_parameters(remove_duplicate=False)
        if is_converted(official_class.architecture, name)
    }
    own = dict(zoo.named_parameters(remove_duplicate=False))
    gradients = {
        full: torch.zeros_like(own[name]) if own[name].grad is None else own[name].grad
        for full, name in zoo_names(zoo).items()
        if name in own
    }
    canonical = {name: canonical_name(official_class.architecture, name) for name in expected}
    rules = official_class.architecture.tensor_rules([official_class.head], zoo.config)
    steps, unknown = plan(rules, canonical.values(), to="official")
    assert not unknown
    converted, unseen = {}, set()
    for step in steps:
        converted.update(zip(step.writes, step.run([gradients[name] for name in step.reads]), strict=True))
        if all(name.endswith(rounded) for name in step.reads):
            unseen.update(step.writes)

    whole = torch.stack([gradient.norm() for gradient in expected.values()]).norm().item()
    for name, gradient in expected.items():
        difference = (converted[canonical[name]] - gradient).norm().item()
        bound = MAX_GRADIENT_DIFFERENCE * gradient.norm().item()
        if canonical[name] in unseen:
            bound = max(bound, ROUNDING * whole)
        assert difference <= bound, f"gradient of {name}: differs by {difference:.2e}, allowed are {bound:.2e}"
