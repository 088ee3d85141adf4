"""The recipe of translation: what it learns, what it saves, and that this translates elsewhere as it did here."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianConfig, MarianMTModel

import tfm_zoo
from tfm_zoo.data.options import as_mapping
from tfm_zoo.training.loop import train
from tfm_zoo.training.tasks.text_to_text import label_smoothed_loss
from tfm_zoo.training.tokenizers import joint_bpe

from ..command import tfm_zoo as command
from .conftest import MARIAN, ROOT, SIZES_OF_MARIAN, history, imported, written

TRANSLATE = ROOT / "recipes" / "translate.py"


def rows_of(file: Path) -> list[dict[str, str]]:
    return [*map(json.loads, file.read_text().splitlines())]


def test_smoothing_reaches_the_training_loss_alone(recipe):
    task = recipe("translation").prepare(label_smoothing_factor=0.3, **MARIAN).task
    batch = task.collate([task.splits["train"][row] for row in range(4)])
    logits, labels = task.model(**batch).logits.flatten(0, 1), batch["labels"].flatten()
    for trains, smoothing in ((True, 0.3), (False, 0.0)):
        with torch.set_grad_enabled(trains):
            found = task.compute_batch(task.model, batch)["loss"].sum()
        torch.testing.assert_close(found, label_smoothed_loss(logits, labels, smoothing).sum())


def translated(folder, sentences: list[str], capsys, **options) -> list[str]:
    """What translate.py and the pipeline write, which has to be the same."""
    capsys.readouterr()
    imported(TRANSLATE).main([str(folder), *sentences])
    lines = capsys.readouterr().out.splitlines()
    translate = tfm_zoo.pipeline("translation", str(folder), trust_remote_code=True, **options)
    assert [translation["translation_text"] for translation in translate(sentences)] == lines
    return lines


@pytest.mark.parametrize("model_class", ["zoo", "native"])
def test_a_prefix_stays_with_the_model(recipe, pairs, tmp_path, capsys, model_class):
    test_rows = rows_of(pairs / "test.json")
    options = MARIAN | {"model_class": model_class, "max_train_steps": 8, "num_beams": 1}
    loop, folder = recipe("translation").prepare(source_prefix="e d c: ", **options), tmp_path / "run"
    assert loop.task.splits["test"][0]["input_ids"] == loop.task.tokenizer(f"e d c: {test_rows[0]['en']}")["input_ids"]
    train(loop)
    lines = (folder / "generated_predictions.txt").read_text().splitlines()
    assert translated(folder, [row["en"] for row in test_rows[:5]], capsys) == lines[:5]
    imported(TRANSLATE).main([str(folder), "a " * 40])
    assert "tokens: the model reads 24 of them" in capsys.readouterr().err

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
    assert model.config.task_specific_params == {"translation": {"prefix": "e d c: "}}
    official = tfm_zoo.to_official(model) if model_class == "zoo" else model
    assert official.config.task_specific_params == model.config.task_specific_params
    card = (folder / "README.md").read_text()
    assert f"tokenizer(['e d c: {test_rows[0]['en']}']" in card and "by greedy search." in card


def test_a_checkpoint_with_two_vocabularies(recipe, pairs, tmp_path, capsys):
    """Digits are read, letters are written: each tokenizer knows its own alone."""
    digits, splits = str.maketrans("abcde", "12345"), {}
    for split in ("train", "validation", "test"):
        rows = rows_of(pairs / f"{split}.json")
        splits[split] = [{"en": row["en"].translate(digits) + " 6" * 3, "de": row["de"]} for row in rows]
    source, target = (joint_bpe([row[side] for row in splits["train"]], 270) for side in ("en", "de"))
    sizes = as_mapping("sizes", SIZES_OF_MARIAN) | {"vocab_size": len(source), "decoder_vocab_size": len(target)}
    sizes |= {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None}
    sizes |= {"task_specific_params": {"translation": {"target_tokenizer": "target"}}}
    official = MarianMTModel(MarianConfig(share_encoder_decoder_embeddings=False, **sizes))
    for each, name in ((tfm_zoo.from_official(official), ""), (source, ""), (target, "target")):
        each.save_pretrained(tmp_path / "made" / name)
    options = written(tmp_path, "json", **splits) | dict.fromkeys(("config_overrides", "tokenizer_vocab_size"))
    train, folder = recipe("translation"), tmp_path / "run"
    results = train(model_name_or_path=tmp_path / "made", num_beams=1, num_train_epochs=5, **options)
    assert results["eval_loss"] < 0.5 * history(folder, "loss")[0]
    source, target = (AutoTokenizer.from_pretrained(folder, subfolder=name) for name in ("", "target_tokenizer"))
    assert [{"Ġ6", "Ġa"} & each.get_vocab().keys() for each in (source, target)] == [{"Ġ6"}, {"Ġa"}]
    sources = [row["en"] for row in splits["test"]]
    lines = (folder / "generated_predictions.txt").read_text().splitlines()
    assert translated(folder, sources, capsys) == lines
    command("export", folder, tmp_path / "official")  # which has both, too
    assert translated(tmp_path / "official", sources[:5], capsys) == lines[:5]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("", "give sentences, or a --file with one sentence per line"),
        ("--file nowhere.txt", "--file nowhere.txt: no such file"),
        ("--file {}/pairs.csv", "pairs.csv is a table, and a file is read line by line: write its"),
        ("--file {}/16.txt", "16.txt cannot be read: 'utf-8' codec"),
        ("a", "config.json is a Git LFS pointer, not the file itself"),
    ],
)
def test_what_cannot_be_translated_is_refused(tmp_path, capsys, argv, message):
    (tmp_path / "pairs.csv").write_text("en,de\na dog,ein Hund\n")
    (tmp_path / "16.txt").write_text("a dog", "utf-16")
    (tmp_path / "config.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    with pytest.raises(SystemExit):
        imported(TRANSLATE).main([str(tmp_path), *argv.format(tmp_path).split()])
    assert message in capsys.readouterr().err


def test_a_file_has_a_sentence_a_line(tmp_path):
    """A byte order mark is not text, and a line ends at a line break alone."""
    (tmp_path / "a.txt").write_bytes("\ufeffa\u2028b\r\n\r\nc\n".encode())
    assert imported(TRANSLATE).lines_of(tmp_path / "a.txt", pytest.fail) == ["a\u2028b", "", "c"]
