"""The demo, with few steps."""

import re

import pytest
from transformers import AutoModelForSequenceClassification

from .conftest import ROOT, imported

pytestmark = pytest.mark.slow


def test_it_shows_what_it_says(tmp_path, monkeypatch, capsys):
    demo, commands = imported(ROOT / "recipes" / "demo.py"), []
    monkeypatch.setattr(demo, "in_a_fresh_process", lambda *command: commands.append(command) or "PRINTED")
    monkeypatch.setattr(
        demo, "SIZES", demo.SIZES | {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64}
    )
    demo.main(["--output_dir", str(tmp_path / "run"), "--max_train_steps", "60", "--learning_rate", "1e-2"])
    shown = capsys.readouterr().out
    assert "made a TfmBertForSequenceClassification of a BertForSequenceClassification" in shown
    assert "Fine-tuning both, in turn, for 60 steps ...\n" in shown and "\n\n" not in shown  # in a log, no bar
    differences = [float(value) for value in re.findall(r"logits differ by ([\de.+-]+)\.", shown)]
    assert len(differences) == 2 and max(differences) < 1e-5
    official, zoo = map(float, re.search(r"Accuracy on other reviews: ([\d.]+)% and ([\d.]+)%", shown).groups())
    assert abs(official - zoo) <= 1 and zoo > 50
    assert shown.count("PRINTED") == 2
    (_, without_zoo, predict, folder, *_), verify = commands
    assert "sys.modules['tfm_zoo'] = None" in without_zoo and predict.is_file() and folder == tmp_path / "run"
    assert verify == ("-m", "tfm_zoo", "verify", str(folder))
    assert {"training.png", "attention.html", "modeling_tfm_bert.py"} <= {file.name for file in folder.iterdir()}
    assert f'.from_pretrained("{folder.name}", trust_remote_code=True)' in (folder / "README.md").read_text()
    saved = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    assert saved.config.id2label == {0: "negative", 1: "positive"}
