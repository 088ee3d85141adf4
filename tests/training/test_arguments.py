"""Options come from YAML and the command line, and mean what they mean in transformers."""

import json
from dataclasses import asdict

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from transformers import HfArgumentParser

from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.parsing import parse_options
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
TASKS = (
    *(ClassificationOptions, TaggingOptions, AnsweringOptions, LanguageModelingOptions),
    *(PretrainingOptions, DenoisingOptions, TranslationOptions, SummarizationOptions),
)
#: the options that a shipped configuration is for, where they are not those of a classifier
SHIPPED = {
    **dict.fromkeys(("tiny_shakespeare", "imdb_gpt"), LanguageModelingOptions),
    **dict.fromkeys(("imdb_pretraining", "imdb_encoder"), PretrainingOptions),
    **dict.fromkeys(("architectures", "post_or_pre_norm", "later_axes", "experts"), COMPARISON),
    "tiny_shakespeare_t5": DenoisingOptions,
    "multi30k": TranslationOptions,
    "wikiann": TaggingOptions,
    "squad": AnsweringOptions,
    "cnn_dailymail": SummarizationOptions,
}
CONFIGS = sorted((ROOT / "recipes" / "configs").glob("*.yaml"))
LAUNCHERS = sorted((ROOT / "recipes" / "accelerate").glob("*.yaml"))


def parse(*argv: str, options: type = ClassificationOptions) -> dict:
    return asdict(parse_options(options, argv))


def test_command_line_overrides_yaml_overrides_defaults(config):
    path = config(
        "learning_rate: 3e-4\nseed: 7\ngroup_by_length: true\nmax_train_steps: null\ntext_column_name: [a, b]"
    )
    options = parse("--seed", "8", path)
    read = {
        "seed": 8,
        "learning_rate": 3e-4,
        "group_by_length": True,
        "max_train_steps": None,
    }  # YAML reads 3e-4 as text
    assert options == asdict(ClassificationOptions()) | read | {"text_column_name": ["a", "b"]}
    assert parse(path, "--group_by_length", "false")["group_by_length"] is False


def test_a_recipes_own_config_stands_below_the_command_line_and_gives_way_to_another(config):
    path = config("seed: 7\nlearning_rate: 1.0").partition("=")[2]
    args = parse_options(ClassificationOptions, ["--learning_rate", "2"], default_config=path)
    assert (args.seed, args.learning_rate) == (7, 2)
    args = parse_options(ClassificationOptions, ["--config", str(CONFIGS[0])], default_config=path)
    assert args.learning_rate != 1


def test_names_that_other_scripts_use(config):
    path = config("num_warmup_steps: 30\nmax_length: 99")
    assert (parse(path)["warmup_steps"], parse(path)["max_seq_length"]) == (30, 99)
    assert parse("--warmup_ratio", "0.2")["warmup_steps"] == 0.2


def test_translation_trains_as_the_paper_unless_told_otherwise():
    options = parse(options=TranslationOptions)
    paper = {"adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-9, "weight_decay": 0}
    paper |= {"label_smoothing_factor": 0.1, "label_smoothing_over": "others"}
    assert options | paper == options


@pytest.mark.parametrize(
    "written",
    ["hidden_size=8, norm_eps=1e-3,mlp_type=gated", "{hidden_size: 8, norm_eps: 1e-3, mlp_type: gated}"],
)
def test_overrides_of_a_configuration(config, written):
    options = parse_options(LanguageModelingOptions, [config(f"config_overrides: {written}")])
    assert options.overrides() == {"hidden_size": 8, "norm_eps": 1e-3, "mlp_type": "gated"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configs_fit_the_recipe(path):
    options = parse("--config", str(path), options=SHIPPED.get(path.stem, ClassificationOptions))
    for name, value in yaml.safe_load(path.read_text()).items():
        assert options[name] == (json.dumps(value) if isinstance(value, dict) else value)


@pytest.mark.parametrize("path", LAUNCHERS, ids=lambda path: path.stem)
def test_shipped_launchers_fit_accelerate(path):
    config = load_config_from_file(str(path))  # refuses keys that it does not know
    assert config.num_processes == 2


def test_configs_are_there():
    assert {path.stem for path in CONFIGS} >= {"imdb", "ag_news", "rotten_tomatoes", *SHIPPED}
    assert {path.stem for path in LAUNCHERS} == {"cpu", "ddp", "fsdp", "zero2", "zero3", "two_nodes"}


def test_number_of_steps():
    assert TrainingOptions(num_train_epochs=1.5, warmup_steps=0.1).number_of_steps(100) == (150, 15)
    assert TrainingOptions(max_train_steps=7, warmup_steps=3).number_of_steps(100) == (7, 3)


@pytest.mark.parametrize("options", TASKS)
def test_transformers_own_parser_takes_the_options(options):
    (parsed,) = HfArgumentParser(options).parse_args_into_dataclasses(["--max_steps", "7"])
    assert parsed.max_train_steps == 7
    with pytest.raises(ValueError, match="learning_rate must be above 0, not -1"):
        HfArgumentParser(options).parse_args_into_dataclasses(["--learning_rate", "-1"])
