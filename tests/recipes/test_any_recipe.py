"""Promises that every recipe keeps: the official class takes the same steps, runs go on as their own, data are read
whole, and models come from anywhere."""

import inspect
import json
import os
import re
import shutil
import signal

import pytest
import torch
from huggingface_hub import ModelCard

import tfm_zoo
from tfm_zoo.training.loop import Loop

from .conftest import LORA, MARIAN, SIZES, SIZES_OF_MARIAN, interrupted, logged, run_python, same_history

BERT = {"model_type": "bert", "config_overrides": f"{SIZES},hidden_dropout_prob=0,attention_probs_dropout_prob=0"}
NO_DROPOUT = "embd_pdrop=0,attn_pdrop=0,resid_pdrop=0"
GPT2 = {"model_type": "gpt2", "config_overrides": f"n_embd=32,n_layer=2,n_head=2,{NO_DROPOUT}"}
T5 = {"model_type": "t5", "config_overrides": "d_model=32,d_kv=8,d_ff=64,num_layers=1,num_heads=4,dropout_rate=0"}
#: the options with which a task's model is an official one, or the zoo's of the same weights, without dropout
OFFICIAL = {
    **{task: {} for task in ("classification", "marks", "numbers")},
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


@pytest.mark.parametrize("task", ["classification", "marks", "number", "numbers"])
def test_evaluations_measure_the_loss_that_is_trained(recipe, task):
    train = recipe(task)
    same = {"validation_file": train.options["train_file"], "per_device_train_batch_size": 100, "learning_rate": 1e-12}
    loop = train.trained(max_train_steps=1, **same)
    assert logged(loop, "eval_loss") == pytest.approx(logged(loop, "loss"), rel=1e-5)


@pytest.mark.parametrize(("task", "options"), [("causal_lm", {}), ("translation", {"num_eval_translations": 5})])
def test_samples_leave_training_as_it_is(recipe, task, options, tmp_path):
    options = {"config_overrides": f"{SIZES},hidden_dropout=0.1", "eval_steps": 1, "max_train_steps": 2} | options
    none = {"sample_length": 0} if task == "causal_lm" else {"num_eval_translations": 0, "num_samples": 0}
    with_some = recipe(task).trained(**options)
    without = recipe(task).trained(output_dir=tmp_path / "without", **options | none)
    assert logged(with_some, "loss") == logged(without, "loss")
    assert len(logged(with_some, "samples")) == 2 and not logged(without, "samples")


LEARNED = "position_embedding_type=learned,max_position_embeddings"
OF_TARGETS = {"max_source_length": 6, "max_target_length": 7, "num_samples": 0}


@pytest.mark.parametrize(
    ("task", "positions", "options"),
    [
        ("pretraining", 30, {"config_overrides": f"{SIZES},max_position_embeddings=30", "max_seq_length": 30}),
        ("denoising", 30, {"config_overrides": f"{SIZES},{LEARNED}=30,relative_attention_num_buckets=null"}),
        ("translation", 7, {"config_overrides": f"{SIZES},{LEARNED}=7"} | OF_TARGETS),
    ],
)
def test_in_mixed_precision_batches_are_no_longer_than_the_positions(recipe, task, positions, options):
    """The positions are not a multiple of 8, to which batches are padded where they may be."""
    loop = recipe(task).trained(mixed_precision="bf16", max_train_steps=2, **options)
    assert (loop.state.step, loop.model.config.max_position_embeddings) == (2, positions)


AXES = "hidden_size=32,num_attention_heads=2,norm_type=rmsnorm,position_embedding_type=rotary"
SMALL = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2"
OF_TEXT = {"num_attention_heads": 2, "head_dim": 16, "vocab_size": 280, "max_position_embeddings": 32}
OF_PAIRS = {"pad_token_id": 0, "eos_token_id": 2}
ALONE = {"next_sentence_prediction": "false"}


@pytest.mark.parametrize(
    ("task", "options", "fields"),
    [
        ("causal_lm", {"config_name": "gpt2", "config_overrides": SMALL}, OF_TEXT),
        ("causal_lm", {"config_overrides": AXES}, OF_TEXT | {"norm_type": "rmsnorm"}),
        ("causal_lm", {"model_type": "llama", "config_overrides": SMALL}, OF_TEXT),
        ("pretraining", {"config_name": "bert-base", "config_overrides": f"{SMALL},norm_position=pre"}, {}),
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
    options = {"num_beams": 3} if task == "translation" else {}
    again = train.trained(model_name_or_path=tmp_path / "zoo", **fresh | options)
    assert logged(again, "loss")[0] < logged(zoo, "loss")[0]
    if task == "translation":  # the checkpoint's own settings, then those that were asked for
        kept, asked = (json.loads((tmp_path / name / "generation_config.json").read_text()) for name in ("zoo", "run"))
        assert (kept["num_beams"], kept["max_length"]) == (2, 11)
        assert asked["num_beams"] == 3
    if task == "pretraining":
        tuned = recipe("classification").trained(model_name_or_path=tmp_path / "run", output_dir=tmp_path / "tuned")
        assert type(tuned.model) is tfm_zoo.TfmBertForSequenceClassification
        assert tuned.model.config.vocab_size == again.model.config.vocab_size


def test_masked_tokens_alone(recipe, tmp_path):
    sizes = f"{SIZES},max_position_embeddings=16"
    options = {"max_train_steps": 3, "whole_word_mask": True, "config_overrides": sizes, **ALONE}
    results = recipe("pretraining")(**options)
    assert results["eval_loss"] == results["eval_mlm_loss"] and not any("nsp" in name for name in results)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["architectures"] == ["TfmBertForMaskedLM"]
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert "words, all tokens of each" in card.text and "next" not in card.text
    assert "at most 16" in card.text  # that it takes, of 32 asked for
    assert "![loss, mlm_accuracy against the optimiser step]" in card.text


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
    options = dict.fromkeys([f"{split}_file" for split in ("train", "validation", "test")])
    options |= {"max_train_steps": 1, "max_train_samples": 40, "max_eval_samples": 4}
    if task == "translation":
        options |= {"source_lang": None, "target_lang": None, "max_target_length": 24}
    elif task == "classification":
        options |= dict.fromkeys(["text_column_name", "label_column_name"])
    recipe(task)(**options)
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert re.search("The (data set is|documents are) generated", card.text) and card.data.language is None


STREAMED = {"streaming": True, "dataloader_num_workers": 1}
DROPPED = {"config_overrides": f"{SIZES},hidden_dropout=0.1"}
TWO_PASSES = {"gradient_accumulation_steps": 2}
DOWNWARDS = {"freeze": "embed_positions"}
HALVES = {"per_device_train_batch_size": 8}
#: of recipes: options, behind which step they are stopped, and the number of steps; a checkpoint comes each third
STOPPED = {
    "adapters": ("classification", LORA | {"lora_dropout": 0.1, "model_class": "native"}, 5, 6),
    "causal_lm": ("causal_lm", STREAMED | DOWNWARDS | {"per_device_train_batch_size": 3}, 7, 12),
    "translation": ("translation", TWO_PASSES | DROPPED | {"per_device_train_batch_tokens": 600}, 7, 12),
    # in the midst of a block, in a second pass over the documents
    "pretraining": ("pretraining", STREAMED | DROPPED | HALVES, 16, 18),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STOPPED)
def test_stopped_and_resumed_is_as_never_stopped(recipe, name, texts, tmp_path):
    task, options, place, number = STOPPED[name]
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


@pytest.mark.slow
def test_ctrl_c_while_the_command_imports_ends_it_without_a_word():
    """It needs the package of subcommands alone, which imports quickly."""
    stopped = run_python("-c", "import tfm_zoo.commands; raise KeyboardInterrupt", check=False)
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (128 + signal.SIGINT, "", "")


def test_a_stream_with_workers_needs_few_open_files(recipe, texts):
    """A chunk of texts became hundreds of tensors, each an open file, and training waited for ever."""
    options = {"block_size": 4, "sample_length": 0, "max_train_steps": 12, "validation_file": texts / "held_out.txt"}
    loop, most = recipe("causal_lm").prepare(**options | STREAMED), []
    loop.optimizer.optimizer.register_step_pre_hook(lambda *_: most.append(len(os.listdir("/proc/self/fd"))))
    loop.train()
    assert max(most) < min(most) + 50
