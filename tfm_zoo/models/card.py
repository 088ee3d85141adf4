"""The model card of a model that nothing is known of but the model: what it is, and how it is loaded."""

import json
import re
import shlex

from huggingface_hub import ModelCard, ModelCardData
from transformers import PreTrainedModel

#: head -> the pipeline that the Hub shows it with
PIPELINES = {
    "Model": "feature-extraction",
    "MaskedLM": "fill-mask",
    "PreTraining": "fill-mask",
    "CausalLM": "text-generation",
    "ConditionalGeneration": "translation",
    "SequenceClassification": "text-classification",
    "NextSentencePrediction": "text-classification",
    "TokenClassification": "token-classification",
    "QuestionAnswering": "question-answering",
    "MultipleChoice": "multiple-choice",
}
#: stands in every card that the zoo has written, and may replace, with what it says the model is loaded from
MARK = "<!-- Written by tfm_zoo for {}. Remove this line to keep the card from being replaced. -->"


def make_card(data: ModelCardData, text: str, source: str) -> ModelCard:
    """A card that the zoo may replace; `source` is the folder or repository that it says the model is loaded from."""
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{MARK.format(source)}\n\n{text.strip()}\n")


def is_ours(card: str) -> bool:
    """Whether a card was written by the zoo, and may be replaced."""
    return written_for(card) is not None


def written_for(card: str) -> str | None:
    """What a card of the zoo says the model is loaded from; `None`: somebody else wrote it."""
    found = re.search(re.escape(MARK).replace(r"\{\}", "(.+)"), card)
    return found and found[1]


def moved(card: str, source: str) -> str:
    """A card of the zoo, of a model that is now loaded from `source`."""
    old = written_for(card)
    for form in (MARK.format, json.dumps, lambda name: f"tfm-zoo verify {shlex.quote(name)}"):
        card = card.replace(form(old), form(source))
    return card


def card_of(model: PreTrainedModel, repository: str) -> ModelCard:
    """The card of a zoo model in `repository`."""
    name = repository.split("/")[-1]
    data = ModelCardData(
        library_name="transformers", pipeline_tag=pipeline_of(model), tags=tags_of(model), model_name=name
    )
    text = f"""
# {name}

`{type(model).__name__}`, a Transformer with its own code: transformers runs it without `tfm_zoo` installed.

{loading(model, repository)}

## Architecture

{architecture_table(model)}

## Limits

This card was written when the model was pushed: what it was trained on, and what it cannot do, its author has yet to
say here. {verifying(repository)}
"""
    return make_card(data, text, repository)


def pipeline_of(model: PreTrainedModel) -> str | None:
    """By what stands behind "For" in the name of its class."""
    if (model.config.official or {}).get("model_type") == "bart":
        return None  # which has been made for many things
    return PIPELINES.get(type(model).__name__.partition("For")[2] or "Model")


def tags_of(model: PreTrainedModel) -> list[str]:
    """The zoo's, the family's and, of a converted model, the official architecture's."""
    official = (model.config.official or {}).get("model_type")
    return ["tfm_zoo", model.config.model_type, *([official] if official else [])]


def verifying(repository: str) -> str:
    """How a reader of the card convinces himself."""
    return f"`tfm-zoo verify {shlex.quote(repository)}` checks that code, weights and outputs are as they were saved."


def loading(model: PreTrainedModel, repository: str) -> str:
    """How a model is loaded by transformers alone."""
    name = type(model).__name__
    auto = next(auto for auto, target in model.config.auto_classes.items() if target == name)
    return f"""
```python
from transformers import {auto}

model = {auto}.from_pretrained({json.dumps(repository)}, trust_remote_code=True)
```
""".strip()


def architecture_table(model: PreTrainedModel) -> str:
    """The sizes of a zoo model, and where it stands on each axis of the block."""
    config = model.config
    layers = str(config.num_hidden_layers)
    if config.is_encoder_decoder:
        layers = f"{config.encoder_layers} in the encoder, {config.decoder_layers} in the decoder"
    heads = config.num_attention_heads
    if config.num_key_value_heads != heads:
        heads = f"{heads}, of keys and values {config.num_key_value_heads}"
    rows = {
        "class": f"`{type(model).__name__}`",
        "parameters": f"{model.num_parameters():,}",
        "layers": layers,
        "width": config.hidden_size,
        "heads": heads,
        "feed-forward": f"{config.intermediate_size}, {config.mlp_type}, {config.hidden_act}",
        "vocabulary": f"{config.vocab_size:,}",
        "positions": config.position_embedding_type,
        "norm": f"{config.norm_position}-norm, {config.norm_type}",
        "attention": config.attention_type + (f", window of {config.sliding_window}" if config.sliding_window else ""),
    }
    return table(rows, ("", ""))


def table(rows: dict[str, object], head: tuple[str, str]) -> str:
    """A Markdown table of two columns."""
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]
    return "\n".join(lines)
