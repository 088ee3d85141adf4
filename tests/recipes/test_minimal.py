"""The demo and the smallest recipes learn, and what they save loads where there is no zoo."""

import re

import pytest
from transformers import AutoModelForSequenceClassification

from .conftest import ROOT, WITHOUT_ZOO, Recipe, imported, run_python

pytestmark = pytest.mark.slow

TEXTS = ["the music was rather moving", "the plot was so hollow"]
ASK = """
import sys, transformers
chat = transformers.pipeline("text-generation", sys.argv[1], trust_remote_code=True)
for text in sys.argv[2:]:
    said = chat([{"role": "user", "content": text}], max_new_tokens=9, do_sample=False)[0]["generated_text"]
    print(said[-1]["content"])
"""


@pytest.mark.parametrize("name", ["minimal", "minimal_trainer"])
def test_it_learns_and_what_it_saves_predicts(name, tmp_path):
    options = {}
    if name == "minimal_trainer":  # which has the options of a recipe: it reads the reviews that `minimal` generates
        for split, rows in imported(ROOT / "recipes" / "minimal.py").generated_reviews().items():
            rows.to_parquet(tmp_path / "reviews" / f"{split}.parquet")
        options = {"dataset_name": tmp_path / "reviews", "config_overrides": "num_attention_heads=4"}
        options |= {"learning_rate": 2e-3, "validation_split_percentage": 20}
    last = Recipe(name, options)(output_dir=tmp_path / "run")[-1]
    assert (last if name == "minimal" else last["eval_accuracy"]) > 0.9
    shown = run_python("-c", WITHOUT_ZOO, ROOT / "recipes" / "predict.py", tmp_path / "run", *TEXTS)
    head, *lines = shown.stdout.splitlines()
    assert head.split() == ["negative", "positive", "text"]
    assert [line.split()[1].endswith("*") for line in lines] == [True, False]


def test_trl_learns_and_what_it_saves_answers(tmp_path):
    losses = Recipe("minimal_sft", {})(output_dir=tmp_path / "run")
    assert len(losses) == 3 and losses[-1] < 0.5 * losses[0]
    (tmp_path / "ask.py").write_text(ASK)
    shown = run_python("-c", WITHOUT_ZOO, tmp_path / "ask.py", tmp_path / "run", *TEXTS)
    assert shown.stdout.splitlines() == ["How nice!", "What a pity."]


def test_the_demo_shows_what_it_says(tmp_path, monkeypatch, capsys):
    demo, commands = imported(ROOT / "recipes" / "demo.py"), []
    monkeypatch.setattr(demo, "in_a_fresh_process", lambda *command: commands.append(command) or "PRINTED")
    small = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64}
    monkeypatch.setattr(demo, "SIZES", demo.SIZES | small)
    demo.main(["--output_dir", str(tmp_path / "run"), "--max_train_steps", "60", "--learning_rate", "1e-2"])
    shown = capsys.readouterr().out
    differences = [float(value) for value in re.findall(r"logits differ by ([\de.+-]+)\.", shown)]
    assert len(differences) == 2 and max(differences) < 1e-5
    official, zoo = map(float, re.search(r"Accuracy on other reviews: ([\d.]+)% and ([\d.]+)%", shown).groups())
    assert abs(official - zoo) <= 1 and zoo > 50
    (_, without_zoo, predict, folder, *_), verify = commands
    assert "sys.modules['tfm_zoo'] = None" in without_zoo and predict.is_file() and shown.count("PRINTED") == 2
    assert verify == ("-m", "tfm_zoo", "verify", str(folder))
    assert {"training.png", "attention.html", "modeling_tfm_bert.py"} <= {file.name for file in folder.iterdir()}
    saved = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    assert saved.config.id2label == {0: "negative", 1: "positive"}
