"""Pipelines of encoder-decoders: translation, summarization, text to text."""

import copy
import logging
from collections.abc import Iterable
from typing import Any

import torch
from transformers import AutoTokenizer, Pipeline, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..converters.token_positions import positions_of
from .base import PadsAtRight, without_none

logger = logging.getLogger(__name__)

#: how texts are generated where neither the caller nor the model says
NEW_TOKENS, BEAMS = 256, 4
LENGTHS = {"max_length", "max_new_tokens"}
#: what the parameters of a task say besides settings of `generate`: a text to put before each source; and the folder,
#: beside the model, of the tokenizer of what it writes, if that has a vocabulary of its own
NOT_GENERATION = ("prefix", "target_tokenizer")


class Text2TextGenerationPipeline(PadsAtRight, Pipeline):
    """Texts that an encoder-decoder writes: `pipe(text)` or `pipe(texts, batch_size=8)`.

    A call takes a text, or a list, a data set or a generator of texts, and by name:

    - `return_tensors`: whether to return token ids (default: no). `return_text`: whether to return text (default: if no
      token ids are returned).
    - `batch_size`: texts that are written at a time. A list is taken by length, which needs fewer steps; its results
      come in its own order.
    - `clean_up_tokenization_spaces`: as in `tokenizer.decode`; false by default.
    - `truncation`: as in the tokenizer's call: true cuts a text to its `model_max_length`. By default nothing is cut.
    - `stop_sequence`: a text that ends the generation.
    - whatever `model.generate` takes. What a caller leaves out is taken from the model's `task_specific_params` for the
      task, then from its generation configuration. If neither says, 4 beams search for up to 256 tokens, or as many as
      the model takes. A `prefix` that these parameters name stands before a text.

    If the model writes in a vocabulary of its own, its tokenizer comes from the folder that these parameters name as
    `target_tokenizer`; or it is given under that name when the pipeline is made.

    It returns for a text a list of results, one for each of `num_return_sequences`; for a list of texts a list of
    results, or of such lists if there are several for each; for a data set or a generator an iterator over such lists.
    A result is `{"generated_text": ..., "generated_token_ids": ...}` with what was asked for of the two, the ids as a
    tensor `(length,)`.
    """

    # Generation settings are put together here: how the base class does it changes between releases.
    _pipeline_calls_generate = False
    task_name = "text2text-generation"
    return_name = "generated"

    def __init__(
        self,
        model: PreTrainedModel,
        *args,
        task: str = "",
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        **kwargs,
    ):
        if not getattr(model.config, "is_encoder_decoder", False) or not model.can_generate():
            raise ValueError(
                f"{self.task_name} needs an encoder-decoder with a language modelling head, such as "
                f"TfmEncoderDecoderForConditionalGeneration, and not {type(model).__name__}."
            )
        self.own_target_tokenizer = target_tokenizer or load_target_tokenizer(model)
        super().__init__(model, *args, task=self.task_name, **kwargs)

    @property
    def target_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of what is written."""
        return self.own_target_tokenizer or self.tokenizer

    def __call__(self, inputs: Any, **arguments: Any) -> Any:
        if not isinstance(inputs, list):
            return super().__call__(inputs, **arguments)
        places = range(len(inputs))
        if (arguments.get("batch_size") or self._batch_size or 1) > 1:
            # A batch is written until its longest text ends: texts of similar lengths end at similar steps.
            places = sorted(places, key=lambda place: len(str(inputs[place])), reverse=True)
        written = super().__call__([inputs[place] for place in places], **arguments) if inputs else []
        by_place = dict(zip(places, written, strict=True))
        results = [by_place[place] for place in range(len(inputs))]
        return [sequences[0] for sequences in results] if all(len(each) == 1 for each in results) else results

    def _sanitize_parameters(
        self,
        return_tensors: bool | None = None,
        return_text: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        truncation: Any = None,
        stop_sequence: str | None = None,
        **generate_arguments: Any,
    ) -> tuple[dict, dict, dict]:
        if stop_sequence is not None:
            generate_arguments |= {"stop_strings": [stop_sequence], "tokenizer": self.target_tokenizer}
        returned = {
            "return_tensors": return_tensors,
            "return_text": return_text,
            "clean_up_tokenization_spaces": clean_up_tokenization_spaces,
        }
        return without_none({"truncation": truncation}), generate_arguments, without_none(returned)

    def preprocess(self, text: str, truncation: Any = False) -> dict[str, torch.Tensor]:
        return dict(self.tokenizer(self.prefixed(text), truncation=truncation, return_tensors="pt"))

    def prefixed(self, text: str) -> str:
        if not isinstance(text, str):
            raise ValueError(f"{self.task_name} takes texts, and not {text!r}.")
        prefix = self.task_parameters.get("prefix", field_of_original(self.model.config, "prefix"))
        return (prefix or "") + text

    def _forward(self, inputs: dict[str, Any], **arguments: Any) -> dict[str, torch.Tensor]:
        inputs.pop("token_type_ids", None)  # which `generate` refuses
        arguments = self.generate_arguments(arguments)
        rows, length = inputs["input_ids"].shape
        self.check_lengths(length, arguments.get("min_length"), arguments.get("max_length"))
        ids = self.model.generate(**inputs, **arguments)
        ids = ids if isinstance(ids, torch.Tensor) else ids.sequences
        return {"output_ids": ids.view(rows, -1, ids.shape[-1])}

    def postprocess(
        self,
        outputs: dict[str, torch.Tensor],
        return_tensors: bool = False,
        return_text: bool | None = None,
        clean_up_tokenization_spaces: bool = False,
    ) -> list[dict[str, Any]]:
        results = []
        for ids in outputs["output_ids"][0]:
            result = {f"{self.return_name}_token_ids": ids} if return_tensors else {}
            if return_text or (return_text is None and not return_tensors):
                result[f"{self.return_name}_text"] = self.target_tokenizer.decode(
                    ids, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up_tokenization_spaces
                )
            results.append(result)
        return results

    @property
    def parameters_by_task(self) -> dict[str, dict[str, Any]]:
        """What the model's configuration says of tasks: generation settings, and a `prefix`."""
        return field_of_original(self.model.config, "task_specific_params") or {}

    @property
    def task_parameters(self) -> dict[str, Any]:
        """Those for this pipeline's task, such as `translation_en_to_de`, or else for all of its kind."""
        by_task = self.parameters_by_task
        return by_task.get(self.task, by_task.get(self.task_name, {}))

    def generate_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The caller's arguments of `generate`, completed."""
        caller_config, model_settings = arguments.get("generation_config"), self.model.generation_config.to_diff_dict()
        task_settings = {name: value for name, value in self.task_parameters.items() if name not in NOT_GENERATION}
        longest = (positions_of(self.model.config) or NEW_TOKENS + 1) - 1  # decoding begins with a token
        defaults = {"max_new_tokens": min(NEW_TOKENS, longest), "num_beams": BEAMS}
        defaults |= without_none({"pad_token_id": self.tokenizer.pad_token_id})
        added = missing(defaults, model_settings.keys() | task_settings.keys()) | task_settings
        added = missing(added, arguments.keys() | (caller_config.to_diff_dict().keys() if caller_config else set()))
        if caller_config is None:
            return arguments | added
        completed = copy.deepcopy(caller_config)  # `generate` takes no other settings beside it
        completed.update(**added)
        return arguments | {"generation_config": completed}

    def check_lengths(self, length: int, min_length: int | None, max_length: int | None) -> None:
        """Warns of lengths, in tokens, that do not go with a source of `length`."""


