"""Promises that every recipe keeps: the official class takes the same steps, runs go on as their own, data are read
whole, and models come from anywhere."""

import inspect
import json
import re
import shutil

import pytest
import torch
from huggingface_hub import ModelCard

import tfm_zoo
from tfm_zoo.training.loop import Loop

from .conftest import LORA, MARIAN, SIZES, SIZES_OF_MARIAN, interrupted, logged, same_history

BERT = {"model_type": "bert", "config_overrides": f"{SIZES},hidden_dropout_prob=0,attention_probs_dropout_prob=0"}
NO_DROPOUT = "embd_pdrop=0,attn_pdrop=0,resid_pdrop=0"
GPT2 = {"model_type": "gpt2", "config_overrides": f"n_embd=32,n_layer=2,n_head=2,{NO_DROPOUT}"}
T5 = {"model_type": "t5", "config_overrides": "d_model=32,d_kv=8,d_ff=64,num_layers=1,num_heads=4,dropout_rate=0"}
#: the options with which a task's model is an official one, or the zoo's of the same weights, without dropout
OFFICIAL = {
    **{task: {} for task in ("classification", "marks", "number")},
    "causal_lm": GPT2,
    **dict.fromkeys(("pretraining", "tagging", "questions"), BERT),
    "translation": MARIAN | {"num_eval_translations": 5, "label_smoothing_factor": 0},
    "denoising": T5,
    "summaries": MARIAN,
}


def note_losses(loop: Loop) -> list[float]:
    """The losses that the model's own class has of what it learns from, as it comes to it."""
    compute, found = loop.task.compute_batch, []

    def noted(model, batch):
        if torch.is_grad_enabled():
            known = inspect.signature(model.forward).parameters
            found.append(model(**{name: each for name, each in batch.items() if name in known}).loss.item())
        return compute(model, batch)

    loop.task.compute_batch = noted
    return found


@pytest.mark.parametrize("task", OFFICIAL)
def test_the_zoo_in_parts_of_batches_takes_the_steps_of_the_official_class(recipe, task, tmp_path):
    """Every item weighs alike, whichever batch it is in. Samples are the same, too."""
    train, options = recipe(task), OFFICIAL[task] | {"max_train_steps": 3}
    of, size = ("tokens", 400) if task in ("translation", "summaries") else ("size", 8)
    whole = {f"per_device_train_batch_{of}": size}
    parts = {f"per_device_train_batch_{of}": size // 4, "gradient_accumulation_steps": 4}
    native = train.prepare(model_class="native", output_dir=tmp_path / "native", **options | whole)
    own_losses = note_losses(native)
    native.train()
    zoo = train.trained(**options | parts)
    assert not type(native.model).__name__.startswith("Tfm") and type(zoo.model).__name__.startswith("Tfm")
    if task != "questions":  # which are answered from the context alone
        assert logged(native, "loss") == pytest.approx(own_losses, rel=1e-5)
    assert len(logged(zoo, "loss")) == len(logged(zoo, "grad_norm")) == 3
    same_history(zoo.state.log_history, native.state.log_history)


@pytest.mark.parametrize("task", ["classification", "marks", "number", "causal_lm", "translation"])
def test_evaluations_measure_the_loss_that_is_trained(recipe, task):
    train, of = recipe(task), "tokens" if task == "translation" else "size"
    options = {"max_train_steps": 1, "learning_rate": 1e-12, f"per_device_train_batch_{of}": 10**5}
    loop = train.trained(validation_file=train.options["train_file"], **OFFICIAL.get(task, {}) | options)
    assert logged(loop, "eval_loss") == pytest.approx(logged(loop, "loss"), rel=1e-5)


def test_evaluations_and_samples_leave_training_as_it_is(recipe, tmp_path):
    options = {"config_overrides": f"{SIZES},hidden_dropout=0.1", "eval_steps": 1, "max_train_steps": 2}
    with_some = recipe("causal_lm").trained(**options)
    fewer = options | {"output_dir": tmp_path / "fewer", "eval_steps": 2, "sample_length": 0}
    without = recipe("causal_lm").trained(**fewer)
    assert logged(with_some, "loss") == logged(without, "loss")
    assert len(logged(with_some, "samples")) == 2 and not logged(without, "samples")


def test_in_mixed_precision_batches_are_no_longer_than_the_positions(recipe):
    """The positions are not a multiple of 8, to which batches are padded where they may be."""
    sizes = {"config_overrides": f"{SIZES},max_position_embeddings=30", "max_seq_length": 30}
    assert recipe("pretraining").trained(mixed_precision="bf16", max_train_steps=2, **sizes).state.step == 2


SMALL = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2"
OF_TEXT = {"num_attention_heads": 2, "head_dim": 16, "vocab_size": 280, "max_position_embeddings": 32}
OF_PAIRS = {"pad_token_id": 0, "eos_token_id": 2}


@pytest.mark.parametrize(
    ("task", "options", "fields"),
    [
        ("causal_lm", {"config_name": "gpt2", "config_overrides": f"{SMALL},norm_type=rmsnorm"}, OF_TEXT),
        ("causal_lm", {"model_type": "llama", "config_overrides": SMALL}, OF_TEXT | {"norm_type": "rmsnorm"}),
        ("pretraining", {"model_type": "roberta", "config_overrides": SMALL, "next_sentence_prediction": "false"}, {}),
        ("translation", {"model_type": "bart", "config_overrides": SIZES_OF_MARIAN}, OF_PAIRS),
        ("translation", T5 | {"model_class": "native"}, OF_PAIRS),
    ],
)
def test_new_models_of_any_kind(recipe, task, options, fields):
    loop = recipe(task).prepare(max_train_steps=1, max_eval_samples=2, **options)
    config = loop.model.config
    assert config.model_type.startswith("tfm_") == ("model_class" not in options)
    assert config.hidden_size == 32 and config.vocab_size == len(loop.task.tokenizer)
    assert {name: getattr(config, name) for name in fields} == fields
    if task == "translation":
        generation = loop.model.generation_config
        assert (generation.decoder_start_token_id, generation.num_beams, generation.max_length) == (1, 4, 17)


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
    assert zoo.model.config.model_type.startswith("tfm_") and facts.items() <= zoo.state.identity.items()
    again = train.trained(model_name_or_path=tmp_path / "zoo", **fresh)
    assert logged(again, "loss")[0] < logged(zoo, "loss")[0]
    if task == "translation":  # the checkpoint's own settings
        kept = json.loads((tmp_path / "run" / "generation_config.json").read_text())
        assert (kept["num_beams"], kept["max_length"]) == (2, 11)
    if task == "pretraining":
        tuned = recipe("classification").trained(model_name_or_path=tmp_path / "run", output_dir=tmp_path / "tuned")
        assert type(tuned.model) is tfm_zoo.TfmBertForSequenceClassification
        assert tuned.model.config.vocab_size == again.model.config.vocab_size


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
    options |= {"sample_length": 0} if task == "causal_lm" else {"next_sentence_prediction": streaming}
    options |= {"validation_file": documents / "validation.txt"}
    train.trained(train_file=tmp_path / "documents" / "train-*.txt", **options)
    moved = shutil.move(tmp_path / "documents", tmp_path / "moved")
    options |= {"train_file": moved / "train-*.txt", "resume_from_checkpoint": "auto"}
    resumed, is_counted = train.resumed(**options), task == "causal_lm" and not streaming
    assert resumed.state.step == 1 and bool(logged(resumed, "epoch")) == is_counted
    for message, change in {
        was: option,
        "tokenizer was": {"tokenizer_vocab_size": 257 if task == "causal_lm" else 80},
        "validation texts? was": {"validation_file": documents / "train-0.txt"},
    }.items():
        with pytest.raises(ValueError, match=f"another run: .*{message}"):
            train.resumed(**options | change)
    (moved / "train-2.txt").write_text("cat fox .\ndog .\n")
    with pytest.raises(ValueError, match=r"another run: .*training texts? was"):
        train.resumed(**options)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "translation", "pretraining"])
