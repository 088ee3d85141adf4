"""Promises that every recipe keeps: the official class takes the same steps, runs go on as their own, data are read
whole, and models come from anywhere."""

import json
import math
import re
import shutil

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

import tfm_zoo

from .conftest import MARIAN, SIZES, SIZES_OF_MARIAN, history, logged, same_history

BERT = {"model_type": "bert", "config_overrides": f"{SIZES},hidden_dropout_prob=0,attention_probs_dropout_prob=0"}
NO_DROPOUT = "embd_pdrop=0,attn_pdrop=0,resid_pdrop=0"
GPT2 = {"model_type": "gpt2", "config_overrides": f"n_embd=32,n_layer=2,n_head=2,{NO_DROPOUT}"}
T5 = {"model_type": "t5", "config_overrides": "d_model=32,d_kv=8,d_ff=64,num_layers=1,num_heads=4,dropout_rate=0"}
#: the options with which a task's model is an official one, or the zoo's of the same weights, without dropout
OFFICIAL = {
    **{task: {} for task in ("classification", "marks", "numbers")},
    "causal_lm": GPT2,
    **dict.fromkeys(("pretraining", "tagging", "questions"), BERT),
    "translation": MARIAN | {"num_eval_translations": 5},
    "denoising": T5,
    "summaries": MARIAN,
}


