"""What a recipe cannot do it refuses in one line that names the value, before any work; nothing is left behind."""

import csv
import math
import re

import pytest
from transformers import AutoTokenizer

from tfm_zoo.training.tokenizers import joint_bpe

from .conftest import LORA, write

SMALL = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2"
NEW = {"model_name_or_path": None}
OLD_SIZES = {"config_overrides": None}
WIDTH = {"config_overrides": "d_model=32"}  # where the refusal fails, no large model is made
ALONE = {"next_sentence_prediction": "false"}
ONCE = {"streaming": True, "max_train_steps": 1}
NOWHERE = {"model_name_or_path": "nowhere/at-all"}
#: of a variant
FIELDS = [
    ({"norm_positon": "post"}, r"no field 'norm_positon'; near: \['norm_position'"),
    ({"norm_position": "middle"}, "middle"),
    ({"max_position_embeddings": 16}, "block_size 32 is more than the 16 tokens"),
    ({"learning_rate": -1}, "learning_rate must be above 0, not -1"),
    ({"learning_rate": "fast"}, "could not convert string to float: 'fast'"),
    ({"vocab_size": 99}, "tokenizer .* has 280 tokens, more than the 99"),
]
REFUSED = {
    "classification": [
        ({"train_file": "nowhere.csv"}, "train_file 'nowhere.csv': no such file"),
        ({"resume_from_checkpoint": "nowhere"}, "resume_from_checkpoint 'nowhere'"),
        ({"output_dir": "file/run", "train_file": "nowhere.csv"}, "file is not a folder that you may write to"),
        (NEW | {"model_type": "vit"}, "model_type 'vit' is not a sequence classifier; see docs/arch"),
        (NEW | {"model_type": "t5", "config_overrides": "d_model=8"}, "give another"),
        (NEW | {"model_type": "tfm_gpt", "classifier_pooling": "mean"}, "classifier_pooling='mean' is a field"),
        ({"max_seq_length": 2}, "max_seq_length must be at least 3, not 2: a text has 2 special tokens"),
        # A metric is read before the data, and a figure's name before the model.
        ({"metrics": ["acuracy"], "train_file": "nowhere.csv"}, "no metric 'acuracy': give accuracy"),
        ({"metric_for_best_model": "bleu"} | NOWHERE, "metric_for_best_model 'bleu': expected one of"),
        ({"metrics": ["f1"], "metric_for_best_model": "accuracy"} | NOWHERE, r"expected one of \['loss', 'f1'\]"),
        ({"metrics": ["pearsonr", "squad"]} | NOWHERE, "metric 'squad' does not work with"),
        ({"class_weights": [1.0, -1.0]}, "expected a number of at least 0 for each of "),
        (LORA | NEW | {"config_overrides": "hidden_size=32"}, "give model_name_or_path"),
        (LORA | {"lora_target_modules": ["query", "kv_proj"]}, "No modules were targeted for adaptation"),
    ],
    "number": [
        ({"metrics": ["accuracy"]}, "metric 'accuracy' does not work with .*: .*mse"),
        ({"problem_type": None}, "'label' holds .*float64.*, such as .*: to learn numbers, give problem_type"),
        ({"problem_type": "multi_label_classification"}, "takes a column of lists, or several columns"),
    ],
    "numbers": [
        ({"metrics": ["pearsonr"]}, "metric 'pearsonr' does not work with .*0.5, 0.5"),
        ({"problem_type": "single_label_classification"}, "takes one column with one label in each row"),
    ],
    "causal_lm": [
        ({"config_overrides": "hiden_size=32"}, r"tfm_gpt has no field 'hiden_size'; near: \['hidden_size'"),
        ({"model_type": "gpt3"}, "model_type 'gpt3' is not one of transformers' or the zoo's"),
        ({"model_type": "ctrl", "config_overrides": "n_embd=32,n_layer=1,n_head=2"}, "'ctrl', which the zoo does not"),
        ({"config_name": "no/where"}, "config_name: 'no/where' is neither a folder nor a model on the Hub"),
        ({"config_name": "gpt2-medum"}, "config_name: 'gpt2-medum' is neither"),
        (ONCE, "there is no text to train on"),
        ({"sample_prompt": "cat " * 40}, r"sample_prompt has \d+ tokens, of 32 that the model takes"),
    ],
    "translation": [
        ({"model_type": "gpt2"} | OLD_SIZES, "model_type 'gpt2' is not a sequence-to-sequence"),
        ({"tokenizer_name": "unpadded", "tokenizer_vocab_size": None}, "has no pad_token, which a translation needs"),
        ({"per_device_train_batch_tokens": 5}, "per_device_train_batch_tokens 5: too few for an example of"),
        ({"config_overrides": f"{SMALL},decoder_vocab_size=100"}, "decoder_vocab_size 100: the targets' tokenizer has"),
        ({"separate_vocabularies": True, "model_type": "bart"} | WIDTH, "a model of type 'bart' has one vocabulary"),
        ({"metric_for_best_model": "bleu"}, "metric_for_best_model 'bleu': expected one of .*perplexity"),
    ],
    "pretraining": [
        ({"mlm_probability": 1e-9}, "no token of the validation documents is masked"),
        ({"model_type": "roberta"} | OLD_SIZES, "model_type 'roberta' has no head, or no segments, for pairs"),
        ({"model_type": "gpt2"} | OLD_SIZES | ALONE, "model_type 'gpt2' is not a masked language model"),
        ({"metric_for_best_model": "nsp_loss"} | ALONE, "metric_for_best_model 'nsp_loss': expected one of"),
        ({"train_file": "one.txt"}, "in the training documents: it takes two documents of less than 2,000,000 ch"),
        ({"train_file": "one.txt", "validation_file": None}, "train has 1 row: too few to cut a validation split"),
        ({"validation_file": "one.txt"}, "there is no example in the validation documents"),
        ({"train_file": "one.txt"} | ONCE, "there is no example in the training"),
    ],
    "denoising": [
        ({"tokenizer_name": "spelling", "tokenizer_vocab_size": None}, "has 0 sentinels .*, and .* 32 needs")
    ],
    "questions": [({"output_dir": "full"}, "output_dir 'full' holds a run: give another")],
    "comparison": [({"variants": {"good": {}, "a": fields}}, f"variant 'a': .*{said}") for fields, said in FIELDS],
}


