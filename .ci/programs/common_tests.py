"""`.ci/common [option of pytest] ...`: transformers' own tests of every model, on official classes and on the zoo's.

The exit code is 1 if an official class passes a test that the zoo's class does not pass. Only the source distribution
of transformers holds those tests. The script fetches it, and names its folder of tests `transformers_tests`, since ours
is `tests`.
"""

import sys
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar
from unittest import TestCase

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers_tests.test_modeling_common import ModelTesterMixin

import tfm_zoo
from tests.official_models import TINY, TINY_OF
from tfm_zoo.converters import ARCHITECTURES
from tfm_zoo.converters.architecture import Architecture
from tfm_zoo.converters.config_conversion import completed, to_zoo_config
from tfm_zoo.models.configuration_tfm import TfmConfig

ARCHITECTURE_NAMES = ("bert", "gpt2", "llama", "marian", "bart")
#: Two layers everywhere, and decoders of the same sizes as encoders: the tests expect it.
SIZES = {"num_hidden_layers": 2, "n_layer": 2, "encoder_layers": 2, "decoder_layers": 2}
SIZES |= {"decoder_attention_heads": 4, "decoder_ffn_dim": 48}
BATCH, LENGTH = 7, 7


@dataclass
class ModelTester:
    """What the tests ask for one architecture: a config, a batch, and sizes under the tests' own names."""

    config: PreTrainedConfig
    is_training: ClassVar[bool] = True
    batch_size: ClassVar[int] = BATCH
    seq_length: ClassVar[int] = LENGTH
    num_choices: ClassVar[int] = 4

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["config"], name)  # the model's sizes

    def get_config(self) -> PreTrainedConfig:
        return type(self.config).from_dict(self.config.to_dict())

    def prepare_config_and_inputs_for_common(self) -> tuple[PreTrainedConfig, dict[str, torch.Tensor]]:
        """A config and a batch: rows of which one is padded, or sources, which end with the end token, and targets."""
        generator = torch.Generator().manual_seed(0)
        ids, target = torch.randint(5, self.config.vocab_size, (2, BATCH, LENGTH), generator=generator)
        mask = torch.ones_like(ids)
        batch = {"input_ids": ids, "attention_mask": mask}
        if self.config.is_encoder_decoder:
            ids[:, -1] = self.config.eos_token_id
            batch |= {"decoder_input_ids": target, "decoder_attention_mask": torch.ones_like(target)}
        else:
            mask[1, 5:] = 0
        return self.get_config(), batch


class CommonTests(ModelTesterMixin):
    """The tests, with labels for a class that they leave to transformers' own tests of BERT."""

    def _prepare_for_class(self, inputs_dict: dict, model_class: type, return_labels: bool = False) -> dict:
        inputs_dict = super()._prepare_for_class(inputs_dict, model_class, return_labels)
        if return_labels and model_class.__name__.endswith("ForPreTraining"):
            inputs_dict["labels"] = torch.zeros(BATCH, LENGTH, dtype=torch.long)
            inputs_dict["next_sentence_label"] = torch.zeros(BATCH, dtype=torch.long)
        return inputs_dict


def add_tests(name: str, classes: list[type], config: PreTrainedConfig) -> None:
    """Puts the tests of these classes where pytest finds them."""
    body = {"model_tester": ModelTester(config), "all_model_classes": tuple(classes)}
    body |= {"is_encoder_decoder": config.is_encoder_decoder, "__module__": __name__}
    globals()[name] = type(name, (CommonTests, TestCase), body)


def add_architecture(architecture: Architecture) -> None:
    """Adds the tests of its official classes, and of the zoo's classes with the config that a conversion makes."""
    fields = TINY_OF.get(architecture.model_type, TINY)
    fields = {name: SIZES.get(name, value) for name, value in fields.items()}
    official = CONFIG_MAPPING[architecture.official_type](**fields)
    fields = completed(architecture, official.to_dict())
    zoo = to_zoo_config(architecture, fields, architecture.heads[0].zoo, overrides={})
    classes = [getattr(transformers, head.official) for head in architecture.heads]
    add_tests(f"official_{architecture.model_type}", classes, official)
    add_tests(f"zoo_{architecture.model_type}", [head.zoo for head in architecture.heads], zoo)


def add_names(config_class: type[TfmConfig]) -> None:
    """The tests choose labels by the name of the class, from transformers' tables of names."""
    for auto_class, name in config_class.auto_classes.items():
        if auto_class != "AutoConfig":
            getattr(transformers, auto_class)._model_mapping._model_mapping.setdefault(config_class.model_type, name)


class Outcomes:
    """A plug-in of pytest: how each test ended; a test with subtests is as good as the worst of them."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, str]] = {"official": {}, "zoo": {}}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        side, _, test = report.nodeid.rpartition(".py::")[2].partition("_")
        if report.when == "call" or not report.passed:
            worst = min(report.outcome, self.of[side].get(test, report.outcome))  # failed, passed, skipped
            self.of[side][test] = worst

    def lacking(self) -> list[str]:
        """What an official class passes and the zoo's does not."""
        zoo = self.of["zoo"]
        return [test for test, outcome in self.of["official"].items() if outcome == "passed" != zoo.get(test)]


for architecture_name in ARCHITECTURE_NAMES:
    add_architecture(ARCHITECTURES[architecture_name])
for family in (tfm_zoo.TfmBertConfig, tfm_zoo.TfmGPTConfig, tfm_zoo.TfmEncoderDecoderConfig):
    add_names(family)


if __name__ == "__main__":
    outcomes = Outcomes()
    pytest.main([__file__, "-p", "tests.conftest", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[outcomes])
    for side, of_side in outcomes.of.items():
        print(side, *(f"{count} {outcome}" for outcome, count in sorted(Counter(of_side.values()).items())))
    for test in outcomes.lacking():
        print(f"{test}: the official class passes, the zoo's: {outcomes.of['zoo'].get(test)}")
    sys.exit(bool(outcomes.lacking()) or not outcomes.of["official"])
