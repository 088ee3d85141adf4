"""Options from YAML and the command line."""

from dataclasses import asdict, fields

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file

from tfm_zoo.training.arguments import LoopArguments, parse_arguments
from tfm_zoo.training.classifiers import ModelArguments
from tfm_zoo.training.text_data import TextDataArguments

from .conftest import ROOT

CLASSES = (ModelArguments, TextDataArguments, LoopArguments)
CONFIGS = sorted((ROOT / "recipes" / "configs").glob("*.yaml"))
LAUNCHERS = sorted((ROOT / "recipes" / "accelerate").glob("*.yaml"))


def parse(*argv: str) -> dict:
    return {name: value for part in parse_arguments(CLASSES, argv) for name, value in asdict(part).items()}


@pytest.fixture
def config(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "config.yaml").write_text(text)
        return f"--config={tmp_path / 'config.yaml'}"

    return write


def refusal(capsys, *argv: str) -> str:
    with pytest.raises(SystemExit) as stop:
        parse(*argv)
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_command_line_overrides_yaml_overrides_defaults(config):
    path = config(
        "learning_rate: 3e-4\nseed: 7\ngroup_by_length: true\nmax_train_steps: null\ntext_column_name: [a, b]"
    )
    options = parse("--seed", "8", path)
    assert options["learning_rate"] == 3e-4  # YAML reads 3e-4 as a string
    assert options["seed"] == 8
    assert options["group_by_length"] is True
    assert options["max_train_steps"] is None
    assert options["text_column_name"] == ["a", "b"]
    assert options["weight_decay"] == LoopArguments().weight_decay
    assert parse(path, "--group_by_length", "false")["group_by_length"] is False


def test_names_that_other_scripts_use(config):
    path = config("num_warmup_steps: 30\nmax_length: 99")
    assert parse(path)["warmup_steps"] == 30
    assert parse(path)["max_seq_length"] == 99
    assert parse("--warmup_ratio", "0.2")["warmup_steps"] == 0.2


def test_unknown_names_are_refused_with_the_nearest(config, capsys):
    assert "unknown key 'learning_rte'; did you mean 'learning_rate'?" in refusal(capsys, config("learning_rte: 1"))
    message = refusal(capsys, "--num_epochs", "3")
    assert "unknown option --num_epochs; did you mean 'num_train_epochs'?" in message
    assert "unknown key 'zzz'\n" in refusal(capsys, config("zzz: 1"))  # nothing is near


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: many", "invalid int value: 'many'"),
        ("mixed_precision: fp4", "fp4"),
        ("- seed", "expected `option: value` lines"),
        ("per_device_train_batch_size: 0", "per_device_train_batch_size must be at least 1, not 0"),
        ("learning_rate: 0", "learning_rate must be above 0"),
        ("checkpointing_steps: often", "checkpointing_steps must be a number of steps or 'epoch', not 'often'"),
        ("validation_split_percentage: 100", "leave something to train on"),
        ("text_column_name: [a, b, c]", "one or two columns"),
        ("dataset_name: x\ntrain_file: y.csv", "either dataset_name or train_file"),
        ("test_file: y.csv", "need a train_file"),
    ],
)
def test_bad_values_are_refused(config, capsys, text, message):
    assert message in refusal(capsys, config(text))


def test_missing_config_is_refused(capsys):
    assert "nowhere.yaml: no such file" in refusal(capsys, "--config", "nowhere.yaml")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configs_fit_the_recipe(path):
    options = parse("--config", str(path))
    for name, value in yaml.safe_load(path.read_text()).items():
        assert options[name] == value


@pytest.mark.parametrize("path", LAUNCHERS, ids=lambda path: path.stem)
def test_shipped_launchers_fit_accelerate(path):
    config = load_config_from_file(str(path))  # refuses keys that it does not know
    assert config.num_processes == 2


def test_configs_are_there():
    assert {path.stem for path in CONFIGS} >= {"imdb", "ag_news", "rotten_tomatoes"}
    assert {path.stem for path in LAUNCHERS} == {"cpu", "ddp", "fsdp", "deepspeed"}


def test_no_option_has_two_meanings():
    names = [f.name for part in CLASSES for f in fields(part)]
    assert len(names) == len(set(names))


def test_number_of_steps():
    assert LoopArguments(num_train_epochs=1.5, warmup_steps=0.1).number_of_steps(100) == (150, 15)
    assert LoopArguments(max_train_steps=7, warmup_steps=3).number_of_steps(100) == (7, 3)
