"""The model card of a model that nothing is known of but the model: what it is, and how it is loaded."""

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
#: stands in every card that the zoo has written, and may replace
MARK = "<!-- Written by tfm_zoo. Remove this line to keep the card from being replaced. -->"


def card_of(model: PreTrainedModel, repository: str) -> ModelCard:
    """The card of a zoo model in `repository`."""
    name = repository.split("/")[-1]
    data = ModelCardData(
        library_name="transformers", pipeline_tag=pipeline_of(model), tags=tags_of(model), model_name=name
    )
    return ModelCard(f"""---
{data.to_yaml()}
---

{MARK}

# {name}

`{type(model).__name__}`, a Transformer with its own code: transformers runs it without `tfm_zoo` installed.

{loading(model, repository)}

## Architecture

{architecture_table(model)}

## Limits

This card was written when the model was pushed: what it was trained on, and what it cannot do, its author has yet to
say here. `tfm-zoo verify {repository}` checks that it still computes what it did when it was saved.
""")


def pipeline_of(model: PreTrainedModel) -> str | None:
    """By what stands behind "For" in the name of its class."""
    return PIPELINES.get(type(model).__name__.partition("For")[2] or "Model")


def tags_of(model: PreTrainedModel) -> list[str]:
    """The zoo's, the family's and, of a converted model, the official architecture's."""
    official = (model.config.official or {}).get("model_type")
    return ["tfm_zoo", model.config.model_type, *([official] if official else [])]


def loading(model: PreTrainedModel, repository: str) -> str:
    """How a model is loaded by transformers alone."""
    name = type(model).__name__
    auto = next(auto for auto, target in model.config.auto_classes.items() if target == name)
    return f"""
```python
from transformers import {auto}

model = {auto}.from_pretrained("{repository}", trust_remote_code=True)
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
