"""The recipe of language modelling, run in this process on a tiny model."""

import functools
import json
import math
import re
import runpy

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoConfig, AutoTokenizer, GPT2Config, GPT2LMHeadModel

import tfm_zoo
from tfm_zoo.training.tasks.language_modeling import Blocks
from tfm_zoo.training.tokenizers import byte_level_bpe

from .conftest import ROOT, TEXT, WITHOUT_ZOO, history, logged, run_python, shown_error, validated

GPT2 = "n_embd=32,n_layer=2,n_head=2,embd_pdrop=0,attn_pdrop=0,resid_pdrop=0"
SIZES = "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64"


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_learns_and_leaves_everything(train_lm, tmp_path):
    results = train_lm(
        num_train_epochs=6,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        eval_steps=12,
        sample_prompt="The cat",
        num_samples=2,
    )
    folder = tmp_path / "run"
    assert json.loads((folder / "all_results.json").read_text()) == results
    evaluated = history(folder, "eval_loss")
    assert results["eval_loss"] == min(evaluated) < evaluated[0] - 1
    assert results["eval_perplexity"] == pytest.approx(math.exp(results["eval_loss"]))
    assert (folder / "training_curves.png").stat().st_size > 10_000

    model = tfm_zoo.TfmGPTForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer) == 280
    assert model.config.eos_token_id == tokenizer.eos_token_id == model.generation_config.eos_token_id
    assert model.generation_config.do_sample and model.generation_config.top_p == 0.95

    # The loss is the mean over tokens, of the text's end, and not over blocks of unlike length.
    row = torch.tensor(tokenizer(TEXT[round(0.9 * len(TEXT)) :])["input_ids"] + [tokenizer.eos_token_id])
    blocks = Blocks(row, 32)
    with torch.no_grad():
        sums = [
            model(**{k: v[None] for k, v in blocks[i].items()}, num_items_in_batch=1).loss for i in range(len(blocks))
        ]
    counts = [int((blocks[i]["labels"][1:] != -100).sum()) for i in range(len(blocks))]
    assert len(set(counts)) == 2
    assert results["eval_loss"] == pytest.approx(sum(sums).item() / sum(counts), rel=1e-5)

    samples = history(folder, "samples")
    assert len(samples) == len(evaluated) and all(len(drawn) == 2 for drawn in samples)
    assert all(sample.startswith("The cat") for drawn in samples for sample in drawn)
    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == "text-generation"
    assert samples[0][0].strip() in card.text and card.text.count("The cat") >= 3
    assert {result.metric_type for result in card.data.eval_results} == {"loss", "perplexity"}
    assert "1 thread)" in card.text and "1 process " in card.text
    assert re.search(r"Per second: [\d.]+ blocks of 32 tokens in training", card.text)


