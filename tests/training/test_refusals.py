"""Options and data that a task cannot learn with or from are refused before it trains, in one line that names them."""

import json
from pathlib import Path

import pytest
import torch
from datasets import Dataset

from tfm_zoo import TfmBertForSequenceClassification
from tfm_zoo.training.batches import TokenBatchSampler
from tfm_zoo.training.freezing import freeze
from tfm_zoo.training.optimization import create_optimizer
from tfm_zoo.training.options import TrainingOptions, parse_options
from tfm_zoo.training.streaming.documents import load_documents
from tfm_zoo.training.tasks.classification import ClassificationOptions, load_texts
from tfm_zoo.training.tasks.denoising import DenoisingOptions
from tfm_zoo.training.tasks.language_modeling import LanguageModelingOptions, load_corpus
from tfm_zoo.training.tasks.pretraining import PretrainingOptions
from tfm_zoo.training.tasks.question_answering import AnsweringOptions, load_questions
from tfm_zoo.training.tasks.summarization import SummarizationOptions, load_summaries
from tfm_zoo.training.tasks.tagging import TaggingOptions, load_tagged_texts
from tfm_zoo.training.tasks.translation import TranslationOptions, load_parallel_texts

from ..tiny import tiny_model
from .conftest import saved

#: by the task's options: lines of YAML or a command line, and what is said of them
VALUES = {
    ClassificationOptions: [
        ("seed: many", "invalid int value: 'many'"),
        ("mixed_precision: fp4", "fp4"),
        ("- seed", "expected `option: value` lines"),
        ("seed: [", "config.yaml: not YAML"),
        ("[]", "expected `option: value` lines, found a list"),
        ("per_device_train_batch_size: 0", "per_device_train_batch_size must be at least 1, not 0"),
        ("learning_rate: 0", "learning_rate must be above 0"),
        ("checkpointing_steps: 5²", "checkpointing_steps must be a number of steps or 'epoch', not '5²'"),
        ("frozen_learning_rate: 0.1", "frozen_learning_rate is the head's while the rest is frozen: give freeze_ep"),
        ("layerwise_lr_decay: 1.5", "layerwise_lr_decay must be above 0 and at most 1, not 1.5"),
        ("validation_split_percentage: 100", "leave something to train on"),
        ("text_column_name: [a, b, c]", "one or two columns"),
        ("dataset_name: x\ntrain_file: y.csv", "either dataset_name or train_file"),
        ("test_file: y.csv", "need a train_file"),
        ("adam_beta2: 1", "adam_beta2 must be at least 0 and below 1, not 1.0"),
        ("lr_scheduler_type: falling", "invalid choice: 'falling'"),
        ("classifier_pooling: mean\nmodel_class: native", "classifier_pooling is for encoders of the zoo, not for"),
        ("classifier_pooling: mean\nconfig_overrides: classifier_pooling=cls", "by itself or in config_overrides"),
        ("train_file: []", "expected one argument"),
        ("zzz: 1", "unknown key 'zzz'\n"),  # nothing is near
        ("learning_rte: 1\nzzz: 2\nsed: 3", "'learning_rte', 'zzz', 'sed'; did you mean 'learning_rate', 'seed'?\n"),
        ("--seed: 2", "unknown key '--seed'; did you mean 'seed'?"),
        ("--num_epochs 3 --sead=1 --seed 2", "--num_epochs, --sead; did you mean '--num_train_epochs', '--seed'?"),
        ("--bogus -1 -seed 3", "unknown options --bogus, -seed; did you mean '--seed'?"),
        ("--train_batch_size 3", "did you mean '--per_device_train_batch_size'?"),
        ("--epochs 3", "did you mean '--freeze_epochs', '--num_train_epochs'?"),
        ("--model x", "did you mean '--model_name_or_path', "),
        ("--fp16 3", "argument --fp16"),
        ("--warmup 3", "'--warmup_steps', '--num_warmup_steps', '--warmup_ratio'?"),
        ("--config nowhere.yaml", "nowhere.yaml: no such file"),
    ],
    LanguageModelingOptions: [
        ("block_size: 1", "block_size must be at least 2, not 1"),
        ("top_p: 0", "top_p must be above 0 and at most 1, not 0.0"),
        ("model_name_or_path: x\nmodel_type: gpt2", "model_type makes a new model and cannot go with model_name_or_p"),
        ("model_type: gpt2\nconfig_name: gpt2", "either model_type or config_name"),
        ("tokenizer_name: x\ntokenizer_vocab_size: 300", "tokenizer_vocab_size is for a tokenizer made from"),
        ("config_overrides: n_embd", "config_overrides 'n_embd': expected field=value,field=value"),
        ("config_overrides: '{n_embd: 3'", "config_overrides '{n_embd: 3': not a mapping"),
        ("validation_file: y.txt", "need a train_file"),
    ],
    DenoisingOptions: [("noise_density: 1", "noise_density must be above 0 and below 1, not 1.0")],
    PretrainingOptions: [("block_documents: 1", "block_documents must be at least 2, not 1")],
    TranslationOptions: [
        ("label_smoothing_factor: 1", "label_smoothing_factor must be at least 0 and below 1, not 1.0"),
        ("source_lang: en\ntarget_lang: en", "source_lang and target_lang are both 'en'"),
        ("separate_vocabularies: true\ntokenizer_name: some", "for a new model"),
        ("--max_length 3", "did you mean '--max_source_length', '--max_target_length'?"),
    ],
}


