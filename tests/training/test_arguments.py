"""Options come from YAML and the command line, and mean what they mean in transformers."""

import json
from dataclasses import asdict

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from transformers import HfArgumentParser

from tfm_zoo.training.options import parse_options
from tfm_zoo.training.tasks.classification import ClassificationOptions
from tfm_zoo.training.tasks.denoising import DenoisingOptions
from tfm_zoo.training.tasks.language_modeling import LanguageModelingOptions
from tfm_zoo.training.tasks.pretraining import PretrainingOptions
from tfm_zoo.training.tasks.question_answering import AnsweringOptions
from tfm_zoo.training.tasks.summarization import SummarizationOptions
from tfm_zoo.training.tasks.tagging import TaggingOptions
from tfm_zoo.training.tasks.translation import TranslationOptions

from ..recipes.conftest import ROOT, imported

COMPARISON = imported(ROOT / "recipes" / "compare_architectures.py").ComparisonOptions
#: by the task's options: the configurations that are shipped for it
SHIPPED = {
    ClassificationOptions: "imdb ag_news rotten_tomatoes",
    LanguageModelingOptions: "tiny_shakespeare imdb_gpt",
    PretrainingOptions: "imdb_pretraining imdb_encoder",
    COMPARISON: "architectures post_or_pre_norm later_axes experts",
    DenoisingOptions: "tiny_shakespeare_t5",
    TranslationOptions: "multi30k",
    TaggingOptions: "wikiann",
    AnsweringOptions: "squad",
    SummarizationOptions: "cnn_dailymail",
}
OF_TASK = {name: options for options, names in SHIPPED.items() for name in names.split()}
CONFIGS = {path.stem: path for path in (ROOT / "recipes" / "configs").glob("*.yaml")}
LAUNCHERS = {path.stem: path for path in (ROOT / "recipes" / "accelerate").glob("*.yaml")}


def parse(*argv: str, options: type = ClassificationOptions, **others) -> dict:
    return asdict(parse_options(options, argv, **others))


def test_command_line_overrides_yaml_overrides_a_recipes_own_file_overrides_defaults(config):
    path = config(
        "learning_rate: 3e-4\nseed: 7\ngroup_by_length: true\nmax_train_steps: null\ntext_column_name: [a, b]"
    )
    read = {"seed": 8, "learning_rate": 3e-4, "group_by_length": True}  # YAML reads 3e-4 as text
    read |= {"max_train_steps": None, "text_column_name": ["a", "b"]}
    assert parse("--seed", "8", path) == asdict(ClassificationOptions()) | read
    assert parse(path, "--group_by_length", "false")["group_by_length"] is False
    own = parse("--learning_rate", "2", default_config=path.partition("=")[2])
    assert (own["seed"], own["learning_rate"]) == (7, 2)
    other = parse("--config", str(CONFIGS["imdb"]), default_config=path.partition("=")[2])
    assert other["text_column_name"] != ["a", "b"] and other["learning_rate"] != 3e-4


def test_names_that_other_scripts_use(config):
    path = config("num_warmup_steps: 30\nmax_length: 99")
    assert (parse(path)["warmup_steps"], parse(path)["max_seq_length"]) == (30, 99)
    assert parse("--warmup_ratio", "0.2")["warmup_steps"] == 0.2


@pytest.mark.parametrize("written", ["a_b=8, c=1e-3,d=gated", "{a_b: 8, c: 1e-3, d: gated}"])
def test_overrides_of_a_configuration(config, written):
    options = parse_options(LanguageModelingOptions, [config(f"config_overrides: {written}")])
    assert options.overrides() == {"a_b": 8, "c": 1e-3, "d": "gated"}


def test_shipped_files_fit_the_recipes_and_accelerate():
    assert CONFIGS.keys() >= OF_TASK.keys()
    assert LAUNCHERS.keys() == {"cpu", "ddp", "fsdp", "zero2", "zero3", "two_nodes"}
    for name, path in CONFIGS.items():
        options = parse("--config", str(path), options=OF_TASK.get(name, ClassificationOptions))
        for key, value in yaml.safe_load(path.read_text()).items():
            assert options[key] == (json.dumps(value) if isinstance(value, dict) else value), (name, key)
    for path in LAUNCHERS.values():
        assert load_config_from_file(str(path)).num_processes == 2  # it refuses keys that it does not know


@pytest.mark.parametrize("options", [*SHIPPED][:3] + [*SHIPPED][4:])
def test_transformers_own_parser_takes_the_options(options):
    (parsed,) = HfArgumentParser(options).parse_args_into_dataclasses(["--max_steps", "7"])
    assert parsed.max_train_steps == 7
    with pytest.raises(ValueError, match="learning_rate must be above 0, not -1"):
        HfArgumentParser(options).parse_args_into_dataclasses(["--learning_rate", "-1"])
