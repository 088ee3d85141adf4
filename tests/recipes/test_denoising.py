"""The recipe of span corruption, run in this process on tiny models."""

import json

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, T5Config, T5ForConditionalGeneration

from tfm_zoo.training.tokenizers import bpe_with_sentinels, joint_bpe

from .conftest import ROOT, Recipe, history, imported, logged

T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "dropout_rate": 0}
SIZES = ",".join(f"{name}={value}" for name, value in T5.items())


@pytest.fixture
def denoise(documents, tmp_path) -> Recipe:
    """The recipe: a tiny new model of the zoo on documents of a few words, unless told otherwise."""
    options = {
        "train_file": documents / "train-*.txt",
        "validation_file": documents / "validation.txt",
        "config_overrides": "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64",
        "tokenizer_vocab_size": 420,
        "max_seq_length": 32,
        "block_documents": 16,
        "learning_rate": 3e-3,
        "logging_steps": 1,
        "max_train_steps": 4,
        "output_dir": tmp_path / "run",
    }
    return Recipe(imported(ROOT / "recipes" / "pretrain_t5.py"), options)


@pytest.mark.slow
def test_learns_what_documents_lack(denoise, tmp_path):
    results = denoise(max_train_steps=120, eval_steps=60)
    losses = history(tmp_path / "run", "eval_loss")
    assert history(tmp_path / "run", "loss")[0] > 5 and losses[-1] < losses[0] < 3 and losses[-1] < 2
    assert results["eval_perplexity"] == pytest.approx(torch.tensor(losses[-1]).exp().item())
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert card.data.pipeline_tag == "text2text-generation"
    assert "15 % of the tokens, in spans of 3 tokens on average" in card.text and "<extra_id_0>" in card.text

    # The loss is that of the saved model, which knows sentinels in what it reads.
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run", trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    sides = {"text": "cat dog fox <extra_id_0> cat .", "text_target": "<extra_id_0> dog <extra_id_1>"}
    assert tokenizer.tokenize(sides["text"]).count("<extra_id_0>") == 1
    assert model(**tokenizer(**sides, return_tensors="pt")).loss < 4
    assert model.config.relative_attention_num_buckets == 32 and model.config.position_embedding_type == "none"


def test_zoo_and_native_model_take_the_same_steps(denoise, tmp_path):
    options = {"model_type": "t5", "config_overrides": SIZES, "max_train_steps": 3}
    zoo, native = (
        denoise.trained(output_dir=tmp_path / name, model_class=name, **options) for name in ("zoo", "native")
    )
    for key in ("loss", "grad_norm", "eval_loss"):
        assert logged(zoo, key) == pytest.approx(logged(native, key), abs=1e-4), key
    assert json.loads((tmp_path / "native" / "config.json").read_text())["model_type"] == "t5"


@pytest.mark.slow
def test_streamed_from_a_checkpoint_and_resumed(denoise, documents, tmp_path):
    texts = (documents / "train-0.txt").read_text().split("\n\n")
    tokenizer = bpe_with_sentinels(texts, 420)
    torch.manual_seed(0)
    ids = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **ids, **T5)).save_pretrained(tmp_path / "official")
    tokenizer.save_pretrained(tmp_path / "official")
    options = {"model_name_or_path": tmp_path / "official", "config_overrides": None, "tokenizer_vocab_size": None}
    options |= {"streaming": True, "max_train_steps": 6, "dataloader_num_workers": 0}
    denoise(output_dir=tmp_path / "whole", **options)
    denoise(checkpointing_steps=3, **options)
    for file in ("checkpoint-6", "all_results.json"):
        path = tmp_path / "run" / file
        path.rename(tmp_path / file)
    denoise(checkpointing_steps=3, resume_from_checkpoint="auto", **options)
    assert history(tmp_path / "run", "loss") == history(tmp_path / "whole", "loss")
    assert history(tmp_path / "run", "eval_loss")[-1] == history(tmp_path / "whole", "eval_loss")[-1]


def test_a_batch_may_be_longer_than_the_model_in_mixed_precision(denoise):
    """30 positions are no multiple of 8."""
    sizes = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64,max_position_embeddings=30"
    learned = f"{sizes},position_embedding_type=learned,relative_attention_num_buckets=null"
    denoise.trained(mixed_precision="bf16", config_overrides=learned, max_seq_length=64, max_train_steps=2)


def test_bad_input_is_refused_before_work(denoise, documents, tmp_path):
    joint_bpe((documents / "train-0.txt").read_text().split("\n\n"), 300).save_pretrained(tmp_path / "tokenizer")
    with pytest.raises(ValueError, match=r"tokenizer .* has 0 sentinels \(<extra_id_0>, ...\), and .* 32 needs 3"):
        denoise.prepare(tokenizer_name=tmp_path / "tokenizer", tokenizer_vocab_size=None)
    with pytest.raises(ValueError, match="model_type 'gpt2' is not a sequence-to-sequence language model"):
        denoise.prepare(model_type="gpt2", config_overrides=None)
