"""The model card that a push writes for a folder without one, and what all cards of zoo models share."""

import json
import re
import shlex
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from transformers import PreTrainedModel

from ..families.auto_classes import auto_class_of
from ..proof.bill import bill_in, sentence_of
from ..proof.origin import TESTED
from .sharded_models import own_class

#: how tfm_zoo gets onto a machine: no index of packages has it
INSTALL = "`pip install .` in a clone of tfm_zoo"
#: the head of a model -> the pipeline that the Hub shows it with
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
#: what the card of a model with rounded weights says
QUANTISED = "reading its quantised weights"
#: marks a card that the zoo wrote and may replace; names the source, from which the card loads the model
MARK = "<!-- Written by tfm_zoo for {}. Remove this line to keep the card from being replaced. -->"
HEAD = "---\n{{ card_data }}\n---\n\n" + MARK.format("{{ source }}") + "\n\n"
#: how a model is used, with its tokenizer
USAGE = """```python
{{ imports }}

model = {{ auto_class }}.from_pretrained({{ quoted_source }}, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained({{ quoted_source }}, trust_remote_code=True)
{{ use }}
```"""
#: how an encoder makes vectors of texts, by the files of sentence-transformers beside it
VECTORS = """```python
{% if quantised %}import tfm_zoo  # reads quantised weights
{% endif %}from sentence_transformers import SentenceTransformer

model = SentenceTransformer({{ quoted_source }}, trust_remote_code=True)
vectors = model.encode(["A text."])
```"""
TEMPLATE = f"""
# {{{{ name }}}}

`{{{{ class_name }}}}`, a Transformer with its own code; {{{{ needs }}}}.

{USAGE}
{{% if bill %}}
{{{{ bill }}}}
{{% endif %}}
This card was written when the model was pushed; the tokenizer is here if it was pushed too. The author has yet to say
what the model was trained on, and what it cannot do. `{{{{ verify_command }}}}` checks that code, weights and outputs
are those that were saved.
"""


def card_of_model(model: PreTrainedModel, repo_id: str) -> ModelCard:
    """The card of a zoo model in the repository `repo_id`, written from the model alone."""
    name = repo_id.split("/")[-1]
    return make_card(TEMPLATE, metadata_of(model, model_name=name), repo_id, name=name, **facts_of_class(model))


def make_card(template: str, data: ModelCardData, source: str, **values: Any) -> ModelCard:
    """A card that the zoo may replace, from a Jinja `template` for the text below its metadata, and the `values` in it.

    The template may also use `source`, where the model loads from, `quoted_source` (for Python) and `verify_command`.
    """
    command = verify_command(source) + (" --trust-remote-code" if values.get("is_own") else "")
    values |= {"source": source, "quoted_source": json.dumps(source), "verify_command": command}
    return ModelCard.from_template(data, template_str=HEAD + template.strip() + "\n\n", **values)


def verify_command(source: str) -> str:
    return f"tfm-zoo verify {shlex.quote(source)}"


def source_of(card: str) -> str | None:
    """The source that a card of the zoo names; `None` for a card that somebody else wrote."""
    match = re.search(re.escape(MARK).replace(r"\{\}", "(.+)"), card)
    return match and match[1]


def is_outdated(card: str, quantization: Any) -> bool:
    """Whether the zoo wrote a card before a model's weights were rounded as they are; `quantization`: what its
    configuration says of that."""
    rounding = rounding_in(quantization)
    if not rounding or source_of(card) is None:
        return False
    bill = rounding.get("bill")
    return QUANTISED not in card or bool(bill and f"{bill['cosine']:.4f}" not in card)


def rounding_in(quantization: Any) -> dict[str, Any]:
    """What a configuration says of weights that the zoo rounded; nothing, if it says that of others."""
    said = dict(quantization or {})
    return said if said.get("quant_method") == "tfm_zoo" else {}


def metadata_of(model: PreTrainedModel, **fields: Any) -> ModelCardData:
    """The metadata that every card of a zoo model has, and `fields`."""
    tags = tags_of(model)
    # BART's class does not tell the pipeline: it serves many tasks.
    pipeline = None if "bart" in tags else PIPELINES.get(type(model).__name__.partition("For")[2] or "Model")
    return ModelCardData(library_name="transformers", pipeline_tag=pipeline, tags=tags, **fields)


def tags_of(model: PreTrainedModel) -> list[str]:
    """The zoo's tag, the family's and, for a converted model, that of its official architecture."""
    official = (model.config.official or {}).get("model_type")
    return ["tfm_zoo", model.config.model_type, *([official] if official else [])]


def facts_of_class(model: PreTrainedModel) -> dict[str, Any]:
    """The names of a model's class and of the Auto class that loads it, what loading needs, and how it is used."""
    name = type(model).__name__
    auto_class = auto_class_of(type(model.config), name) or type(model)._auto_class
    is_own = not all(each.__module__.startswith("tfm_zoo.") for each in (own_class(model), type(model.config)))
    quantization = rounding_in(getattr(model.config, "quantization_config", None))
    imports = f"from transformers import {f'{auto_class}, ' if auto_class else ''}AutoTokenizer"
    if quantised := quantization.get("dtype"):
        needs = f"{QUANTISED}, on a CPU, needs `tfm_zoo` ({INSTALL}){calibrated(quantization)}"
        imports = f"import tfm_zoo  # reads quantised weights\n{imports}"
    elif auto_class is None:
        needs, imports = f"{INSTALL} brings its class", f"import tfm_zoo\n{imports}"
    elif is_own:
        needs = f"running it may need `tfm_zoo` ({INSTALL})"
    else:
        needs = f"transformers {TESTED[0]} to {TESTED[-1]} runs it without `tfm_zoo` installed"
    facts = {"class_name": name, "auto_class": auto_class or f"tfm_zoo.{name}", "needs": needs, "imports": imports}
    facts |= {"bill": sentence_of(bill_in(model.config)), "is_own": is_own}
    return facts | {"use": lines_of_use(model), "quantised": quantised}


def calibrated(quantization: dict[str, Any]) -> str:
    """What the card of a model says whose eight bits were calibrated, behind a sentence."""
    kinds = [*(quantization.get("inputs") or {}).values()]
    if not kinds:
        return ""
    kept = kinds.count("bfloat16")
    whole = f" ({kept} stay in bfloat16)" if kept else ""
    return (
        f". {len(kinds) - kept} of its linear layers read bytes, by scales that were found on texts{whole}; the "
        f"vectors of these texts kept a cosine of at least {quantization['least_cosine']} to those before"
    )


def lines_of_use(model: PreTrainedModel) -> str:
    """Lines of Python with which a `model` reads what its `tokenizer` makes of a text."""
    if type(model).__name__.endswith("MultipleChoice"):
        return (
            'inputs = tokenizer(["One choice.", "Another one."], padding=True, return_tensors="pt")\n'
            "outputs = model(**{name: rows[None] for name, rows in inputs.items()})  # rows: one for each choice"
        )
    use = "outputs = model(**inputs)"
    if model.can_generate():
        use = "texts = tokenizer.batch_decode(model.generate(**inputs, max_new_tokens=20), skip_special_tokens=True)"
    return f'inputs = tokenizer("A text.", return_tensors="pt")\n{use}'
