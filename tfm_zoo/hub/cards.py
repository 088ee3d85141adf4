"""Model cards, written from what a run knows, and never over a card that a person wrote."""

from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData, constants
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
MARK = "<!-- Written by tfm_zoo. Remove this line to keep the card from being replaced. -->"


def write_model_card(folder: str | Path, data: ModelCardData, text: str) -> bool:
    """Write `folder/README.md`; False if the README there was not written by this function, and was left alone."""
    path = Path(folder) / "README.md"
    if path.exists() and not is_ours(path.read_text(encoding="utf-8")):
        return False
    card = ModelCard(f"---\n{data.to_yaml()}\n---\n\n{MARK}\n\n{text.strip()}\n")
    card.save(path)
    return True


def is_ours(card: str) -> bool:
    """Whether a card was written by [`write_model_card`], and may be replaced."""
    return MARK in card


def write_conversion_card(folder: str | Path, model: PreTrainedModel, source: str, title: str) -> bool:
    """The card of a model that was converted from `source`, an official checkpoint of the architecture `title`."""
    config, name = model.config, Path(source).name
    official = (config.official or {}).get("model_type")
    auto = auto_class(model)
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=PIPELINES.get(head_of(model)),
        license=licence_of(source),
        base_model=None if Path(source).exists() else source,
        tags=["tfm_zoo", config.model_type, *([official] if official else [])],
        model_name=name,
    )
    text = f"""
# {name}, in the zoo's block

`{type(model).__name__}`, converted from the {title} checkpoint `{name}`. It computes what the original computes, and
carries its own code: transformers runs it without `tfm_zoo` installed.

```python
from transformers import {auto}

model = {auto}.from_pretrained("{name}", trust_remote_code=True)
```

With `tfm_zoo`, `import tfm_zoo` makes the classes known, and `tfm_zoo.to_official(model)` gives the native model back.

## Architecture

{table(architecture_rows(model), ("", ""))}

## How it was converted

```sh
tfm-zoo convert {name if Path(source).exists() else source} OUT
```

Every tensor of the checkpoint is in it, bit for bit, under the zoo's names. For models of this architecture, logits and
hidden states agree with the native class to 1e-5 in float32, losses to 1e-6 and gradients to 1e-5 (relative):
`python -m pytest tests/equivalence tests/conversion` in the zoo's repository repeats the comparison.
`tfm-zoo verify FOLDER_OR_ID` checks that these files still compute what they did when they were saved.

## Limits

What the original can do, cannot do and is biased to, this model too: its own card says it. Outputs at padding, which
mean nothing, are zeros here.
"""
    return write_model_card(folder, data, text)


def head_of(model: PreTrainedModel) -> str:
    """What stands behind "For" in the name of its class; "Model" for one without a head."""
    return type(model).__name__.partition("For")[2] or "Model"


def auto_class(model: PreTrainedModel) -> str:
    """The Auto class by which transformers finds the model's class."""
    found = [auto for auto, name in model.config.auto_classes.items() if name == type(model).__name__]
    return found[0]


def architecture_rows(model: PreTrainedModel) -> dict[str, object]:
    """The sizes of a zoo model, and where it stands on each axis of the block."""
    config = model.config
    layers = str(config.num_hidden_layers)
    if config.is_encoder_decoder:
        layers = f"{config.encoder_layers} in the encoder, {config.decoder_layers} in the decoder"
    heads = config.num_attention_heads
    if config.num_key_value_heads != heads:
        heads = f"{heads}, of keys and values {config.num_key_value_heads}"
    return {
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


def licence_of(model_name_or_path: str) -> str | None:
    """The licence that a checkpoint's own card states, if it has one that can be read."""
    folder = Path(model_name_or_path)
    if not folder.is_dir() and constants.HF_HUB_OFFLINE:
        return None
    try:
        return ModelCard.load(folder / "README.md" if folder.is_dir() else model_name_or_path).data.get("license")
    except Exception:  # a licence that cannot be read must not cost anybody a trained model
        return None


def table(rows: dict[str, object], head: tuple[str, str]) -> str:
    """A Markdown table of two columns."""
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]
    return "\n".join(lines)
