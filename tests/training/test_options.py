"""Options come from YAML and the command line, mean what they mean in transformers, and are refused in one line."""

from dataclasses import asdict, replace

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from tfm_zoo.data.options import parse_options
from tfm_zoo.training.options import TrainingOptions
from tfm_zoo.training.tasks.classification import ClassificationOptions
from tfm_zoo.training.tasks.language_modeling import LanguageModelingOptions
from tfm_zoo.training.tasks.pretraining import PretrainingOptions
from tfm_zoo.training.tasks.translation import TranslationOptions

from ..recipes.conftest import ROOT, imported


@pytest.fixture
def config(tmp_path):
    """Writes options as YAML; returns the argument that names the file."""

    def write(text: str) -> str:
        (tmp_path / "config.yaml").write_text(text)
        return f"--config={tmp_path / 'config.yaml'}"

    return write


def parse(*argv: str, options: type = ClassificationOptions, **others) -> dict:
    return asdict(parse_options(options, argv, **others))


def test_command_line_overrides_yaml_overrides_defaults(config):
    path = config("learning_rate: 3e-4\nseed: 7\ngroup_by_length: true\ntext_column_name: [a, b]")  # YAML reads text
    read = {"seed": 8, "learning_rate": 3e-4, "group_by_length": True, "text_column_name": ["a", "b"]}
    assert parse("--seed", "8", path) == asdict(ClassificationOptions()) | read
    assert parse(path, "--group_by_length", "false")["group_by_length"] is False
    own = parse("--learning_rate", "2", default_config=path.partition("=")[2])
    assert (own["seed"], own["learning_rate"]) == (7, 2)
    path = config("dataset_name: x\ndataset_config_name: y\nmodel_name_or_path: z\nseed: 3")
    read = {"train_file": "a.csv", "config_name": "gpt2", "seed": 3}  # they replace what the file names instead
    assert parse(path, "--train-file=a.csv", "--config_name", "gpt2") == asdict(ClassificationOptions()) | read
    path = config("model_type: llama\nconfig_overrides: hidden_size=8\ntrain_file: y\ntest_file: z")
    read = {"model_name_or_path": "a", "dataset_name": "b"}
    assert parse(path, "--model_name_or_path=a", "--dataset-name", "b") == asdict(ClassificationOptions()) | read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("num_warmup_steps: 30\nmax_length: 99", {"warmup_steps": 30, "max_seq_length": 99}),
        *(("--warmup_ratio 0.2", {"warmup_steps": 0.2}), ("save_steps: 5", {"checkpointing_steps": "5"})),
        *(("--bf16", {"mixed_precision": "bf16"}), ("resume_from_checkpoint: true", {})),
        ("--resume_from_checkpoint", {"resume_from_checkpoint": "auto"}),
        ("save_total_limit:", {"save_total_limit": None}),
    ],
)
def test_names_that_other_scripts_use(config, written, read):
    argv = written.split() if "--" in written else [config(written)]
    options = parse_options(ClassificationOptions, argv).with_defaults()
    assert {name: getattr(options, name) for name in read} == read and options.resume_from in (None, "auto")


@pytest.mark.parametrize("written", ["a_b=8, c=1e-3,d=gated", "{a_b: 8, c: 1e-3, d: gated}"])
def test_overrides_of_a_configuration(config, written):
    argv, read = [config(f"config_overrides: {written}")], {"a_b": 8, "c": 1e-3, "d": "gated"}
    typed, fields = ["--config-overrides", "d=x,e=1"], {"d": "x", "e": 1}
    for more, kept in (([], read), (typed, read | fields), ([*typed, "--model_type=a"], fields)):
        assert parse_options(LanguageModelingOptions, [*argv, *more]).overrides() == kept