@pytest.mark.slow
def test_built_in_text_and_generation_where_there_is_no_zoo(train_lm, tmp_path, capsys):
    train_lm(train_file=None, max_train_samples=32, max_eval_samples=8, sample_length=100)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "The text is generated" in card
    config, tokenizer = (auto.from_pretrained(tmp_path / "run") for auto in (AutoConfig, AutoTokenizer))
    asked = int(re.search(r"generate\('Once', max_new_tokens=(\d+)\)", card)[1])
    assert asked + len(tokenizer("Once")["input_ids"]) == config.max_position_embeddings == 32
    assert f"max_new_tokens={asked})  # with the prompt 32 tokens, the most that the model takes" in card
    options = ["--max_new_tokens", 9, "--num_samples", 2, "--seed", 1]
    shown = run_python("-c", WITHOUT_ZOO, ROOT / "recipes" / "generate.py", tmp_path / "run", "the film", "", *options)
    assert shown.stdout.count("the film") == 2 and "torchao" not in shown.stderr  # which warns when it is imported
    model = tfm_zoo.TfmGPTForCausalLM.from_pretrained(tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    ids = torch.tensor([tokenizer("the film")["input_ids"]] * 2)
    torch.manual_seed(1)
    texts = tokenizer.batch_decode(model.generate(ids, max_new_tokens=9), skip_special_tokens=True)
    assert shown.stdout.startswith("\n\n".join(texts))

    module = runpy.run_path(str(ROOT / "recipes" / "generate.py"))
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("the film\nthe actor\n")
    command = [str(tmp_path / "run"), "--file", str(prompts), "--max_new_tokens", "12"]
    capsys.readouterr()
    module["main"]([*command, "--num_beams", "3", "--num_samples", "2", "--repetition_penalty", "1.3"])
    shown = capsys.readouterr()
    encoded = [tokenizer(text, return_tensors="pt")["input_ids"] for text in ("the film", "the actor")]
    beams = {"num_beams": 3, "num_return_sequences": 2, "repetition_penalty": 1.3, "max_new_tokens": 12}
    found = [model.generate(ids, do_sample=False, **beams) for ids in encoded]
    texts = [text for rows in found for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]
    assert shown.out.split("\n\n")[:4] == texts
    losses = [
        model(row[None], labels=row[None].clone().index_fill(1, torch.arange(ids.shape[1]), -100)).loss
        for rows, ids in zip(found, encoded, strict=True)
        for row in rows
    ]
    assert "distinct-n    share of the n-grams" in shown.err
    assert "48 tokens" in shown.err and f"perplexity {torch.stack(losses).mean().exp():.2f}, distinct-1" in shown.err

    module["main"]([*command, "--temperature", "0"])
    greedy = capsys.readouterr().out.split("\n\n")[0]
    module["main"]([*command, "--temperature", "0", "--stop_strings", greedy[len("the film") :][:3]])
    stopped = capsys.readouterr().out.split("\n\n")[0]
    assert len(stopped) < len(greedy) and greedy.startswith(stopped)
    with pytest.raises(SystemExit):
        module["main"]([*command, "--num_beams", "2", "--num_samples", "3"])
    assert "2 beams give at most so many texts" in capsys.readouterr().err


def test_figures_of_generated_text():
    diversity = runpy.run_path(str(ROOT / "recipes" / "generate.py"))["diversity"]
    assert (
        diversity([[1, 2, 3, 1, 2], [1, 2, 4]]) == "distinct-1 0.50, distinct-2 0.67, distinct-3 1.00, repetition 0.00"
    )
    assert diversity([[7] * 8]).endswith("repetition 0.80")
    assert diversity([[7]]) == "distinct-1 1.00, distinct-2 0.00, distinct-3 0.00, repetition 0.00"


def test_zoo_and_native_model_take_the_same_steps(train_lm, tmp_path):
    options = {"model_type": "gpt2", "config_overrides": GPT2, "max_train_steps": 3}
    zoo, native = (
        train_lm.trained(output_dir=tmp_path / name, model_class=name, **options) for name in ("zoo", "native")
    )
    assert [loop.model.config.model_type for loop in (zoo, native)] == ["tfm_gpt", "gpt2"]
    for key in ("loss", "grad_norm", "eval_loss"):
        assert logged(zoo, key) == pytest.approx(logged(native, key), abs=1e-4), key
    assert logged(zoo, "samples") == logged(native, "samples") != []


@pytest.mark.slow
def test_from_an_official_checkpoint_and_on_from_there(train_lm, tmp_path):
    tokenizer = byte_level_bpe([TEXT], 280)
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=280, n_positions=24, n_embd=32, n_layer=2, n_head=2)).save_pretrained(
        tmp_path / "official"
    )
    tokenizer.save_pretrained(tmp_path / "official")
    fresh = {"config_overrides": None, "tokenizer_vocab_size": None, "max_train_steps": 2}
    train_lm(model_name_or_path=tmp_path / "official", output_dir=tmp_path / "zoo", **fresh)
    state = json.loads((tmp_path / "zoo" / "trainer_state.json").read_text())
    assert state["run"]["block_size"] == 24  # asked for 32, and the model has 24 positions
    train_lm(model_name_or_path=tmp_path / "zoo", output_dir=tmp_path / "again", **fresh)
    assert history(tmp_path / "again", "loss")[0] < history(tmp_path / "zoo", "loss")[0]


