"""The recipes that tag words, find answers and summarise, run in this process on tiny models."""

import json
import random
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from transformers import AutoConfig

import tfm_zoo
from tfm_zoo import built_in_data
from tfm_zoo.training.metrics.rouge.rouge import rouge

from .conftest import ROOT, history, imported, run_here

ENCODER = {
    "model_type": "bert",
    "config_overrides": "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64,"
    "hidden_dropout_prob=0,attention_probs_dropout_prob=0",
}
WRITER = {
    "model_type": "marian",
    "config_overrides": "d_model=32,encoder_layers=1,decoder_layers=1,encoder_ffn_dim=32,decoder_ffn_dim=32,"
    "encoder_attention_heads=2,decoder_attention_heads=2,dropout=0,max_position_embeddings=64",
    "tokenizer_vocab_size": 290,
}
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pictures")]
# Without a schedule the first steps of a short run are those of a long one.
STEPS = {"lr_scheduler_type": "constant", "warmup_steps": 0, "logging_steps": 1, "learning_rate": 3e-3}
PREDICT = imported(ROOT / "recipes" / "predict.py")


def written(folder: Path, rows: list[dict], sizes: tuple[int, ...]) -> dict[str, Path]:
    """Rows in a JSON file for each split: the arguments that name the files."""
    files = {}
    for split, size in zip(("train", "validation", "test"), sizes, strict=True):
        part, rows = rows[:size], rows[size:]
        files[f"{split}_file"] = folder / f"{split}.json"
        files[f"{split}_file"].write_text("\n".join(map(json.dumps, part)))
    return files


def trained(name: str, folder: Path, options: dict) -> tuple[dict[str, float], ModelCard]:
    """Figures and card of a recipe's run. The official class takes the same first steps; and a run that is done, and
    resumed, knows itself again."""
    recipe, options = imported(ROOT / "recipes" / f"{name}.py"), options | STEPS
    results = run_here(recipe, options | {"output_dir": folder / "run", "checkpointing_steps": "epoch"})
    run_here(recipe, options | {"output_dir": folder / "native", "model_class": "native", "max_train_steps": 3})
    losses = history(folder / "native", "loss")
    assert losses == pytest.approx(history(folder / "run", "loss")[:3], abs=2e-5) and len(losses) == 3
    assert AutoConfig.from_pretrained(folder / "native").model_type == options["model_type"]
    again = run_here(recipe, options | {"output_dir": folder / "run", "resume_from_checkpoint": "auto"})
    same = [figure for figure in results if figure.startswith("test_") and "second" not in figure]
    assert {name: again[name] for name in same} == {name: results[name] for name in same} and len(same) >= 3
    assert (folder / "run" / "training_curves.png").stat().st_size > 10_000
    return results, ModelCard.load(folder / "run" / "README.md")


def test_words_are_tagged(tmp_path, capsys):
    rng = random.Random(0)
    rows = []
    for _ in range(140):
        first, last, place = rng.choice("ab"), rng.choice(["", "c", "d"]), rng.choice(["rome", "york"])
        person = [first, last] if last else [first]
        tags = ["B-person", "I-person"][: len(person)]
        rows.append({"words": [*person, "saw", place, "."], "names": [*tags, "O", "B-place", "O"]})
    data = written(tmp_path, rows, (100, 20, 20)) | {"label_column_name": "names", "max_seq_length": 16}
    results, card = trained("finetune_token_classification", tmp_path, data | ENCODER | {"num_train_epochs": 5})
    figures = ("precision", "recall", "f1", "accuracy")
    assert {results[f"test_{name}"] for name in figures} == {1.0}
    assert card.data.pipeline_tag == "token-classification"
    assert (
        "to find *person*, *place* in texts" in card.text and "| place | 1.0000 | 1.0000 | 1.0000 | 20 |" in card.text
    )
    capsys.readouterr()
    PREDICT.main([str(tmp_path / "run"), "b d saw york ."])
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines() if line]
    assert [(line[0], line[2]) for line in lines] == [("person", "b d"), ("place", "york")]


def test_answers_are_found(tmp_path, capsys):
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
    data = written(tmp_path, rows, (250, 40, 40))
    data |= {"version_2_with_negative": True, "max_seq_length": 13, "doc_stride": 4, "n_best_size": 3}
    results, card = trained("finetune_question_answering", tmp_path, data | ENCODER | {"num_train_epochs": 2})
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


def test_texts_are_summarised(tmp_path, capsys):
    rng = random.Random(0)
    rows = []
    for _ in range(260):
        word = rng.choice("abcde")
        rows.append({"article": " ".join(rng.choices("xyz", k=3)) + f" {word} .", "highlights": f"{word} {word}"})
    data = written(tmp_path, rows, (240, 10, 10)) | {"source_prefix": "sum: ", "num_eval_summaries": 5}
    options = {"max_source_length": 24, "max_target_length": 8, "per_device_train_batch_tokens": 300, "num_samples": 1}
    results, card = trained("finetune_summarization", tmp_path, data | WRITER | options | {"num_train_epochs": 2})
    assert history(tmp_path / "run", "eval_loss")[-1] < 0.7 * history(tmp_path / "run", "loss")[0]
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


def test_built_in_data(monkeypatch, tmp_path):
    """The small model that is the default learns from the data that need no network."""
    few = {"train": 16, "validation": 4, "test": 4}
    names = {
        "token_classification": ("SENTENCES", "eval_f1"),
        "question_answering": ("QUESTIONS", "test_exact_match"),
        "summarization": ("PASSAGES", "test_rougeL"),
    }
    for name, (sizes, figure) in names.items():
        splits = few if figure.startswith("test_") else {name: few[name] for name in ("train", "validation")}
        monkeypatch.setattr(built_in_data, sizes, splits)
        recipe = imported(ROOT / "recipes" / f"finetune_{name}.py")
        options = {"max_train_steps": 1, "max_target_length": 8, "output_dir": tmp_path / name}
        options["checkpointing_steps"] = 1
        assert figure in run_here(recipe, options if name == "summarization" else options | {"max_target_length": None})
        assert "The data set is generated" in (tmp_path / name / "README.md").read_text()
        if splits != few:  # a run that is done evaluates its best model again
            run_here(recipe, options | {"max_target_length": None, "resume_from_checkpoint": "auto"})