class SummarizationPipeline(Text2TextGenerationPipeline):
    """Summaries of texts, as [`Text2TextGenerationPipeline`] writes them, in `summary_text`."""

    task_name = "summarization"
    return_name = "summary"

    def check_lengths(self, length: int, min_length: int | None, max_length: int | None) -> None:
        if max_length is not None and max_length < (min_length or 0):
            logger.warning(f"min_length={min_length} should be less than max_length={max_length}.")
        if max_length is not None and length < max_length:
            logger.warning(f"A text of {length} tokens is to be summarised in up to max_length={max_length}.")


class TranslationPipeline(Text2TextGenerationPipeline):
    """Translations of texts, as [`Text2TextGenerationPipeline`] writes them, in `translation_text`.

    A call takes `src_lang` and `tgt_lang` too. Tokenizers of many languages (mBART, NLLB, M2M100) need both, by their
    own names; tokenizers of one pair ignore them. Languages given when the pipeline is made also name the task, such as
    `translation_en_to_de`, whose settings are taken from the model's `task_specific_params`. Without languages, the
    first translation there is taken.
    """

    task_name = "translation"
    return_name = "translation"

    def __init__(self, *args, src_lang: str | None = None, tgt_lang: str | None = None, **kwargs):
        super().__init__(*args, src_lang=src_lang, tgt_lang=tgt_lang, **kwargs)
        named = [task for task in self.parameters_by_task if task.startswith("translation_")]
        if src_lang and tgt_lang:
            self.task = f"translation_{src_lang}_to_{tgt_lang}"
            if named and self.task not in named and not hasattr(self.tokenizer, "_build_translation_inputs"):
                logger.warning(f"{self.task} is not among the translations that the model names: {', '.join(named)}.")
        elif named:
            self.task = named[0]
            logger.warning(f"Using {self.task}, which the model's task_specific_params name: no languages were given.")

    def _sanitize_parameters(
        self, src_lang: str | None = None, tgt_lang: str | None = None, **arguments: Any
    ) -> tuple[dict, dict, dict]:
        preprocess, forward, postprocess = super()._sanitize_parameters(**arguments)
        return preprocess | without_none({"src_lang": src_lang, "tgt_lang": tgt_lang}), forward, postprocess

    def check_lengths(self, length: int, min_length: int | None, max_length: int | None) -> None:
        if max_length is not None and length > 0.9 * max_length:
            logger.warning(f"A text of {length} tokens is to be translated in up to max_length={max_length}.")

    def preprocess(
        self, text: str, truncation: Any = False, src_lang: str | None = None, tgt_lang: str | None = None
    ) -> dict[str, Any]:
        # Tokenizers of many languages have this method for the pipeline; each marks languages in its own way.
        build = getattr(self.tokenizer, "_build_translation_inputs", None)
        if build is None:
            return super().preprocess(text, truncation)
        languages = {"src_lang": src_lang, "tgt_lang": tgt_lang}
        return dict(build(self.prefixed(text), truncation=truncation, return_tensors="pt", **languages))

    def _forward(self, inputs: dict[str, Any], **arguments: Any) -> dict[str, torch.Tensor]:
        language = inputs.pop("forced_bos_token_id", None)  # in a batch, a list of one for each text
        if language is not None:
            arguments["forced_bos_token_id"] = language[0] if isinstance(language, list) else language
        return super()._forward(inputs, **arguments)