def test_built_in_data_are_the_default(recipe, task, tmp_path):
    """Without a network."""
    options = {name: None for name in recipe(task).options if name.endswith(("_file", "_column_name", "_lang"))}
    options |= {"max_target_length": 24} if task == "translation" else {}
    recipe(task)(max_train_steps=1, max_train_samples=40, max_eval_samples=4, **options)
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert re.search("The (data set is|documents are) generated", card.text) and card.data.language is None


STREAMED = {"streaming": True, "dataloader_num_workers": 1}
DROPPED = {"config_overrides": f"{SIZES},hidden_dropout=0.1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "options", "place", "number"),
    [
        ("classification", LORA | {"lora_dropout": 0.1, "model_class": "native"}, 5, 6),
        ("causal_lm", STREAMED | {"freeze": "embed_positions", "per_device_train_batch_size": 3}, 7, 12),
        ("translation", {"gradient_accumulation_steps": 2, "per_device_train_batch_tokens": 600} | DROPPED, 7, 12),
        # in the midst of a block, in a second pass over the documents
        ("pretraining", STREAMED | DROPPED | {"per_device_train_batch_size": 8}, 16, 18),
    ],
)
def test_stopped_and_resumed_is_as_never_stopped(recipe, task, options, place, number, texts, tmp_path):
    """Stopped behind a step; a checkpoint comes each third."""
    train, killed, whole = recipe(task), tmp_path / "killed", tmp_path / "whole"
    options |= {"max_train_steps": number, "checkpointing_steps": 3, "save_total_limit": 10, "logging_steps": 5}
    if task == "causal_lm":
        options |= {"validation_file": texts / "held_out.txt"}
    with pytest.raises(KeyboardInterrupt):
        interrupted(train.prepare(output_dir=killed, **options), after=place).train()
    resumed = train.trained(output_dir=killed, resume_from_checkpoint="auto", **options)
    same_history(resumed.state.log_history, train.trained(output_dir=whole, **options).state.log_history, tolerance=0)
    assert {path.name for path in killed.glob("checkpoint-*")} == {f"checkpoint-{n}" for n in range(3, number + 1, 3)}
    last = f"checkpoint-{number}"
    for file in ("model.safetensors", f"{last}/model.safetensors", f"{last}/random_states_0.pkl"):
        assert (killed / file).read_bytes() == (whole / file).read_bytes(), file
