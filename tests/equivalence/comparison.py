"""Zoo model against official model: the batches, and what the two give for them."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from tests.official_models import OfficialClass, canonical_name, is_converted
from tests.precision import assert_same, tensors_in
from tfm_zoo.converters.config_rules import Constant
from tfm_zoo.converters.tensor_matching import names_by_rule
from tfm_zoo.converters.tensor_rules import plan
from tfm_zoo.visualization.attention_maps import choose_attention

Batch = dict[str, torch.Tensor]
FIRST = 5  # of the ids that are not special tokens

#: the names that `AlbertForPreTraining` has for labels and outputs of the zoo
ALBERT = {"next_sentence_label": "sentence_order_label", "seq_relationship_logits": "sop_logits"}


class Pair(NamedTuple):
    """An official model, and the zoo models that it is converted to: made once for many tests."""

    official_class: OfficialClass
    official: PreTrainedModel
    zoo_models: list[PreTrainedModel]

    def prepare(self, attention: str = "sdpa", training: bool = False) -> None:
        for model in (self.official, *self.zoo_models):
            # torch's attention has no soft cap: VaultGemma of transformers 5.18 would leave its own out.
            capped = getattr(model.config, "attn_logit_softcapping", None)
            if capped or attention == "eager" or model._supports_sdpa:
                choose_attention(model, "eager" if capped else attention)
            model.train(training).zero_grad()


def ragged_batch(official_class: OfficialClass, model: PreTrainedModel, side: str, lengths: list[int]) -> Batch:
    """Random sequences of these lengths, padded to the longest on `side`, with segments where the model has them."""
    generator, config = torch.Generator().manual_seed(1), model.config
    segments = getattr(config, "type_vocab_size", 1)
    if Constant("token_types_as_tokens", True) in official_class.architecture.config:
        segments = config.vocab_size
    if official_class.head.official.endswith("MultipleChoice"):
        choices = [sequences(config, side, order, generator, segments) for order in (lengths, lengths[::-1])]
        return {name: torch.stack([choice[name] for choice in choices], dim=1) for name in choices[0]}
    batch = sequences(config, side, lengths, generator, segments)
    if official_class.architecture.model_type == "clip_text_model" or decodes_its_source(official_class):
        mask = batch["attention_mask"]
        ends = (mask * torch.arange(mask.shape[1])).argmax(dim=1)
        batch["input_ids"][torch.arange(len(mask)), ends] = config.eos_token_id
    return with_target(official_class, batch, config, side, generator) if official_class.is_encoder_decoder else batch


def decodes_its_source(official_class: OfficialClass) -> bool:
    """As a classifier does, which reads the state at the last end of the sentence."""
    return official_class.is_encoder_decoder and official_class.head.official.endswith("SequenceClassification")


def with_target(official_class: OfficialClass, batch: Batch, config, side: str, generator: torch.Generator) -> Batch:
    """The batch with something to decode: of lengths of its own, with a mask only where no result is without it."""
    batch["use_cache"] = False  # FSMT sees ahead with a cache
    if decodes_its_source(official_class):
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
    positions, shape = torch.arange(max(lengths)), (len(lengths), max(lengths))
    mask = ((positions if side == "right" else positions.flip(0)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(FIRST, vocab_size or config.vocab_size, shape, generator=generator)
    batch = {"input_ids": ids.where(mask == 1, config.pad_token_id or 0), "attention_mask": mask}
    if segments > 1:
        batch["token_type_ids"] = torch.randint(0, segments, shape, generator=generator) * mask
    return batch


def labels_for(official_class: OfficialClass, model: PreTrainedModel, batch: Batch, everywhere: bool) -> Batch:
    """Labels for the head; those of single tokens at padded positions too if `everywhere`."""
    generator = torch.Generator().manual_seed(2)
    mask, head = target_mask(batch), official_class.head.zoo.__name__

    def random(high: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=generator)

    def of_tokens(high: int) -> torch.Tensor:
        labels, ignored = random(high, mask.shape), torch.rand(mask.shape, generator=generator) < 0.4
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
    """The loss of the head; for a model that has none, a sum over all that it gives at real positions, each channel
    with another weight: what is normed always has the same sum of squares, whose gradient is rounding."""
    names = ALBERT if type(model).__name__ == "AlbertForPreTraining" else {}
    outputs = model(**batch, **{names.get(name, name): values for name, values in labels.items()})
    if official_class.has_loss:
        return outputs.loss
    pooled = outputs.get("pooler_output", outputs.get("text_embeds"))
    given = [outputs.last_hidden_state * target_mask(batch).unsqueeze(-1), *([] if pooled is None else [pooled])]
    return sum((each.square() * (1 + torch.arange(each.shape[-1]).cos())).mean() for each in given)


def real_outputs(outputs, mask: torch.Tensor, decoder_mask: torch.Tensor | None = None) -> Batch:
    """Every tensor of an output at real positions, hidden states and attention weights too, by the zoo's names.

    Args:
        mask: 1 at real tokens; of an encoder-decoder, those of the source.
        decoder_mask: of an encoder-decoder, those of the target.
    """
    names = {other: name for name, other in ALBERT.items()}
    tensors = tensors_in({name: value for name, value in outputs.items() if name != "past_key_values"})
    for name, tensor in tensors.items():
        real = (mask if decoder_mask is None or name.startswith(".encoder") else decoder_mask).flatten(0, -2).bool()
        by_position = tensor.transpose(1, 2) if "attentions" in name else tensor  # (batch, heads, queries, keys)
        if by_position.shape[:2] == real.shape:
            tensors[name] = by_position[real]
    return {f".{names.get(name[1:], name[1:])}": tensor for name, tensor in tensors.items()}


def assert_same_outputs(zoo, official, *masks: torch.Tensor | None) -> None:
    """Every tensor that the official model gives, at real positions; `masks` are those of [`real_outputs`]."""
    made, wanted = real_outputs(zoo, *masks), real_outputs(official, *masks)
    assert_same({name: made[name] for name in wanted}, wanted, "output")


def gradients_of(model: PreTrainedModel) -> Batch:
    """The gradient of every parameter; zero where nothing has read it."""
    parameters = model.named_parameters(remove_duplicate=False)
    return {name: torch.zeros_like(each) if each.grad is None else each.grad for name, each in parameters}


def official_gradients(official: PreTrainedModel, official_class: OfficialClass) -> Batch:
    """The gradient of every parameter that is converted, by its name in newly written checkpoints."""
    architecture = official_class.architecture
    gradients = {name: each for name, each in gradients_of(official).items() if is_converted(architecture, name)}
    return {canonical_name(architecture, name): gradient for name, gradient in gradients.items()}


def zoo_gradients(zoo: PreTrainedModel, official_class: OfficialClass, names: Iterable[str]) -> Batch:
    """The same of a zoo model: the converter's table takes its gradients to where the official model has them."""
    own = gradients_of(zoo)
    own = {full: own[name] for full, name in names_by_rule(zoo).items() if name in own}
    rules = official_class.architecture.tensor_rules([official_class.head], zoo.config)
    steps, unknown = plan(rules, names, to="official")
    assert not unknown
    converted = {}
    for step in steps:
        converted.update(zip(step.writes, step.run([own[name] for name in step.reads]), strict=True))
    return {name: converted[name] for name in names}


def assert_same_gradients(zoo: PreTrainedModel, official: PreTrainedModel, official_class: OfficialClass) -> None:
    wanted = official_gradients(official, official_class)
    assert_same(zoo_gradients(zoo, official_class, wanted), wanted, "gradient")


def assert_same_pair(pair: Pair, attention: str, side: str, lengths: list[int], training: bool = True) -> None:
    """Outputs, loss and gradients of a pair for one batch; `training`: whether those of training mode."""
    official_class, official, [zoo] = pair
    batch = ragged_batch(official_class, official, side, lengths)
    pair.prepare(attention)
    with torch.no_grad():
        expected, outputs = (model(**batch, output_hidden_states=True) for model in (official, zoo))
    assert_same_outputs(outputs, expected, batch["attention_mask"], target_mask(batch))
    pair.prepare(attention, training)
    labels = labels_for(official_class, official, batch, everywhere=False)
    losses = [loss_of(model, official_class, batch, labels) for model in (zoo, official)]
    sum(losses).backward()
    assert_same(*losses)
    assert_same_gradients(zoo, official, official_class)
