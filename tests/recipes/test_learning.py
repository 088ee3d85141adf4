"""Every recipe learns, and leaves what it says: figures, a card, a picture, a model that does what it measured."""

import json
import math
import random
from argparse import Namespace
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import ModelCard
from transformers import AutoModelForPreTraining, AutoTokenizer

import tfm_zoo
from tfm_zoo.metrics.of_texts import rouge

from .conftest import MARIAN, ROOT, SIZES, WITHOUT_ZOO, history, imported, run_python, written

ENCODER = {"config_overrides": f"{SIZES},hidden_dropout=0,attention_dropout=0"}
#: by task: with which options it learns
OPTIONS = {
    "classification": {"num_train_epochs": 8, "learning_rate": 5e-3, "max_seq_length": 32, "eval_steps": 16},
    "lists": {"max_train_steps": 60, "eval_steps": 60, "learning_rate": 1e-2},
    "number": {"max_train_steps": 60, "eval_steps": 12, "learning_rate": 1e-2},
    "causal_lm": {"num_train_epochs": 6, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "eval_steps": 12}
    | {"sample_prompt": "The cat"},
    "pretraining": {"num_train_epochs": 25, "learning_rate": 5e-3, "per_device_train_batch_size": 8, "seed": 1}
    | {"eval_steps": 100},
    "denoising": {"max_train_steps": 120, "eval_steps": 60},
    "translation": {"num_train_epochs": 15, "eval_steps": 75, "num_eval_translations": 8, "logging_steps": 25},
    "tagging": ENCODER | {"label_column_name": "names", "max_seq_length": 16, "num_train_epochs": 5},
    "questions": ENCODER
    | {"max_seq_length": 13, "doc_stride": 4, "n_best_size": 3, "num_train_epochs": 2, "version_2_with_negative": True},
    "summaries": MARIAN
    | {"source_prefix": "sum: ", "per_device_train_batch_tokens": 300, "num_train_epochs": 2, "num_eval_texts": 8},
}
#: by task: the kind of its card, the figures there, and what else it says
CARDS = {
    "classification": ("text-classification", "accuracy f1", ""),
    "lists": ("text-classification", "accuracy f1 f1_micro", "which of the labels *film*, *fine* texts have"),
    "number": ("text-classification", "mse pearsonr", "to give texts a number"),
    "causal_lm": ("text-generation", "loss perplexity", "blocks of 32 tokens in training"),
    "pretraining": ("fill-mask", "mlm_accuracy nsp_accuracy", "15% of the tokens; of these 80 % by `[MASK]`"),
    "denoising": ("text2text-generation", "loss perplexity", "15 % of the tokens, in spans of 3 tokens on average"),
    "translation": ("translation", "bleu chrf exact_match", "0.1, over all classes but the label"),
    "tagging": ("token-classification", "precision recall f1 accuracy", "to find *person*, *place* in texts"),
    "questions": ("question-answering", "exact_match f1", "of the train split were cut into 500 windows."),
    "summaries": ("summarization", "rouge1 rouge2 rougeL", "'sum: "),
}
SLOW = ("pretraining", "denoising", "translation")


def splits_of(task: str) -> dict[str, list[dict]]:
    """Rows that a model learns quickly."""
    train, validation, test = {"tagging": (100, 20, 20), "questions": (250, 40, 40), "summaries": (240, 10, 10)}[task]
    rng, rows = random.Random(0), []
    for number in range(train + validation + test):
        if task == "tagging":
            first, last, place = rng.choice("ab"), rng.choice(["", "c", "d"]), rng.choice(["rome", "york"])
            person = [first, last] if last else [first]
            tags = ["B-person", "I-person"][: len(person)]
            rows.append({"words": [*person, "saw", place, "."], "names": [*tags, "O", "B-place", "O"]})
        elif task == "questions":  # in contexts longer than a window; some have no answer
            words = rng.choices(["und", "oder"], k=12)
            if number % 4:
                words[rng.randrange(12)] = rng.choice(["rot", "blau"])
            context, found = " ".join(words), [word for word in words if word in ("rot", "blau")]
            answers = {"text": found, "answer_start": [context.index(text) for text in found]}
            rows.append({"id": f"q{number}", "question": "welche ?", "context": context, "answers": answers})
        else:
            word, others = rng.choice("abcde"), " ".join(rng.choices("xyz", k=3))
            rows.append({"article": f"{others} {word} .", "highlights": f"{word} {word}"})
    return {"train": rows[:train], "validation": rows[train:-test], "test": rows[-test:]}


