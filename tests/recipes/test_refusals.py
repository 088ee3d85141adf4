"""What a recipe cannot do it refuses in one line that names the value, before any work; nothing is left behind."""

import re

import pytest

from tfm_zoo.training.tokenizers import byte_level_bpe

from ..hub.editing import edit
from .conftest import LORA, SIDES

NEW, OLD_SIZES = {"model_name_or_path": None}, {"config_overrides": None}
POSITIONS = {"config_overrides": "position_embedding_type=learned,max_position_embeddings=24"}
NO_END = {"config_overrides": f"d_model=32,{SIDES},eos_token_id=7"}
OFFICIAL = {"model_type": "bert", "config_overrides": "norm_type=rmsnorm"}
ONCE = {"streaming": True, "max_train_steps": 1}
#: of a variant
FIELDS = [
    ({"norm_positon": "post"}, r"no field 'norm_positon'; near: \['norm_position'"),
    ({"max_position_embeddings": 16}, "block_size 32 is more than the 16 tokens"),
    ({"learning_rate": -1}, "learning_rate must be above 0, not -1"),
    ({"vocab_size": 99}, "tokenizer .* has 280 tokens, more than the 99 of the new model \\(vocab_size\\)"),
]
REFUSED = {
    "classification": [
        ({"output_dir": "file/run", "train_file": "nowhere.csv"}, "file is not a folder that you may write to"),
        (NEW | {"model_revision": "v2"}, "model_revision is of a checkpoint: give model_name_or_path"),
        (NEW | {"model_type": "vit"}, "'vit': transformers has no sequence classifier of type 'vit'"),
        (NEW | {"model_type": "tfm_gpt", "classifier_pooling": "mean"}, "classifier_pooling='mean' is a field"),
        (NEW | {"model_type": "bart"} | NO_END, "'bart' reads eos_token_id 7, with which the tokenizer ends no text"),
        ({"max_seq_length": 2}, "max_seq_length must be at least 3, not 2: a text has 2 special tokens"),
        ({"metrics": ["f1", "exact_match"]}, "'exact_match' is of other predictions than this task's: give acc"),
        ({"metrics": ["acuracy"], "train_file": "nowhere.csv"}, "no metric 'acuracy': give accuracy"),
        ({"metric_for_best_model": "acuracy"}, r"'acuracy': expected one of \['loss', 'accuracy', 'f1'\]"),
        ({"class_weights": [1.0, -1.0]}, "expected a number of at least 0 for each of "),
        (NEW | OFFICIAL, "bert has no field 'norm_type'.* For fields of the zoo, give model_type tfm_bert, or a"),
        (LORA | {"lora_target_modules": ["q_proj", "kv_proj"]}, "lora_target_modules 'kv_proj': choose from"),
        ({"model_name_or_path": "int8"}, "model_name_or_path 'int8' is quantised, for inference: train what it was"),
    ],
    "marks": [
        ({"train_file": "mark.csv"}, "'train', line 3 of mark.csv, column 'fine': a label is 1 or 0, not '2'"),
        ({"problem_type": "single_label_classification"}, "takes one column with one label in each row"),
    ],
    "number": [
        ({"problem_type": None}, "'label' holds .*float64.*, such as .*: to learn numbers, give problem_type"),
        ({"problem_type": "multi_label_classification"}, "takes a column of lists, or several columns"),
        ({"train_file": "long.csv"}, "line 3 of long.csv, .*'label'.* needs a number, not 'long'"),
        ({"train_file": "nan.csv"}, "line 3 of nan.csv, .*'label'.* needs a number, not 'nan'"),
        ({"train_file": "gap.csv"}, "line 3 of gap.csv, column 'label': 1 row without a label"),
    ],
    "causal_lm": [
        (LORA, "lora_rank adapts a checkpoint, and this model is new: give model_name_or_path"),
        ({"model_type": "gpt3"}, "model_type 'gpt3' is not one of transformers' or the zoo's"),
        ({"config_overrides": "norm_typ=a", "tokenizer_vocab_size": 5}, "field 'norm_typ'"),  # before a tokenizer
        (ONCE, "there is no text to train on"),
        ({"sample_prompt": "cat " * 40}, r"sample_prompt has \d+ tokens, of 32 that the model takes"),
    ],
    "translation": [
        ({"config_overrides": "decoder_vocab_size=100"}, "decoder_vocab_size 100: the tokenizer has"),
        ({"tokenizer_name": "unpadded", "tokenizer_vocab_size": None}, "tokenizer 'unpadded' has no pad_token"),
        ({"per_device_train_batch_tokens": 5}, "per_device_train_batch_tokens 5: too few for an example of"),
        ({"metric_for_best_model": "bleu"}, "metric_for_best_model 'bleu' needs num_eval_texts"),
    ],
    "pretraining": [
        ({"next_sentence_prediction": False, "metric_for_best_model": "nsp_loss"}, "expected one of .'loss', 'mlm_acc"),
        ({"mlm_probability": 1e-9}, "no token of the validation documents is masked"),
        ({"model_type": "roberta"} | OLD_SIZES, "model_type 'roberta' has no head, or no segments, for pairs"),
        ({"train_file": "one.txt"}, "in the training documents: it takes two documents of less than 2,000,000 ch"),
        ({"validation_file": "one.txt"}, "there is no example in the validation documents"),
    ],
    "denoising": [({"noise_density": 0.9} | POSITIONS, "noise_density 0.9: [0-9]+ tokens to write, at most 24")],
    "comparison": [
        *(({"variants": {"good": {}, "a": fields}}, f"variant 'a': .*{said}") for fields, said in FIELDS),
        *((NEW | {"model_type": name}, f"and {name} is an enc") for name in ("marian", "tfm_encoder_decoder")),
    ],
}


@pytest.fixture(scope="module")
def odd_files(tmp_path_factory):
    """A folder with documents too few, labels that cannot be learnt, and a file where a folder should be."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "one.txt").write_text("cat dog .\nfox .\n")
    edit(folder, "int8/config.json", model_type="bert", quantization_config={"quant_method": "tfm_zoo"})
    (folder / "mark.csv").write_text("text,fine,film\na,1,0\nb,2,0\n")
    for name, label in {"long": "long", "nan": "nan", "gap": ""}.items():
        (folder / f"{name}.csv").write_text(f"text,label\na,0.5\nb,{label}\n")
    (folder / "file").touch()
    (tokenizer := byte_level_bpe(["a"], 257)).pad_token = None
    tokenizer.save_pretrained(folder / "unpadded")
    return folder


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [(task, *row) for task, rows in REFUSED.items() for row in rows],
    ids=[f"{task}, {', '.join(map(str, row[0].values()))}" for task, rows in REFUSED.items() for row in rows],
)
def test_refused_before_work(recipe, odd_files, monkeypatch, task, options, message, tmp_path):
    monkeypatch.chdir(odd_files)
    assert re.search(message, recipe(task).refusal(**options)) and not (tmp_path / "run").exists()