@pytest.mark.parametrize(
    "options",
    [
        {"config_name": "gpt2", "config_overrides": "hidden_size=32,num_hidden_layers=1,num_attention_heads=2"},
        {"config_overrides": "hidden_size=32,num_attention_heads=2,norm_type=rmsnorm,position_embedding_type=rotary"},
        {"model_type": "llama", "config_overrides": "hidden_size=32,num_hidden_layers=1,num_attention_heads=2"},
    ],
    ids=["named", "axes", "official type"],
)
def test_new_models_of_any_kind(train_lm, options):
    config = train_lm.prepare(**options).model.config
    assert type(config) is tfm_zoo.TfmGPTConfig
    assert (config.hidden_size, config.num_attention_heads, config.head_dim) == (32, 2, 16)
    assert (config.vocab_size, config.max_position_embeddings) == (280, 32)


def test_accumulation_does_not_change_the_steps(train_lm, tmp_path):
    """Though the last block is shorter: tokens weigh alike, whichever batch they are in."""
    options = {"config_overrides": f"{SIZES},hidden_dropout=0,attention_dropout=0", "block_size": 128}
    parts = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
    whole = train_lm.trained(output_dir=tmp_path / "whole", per_device_train_batch_size=4, **options)
    parted = train_lm.trained(output_dir=tmp_path / "parts", **parts, **options)
    assert len(logged(whole, "loss")) > 1
    for key in ("loss", "grad_norm", "eval_loss"):
        assert logged(parted, key) == pytest.approx(logged(whole, key), abs=1e-5), key


@pytest.mark.slow
def test_streams_learn_too(train_lm, tmp_path):
    (tmp_path / "held_out.txt").write_text(TEXT[:500])
    stream = {"streaming": True, "validation_file": tmp_path / "held_out.txt"}
    results = train_lm(**stream, max_train_steps=40, eval_steps=20, learning_rate=1e-2)
    assert len(history(tmp_path / "run", "samples")) == 2
    assert results["eval_loss"] < history(tmp_path / "run", "loss")[0] - 1
    assert "not counted" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [True, False])
def test_a_run_goes_on_with_its_own_data_alone(train_lm, tmp_path, streaming):
    (tmp_path / "held_out.txt").write_text(TEXT[:500])
    (tmp_path / "a.part.txt").write_text(TEXT)
    files = {"train_file": tmp_path / "*.part.txt", "validation_file": tmp_path / "held_out.txt"}
    options = files | {"streaming": streaming, "max_train_steps": 1, "sample_length": 0}
    train_lm(checkpointing_steps=1, **options)
    again = options | {"resume_from_checkpoint": "auto"}
    train_lm(**again)
    with pytest.raises(ValueError, match=r"another run: .*document_separator was None and is X"):
        train_lm(document_separator="X", **again)
    with pytest.raises(ValueError, match=r"another run: .*tokenizer was"):
        train_lm(tokenizer_vocab_size=257, **again)
    (tmp_path / "b.part.txt").write_text("cat\n")
    with pytest.raises(ValueError, match=r"another run: .*training text was"):
        train_lm(**again)


@pytest.mark.slow
def test_a_streamed_run_goes_on_with_batches_of_another_size(train_lm, tmp_path, caplog):
    """At the same place, if the number of steps is the same: the schedule depends on it."""
    options = validated(tmp_path, {"streaming": True}) | {"sample_length": 0}
    train_lm(max_train_steps=6, checkpointing_steps=2, save_total_limit=9, per_device_train_batch_size=4, **options)
    again = options | {"resume_from_checkpoint": tmp_path / "run" / "checkpoint-2", "per_device_train_batch_size": 3}
    assert train_lm(max_train_steps=6, **again)["train_steps"] == 6
    assert caplog.text.count("Continuing with global_batch_size 3, which was 4") == 1
    with pytest.raises(ValueError, match="another run: total_steps was 6 and is 7"):
        train_lm(max_train_steps=7, **again)


