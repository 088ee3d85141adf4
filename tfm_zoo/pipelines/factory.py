"""`pipeline`: transformers' own, and the tasks that transformers 5 removed from it."""

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import Pipeline

TASKS = ("question-answering", "summarization", "text2text-generation", "translation")
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
    if task not in TASKS:
        try:
            return transformers.pipeline(task, model, *others, **arguments)
        except KeyError as error:
            if task is None or task in (known := known_tasks()):
                raise
            near = get_close_matches(task, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Those there are: {', '.join(known)}."
            raise KeyError(f"{task} is no task. {hint}") from error
    if model is None:
        raise ValueError(f"{task} has no model by default: name one, as in pipeline({task!r}, 'a folder or Hub id').")
    from ..plugin.patches import add_tasks_to_transformers

    names = add_tasks_to_transformers()
    return transformers.pipeline(names[task], model, *others, **languages | arguments)


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
        raise ValueError(f"{task!r} is no task. Write translation, or translation_en_to_de for a pair of languages.")
    return "translation", {"src_lang": named[1], "tgt_lang": named[2]}
