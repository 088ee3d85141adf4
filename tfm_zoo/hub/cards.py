"""Model cards, written from what is known, and never over a card that a person wrote."""

import json
import shlex
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData, constants
from transformers import PreTrainedModel

from ..converters.official import native_for
from ..converters.rules import ConversionError
from ..models.card import architecture_table, is_ours, loading, make_card, pipeline_of, table, tags_of, verifying

__all__ = ["about_zoo_model", "licence_of", "table", "tags_of", "write_conversion_card", "write_model_card"]


def write_model_card(folder: str | Path, data: ModelCardData, text: str, source: str) -> bool:
    """Write `folder/README.md`; False if the README there was not written by this function, and was left alone.

    Args:
        source: what the text says that the model is loaded from.
    """
    path = Path(folder) / "README.md"
    if path.exists() and not is_ours(path.read_text(encoding="utf-8", errors="replace")):
        return False
    make_card(data, text, source).save(path)
    return True


def write_conversion_card(folder: str | Path, model: PreTrainedModel, source: str, title: str, out: str) -> bool:
    """The card of a model that was converted from `source`, an official checkpoint of the architecture `title`.

    Args:
        out: what the folder will be called.
    """
    local = Path(source).exists()
    name = Path(source).resolve().name if local else source.split("/")[-1]
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=pipeline_of(model),
        license=licence_of(source),
        base_model=None if local else source,
        tags=tags_of(model),
        model_name=name,
    )
    text = f"""
# {name}, in the zoo's block

`{type(model).__name__}`, converted from the {title} checkpoint `{name}`. It computes what the original computes, and
carries its own code: transformers runs it without `tfm_zoo` installed.

{loading(model, out)}

{about_zoo_model(model, out)}

## How it was converted

```sh
{shlex.join(["tfm-zoo", "convert", name if local else source, out])}{"  # a folder" if local else ""}
```

Every tensor of the checkpoint is in it, bit for bit, under the zoo's names.

## Limits and bias

What the original can do, cannot do and is biased to, this model too: its own card says it. Outputs at padding, which
mean nothing, are zeros here.
"""
    return write_model_card(folder, data, text, out)


def about_zoo_model(model: PreTrainedModel, repository: str) -> str:
    """What holds of every zoo model: its sizes, what `tfm_zoo` adds, what it is equal to."""
    name, has_native = type(model).__name__, _has_native(model)
    equal = """
For models of its official architecture, logits and hidden states agree with the native class to 1e-5 in float32, losses
to 1e-6 and gradients to 1e-5 (relative). In the zoo's repository
`python -m pytest tests/equivalence tests/conversion` repeats the comparison, `python -m tests.benchmarks` the timing.
"""
    back = "official = tfm_zoo.to_official(model)  # the native class, for engines that know no other\n"
    return f"""
## Architecture

{architecture_table(model)}

## With `tfm_zoo`

```python
import tfm_zoo

model = tfm_zoo.{name}.from_pretrained({json.dumps(repository)})
{back if has_native else ""}```

{verifying(repository)}
{equal if has_native else ""}
""".strip()


def _has_native(model: PreTrainedModel) -> bool:
    """Whether it came from a native class and, as its configuration is now, can go back."""
    if not model.config.official:
        return False
    try:
        native_for(model)
    except ConversionError:
        return False
    return True


def licence_of(model_name_or_path: str) -> str | None:
    """The licence that a checkpoint's own card states, if it has one that can be read."""
    folder = Path(model_name_or_path)
    if not folder.is_dir() and constants.HF_HUB_OFFLINE:
        return None
    try:
        return ModelCard.load(folder / "README.md" if folder.is_dir() else model_name_or_path).data.get("license")
    except Exception:  # a licence that cannot be read must not cost anybody a trained model
        return None
