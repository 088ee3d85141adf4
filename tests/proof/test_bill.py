"""A quantised checkpoint says what rounding has cost: in configuration, manifest and card; a push may refuse it."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from datasets import Dataset, DatasetDict

from tfm_zoo import TfmBertForSequenceClassification, TfmBertModel, TfmEncoderDecoderModel, pack_weights
from tfm_zoo.hub import push
from tfm_zoo.hub.model_card import MARK
from tfm_zoo.hub.pushing import card_of_folder
from tfm_zoo.proof.bill import allowed_drop, bill_of, rank_correlation

from ..command import tfm_zoo
from ..encoders import save, texts, tokenizer
from ..hub.editing import edit
from ..tiny import tiny_model

SPLIT = {"text": texts(60), "label": [number % 3 for number in range(60)]}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bills") / "official"
    save(folder, "BertForSequenceClassification", files=False, num_labels=3)
    pd.DataFrame(SPLIT).rename(columns={"text": "a", "label": "b"}).to_csv(folder.parent / "split.csv", index=False)
    named = SPLIT | {"label": [f"LABEL_{label}" for label in SPLIT["label"]]}
    DatasetDict(some=Dataset.from_dict(named)).save_to_disk(folder.parent / "named")
    return folder


def bill_of_folder(folder: Path) -> dict:
    """As the manifest has it, which is as the configuration has it."""
    bill = json.loads((folder / "zoo_manifest.json").read_text())["bill"]
    assert bill == json.loads((folder / "config.json").read_text())["quantization_config"]["bill"]
    return bill


@pytest.mark.parametrize("split", ["split.csv", "named:some"])
def test_convert_measures_a_metric_on_a_split(split, classifier, tmp_path):
    words = ["convert", classifier, tmp_path / "int8", "--quantize", "int8", "--split", classifier.parent / split]
    if split == "split.csv":
        assert "give --text_column_name: no usual" in tfm_zoo(*words, code=1)
        words += ["--text_column_name", "a", "--label_column_name"]
        assert "row 0: '" in (said := tfm_zoo(*words, "a", code=1)) and "(LABEL_0, LABEL_1, " in said
        words.append("b")
    said = tfm_zoo(*words)
    assert "It loads after `import tfm_zoo`" in said and "--split" not in said
    assert "What rounding costs, measured on 60 rows of" in said and "; outputs have a cosine of" in said
    bill = bill_of_folder(tmp_path / "int8")
    assert bill["measured_on"].startswith("60 rows of") and bill["metric"]["name"] == "accuracy"
    model = TfmBertForSequenceClassification.from_pretrained(tmp_path / "int8")
    with torch.no_grad():
        inputs = tokenizer()(SPLIT["text"], padding=True, truncation=True, return_tensors="pt")
        right = (model(**inputs).logits.argmax(1) == torch.tensor(SPLIT["label"])).float().mean().item()
    # In batches of another size a row at the border may change sides.
    assert bill["metric"]["quantised"] == pytest.approx(right, abs=1.1 / 60)
    card = " ".join((tmp_path / "int8/README.md").read_text().split())
    assert " ".join(["int8 --split", words[6].name, *words[7:], "#"]) in card
    assert "accuracy is {quantised:.4f}, and was {float32:.4f} in float32".format(**bill["metric"]) in card
    model.save_pretrained(tmp_path / "again")
    assert bill_of_folder(tmp_path / "again") == bill


def test_convert_without_a_split(classifier, tmp_path):
    assert "--split, with a file" in tfm_zoo("convert", classifier, tmp_path / "int4", "--quantize", "int4")
    bill = bill_of_folder(tmp_path / "int4")
    assert bill["measured_on"] == "64 generated texts" and -1 < bill["least_cosine"] <= bill["cosine"] < 1
    assert f"a cosine of {bill['cosine']:.4f} on average" in " ".join((tmp_path / "int4/README.md").read_text().split())
    assert "export` makes it official again" in tfm_zoo("convert", tmp_path / "int4", tmp_path / "x", code=1)
    assert "--split needs --quantize" in tfm_zoo("convert", classifier, tmp_path / "x", "--split", "a.csv", code=1)
    said = tfm_zoo("convert", classifier, tmp_path / "x", "--quantize", "int8", "--split", "nothing.csv", code=1)
    assert "'nothing.csv' is neither a file" in said and not (tmp_path / "x").exists()
    tiny_model(TfmEncoderDecoderModel).save_pretrained(tmp_path / "translator")
    words = ("convert", tmp_path / "translator", tmp_path / "rounded", "--quantize", "int8")
    split = classifier.parent / "named:some"
    assert "an encoder-decoder is measured on drawn tokens. Leave" in tfm_zoo(*words, "--split", split, code=1)
    assert "`import tfm_zoo`" in (said := tfm_zoo(*words)) and "--split" not in said


def test_pack_weights_measures_by_itself(tmp_path):
    model = tiny_model(TfmBertModel)
    batch = {"input_ids": torch.randint(3, 60, (4, 9)), "attention_mask": torch.ones(4, 9, dtype=torch.long)}
    before = model(**batch).last_hidden_state
    pack_weights(model, "int8")
    assert not torch.equal(model(**batch).last_hidden_state, before)
    model.save_pretrained(tmp_path / "model")
    bill = bill_of_folder(tmp_path / "model")
    assert 0.9 < bill["least_cosine"] < 1 and bill["measured_on"] == "32 sequences of up to 32 drawn tokens"
    config = pack_weights(tiny_model(TfmBertModel), "int8", calibrate=[batch] * 16, least_cosine=0).config
    assert config.quantization_config.bill["measured_on"] == "16 sequences given to calibrate"  # the held-out batches
    assert pack_weights(tiny_model(TfmBertModel), "float32").config.to_dict().get("quantization_config") is None


def test_a_push_refuses_what_lost_too_much(tmp_path):
    """Before anything is sent; there is no Hub here."""
    model = tiny_model(TfmBertModel)
    model.save_pretrained(tmp_path / "float32")
    pack_weights(model, "int4")
    model.save_pretrained(tmp_path / "int4")
    said = tfm_zoo("push", tmp_path / "int4", "user/model", "--max_drop", "0.0001%", code=1)
    assert "int4 lost" in said and "nothing was pushed" in said
    for folder, drop in (("int4", "99%"), ("float32", "0")):  # it goes on
        assert "max_drop" not in tfm_zoo("push", tmp_path / folder, "user/model", "--max_drop", drop, code=1)
    (tmp_path / "int4/README.md").write_text(MARK.format("int4") + "It is the checkpoint, bit for bit.")
    assert "What rounding costs" in str(card_of_folder(tmp_path / "int4", "user/model"))  # another card is sent
    edit(tmp_path / "int4", "config.json", quantization_config={"quant_method": "tfm_zoo", "dtype": "int4"})
    with pytest.raises(ValueError, match="does not say what rounding has cost it"):
        push(tmp_path / "int4", "user/model", max_drop=0.5)
    with pytest.raises(ValueError, match=r"max_drop 'much' should be a share, such as 0.5%"):
        allowed_drop("much")


def test_figures():
    assert [allowed_drop(text) for text in ("0.5%", "0.005", "0", "100%")] == [0.005, 0.005, 0, 1]
    one = torch.tensor([3.0, 1.0, 2.0, 5.0])
    assert rank_correlation(one, one * 7 + 1) == pytest.approx(1) and rank_correlation(one, -one) == pytest.approx(-1)
    logits = torch.tensor([[3.0, -3.0, 0], [0.1, -0.1, 0], [2.0, -2.0, 0]])  # of the second, the sign says little
    assert bill_of(logits, logits + torch.tensor([[0.0], [0.2], [0.0]]) * logits.sign(), "x")["least_cosine"] > 0.99
    assert bill_of(logits[:1], -logits[:1], "x")["cosine"] == -1
    rows = torch.randn(9, 20)
    assert bill_of(rows, rows * 3, "x") == {"cosine": 1, "least_cosine": 1, "rank_correlation": 1, "measured_on": "x"}
    assert bill_of(rows, torch.cat((-rows[:1], rows[1:])), "rows")["least_cosine"] == -1