@pytest.mark.parametrize("task", OFFICIAL)
def test_the_zoo_in_parts_of_batches_takes_the_steps_of_the_official_class(recipe, task, tmp_path):
    """Every item weighs alike, whichever batch it is in. Samples are the same, too."""
    train, options = recipe(task), OFFICIAL[task] | {"max_train_steps": 3}
    of, size = ("tokens", 400) if task in ("translation", "summaries") else ("size", 8)
    whole = {f"per_device_train_batch_{of}": size}
    parts = {f"per_device_train_batch_{of}": size // 4, "gradient_accumulation_steps": 4}
    native = train.trained(model_class="native", output_dir=tmp_path / "native", **options | whole)
    zoo = train.trained(**options | parts)
    assert not type(native.model).__name__.startswith("Tfm") and type(zoo.model).__name__.startswith("Tfm")
    assert len(logged(zoo, "loss")) == len(logged(zoo, "grad_norm")) == 3
    same_history(zoo.state.log_history, native.state.log_history)
    for entry, other in zip(zoo.state.log_history, native.state.log_history, strict=True):
        compared = {key: value for key, value in other.items() if key.endswith(("loss", "grad_norm"))}
        assert {key: entry[key] for key in compared} == pytest.approx(compared, abs=1e-5), entry["step"]


@pytest.mark.parametrize(("task", "options"), [("causal_lm", {}), ("translation", {"num_eval_translations": 5})])
def test_samples_leave_training_as_it_is(recipe, task, options, tmp_path):
    options = {"config_overrides": f"{SIZES},hidden_dropout=0.1", "eval_steps": 1, "max_train_steps": 3} | options
    none = {"sample_length": 0} if task == "causal_lm" else {"num_eval_translations": 0, "num_samples": 0}
    with_some = recipe(task).trained(**options)
    without = recipe(task).trained(output_dir=tmp_path / "without", **options | none)
    assert logged(with_some, "loss") == logged(without, "loss")
    assert len(logged(with_some, "samples")) == 3 and not logged(without, "samples")


@pytest.mark.parametrize(
    ("task", "pattern"),
    [("classification", "embeddings"), ("causal_lm", "embed_positions"), ("translation", "encoder.layers")],
)
def test_not_one_bit_of_frozen_weights_moves(recipe, task, pattern, tmp_path):
    """Whatever weight decay would do; everything else learns."""
    options = {"freeze": [pattern, "mlp.up_proj.bias"], "checkpointing_steps": 1, "max_train_steps": 2}
    options |= {"weight_decay": 0.1, "warmup_steps": 0, "sample_length": 0 if task == "causal_lm" else None}
    recipe(task)(gradient_checkpointing=task == "classification", **options)
    run = tmp_path / "run"
    before, after = (load_file(run / f"checkpoint-{step}" / "model.safetensors") for step in (1, 2))
    frozen = {name for name in before if f".{pattern}." in name or name.endswith("mlp.up_proj.bias")}
    assert len(frozen) > 1
    assert {name for name in before if not torch.equal(before[name], after[name])} == before.keys() - frozen
    card = (run / "README.md").read_text()
    assert f"| frozen | `{pattern}`, `mlp.up_proj.bias` |" in card
    assert "learning rate of a layer" not in card


LEARNED = "position_embedding_type=learned,max_position_embeddings"
GENERATED = dict.fromkeys(["train_file", "validation_file", "text_column_name", "label_column_name"])
GENERATED |= {"model_name_or_path": None, "dataset_name": "generated", "max_train_samples": 40, "max_eval_samples": 10}
IN_MIXED_PRECISION = {
    "classification": GENERATED | {"max_seq_length": 30},
    "pretraining": {"config_overrides": f"{SIZES},max_position_embeddings=30", "max_seq_length": 30},
    "denoising": {
        "config_overrides": f"{SIZES},{LEARNED}=30,relative_attention_num_buckets=null",
        "max_seq_length": 64,
    },
    "translation": {
        "config_overrides": f"{SIZES},{LEARNED}=7",
        "max_source_length": 6,
        "max_target_length": 7,
        "num_samples": 0,
    },
}


@pytest.mark.parametrize("task", IN_MIXED_PRECISION)
def test_in_mixed_precision_batches_are_no_longer_than_the_positions(recipe, task):
    """The positions are not a multiple of 8, to which batches are padded where they may be."""
    loop = recipe(task).trained(mixed_precision="bf16", max_train_steps=2, **IN_MIXED_PRECISION[task])
    assert loop.state.step == 2
    assert loop.model.config.max_position_embeddings == (7 if task == "translation" else 30)


AXES = "hidden_size=32,num_attention_heads=2,norm_type=rmsnorm,position_embedding_type=rotary"
SMALL = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2"
ALONE = {"next_sentence_prediction": "false"}
OF_TEXT = {"num_attention_heads": 2, "head_dim": 16, "vocab_size": 280, "max_position_embeddings": 32}
OF_PAIRS = {"pad_token_id": 0, "eos_token_id": 2}


@pytest.mark.parametrize(
    ("task", "options", "fields"),
    [
        ("causal_lm", {"config_name": "gpt2", "config_overrides": SMALL}, OF_TEXT),
        ("causal_lm", {"config_overrides": AXES}, OF_TEXT | {"norm_type": "rmsnorm"}),
        ("causal_lm", {"model_type": "llama", "config_overrides": SMALL}, OF_TEXT),
        ("pretraining", {"config_name": "bert-base", "config_overrides": SMALL}, {}),
        ("pretraining", {"config_overrides": f"{AXES},norm_position=pre"}, {"norm_position": "pre"}),
        ("pretraining", {"model_type": "roberta", "config_overrides": SMALL, **ALONE}, {}),
        ("translation", {"config_overrides": f"{SIZES},norm_position=pre,decoder_layers=2"}, OF_PAIRS),
        ("translation", {"model_type": "bart", "config_overrides": SIZES_OF_MARIAN}, OF_PAIRS),
        ("translation", T5 | {"model_class": "native"}, OF_PAIRS),
    ],
    ids=lambda value: ", ".join(f"{key}={value[key]}" for key in value) if isinstance(value, dict) else value,
)
def test_new_models_of_any_kind(recipe, task, options, fields):
    loop = recipe(task).prepare(max_train_steps=1, max_eval_samples=2, **options)
    config, generation = loop.model.config, loop.model.generation_config if task == "translation" else None
    assert config.model_type.startswith("tfm_") == ("model_class" not in options)
    assert config.hidden_size == 32 and config.vocab_size == len(loop.task.tokenizer)
    assert {name: getattr(config, name) for name in fields} == fields
    if generation:
        assert (generation.decoder_start_token_id, generation.num_beams, generation.max_length) == (1, 4, 17)
        assert generation.forced_eos_token_id in (2, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "first", "facts"),
    [
        ("causal_lm", {"block_size": 24}, {"block_size": 24}),  # then asked for 32, and the model has 24 positions
        ("translation", {"num_beams": 2, "max_target_length": 10}, {"max_source_length": 24}),
        ("pretraining", {}, {"max_seq_length": 32}),
        ("denoising", {}, {"max_seq_length": 32}),
    ],
)
def test_from_an_official_checkpoint_and_on_from_there(recipe, task, first, facts, tmp_path):
    train, official = recipe(task), OFFICIAL[task] | {"model_class": "native", "output_dir": tmp_path / "official"}
    train.trained(max_train_steps=1, **official | first)
    assert "tfm_zoo" not in (tmp_path / "official" / "config.json").read_text()
    fresh = {"config_overrides": None, "tokenizer_vocab_size": None, "max_train_steps": 3}
    if task == "translation":
        fresh["max_source_length"] = 64
    zoo = train.trained(model_name_or_path=tmp_path / "official", output_dir=tmp_path / "zoo", **fresh)
    assert zoo.model.config.model_type.startswith("tfm_") and facts.items() <= zoo.state.run.items()
    options = {"num_beams": 3, "length_penalty": 0.6} if task == "translation" else {}
    again = train.trained(model_name_or_path=tmp_path / "zoo", **fresh | options)
    assert logged(again, "loss")[0] < logged(zoo, "loss")[0]
    if task == "translation":  # the checkpoint's own settings, then those that were asked for
        kept, asked = (json.loads((tmp_path / name / "generation_config.json").read_text()) for name in ("zoo", "run"))
        assert (kept["num_beams"], kept["max_length"]) == (2, 11)
        assert (asked["num_beams"], asked["length_penalty"]) == (3, 0.6)
    if task == "pretraining":
        tuned = recipe("classification").trained(model_name_or_path=tmp_path / "run", output_dir=tmp_path / "tuned")
        assert type(tuned.model) is tfm_zoo.TfmBertForSequenceClassification
        assert tuned.model.config.vocab_size == again.model.config.vocab_size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "steps", "gain"), [("causal_lm", 40, 1), ("pretraining", 30, math.log(2)), ("denoising", 30, 1)]
)
def test_streams_learn_too(recipe, texts, task, steps, gain, tmp_path):
    options = {"validation_file": texts / "held_out.txt"} if task == "causal_lm" else {}
    options |= {"streaming": True, "max_train_steps": steps, "eval_steps": steps // 2, "learning_rate": 1e-2}
    results = recipe(task)(**options)
    loss = "mlm_loss" if task == "pretraining" else "loss"
    assert len(history(tmp_path / "run", "eval_loss")) == 2
    assert results[f"eval_{loss}"] < history(tmp_path / "run", "loss")[0] - gain
    assert "not counted" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "in memory"])