def missing(settings: dict[str, Any], given: Iterable[str]) -> dict[str, Any]:
    """The settings that are not given. If one kind of length is given, the other does not count as missing."""
    given = set(given)
    given |= LENGTHS if LENGTHS & given else set()
    return {name: value for name, value in settings.items() if name not in given}


def field_of_original(config: PreTrainedConfig, name: str) -> Any:
    """A field of an official configuration, which a converted model keeps; `None` if it lacks the field."""
    value = getattr(config, name, None)
    return (getattr(config, "official", None) or {}).get(name) if value is None else value


def load_target_tokenizer(model: PreTrainedModel, **options: Any) -> PreTrainedTokenizerBase | None:
    """The tokenizer of what a model writes, from the folder beside it that its configuration names; `None` if that is
    the tokenizer of what it reads. `options` go to `from_pretrained`."""
    by_task = field_of_original(model.config, "task_specific_params") or {}
    folder = next((each["target_tokenizer"] for each in by_task.values() if "target_tokenizer" in each), None)
    if folder is None:
        return None
    source = model.name_or_path or model.config.name_or_path  # of a converted model, the latter alone
    revision = getattr(model.config, "_commit_hash", None)
    return AutoTokenizer.from_pretrained(source, subfolder=folder, revision=revision, **options)
