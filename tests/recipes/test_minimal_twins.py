"""The twins of `minimal.py`, with transformers' Trainer and with trl's: they learn, and what they save loads."""

import json

import pytest
import torch
from datasets import ClassLabel, Dataset
from transformers import AutoConfig, GPT2Config, GPT2LMHeadModel

from tfm_zoo.training.tokenizers import byte_level_bpe

from .conftest import ROOT, imported, run_here, run_python

pytestmark = pytest.mark.slow

OWN_METRIC = '''
"""How many predictions are of the last class."""

import evaluate
from datasets import Features, Value


class Last(evaluate.Metric):
    def _info(self):
        return evaluate.MetricInfo(__doc__, "", Features(predictions=Value("int64"), references=Value("int64")))

    def _compute(self, predictions, references):
        return {"last": predictions.count(1) / len(predictions)}
'''
ASK = """
import sys, transformers
chat = transformers.pipeline("text-generation", sys.argv[1], trust_remote_code=True)
for text in sys.argv[2:]:
    said = chat([{"role": "user", "content": text}], max_new_tokens=9, do_sample=False)[0]["generated_text"]
    print(said[-1]["content"])
"""


@pytest.fixture(scope="module")
def trainer_recipe():
    return imported(ROOT / "recipes" / "minimal_trainer.py")


@pytest.fixture(scope="module")
def sft_recipe():
    return imported(ROOT / "recipes" / "minimal_sft.py")


def test_the_trainer_learns_and_what_it_saves_predicts(trainer_recipe, tmp_path):
    epochs = run_here(trainer_recipe, {"output_dir": tmp_path / "run"})
    assert len(epochs) == 3 and epochs[-1]["eval_loss"] < 0.8 * epochs[0]["eval_loss"]
    assert epochs[-1]["eval_accuracy"] > 0.9 and epochs[-1]["eval_f1"] > 0.9
    texts = ["the music was rather moving", "the plot was so hollow"]
    lines = run_python(ROOT / "recipes" / "predict.py", tmp_path / "run", *texts).stdout.splitlines()
    assert lines[0].split() == ["negative", "positive", "text"]
    assert [line.split()[1].endswith("*") for line in lines[1:]] == [True, False]


def test_the_trainer_takes_an_official_checkpoint_a_data_set_and_a_metric(trainer_recipe, tmp_path, checkpoint, rows):
    reviews = Dataset.from_list([{"text": row["review"], "label": row["stars"] == "good"} for row in rows[:40]])
    reviews = reviews.cast_column("label", ClassLabel(names=["bad", "good"]))
    (tmp_path / "data").mkdir()
    for split, part in reviews.train_test_split(test_size=0.25, seed=0).items():
        part.to_parquet(tmp_path / "data" / f"{split}.parquet")
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "last.py").write_text(OWN_METRIC)
    options = {"model_name_or_path": checkpoint, "dataset_name": tmp_path / "data", "max_seq_length": 16}
    options |= {"metrics": ["accuracy", tmp_path / "last"], "num_train_epochs": 1}
    (epoch,) = run_here(trainer_recipe, options | {"output_dir": tmp_path / "run"})
    assert 0 <= epoch["eval_accuracy"] <= 1 and 0 <= epoch["eval_last"] <= 1 and "eval_f1" not in epoch
    config = AutoConfig.from_pretrained(tmp_path / "run")
    assert (config.model_type, config.hidden_size, config.label2id) == ("tfm_bert", 32, {"bad": 0, "good": 1})


def test_trl_learns_and_what_it_saves_answers(sft_recipe, tmp_path):
    losses = run_here(sft_recipe, {"output_dir": tmp_path / "run"})
    assert len(losses) == 3 and losses[-1] < 0.5 * losses[0]
    (tmp_path / "ask.py").write_text(ASK)
    texts = ["the music was rather moving", "the plot was so hollow"]
    answers = run_python(tmp_path / "ask.py", tmp_path / "run", *texts).stdout.splitlines()
    assert answers == ["How nice!", "What a pity."]


def test_trl_takes_an_official_checkpoint_and_a_data_set(sft_recipe, tmp_path):
    said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello to you"}]
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        (tmp_path / "data" / f"{split}.json").write_text(json.dumps([{"messages": said}] * 8))
    tokenizer = byte_level_bpe(["user hello assistant hello to you"], 300)
    tokenizer.chat_template = sft_recipe.TEMPLATE.replace(":", "!")
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=300, n_embd=32, n_layer=1, n_head=2)).save_pretrained(tmp_path / "gpt2")
    tokenizer.save_pretrained(tmp_path / "gpt2")
    options = {"model_name_or_path": tmp_path / "gpt2", "dataset_name": tmp_path / "data", "num_train_epochs": 1}
    (loss,) = run_here(sft_recipe, options | {"output_dir": tmp_path / "run"})
    assert loss < 6
    config = AutoConfig.from_pretrained(tmp_path / "run")
    assert (config.model_type, config.hidden_size) == ("tfm_gpt", 32)
    assert "assistant!" in (tmp_path / "run" / "chat_template.jinja").read_text()  # the checkpoint's own