@pytest.mark.parametrize(("options", "text", "message"), [(kind, *row) for kind in VALUES for row in VALUES[kind]])
def test_values_of_options(config, capsys, options, text, message):
    argv = text.split() if text.startswith("--") and ":" not in text else [config(text)]
    with pytest.raises(SystemExit) as stopped:
        parse_options(options, argv)
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and message in said and said.count("\n") == 1


#: what is called, and what is said
CALLS = [
    (lambda: TokenBatchSampler([(3, 4), (40, 5)], 40, num_processes=2), "tokens 40: too few for an example of 45 "),
    (lambda: frozen("embedings.*"), r"freeze 'embedings\.\*': Tfm.* has no parameter of that name; near: \['embeddi"),
    (lambda: frozen("classifier", "layer.[0-3]"), r"freeze 'layer\.\[0-3\]': .* near: \['layers\.0', 'layers"),
    (lambda: frozen("layers.[7-9]"), r"near: \['layers\.[01]', 'layers\.[01]', 'layers"),
    (lambda: frozen(""), "freeze '': "),
    (lambda: step_of(optim="adamw_troch"), "neither transformers' name .* nor torch's; near: \\['adamw_torch'"),
    (lambda: step_of(optim="lr_scheduler"), "neither transformers' name"),  # a module of torch.optim
    (lambda: step_of(optim="schedule_free_adamw"), "optim 'schedule_free_adamw': .*; as_trainer trains with it"),
    (lambda: step_of(optim="SGD", optim_args="momentun=0.9"), "optim_args 'momentun=0.9': .*momentun"),
    (lambda: TrainingOptions(bf16=True, fp16=True), "give one precision, not bf16"),
    (lambda: TrainingOptions(bf16=True, mixed_precision="no"), "give one precision, not bf16"),
    (lambda: TrainingOptions(model_revision="v2"), "model_revision .*: give model_name_or_path"),
    (lambda: TrainingOptions(lr_scheduler_kwargs="num_cycles"), "lr_scheduler_kwargs 'num_cycles': expected field=val"),
    (
        lambda: TrainingOptions().with_best_metric(["loss"]).with_best_metric(["f1"]),
        "metric_for_best_model 'loss': exp",
    ),
    (lambda: frozen("*"), r"freeze \['\*'\]: nothing is left to learn"),
    (lambda: frozen("model", "classifier"), r"freeze \['model', 'classifier'\]: nothing is left to learn"),
]


def step_of(**options: str) -> None:
    create_optimizer(torch.nn.Linear(3, 3), TrainingOptions(learning_rate=0.5, **options))


def frozen(*patterns: str) -> None:
    freeze(tiny_model(TfmBertForSequenceClassification), [*patterns])


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call()


ONE_TAG = {"tokens": ["a"], "tags": ["O"]}
QUESTION = {"question": "q", "context": "a b c d e f", "answers": {"text": ["c"], "answer_start": [4]}}


