"""The recipes that tag words, find answers and summarise: they learn, measure, and predict as they did in training."""

import json
import random

import pytest
from huggingface_hub import ModelCard

import tfm_zoo
from tfm_zoo.training.metrics.rouge.rouge import rouge

from .conftest import MARIAN, ROOT, SIZES, history, imported, written

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pictures")]
ENCODER = {"config_overrides": f"{SIZES},hidden_dropout=0,attention_dropout=0"}
PREDICT = imported(ROOT / "recipes" / "predict.py")


@pytest.fixture
def trained(recipe, tmp_path):
    """Trains a recipe on rows, of which as many are for each split; gives its figures, card and folder."""

    def trained(task: str, rows: list[dict], sizes: tuple[int, int], **options) -> tuple[dict, ModelCard]:
        ends = sizes[0], sum(sizes)
        splits = {"train": rows[: ends[0]], "validation": rows[ends[0] : ends[1]], "test": rows[ends[1] :]}
        usual = dict.fromkeys(["max_train_samples", "max_eval_samples", "max_train_steps"])
        usual |= {"lr_scheduler_type": "constant", "warmup_steps": 0, "logging_steps": 10}
        results = recipe(task)(**usual | written(tmp_path, "json", **splits) | options)
        assert (tmp_path / "run" / "training_curves.png").stat().st_size > 10_000
        return results, ModelCard.load(tmp_path / "run" / "README.md")

    return trained


def test_words_are_tagged(trained, tmp_path, capsys):
    rng = random.Random(0)
    rows = []
    for _ in range(140):
        first, last, place = rng.choice("ab"), rng.choice(["", "c", "d"]), rng.choice(["rome", "york"])
        person = [first, last] if last else [first]
        tags = ["B-person", "I-person"][: len(person)]
        rows.append({"words": [*person, "saw", place, "."], "names": [*tags, "O", "B-place", "O"]})
    options = {"label_column_name": "names", "max_seq_length": 16, "num_train_epochs": 5}
    results, card = trained("tagging", rows, (100, 20), **ENCODER, **options)
    figures = ("precision", "recall", "f1", "accuracy")
    assert {results[f"test_{name}"] for name in figures} == {1.0}
    assert card.data.pipeline_tag == "token-classification"
    assert "to find *person*, *place* in texts" in card.text
    assert "| place | 1.0000 | 1.0000 | 1.0000 | 20 |" in card.text
    capsys.readouterr()
    PREDICT.main([str(tmp_path / "run"), "b d saw york ."])
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines() if line]
    assert [(line[0], line[2]) for line in lines] == [("person", "b d"), ("place", "york")]


def test_answers_are_found(trained, tmp_path, capsys):
    """In contexts longer than a window; some questions have no answer."""
    rng = random.Random(0)
    rows = []
    for number in range(330):
        words = rng.choices(["und", "oder"], k=12)
        answered = number % 4
        if answered:
            words[rng.randrange(12)] = rng.choice(["rot", "blau"])
        context = " ".join(words)
        texts = [word for word in words if word in ("rot", "blau")]
        answers = {"text": texts, "answer_start": [context.index(text) for text in texts]}
        rows.append({"id": f"q{number}", "question": "welche ?", "context": context, "answers": answers})
    options = {"version_2_with_negative": True, "max_seq_length": 13, "doc_stride": 4, "n_best_size": 3}
    results, card = trained("questions", rows, (250, 40), **ENCODER, **options, num_train_epochs=2)
    assert (results["test_exact_match"], results["test_f1"]) == (100, 100)
    answers = json.loads((tmp_path / "run" / "test_predictions.json").read_text())
    assert answers == {row["id"]: "".join(row["answers"]["text"]) for row in rows[290:]}
    best = json.loads((tmp_path / "run" / "test_nbest_predictions.json").read_text())
    assert all(sum(each["probability"] for each in of_one) == pytest.approx(1) for of_one in best.values())
    assert "The 250 contexts of the train split were cut into 500 windows." in card.text
    assert card.data.pipeline_tag == "question-answering"
    capsys.readouterr()
    PREDICT.main([str(tmp_path / "run"), "--question", "welche ?", "und oder blau und", "oder rot"])
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["blau", "rot"]
    PREDICT.main([str(tmp_path / "run"), "--question", "welche ?", "und oder und"])
    assert len(capsys.readouterr().out.split()) == 1  # a probability, and no answer, as in training
    assert '"max_answer_len": 30, "handle_impossible_answer": True' in card.text


def test_texts_are_summarised(trained, tmp_path, capsys):
    rng = random.Random(0)
    rows = []
    for _ in range(260):
        word = rng.choice("abcde")
        rows.append({"article": " ".join(rng.choices("xyz", k=3)) + f" {word} .", "highlights": f"{word} {word}"})
    options = {"source_prefix": "sum: ", "per_device_train_batch_tokens": 300, "num_train_epochs": 2}
    results, card = trained("summaries", rows, (240, 10), **MARIAN, **options)
    losses = history(tmp_path / "run", "loss")
    assert history(tmp_path / "run", "eval_loss")[-1] < 0.7 * losses[0]
    assert card.data.pipeline_tag == "summarization"
    assert "source       " in card.text and "  summary      " in card.text and "'sum: " in card.text
    lines = (tmp_path / "run" / "generated_predictions.txt").read_text().splitlines()
    scores = rouge(lines, [row["highlights"] for row in rows[250:]])
    assert scores == {name: results[f"test_{name}"] for name in ("rouge1", "rouge2", "rougeL")}
    summarise = tfm_zoo.pipeline("summarization", str(tmp_path / "run"), trust_remote_code=True)
    assert summarise(rows[250]["article"])[0]["summary_text"] == lines[0]
    with pytest.raises(SystemExit):
        PREDICT.main([str(tmp_path / "run"), "x y z a ."])
    assert "nor finds answers: recipes/translate.py takes it" in capsys.readouterr().err
