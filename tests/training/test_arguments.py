"""Options from YAML and the command line."""

import json
from dataclasses import asdict

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from transformers import HfArgumentParser

from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.parsing import nearest, parse_options
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
CONFIGS = sorted((ROOT / "recipes" / "configs").glob("*.yaml"))
LAUNCHERS = sorted((ROOT / "recipes" / "accelerate").glob("*.yaml"))


def parse(*argv: str, options: type = ClassificationOptions) -> dict:
    return asdict(parse_options(options, argv))


@pytest.fixture
def config(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "config.yaml").write_text(text)
        return f"--config={tmp_path / 'config.yaml'}"

    return write


def refusal(capsys, *argv: str, options: type = ClassificationOptions) -> str:
    with pytest.raises(SystemExit) as stop:
        parse(*argv, options=options)
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1, message
    return message


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
    assert options["weight_decay"] == TrainingOptions().weight_decay
    assert parse(path, "--group_by_length", "false")["group_by_length"] is False


def test_names_that_other_scripts_use(config):
    path = config("num_warmup_steps: 30\nmax_length: 99")
    assert parse(path)["warmup_steps"] == 30
    assert parse(path)["max_seq_length"] == 99
    assert parse("--warmup_ratio", "0.2")["warmup_steps"] == 0.2


def test_unknown_names_are_refused_with_the_nearest(config, capsys):
    assert "unknown key 'zzz'\n" in refusal(capsys, config("zzz: 1"))  # nothing is near
    message = refusal(capsys, config("learning_rte: 1\nzzz: 2\nsed: 3"))
    assert "unknown keys 'learning_rte', 'zzz', 'sed'; did you mean 'learning_rate', 'seed'?" in message
    message = refusal(capsys, "--num_epochs", "3", "--sead=1", "--seed", "2")
    assert "unknown options --num_epochs, --sead; did you mean '--num_train_epochs', '--seed'?" in message
    message = refusal(capsys, "--bogus", "-1", "-seed", "3")
    assert "unknown options --bogus, -seed; did you mean '--seed'?" in message
    assert nearest(["mlp"], ["mlp_type", "mlp_bias", "hidden_act"]) == "; did you mean 'mlp_type', 'mlp_bias'?"
    assert "unknown key '--seed'; did you mean 'seed'?" in refusal(capsys, config("--seed: 2"))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("batch_size", "per_device_train_batch_size per_device_eval_batch_size"),
        ("train_batch_size", "per_device_train_batch_size"),
        ("lr", "learning_rate"),
        ("epochs", "num_train_epochs"),
        ("model", "model_name_or_path"),
        ("fp16", "mixed_precision"),
        ("bf16", "mixed_precision"),
        ("save-steps", "checkpointing_steps"),
        ("warmup", "warmup_steps num_warmup_steps warmup_ratio"),
        (
            "max_length",
            {LanguageModelingOptions: "block_size", TranslationOptions: "max_source_length max_target_length"},
        ),
    ],
)
def test_other_scripts_names_are_told_what_they_are_here(config, capsys, given, meant):
    for options, names in meant.items() if isinstance(meant, dict) else [(ClassificationOptions, meant)]:
        ending = ", ".join(f"'--{name}'" for name in names.split())
        assert f"unknown option --{given}; did you mean {ending}?\n" in refusal(
            capsys, f"--{given}", "3", options=options
        )
        assert f"; did you mean {ending.replace('--', '')}?\n" in refusal(
            capsys, config(f"{given}: 3"), options=options
        )