@pytest.fixture(scope="module")
def odd_files(pairs, tmp_path_factory):
    """A folder with documents too few, a tokenizer that lacks tokens, a file where a folder should be, and a run."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "one.txt").write_text("cat dog .\nfox .\n")
    joint_bpe((pairs / "train.json").read_text().splitlines(), 300).save_pretrained(folder / "spelling")
    tokenizer = AutoTokenizer.from_pretrained(folder / "spelling")
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder / "unpadded")
    (folder / "file").touch()
    (folder / "full").mkdir()
    (folder / "full" / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [(task, *row) for task, rows in REFUSED.items() for row in rows],
    ids=[f"{task}, {', '.join(map(str, row[0].values()))}" for task, rows in REFUSED.items() for row in rows],
)
def test_refused_before_work(recipe, odd_files, monkeypatch, task, options, message, tmp_path):
    monkeypatch.chdir(odd_files)
    assert re.search(message, recipe(task).refusal(**options))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("marks", {"fine": 2}, "split 'train', line 5 of train.csv, column 'fine': a label is 1 or 0, not '2'"),
        ("number", {"label": "long"}, "line 5 of train.csv, .*'label'.* needs a number, not 'long'"),
        ("number", {"label": math.inf}, "line 5 of .* needs a number, not 'inf'"),
        ("number", {"label": math.nan}, "line 5 of train.csv, column 'label': 1 row without a label"),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused_by_their_line(recipe, tmp_path, kind, row, message):
    train = recipe(kind)
    with train.options["train_file"].open(newline="") as lines:
        found = [*csv.DictReader(lines)]
    rows = [each | row if number == 3 else each for number, each in enumerate(found)]
    assert re.search(message, train.refusal(train_file=write(tmp_path / "train.csv", rows)))