@pytest.mark.parametrize(
    ("task", "option", "was"),
    [
        ("causal_lm", {"document_separator": "X"}, "document_separator was None and is X"),
        ("pretraining", {"mlm_probability": 0.2}, "mlm_probability was 0.15 and is 0.2"),
    ],
)
def test_a_run_goes_on_with_its_own_data_alone(recipe, documents, task, option, was, streaming, tmp_path):
    """Wherever they lie now, and with no text more."""
    shutil.copytree(documents, tmp_path / "documents")
    train, options = recipe(task), {"max_train_steps": 1, "streaming": streaming, "checkpointing_steps": 1}
    options |= {"validation_file": documents / "validation.txt"} | ({"sample_length": 0} if task == "causal_lm" else {})
    train.trained(train_file=tmp_path / "documents" / "train-*.txt", **options)
    moved = shutil.move(tmp_path / "documents", tmp_path / "moved")
    options |= {"train_file": moved / "train-*.txt", "resume_from_checkpoint": "auto"}
    assert train.resumed(**options).state.step == 1
    other_text = {"validation_file": documents / "train-0.txt"}
    for message, change in {
        was: option,
        "tokenizer was": {"tokenizer_vocab_size": 257 if task == "causal_lm" else 80},
        "validation texts? was": other_text,
    }.items():
        with pytest.raises(ValueError, match=f"another run: .*{message}"):
            train.resumed(**options | change)
    (moved / "train-2.txt").write_text("cat fox .\ndog .\n")
    with pytest.raises(ValueError, match=r"another run: .*training texts? was"):
        train.resumed(**options)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "translation", "pretraining", "tagging", "questions", "summaries"])
def test_built_in_data_are_the_default(recipe, task, tmp_path):
    """Without a network. A run that is done evaluates its best model again."""
    options = dict.fromkeys([f"{split}_file" for split in ("train", "validation", "test")])
    options |= {"max_train_steps": 1, "max_train_samples": 40, "max_eval_samples": 4, "checkpointing_steps": 1}
    if task == "translation":
        options |= {"source_lang": None, "target_lang": None, "max_target_length": 24}
    elif task == "classification":
        options |= dict.fromkeys(["text_column_name", "label_column_name"]) | {"dataset_name": "generated"}
    train, folder = recipe(task), tmp_path / "run"
    results = train(**options)
    card = ModelCard.load(folder / "README.md")
    assert re.search("The (data set is|documents are) generated", card.text) and card.data.language is None
    again = train(resume_from_checkpoint="auto", **options)
    same = [name for name in results if "second" not in name and name != "train_loss"]
    assert {name: again[name] for name in same} == {name: results[name] for name in same}