BAD_VALUES = {
    ClassificationOptions: [
        ("seed: many", "invalid int value: 'many'"),
        ("mixed_precision: fp4", "fp4"),
        ("- seed", "expected `option: value` lines"),
        ("seed: [", "config.yaml: not YAML"),
        ("seed: 1\nseed: 2", "config.yaml: not YAML: 'seed' is there twice"),
        ("[]", "expected `option: value` lines, found a list"),
        ("per_device_train_batch_size: 0", "per_device_train_batch_size must be at least 1, not 0"),
        ("learning_rate: 0", "learning_rate must be above 0"),
        ("checkpointing_steps: often", "checkpointing_steps must be a number of steps or 'epoch', not 'often'"),
        ("checkpointing_steps: 5²", "checkpointing_steps must be a number of steps or 'epoch', not '5²'"),
        ("validation_split_percentage: 100", "leave something to train on"),
        ("text_column_name: [a, b, c]", "one or two columns"),
        ("dataset_name: x\ntrain_file: y.csv", "either dataset_name or train_file"),
        ("test_file: y.csv", "need a train_file"),
        ("adam_beta2: 1", "adam_beta2 must be at least 0 and below 1, not 1.0"),
        ("adam_beta1: -0.1", "adam_beta1 must be at least 0 and below 1, not -0.1"),
        ("adam_epsilon: 0", "adam_epsilon must be above 0, not 0.0"),
        ("lr_scheduler_type: falling", "invalid choice: 'falling'"),
        (
            "classifier_pooling: mean\nmodel_class: native",
            "classifier_pooling is for encoders of the zoo, not for model_c",
        ),
        (
            "classifier_pooling: mean\nconfig_overrides: classifier_pooling=cls",
            "either by itself or in config_overrides",
        ),
        ("train_file: []", "config.yaml: train_file takes one value or more, not []"),
        ("metrics: [f1, null]", 'config.yaml: metrics takes one value or more, not ["f1", null]'),
        ("pad_to_max_length: []", "config.yaml: pad_to_max_length takes one value or more, not []"),
    ],
    LanguageModelingOptions: [
        ("block_size: 1", "block_size must be at least 2, not 1"),
        ("top_p: 0", "top_p must be above 0 and at most 1, not 0.0"),
        ("temperature: 0", "temperature must be above 0"),
        (
            "model_name_or_path: x\nmodel_type: gpt2",
            "model_type makes a new model and cannot go with model_name_or_path",
        ),
        ("model_type: gpt2\nconfig_name: gpt2", "either model_type or config_name"),
        ("tokenizer_name: x\ntokenizer_vocab_size: 300", "tokenizer_vocab_size is for a tokenizer made from"),
        ("config_overrides: n_embd", "config_overrides 'n_embd': expected field=value,field=value"),
        ("config_overrides: '{n_embd: 3'", "config_overrides '{n_embd: 3': not a mapping"),
        ("validation_file: y.txt", "need a train_file"),
        ("sampel_prompt: x", "unknown key 'sampel_prompt'; did you mean 'sample_prompt'?"),
    ],
    TranslationOptions: [
        ("label_smoothing_factor: 1", "label_smoothing_factor must be at least 0 and below 1, not 1.0"),
        ("label_smoothing_over: some", "invalid choice: 'some' (choose from 'others', 'all')"),
        ("num_beams: 0", "num_beams must be at least 1, not 0"),
        ("max_source_length: 0", "max_source_length must be at least 1, not 0"),
        ("source_lang: en\ntarget_lang: en", "source_lang and target_lang are both 'en'"),
        ("per_device_train_batch_tokens: -1", "per_device_train_batch_tokens must be at least 0, not -1"),
        ("num_beam: 4", "unknown key 'num_beam'; did you mean 'num_beams'?"),
    ],
}


@pytest.mark.parametrize(
    ("options", "text", "message"), [(key, *row) for key, rows in BAD_VALUES.items() for row in rows]
)
def test_bad_values_are_refused(config, capsys, options, text, message):
    assert message in refusal(capsys, config(text), options=options)


def test_translation_trains_as_the_paper_unless_told_otherwise():
    options = parse(options=TranslationOptions)
    adam = {name: options[name] for name in ("adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay")}
    assert adam == {"adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-9, "weight_decay": 0}
    assert (options["label_smoothing_factor"], options["label_smoothing_over"]) == (0.1, "others")


@pytest.mark.parametrize(
    "text",
    [
        "config_overrides: hidden_size=8, norm_eps=1e-3,mlp_type=gated",
        "config_overrides: {hidden_size: 8, norm_eps: 1e-3, mlp_type: gated}",
    ],
)
def test_overrides_of_a_configuration(config, text):
    assert parse_options(LanguageModelingOptions, [config(text)]).overrides() == {
        "hidden_size": 8,
        "norm_eps": 1e-3,
        "mlp_type": "gated",
    }


def test_a_config_that_the_options_do_not_name(config):
    path = config("seed: 7\nlearning_rate: 1.0").partition("=")[2]
    args = parse_options(ClassificationOptions, ["--learning_rate", "2"], default_config=path)
    assert (args.seed, args.learning_rate) == (7, 2)
    args = parse_options(ClassificationOptions, ["--config", str(CONFIGS[0])], default_config=path)
    assert args.learning_rate != 1


def test_missing_config_is_refused(capsys):
    assert "nowhere.yaml: no such file" in refusal(capsys, "--config", "nowhere.yaml")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configs_fit_the_recipe(path):
    other = dict.fromkeys(("tiny_shakespeare", "imdb_gpt"), LanguageModelingOptions) | {"multi30k": TranslationOptions}
    other |= dict.fromkeys(("imdb_pretraining", "imdb_encoder"), PretrainingOptions)
    other |= {"tiny_shakespeare_t5": DenoisingOptions}
    other |= {"wikiann": TaggingOptions, "squad": AnsweringOptions, "cnn_dailymail": SummarizationOptions}
    other |= dict.fromkeys(("architectures", "post_or_pre_norm", "later_axes", "experts"), COMPARISON)
    options = parse("--config", str(path), options=other.get(path.stem, ClassificationOptions))
    for name, value in yaml.safe_load(path.read_text()).items():
        assert options[name] == (json.dumps(value) if isinstance(value, dict) else value)


@pytest.mark.parametrize("path", LAUNCHERS, ids=lambda path: path.stem)
def test_shipped_launchers_fit_accelerate(path):
    config = load_config_from_file(str(path))  # refuses keys that it does not know
    assert config.num_processes == 2


def test_configs_are_there():
    assert {path.stem for path in CONFIGS} >= {"imdb", "ag_news", "rotten_tomatoes", "tiny_shakespeare", "multi30k"}
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