def test_samples_leave_training_as_it_is(train_lm, tmp_path):
    options = {"eval_steps": 1, "max_train_steps": 2}
    with_some = train_lm.trained(output_dir=tmp_path / "with", **options)
    without = train_lm.trained(output_dir=tmp_path / "without", sample_length=0, **options)
    assert logged(with_some, "loss") == logged(without, "loss")
    assert logged(with_some, "samples") and not logged(without, "samples")


def test_evaluation_asks_for_no_logits(train_lm, monkeypatch):
    given, forward = [], tfm_zoo.TfmGPTForCausalLM.forward

    @functools.wraps(forward)
    def spy(self, *args, **kwargs):
        output = forward(self, *args, **kwargs)
        if not self.training and "num_items_in_batch" in kwargs:  # (the manifest has the logits of its own inputs)
            given.append(output.logits)
        return output

    monkeypatch.setattr(tfm_zoo.TfmGPTForCausalLM, "forward", spy)
    train_lm.trained(max_train_steps=1)
    assert given == [None] * len(given) != []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config_overrides": "hiden_size=32"}, "tfm_gpt has no field 'hiden_size'; did you mean 'hidden_size'"),
        ({"config_overrides": "hidden_size=30,num_attention_heads=4"}, "hidden_size=30 is not a multiple of"),
        ({"model_type": "gpt3"}, "model_type 'gpt3' is not one of transformers' or the zoo's; near: "),
        ({"model_type": "vit"}, "model_type 'vit' is not a causal language model"),
        (
            {"model_type": "ctrl", "config_overrides": "n_embd=32,n_layer=1,n_head=2"},
            "architecture 'ctrl', which the zoo does not convert",
        ),
        ({"config_name": "no/where"}, "config_name 'no/where': neither a checkpoint's folder nor found on the Hub"),
        ({"config_name": "gpt2-medum"}, "; did you mean the published size 'gpt2-medium'?"),
        ({"tokenizer_name": "no/where", "tokenizer_vocab_size": None}, "tokenizer_name 'no/where': neither"),
        ({"tokenizer_vocab_size": 100}, "tokenizer_vocab_size must be at least 257"),
        ({"streaming": True}, "streaming needs max_train_steps"),
        ({"streaming": True, "max_train_steps": 1}, "nothing is left to train on: .* or do not stream it"),
        ({"sample_prompt": "cat " * 40}, r"sample_prompt has \d+ tokens, of 32 that the model takes"),
        ({"metric_for_best_model": "accuracy"}, "metric_for_best_model 'accuracy': expected one of .*perplexity"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_before_work(train_lm, options, message):
    with pytest.raises(Exception, match=message):
        train_lm.prepare(**options)


def test_a_model_that_is_mostly_embeddings_is_told(train_lm, caplog):
    """With the number of tokens that would be better. Who gives a number is told nothing."""
    sizes = "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32"
    options = {"model_type": "tfm_gpt", "config_overrides": sizes}
    train_lm.prepare(tokenizer_vocab_size=None, **options)
    told = [line for line in caplog.messages if "parameters are embeddings of" in line]
    assert len(told) == 1
    embedded, whole, tokens = (int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", told[0])[:3])
    assert embedded == 16 * tokens > whole / 2 and "such as --tokenizer_vocab_size 300" in told[0]
    caplog.clear()
    train_lm.prepare(**options, output_dir=train_lm.options["output_dir"].with_name("other"))
    assert "parameters are embeddings" not in caplog.text


def test_an_error_is_one_line(lm_recipe, tmp_path, monkeypatch, capsys):
    shown = shown_error(
        lm_recipe, ["--train_file", "nowhere.txt", "--output_dir", tmp_path / "run"], monkeypatch, capsys
    )
    assert shown.splitlines()[-1] == "finetune_causal_lm.py: error: train_file 'nowhere.txt': no such file"
    assert "Traceback" not in shown