def check_table(lines: list[str], folder: Path, texts: list[str], labels: list[str]) -> None:
    """What predict.py prints of texts: the numbers of the saved model, and marks at the labels that it gives them."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    with torch.no_grad():
        logits = model(**AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")).logits
    problem = model.config.problem_type
    wanted = {"multi_label_classification": logits.sigmoid(), "regression": logits}.get(problem, logits.softmax(-1))
    assert lines[0].split() == [*labels, "text"] and all(map(str.endswith, lines[1:], texts))
    cells = [line.split()[: len(labels)] for line in lines[1:]]
    found = torch.tensor([[float(cell.rstrip("*")) for cell in row] for row in cells])
    torch.testing.assert_close(found, wanted, atol=6e-4, rtol=0)
    marked = torch.tensor([[cell.endswith("*") for cell in row] for row in cells])
    assert marked.equal((wanted > 0.5) & (problem != "regression"))


def classifies(run: Namespace, rows: list, shown: Callable) -> None:
    losses = history(run.folder, "loss")
    assert run.results["eval_accuracy"] == run.results["eval_f1"] == 1.0
    assert run.results["train_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert len(losses) == run.results["train_steps"] == 8 * 4
    (run.folder / "texts.txt").write_text("fine\npoor")
    lines = shown("poor", "--file", run.folder / "texts.txt")
    assert [line.split()[0].endswith("*") for line in lines[1:]] == [True, False, True]
    check_table(lines, run.folder, ["poor", "fine", "poor"], ["bad", "good"])
    assert shown("poor fine fine fine", "--max_length", 3)[1].split()[:2] == lines[1].split()[:2]


def solves(run: Namespace, rows: list, shown: Callable) -> None:
    """A problem of several labels or of a number, which predict.py measures, too."""
    of_labels, losses = run.task == "lists", history(run.folder, "loss")
    assert losses[-1] < 0.3 * losses[0]
    assert of_labels or run.results["eval_mse"] == min(history(run.folder, "eval_mse"))
    config = transformers.AutoConfig.from_pretrained(run.folder, trust_remote_code=True)
    assert config.problem_type == ("multi_label_classification" if of_labels else "regression")
    labels, figures = [*config.id2label.values()], CARDS[run.task][1].split()
    assert labels == (["film", "fine"] if of_labels else ["label"])
    texts = ["fine the film was", "poor town"]
    check_table(shown(*texts), run.folder, texts, labels)
    lines = shown("--file", run.train.options["test_file"], "--metrics", *figures[:2])
    measured = {name: float(value) for name, value in map(str.split, lines)}
    assert measured == pytest.approx({name: run.results[f"test_{name}"] for name in figures}, abs=6e-5)


def writes(run: Namespace, rows: list, shown: Callable) -> None:
    evaluated = history(run.folder, "eval_loss")
    assert run.results["eval_loss"] == min(evaluated) < evaluated[0] - 1
    assert run.results["eval_perplexity"] == pytest.approx(math.exp(run.results["eval_loss"]))
    model, tokenizer = tfm_zoo.TfmGPTForCausalLM.from_pretrained(run.folder), AutoTokenizer.from_pretrained(run.folder)
    assert model.config.eos_token_id == tokenizer.eos_token_id == model.generation_config.eos_token_id
    samples = history(run.folder, "samples")
    assert len(samples) == len(evaluated) and all(len(drawn) == 1 for drawn in samples)
    assert all(sample.startswith("The cat") for drawn in samples for sample in drawn)
    assert samples[0][0].strip() in run.card


def knows_language(run: Namespace, rows: list, shown: Callable) -> None:
    results = run.results
    for name in ("loss", "mlm_loss"):
        assert results[f"eval_{name}"] < history(run.folder, f"eval_{name}")[0] - 0.25
    assert results["eval_loss"] == pytest.approx(results["eval_mlm_loss"] + results["eval_nsp_loss"])
    model, tokenizer = AutoModelForPreTraining.from_pretrained(run.folder), AutoTokenizer.from_pretrained(run.folder)
    assert type(model) is tfm_zoo.TfmBertForPreTraining and model.config.vocab_size == len(tokenizer) <= 120
    assert model.config.max_position_embeddings == tokenizer.model_max_length == 128


def fills_spans(run: Namespace, rows: list, shown: Callable) -> None:
    losses = history(run.folder, "eval_loss")
    assert history(run.folder, "loss")[0] > 5 and losses[-1] < losses[0] < 3 and losses[-1] < 2
    assert run.results["eval_perplexity"] == pytest.approx(math.exp(losses[-1]))
    # The loss is that of the saved model, which knows sentinels in what it reads.
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(run.folder, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(run.folder)
    sides = {"text": "cat dog fox <extra_id_0> cat .", "text_target": "<extra_id_0> dog <extra_id_1>"}
    assert model(**tokenizer(**sides, return_tensors="pt")).loss < 4


def translates(run: Namespace, rows: list, shown: Callable) -> None:
    wanted, results, first = [row["de"] for row in rows], run.results, rows[0]
    assert [results[f"test_{name}"] for name in ("exact_match", "bleu", "chrf")] == pytest.approx([100] * 3)
    assert (run.folder / "generated_predictions.txt").read_text().splitlines() == wanted
    assert ModelCard.load(run.folder / "README.md").data.language == ["en", "de"]
    # What was saved translates as it did here, where there is no zoo. A sentence may follow an option.
    (run.folder / "sources.txt").write_text(f"{rows[1]['en']}\n\n{rows[2]['en']}")
    command = (ROOT / "recipes" / "translate.py", run.folder, "--file", run.folder / "sources.txt", first["en"])
    assert run_python("-c", WITHOUT_ZOO, *command).stdout.splitlines() == [*wanted[:2], "", wanted[2]]


def tags(run: Namespace, rows: list, shown: Callable) -> None:
    assert {run.results[f"test_{name}"] for name in ("precision", "recall", "f1", "accuracy")} == {1.0}
    lines = [line.split(maxsplit=2) for line in shown("b d saw york .") if line]
    assert [(line[0], line[2]) for line in lines] == [("person", "b d"), ("place", "york")]
    with redirect_stderr(StringIO()) as said:
        assert shown("saw .") == [""]
    assert "no word is tagged in 'saw .'" in said.getvalue()


def answers(run: Namespace, rows: list, shown: Callable) -> None:
    assert (run.results["test_exact_match"], run.results["test_f1"]) == (100, 100)
    predictions = json.loads((run.folder / "test_predictions.json").read_text())
    assert predictions == {row["id"]: "".join(row["answers"]["text"]) for row in rows}
    lines = shown("--question", "welche ?", "und oder blau und", "oder rot")
    assert [line.split()[1] for line in lines] == ["blau", "rot"]
    assert len("".join(shown("--question", "welche ?", "und oder und")).split()) == 1  # a probability, and no answer


def summarises(run: Namespace, rows: list, shown: Callable) -> None:
    assert history(run.folder, "eval_loss")[-1] < 0.7 * history(run.folder, "loss")[0]
    lines = (run.folder / "generated_predictions.txt").read_text().splitlines()
    scores = rouge(lines, [row["highlights"] for row in rows])
    assert scores == {name: run.results[f"test_{name}"] for name in ("rouge1", "rouge2", "rougeL")}
    summarise = tfm_zoo.pipeline("summarization", str(run.folder), trust_remote_code=True)
    assert summarise(rows[0]["article"])[0]["summary_text"] == lines[0] and "\n\nThe validation scores" in run.card


CHECKS = {"classification": classifies, "lists": solves, "number": solves, "causal_lm": writes}
CHECKS |= {"pretraining": knows_language, "denoising": fills_spans}
CHECKS |= {"translation": translates, "tagging": tags, "questions": answers, "summaries": summarises}


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("task", [pytest.param(task, marks=[pytest.mark.slow] * (task in SLOW)) for task in OPTIONS])
def test_learns_and_leaves_everything(recipe, pairs, tmp_path, capsys, task):
    kind, figures, says = CARDS[task]
    train, options, rows = recipe(task), OPTIONS[task], []
    if task in ("tagging", "questions", "summaries"):
        splits = splits_of(task)
        options = options | dict.fromkeys(["max_train_samples", "max_eval_samples", "max_train_steps"])
        options |= {"lr_scheduler_type": "constant", "warmup_steps": 0, "logging_steps": 10}
        options, rows = options | written(tmp_path, "json", **splits), splits["test"]
    elif task == "translation":
        rows = [*map(json.loads, (pairs / "test.json").read_text().splitlines())]
    folder, results = tmp_path / "run", train(**options)
    assert json.loads((folder / "all_results.json").read_text()) == results
    assert (folder / "training_curves.png").stat().st_size > 10_000
    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == kind and card.data.library_name == "transformers"
    split = "test" if any(name.startswith("test_") for name in results) else "eval"
    assert {result.metric_type: result.metric_value for result in card.data.eval_results} == {
        name: pytest.approx(results[f"{split}_{name}"], abs=1e-4) for name in figures.split()
    }
    assert says in card.text

    def shown(*argv: object) -> list[str]:
        imported(ROOT / "recipes" / "predict.py").main([str(folder), *map(str, argv)])
        return capsys.readouterr().out.splitlines()

    with pytest.raises(SystemExit):
        shown("poor", "--pack", "--max_length", 3)
    assert "error: --pack would change nothing without a corpus" in capsys.readouterr().err
    CHECKS[task](Namespace(task=task, train=train, folder=folder, results=results, card=card.text), rows, shown)
