"""`pipeline`: transformers' own, and the tasks that transformers 5 removed from it."""

import re
from difflib import get_close_matches
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import Pipeline

#: the tasks that transformers 5 removed -> the file and the class of each pipeline here, and what loads its model
TASKS = {
    "question-answering": ("question_answering", "QuestionAnsweringPipeline", "AutoModelForQuestionAnswering"),
    "summarization": ("text_to_text", "SummarizationPipeline", "AutoModelForSeq2SeqLM"),
    "text2text-generation": ("text_to_text", "Text2TextGenerationPipeline", "AutoModelForSeq2SeqLM"),
    "translation": ("text_to_text", "TranslationPipeline", "AutoModelForSeq2SeqLM"),
}
LANGUAGES = re.compile("translation_(.+)_to_(.+)")


def pipeline(task: str | None = None, model: Any = None, *others: Any, **arguments: Any) -> "Pipeline":
    """A pipeline for a task: one of those that transformers 5 removed, or any that it has.

    Args:
        task: `"translation"` (or `"translation_en_to_de"`, with languages that the tokenizer or the model's
            `task_specific_params` name), `"summarization"`, `"text2text-generation"`, `"question-answering"`. Any other
            goes to `transformers.pipeline`.
        model: a model, of the zoo or not, in memory; or a folder or Hub id.
        others, arguments: those of `transformers.pipeline` (`tokenizer`, `device`, `dtype`, `trust_remote_code`, ...),
            and arguments for every call of the pipeline, such as `batch_size`, `num_beams` or `top_k`. A model in
            memory needs its `tokenizer`.

    Returns:
        The pipeline. Its class says what a call takes and returns (in `text_to_text.py` and `question_answering.py`).

    Raises:
        ValueError: if no model is named, or if the model is not one for the task.
        KeyError: if there is no such task.
    """
    import transformers

    task, languages = without_languages(task)
    check_kind(task, model)
    name = task
    if task in TASKS:
        if model is None:
            raise ValueError(
                f"{task} has no model by default: name one, as in pipeline({task!r}, 'a folder or Hub id')."
            )
        from ..plugin.patches import add_tasks_to_transformers

        classes = {
            known: (getattr(import_module(f"{__package__}.{file}"), its_class), getattr(transformers, loads))
            for known, (file, its_class, loads) in TASKS.items()
        }
        name = add_tasks_to_transformers(classes)[task]
    try:
        return transformers.pipeline(name, model, *others, **languages | arguments)
    except KeyError as error:
        if task is None or task in (known := known_tasks()):
            raise
        near = get_close_matches(task, known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Choose from {', '.join(known)}."
        raise KeyError(f"{task} is not a task. {hint}") from error
    except ValueError as error:  # with the whole of every traceback in it
        reasons = re.findall(r"^[\w.]*Error: (.*)", str(error), flags=re.MULTILINE)
        if "Could not load model" not in str(error) or not reasons:
            raise
        raise ValueError(f"{task} needs {wanted(task)}, and {model} holds no such model: {reasons[-1]}") from error


def check_kind(task: str | None, model: Any) -> None:
    """Raises a `ValueError` for a model in memory that is not one for the task, as far as one can tell."""
    from transformers import PreTrainedModel

    kind, autos = type(model), autos_of(task)
    if model is None or task is None or isinstance(model, str | PathLike):
        return
    if not hasattr(model, "config"):
        raise ValueError(f"{task} needs a model of transformers or of the zoo, and not {kind.__name__}.")
    own = getattr(type(model.config), "auto_classes", None)  # what the zoo's configurations have
    if not own or not isinstance(model, PreTrainedModel) or not autos or "AutoModel" in autos:  # that one takes any
        return
    if not {each.__name__ for each in kind.__mro__} & {own.get(auto) for auto in autos}:
        raise ValueError(f"{task} needs {wanted(task)}, and not {kind.__name__}.")


def autos_of(task: str | None) -> list[str]:
    """The names of the Auto classes that load models for a task."""
    from transformers.pipelines import PIPELINE_REGISTRY

    if task in TASKS:
        return [TASKS[task][2]]
    entry = PIPELINE_REGISTRY.supported_tasks.get(PIPELINE_REGISTRY.task_aliases.get(task, task), {"pt": ()})
    return [auto.__name__ for auto in entry["pt"]]


def wanted(task: str) -> str:
    """What a task needs, in words."""
    if "AutoModelForSeq2SeqLM" in TASKS.get(task, ()):
        return "an encoder-decoder with a language modelling head, such as TfmEncoderDecoderForConditionalGeneration"
    if task == "question-answering":
        return "a model with a head for it, such as TfmBertForQuestionAnswering"
    return f"a model that {' or '.join(autos_of(task))} loads"


def known_tasks() -> list[str]:
    """The names of all tasks, as a user writes them."""
    from transformers.pipelines import get_supported_tasks

    return [*TASKS, *(name for name in get_supported_tasks() if not name.startswith("tfm_zoo:"))]


def without_languages(task: str | None) -> tuple[str | None, dict[str, str]]:
    """`translation` and the languages of `translation_en_to_de`; any other task as it is."""
    if not task or not task.startswith("translation_"):
        return task, {}
    named = LANGUAGES.fullmatch(task)
    if not named:
        raise ValueError(f"{task!r} is not a task. Write translation, or translation_en_to_de for a pair of languages.")
    return "translation", {"src_lang": named[1], "tgt_lang": named[2]}