def lines_of(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def second_of_ten(row: dict, **changed: object) -> str:
    """Ten lines of JSON, of which the second is another."""
    return lines_of(row, row | changed, *[row] * 8)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
#: files of several cases
FILES = {
    "empty.txt": "",
    "blank.txt": "\n",
    "small.txt": "a few words\n",
    "two.csv": "a,b\nx,1\n",
    "two.jsonl": '{"a": "x", "b": 1}\n',
    "several/a.txt": "a",
    "several/b.jsonl": '{"text": "a"}\n',
    "unlabelled.csv": "text,label\na,\nb,\n",
    "gap.json": '[{"text": "fine", "label": 1},\n{"text": "no label", "label": null}]\n',
    "fine.csv": "text,label\n" + "good text,good\nbad text,bad\n" * 4,
    "ugly.csv": "text,label\na text,good\na text,bad\na text,ugly\n",
    "body.csv": "body,label\na text,good\na text,bad\n",
    "sentences.en": b"caf\xe9\n",
    "sentences.de": b"caf\xe9\n",
    "longer.en": "one\ntwo\n",
    "longer.de": "eins\n",
    "moved.json": second_of_ten(QUESTION, answers={"text": ["c"], "answer_start": [5]}),
    "unanswered.json": second_of_ten(QUESTION, answers={"text": [], "answer_start": []}),
    "questions.json": second_of_ten(QUESTION),
    "untagged.json": second_of_ten(ONE_TAG, tokens=["a", "b"]),
    "no_tokens.json": second_of_ten(ONE_TAG, tokens=None),
    "one_tag.json": second_of_ten(ONE_TAG),
    "comma.csv": "text,label\na, b,1\n",
    "utf16.jsonl": '{"text": "a"}'.encode("utf-16-le"),
    "gap.csv": 'text,label\n"two\nlines",1\n\nno label,\n',
    "gap.jsonl": '{"text": "fine", "label": 1}\n{"text": "no label", "label": null}\n',
    "plain.json": lines_of(*[QUESTION | {"answers": {"text": "c", "answer_start": 4}}] * 10),
    "squad.json": json.dumps({"data": [{"text": "a"}]}),
}
#: data sets of the Hub's kind, by name: their splits
SETS = {
    "ten": {
        "train": {
            "text": [f"text {i}" for i in range(10)],
            "label": ["bad", "good"] * 5,
            "number": [1] * 10,
            "share": [0.5] * 10,
            "holes": ["a", "b", "a", None] + ["b"] * 6,
            "same": ["one"] * 10,
            "emptied": [1.0, 0.0, None] + [1.0] * 7,  # as `datasets` reads an empty cell among whole numbers
            "blank": ["a", "b", " \t"] + ["c"] * 7,
        }
    },
    "without_train": {split: {"text": ["a", "b"], "label": [0, 1]} for split in ("validation", "test")},
}
STREAMED = {"streaming": True, "max_train_steps": 2}
PAIR = {"source_lang": "text", "target_lang": "label"}
#: by task: its options, what reads its data, and options that a case does not repeat
TASKS = {
    "texts": (ClassificationOptions, load_texts, {}),
    "pairs": (TranslationOptions, load_parallel_texts, PAIR),
    "summaries": (SummarizationOptions, load_summaries, {}),
    "questions": (AnsweringOptions, load_questions, {}),
    "tags": (TaggingOptions, load_tagged_texts, {}),
    "corpus": (LanguageModelingOptions, load_corpus, {}),
    "streamed corpus": (LanguageModelingOptions, load_corpus, STREAMED),
    "documents": (PretrainingOptions, load_documents, {}),
    "streamed documents": (PretrainingOptions, load_documents, STREAMED),
}
ANY_KIND = [
    ("nowhere.csv", {}, "train_file '.*nowhere.csv': no such file"),
    ("no/where", {"dataset_name": "no/where", "train_file": None}, "no/where"),
]
ROWS_ALONE = [*ANY_KIND, ("script.py", {}, "expected one of .csv, .tsv, .json, .jsonl, .parquet, not '.py'")]
RUNNING_TEXT = [
    *ANY_KIND[:1],
    ("script.py", {}, "expected one of .txt, .csv, .tsv, .json, .jsonl, .parquet, not '.py'"),
    ("empty.txt", {}, "there is no text in the train split: train_file '.*empty.txt' is empty"),
    ("blank.txt", {}, "there is no text in the (train|validation) split"),
    ("two.csv", {}, r"give text_column_name: .* \['a', 'b'\]"),
    ("two.jsonl", {"text_column_name": "c"}, "text_column_name 'c': no such column"),
    ("two.jsonl", {"text_column_name": "b"}, "text_column_name 'b'.* not text"),
]
STREAM = [
    *RUNNING_TEXT,
    ("small.txt", {"max_train_samples": 3}, "max_train_samples is for texts in memory"),
    ("small.txt", {"max_train_steps": None}, "streaming needs max_train_steps"),
    ("small.txt", {"checkpointing_steps": "epoch"}, "checkpointing_steps 'epoch': a stream has no"),
]
#: by task: the file (and what stands in it) or data set to train on, options beside it, and what is said
DATA = {
    "texts": [
        *ROWS_ALONE,
        ("ten", {"text_column_name": ["body"]}, "text_column_name 'body': no such column.*'text', 'label'"),
        ("ten", {"label_column_name": ["stars"]}, "label_column_name 'stars': no such column"),
        ("ten", {"text_column_name": ["label"]}, "'label' cannot be both"),
        ("ten", {"text_column_name": ["number"]}, "text_column_name 'number' holds .*int64.*, not text"),
        ("ten", {"label_column_name": ["share"]}, "'share' holds .*float64.* such as 0.5; .* such as 'low'"),
        ("ten", {"label_column_name": ["emptied"]}, r"is row 2 of column 'emptied' \(rows are counted from 0"),
        ("ten", {"text_column_name": ["holes"]}, "split 'train' has no text in row 3 of column 'holes'"),
        ("ten", {"label_column_name": ["same"]}, r"two labels or more; 'same' holds only \['one'\]"),
        ("ten", {"validation_split_percentage": 0}, "no validation split"),
        ("without_train", {}, r"no split to train on among \['validation', 'test'\]"),
        (("header.csv", "text,label\n"), {}, r"train_file '.*header.csv' gives no row; does it hold only a header\?"),
        (("semicolons.csv", "text;label\na;1\n"), {}, r"\(text, sentence, .*; is the file separated by semicolons\?"),
        ("comma.csv", {}, "comma.csv: its first row has 3 cells, and its header 2; is a text"),
        (("comma_later.csv", "text,label\na,1\nb,c,1\n"), {}, "comma_later.csv' cannot be read: .* in line 3, saw 3"),
        ("unlabelled.csv", {}, "split 'train' has no labels: all of them are missing"),
        (("half.csv", "text,label\na,0.5\nb,1\n"), {}, "holds numbers .float64., such as 0.5; .* 'regression'"),
        (("cell.tsv", "text\tlabel\n\na\t1\nb\n"), {}, "cell.tsv, line 4: expected 2 cells, .* found 1"),
        (("quoted.tsv", 'text\tlabel\n"a\tb"\t1\n'), {}, "quoted.tsv, line 2: expected 2 cells, .* found 3"),
        (("utf16.csv", "text,label\na,1\n".encode("utf-16")), {}, "utf16.csv is UTF-16 or binary: save it as UTF-8"),
        ("utf16.jsonl", {}, "utf16.jsonl is UTF-16 or binary: save it as UTF-8"),
        (("pointer.csv", POINTER), {}, "pointer.csv is a Git LFS pointer, not the file itself"),
        (("pointer.parquet", POINTER), {}, "pointer.parquet is a Git LFS pointer, not the file itself"),
        ("gap.csv", {}, "has 1 row without a label, the first is line 5 of gap.csv, column 'label'$"),
        (("gap.tsv", "text\tlabel\nfine\t1\nno label\t\n"), {}, "the first is line 3 of gap.tsv, column 'label'$"),
        ("gap.jsonl", {}, "the first is line 2 of gap.jsonl, column 'label'$"),
        ("gap.json", {}, r"the first is row 1 of column 'label' \(rows are counted from 0"),
        ("fine.csv", {"validation_file": "ugly.csv"}, r"'validation' has labels that train lacks: \['ugly'\]"),
        ("fine.csv", {"validation_file": "unlabelled.csv"}, "split 'validation' has no labels: all of them are miss"),
        ("fine.csv", {"test_file": "unlabelled.csv"}, "split 'test' has no labels: all of them are missing"),
        ("fine.csv", {"test_file": "body.csv"}, "split 'test' has no column 'text'"),
    ],
    "pairs": [
        *ROWS_ALONE,
        ("sentences", {}, "sentences.en is not UTF-8: .*utf-8"),
        ("longer", {}, r"train_file .*as many lines .*longer.en has 2 and .*longer.de has 1"),
        ("ten", {"source_lang": None}, r"give source_lang and target_lang: the columns are \['text', 'label', 'numb"),
        ("ten", {"source_lang": "fr"}, r"source_lang 'fr': no such column; the columns are \['text', 'label', "),
        ("ten", {"target_lang": "fr"}, "target_lang 'fr': no such column"),
        ("ten", {"target_lang": "number"}, "column 'number' holds .*int64.*, not text"),
        ("ten", {"target_lang": "holes"}, "split 'train' has no text in row 3 of column 'holes'"),
        ("ten", {"target_lang": "blank"}, "split 'train' has an empty text in row 2 of column 'blank'"),
        ("ten", {"validation_split_percentage": 0}, "there is no validation split"),
    ],
    "summaries": [("ten", {"text_column": "no"}, "text_column 'no': no such column")],
    "questions": [
        ("moved.json", {}, "line 2 of moved.json: the answer 'c' does not stand at character 5 of its context"),
        ("unanswered.json", {}, "line 2 of unanswered.json has no answer: give version_2_with_negative"),
        ("questions.json", {"context_column": "text"}, "split 'train' has no column 'text'"),
        ("questions.json", {"answer_column": "label"}, "answer_column 'label': no such column"),
        ("questions.json", {"answer_column": "question"}, "line 1 .* needs lists `text` and `answer_start`, not 'q'"),
        ("plain.json", {}, "line 1 of plain.json: answer_column needs lists `text` and `answer_start`, not "),
        ("squad.json", {}, "'data' is not as SQuAD has it, with 'paragraphs' and 'qas'"),
    ],
    "tags": [
        ("untagged.json", {}, "split 'train', line 2 of untagged.json: 2 words and 1 tag; each word needs one"),
        ("no_tokens.json", {}, "line 2 .*: text_column_name 'tokens' needs a list of words, not None"),
        ("one_tag.json", {"text_column_name": "text"}, "text_column_name 'text': no such column"),
        ("one_tag.json", {"label_column_name": "pos"}, "label_column_name 'pos': no such column"),
        ("one_tag.json", {}, r"two tags or more are needed; 'tags' holds only \['O'\]"),
    ],
    "corpus": [
        *ANY_KIND[1:],
        *RUNNING_TEXT,
        (("latin.txt", b"caf\xe9"), {}, "train_file '.*latin.txt' cannot be read: .*utf-8"),
        (("latin.csv", b"text\ncaf\xe9"), {}, r"latin.csv' cannot be read: .*utf-8.*\(save it as UTF-8\)$"),
        (("broken.json", '[{"text": "a"'), {}, "train_file '.*broken.json' cannot be read"),
        ("small.txt", {"validation_split_percentage": 0}, "there is no validation split"),
    ],
    "streamed corpus": STREAM,
    "documents": RUNNING_TEXT,
    "streamed documents": [
        *STREAM,
        ("two.csv", {"train_split_name": "other"}, r"train_split_name 'other': no such split among \['train'"),
        ("several/*", {}, r"fits files of several kinds: \.jsonl, \.txt"),
    ],
}


def write(folder: Path, name: str, content: str | bytes) -> None:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """All that the cases name."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "several").mkdir()
    (folder / "script.py").touch()
    for name, content in FILES.items():
        write(folder, name, content)
    for name, splits in SETS.items():
        saved(folder / name, **{split: Dataset.from_dict(rows) for split, rows in splits.items()})
    return folder


@pytest.mark.parametrize(("task", "name", "options", "message"), [(key, *row) for key in DATA for row in DATA[key]])
def test_data(folder, task, name, options, message):
    options_class, load, common = TASKS[task]
    if isinstance(name, tuple):
        name, content = name
        write(folder, name, content)
    files = {key: str(folder / value) for key, value in options.items() if key.endswith("_file") and value}
    train = {"dataset_name" if name in SETS else "train_file": str(folder / name)}
    if name in ("sentences", "longer"):
        options = options | {"source_lang": "en", "target_lang": "de"}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load(options_class(**train | {"seed": 0} | common | options | files).with_defaults())


def test_what_a_stream_lacks_is_no_fault_of_texts_in_memory(folder):
    for options in ({"max_train_samples": 3}, {"checkpointing_steps": "epoch"}):
        PretrainingOptions(train_file=str(folder / "small.txt"), **options).with_defaults()