def test_shipped_files_that_no_document_names():
    for name in ("ag_news", "rotten_tomatoes"):
        assert parse("--config", str(ROOT / "recipes" / "configs" / f"{name}.yaml"))["dataset_name"]
    for name in ("cpu", "ddp", "fsdp", "zero2", "zero3", "two_nodes"):
        path = ROOT / "recipes" / "accelerate" / f"{name}.yaml"
        assert load_config_from_file(str(path)).num_processes == 2  # it refuses keys that it does not know


@pytest.mark.parametrize(("schedule", "new", "checkpoint"), [("noam", 1.0, 1.0), ("linear", 1e-3, 5e-5)])
def test_default_learning_rates(schedule, new, checkpoint):
    options = TrainingOptions(lr_scheduler_type=schedule, dataset_name="generated")
    for name, rate, expected in ((None, None, new), ("bert", None, checkpoint), ("bert", 0.3, 0.3)):
        assert replace(options, model_name_or_path=name, learning_rate=rate).with_defaults().learning_rate == expected


#: by the task's options: lines of YAML or a command line, and what is said of them
REFUSED = {
    ClassificationOptions: [
        *(("run_name:\nseed:", "seed has no value"), ("per_device_train_batch_size: 0", "at least 1, not 0")),
        ("checkpointing_steps: 5²", "checkpointing_steps must be a number of steps or 'epoch', not '5²'"),
        *(("text_column_name: [a, b, c]", "one or two columns"), ("train_file: []", "expected one argument")),
        ("dataset_name: x\ntrain_file: y.csv", "either dataset_name or train_file"),
        *(("test_file: y.csv", "test_file needs a train_file"), ("lr_scheduler_type: falling", "choice: 'falling'")),
        ("bf16: true\nfp16: true", "give either bf16 or fp16, not both"),
        ("classifier_pooling: mean\nmodel_class: native", "classifier_pooling is for encoders of the zoo, not for"),
        ("lora_alpha: 16", "lora_alpha is of adapters, which lora_rank asks for: add --lora_rank 8"),
        *(("learning_rte: 1\nsed: 3", "--learning_rte=1; did you mean --learning_rate?"), ("--do_train", "without it")),
        ("--num_epochs 3 --sead=1 --seed 2", "unknown option --num_epochs; did you mean --num_train_epochs?"),
        (f"--train_file a.txt {__file__}", f"unknown option {__file__}; a pattern of files has to stand in quotes"),
        *(("--config nowhere.yaml", "nowhere.yaml: no such file"), ("[seed, 3]", "expected `option: value` lines")),
    ],
    LanguageModelingOptions: [
        ("model_name_or_path: x\nmodel_type: gpt2", "or model_type, not both: model_type is for new models"),
        ("tokenizer_name: x\ntokenizer_vocab_size: 300", "either tokenizer_name or tokenizer_vocab_size"),
        *(("config_overrides: n_embd", "expected field=value,f"), ("config_overrides: '{n_embd: 3'", "3': not YAML")),
    ],
    PretrainingOptions: [("max_seq_length: 4", "at least 5, not 4"), ("mlm_probability: 1", "below 1, not 1")],
    TranslationOptions: [("source_lang: en\ntarget_lang: en", "source_lang and target_lang are both 'en'")],
    imported(ROOT / "recipes" / "compare_architectures.py").ComparisonOptions: [
        *(("seed: 1", "give variants"), ("variants: '[a, b]'", "expected a mapping of names to fields")),
        ("variants: {a/b: {}}", "variant 'a/b': its name should be one that a folder can have"),
        ("variants: {a: {}}\npush_to_hub: true", "unknown option --push_to_hub=True"),
    ],
}


@pytest.mark.parametrize(("options", "text", "message"), [(kind, *row) for kind in REFUSED for row in REFUSED[kind]])
def test_refused_in_one_line(config, capsys, options, text, message):
    argv = text.split() if text.startswith("--") and ":" not in text else [config(text)]
    with pytest.raises(SystemExit) as stopped:
        parse_options(options, argv)
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and message in said and said.count("\n") == 1
