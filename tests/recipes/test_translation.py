"""The recipe of translation, run in this process on a tiny model."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
from huggingface_hub import ModelCard
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
)
from typer.testing import CliRunner

import tfm_zoo
from tfm_zoo import built_in_data
from tfm_zoo.cli import app
from tfm_zoo.training.tasks.text_to_text import label_smoothed_loss, labelled_logits
from tfm_zoo.training.tasks.translation import language_codes
from tfm_zoo.training.tokenizers import joint_bpe

from .conftest import ROOT, WITHOUT_ZOO, history, imported, logged, run_python, shown_error

SIZES = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32"
MARIAN = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "dropout": 0,
    "max_position_embeddings": 20,
}
SIZES_OF_MARIAN = ",".join(f"{name}={value}" for name, value in MARIAN.items())
TASKS = ("translation", "text2text-generation")
TRANSLATE = ROOT / "recipes" / "translate.py"


@pytest.fixture(scope="module")
def tokenizer(pairs):
    rows = json.loads((pairs / "train.json").read_text())
    return joint_bpe([text for row in rows for text in row.values()], 270)


@pytest.fixture
def official(tokenizer, tmp_path):
    """A native Marian checkpoint whose own settings of generation a recipe keeps."""
    torch.manual_seed(0)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
    model = MarianMTModel(MarianConfig(vocab_size=len(tokenizer), forced_eos_token_id=2, **ids, **MARIAN))
    model.generation_config.update(num_beams=2, max_length=11)
    model.save_pretrained(tmp_path / "official")
    tokenizer.save_pretrained(tmp_path / "official")
    return tmp_path / "official"


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_learns_to_reverse_and_leaves_everything(train_translation, pairs, tmp_path):
    results = train_translation(num_train_epochs=15, eval_steps=75, num_eval_translations=8)
    folder = tmp_path / "run"
    assert (results["test_exact_match"], results["test_bleu"], results["test_chrf"]) == pytest.approx((100, 100, 100))
    assert json.loads((folder / "all_results.json").read_text()) == results
    assert (folder / "training_curves.png").stat().st_size > 10_000
    rows = json.loads((pairs / "test.json").read_text())
    assert (folder / "generated_predictions.txt").read_text().splitlines() == [row["de"] for row in rows]
    matches = history(folder, "eval_exact_match")
    assert len(matches) == 3 and matches[0] < matches[-1]

    # The loss is that of labels as they are, per token of the target.
    model = tfm_zoo.TfmEncoderDecoderForConditionalGeneration.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    loss, tokens = 0.0, 0
    for row in rows:
        labels = tokenizer(row["de"], return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = model(**tokenizer(row["en"], return_tensors="pt"), labels=labels).logits
        loss += F.cross_entropy(logits[0], labels[0], reduction="sum").item()
        tokens += labels.numel()
    assert results["test_loss"] == pytest.approx(loss / tokens, rel=1e-5)
    assert results["test_perplexity"] == pytest.approx(math.exp(loss / tokens), rel=1e-5)

    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == "translation" and card.data.language == ["en", "de"]
    assert {result.metric_type: result.metric_value for result in card.data.eval_results} == {"bleu": 100, "chrf": 100}
    assert f"source       {rows[0]['en']}\n  reference    {rows[0]['de']}\n  translation  {rows[0]['de']}" in card.text
    assert "400 tokens of source and target, padding included x 1 accumulated x 1 process" in card.text
    assert "0.1, over all classes but the label" in card.text and "tok:13a" in card.text
    assert "8 pairs were translated" in card.text

    # What was saved translates as it did here, where there is no zoo.
    sources = [row["en"] for row in rows[:3]]
    (tmp_path / "sources.txt").write_text("\n\n".join(sources[1:]))
    arguments = (folder, "--file", tmp_path / "sources.txt", sources[0])  # a sentence may follow an option
    shown = run_python("-c", WITHOUT_ZOO, TRANSLATE, *arguments)
    first, second, third = (row["de"] for row in rows[:3])
    assert shown.stdout.splitlines() == [first, second, "", third]


def test_built_in_sequences_are_the_default(train_translation, monkeypatch, tmp_path):
    monkeypatch.setattr(built_in_data, "SEQUENCES", {"train": 40, "validation": 4, "test": 4})
    files = dict.fromkeys([f"{split}_file" for split in ("train", "validation", "test")])
    options = {"source_lang": None, "target_lang": None, "config_overrides": None, "max_target_length": 24}
    results = train_translation(max_train_steps=2, **files | options)
    assert {"test_exact_match", "test_bleu", "test_chrf", "test_loss", "eval_loss"} <= results.keys()
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert "The data set is generated" in card.text and card.data.language is None


@pytest.mark.parametrize("over", ["others", "all"])
def test_zoo_and_native_model_have_the_same_loss(tokenizer, over):
    torch.manual_seed(0)
    fields = {"vocab_size": len(tokenizer), "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    native = MarianMTModel(MarianConfig(**fields, **MARIAN))
    zoo = tfm_zoo.from_official(native, tfm_zoo.TfmEncoderDecoderForConditionalGeneration)
    collate = DataCollatorForSeq2Seq(tokenizer, model=native)
    texts = ["a b c d", "e", "a b"]
    batch = collate([{"input_ids": ids, "labels": ids} for ids in tokenizer(texts)["input_ids"]])
    losses = []
    for model, is_zoo in ((native.train(), False), (zoo.train(), True)):
        logits, labels = labelled_logits(model, batch, is_zoo)
        assert labels.tolist() == [token for ids in tokenizer(texts)["input_ids"] for token in ids]
        assert logits.shape == (len(labels), len(tokenizer))
        losses.append(label_smoothed_loss(logits, labels, epsilon=0.1, over=over))
        losses[-1].backward()
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-6)
    assert zoo.get_input_embeddings().weight.grad.norm().item() == pytest.approx(
        native.get_input_embeddings().weight.grad.norm().item(), rel=1e-4
    )


def test_zoo_and_native_model_take_the_same_steps(train_translation, tmp_path):
    options = {
        "model_type": "marian",
        "config_overrides": SIZES_OF_MARIAN,
        "num_eval_translations": 5,
        "max_train_steps": 4,
    }
    zoo = train_translation.trained(output_dir=tmp_path / "zoo", **options)
    native = train_translation.trained(output_dir=tmp_path / "native", model_class="native", **options)
    assert [loop.model.config.model_type for loop in (zoo, native)] == ["tfm_encoder_decoder", "marian"]
    assert len(logged(zoo, "loss")) == 4
    for key in ("loss", "grad_norm", "eval_loss", "eval_chrf"):
        assert logged(zoo, key) == pytest.approx(logged(native, key), abs=1e-4), key
    assert logged(zoo, "samples") == logged(native, "samples") != []


@pytest.mark.slow
def test_from_an_official_checkpoint_and_on_from_there(train_translation, official, tmp_path):
    fresh = {"config_overrides": None, "tokenizer_vocab_size": None, "max_train_steps": 4, "max_source_length": 64}
    train_translation(model_name_or_path=official, output_dir=tmp_path / "zoo", **fresh)
    state = json.loads((tmp_path / "zoo" / "trainer_state.json").read_text())
    assert state["run"]["max_source_length"] == 20  # asked for 64, and the model has 20 positions
    generation = json.loads((tmp_path / "zoo" / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["max_length"]) == (2, 11)  # the checkpoint's own
    train_translation(
        model_name_or_path=tmp_path / "zoo", output_dir=tmp_path / "again", num_beams=3, length_penalty=0.6, **fresh
    )
    assert history(tmp_path / "again", "loss")[0] < history(tmp_path / "zoo", "loss")[0]
    generation = json.loads((tmp_path / "again" / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["length_penalty"]) == (3, 0.6)


@pytest.mark.parametrize(
    "options",
    [
        {"config_overrides": f"{SIZES},norm_position=pre,norm_type=rmsnorm,decoder_layers=2"},
        {"model_type": "bart", "config_overrides": SIZES_OF_MARIAN},
        {"model_type": "t5", "model_class": "native", "config_overrides": "d_model=32,d_kv=8,d_ff=32,num_layers=1"},
    ],
    ids=["axes", "official type", "what the zoo does not convert"],
)
def test_new_models_of_any_kind(train_translation, options):
    loop = train_translation.prepare(max_eval_samples=2, **options)
    config, generation = loop.model.config, loop.model.generation_config
    assert config.vocab_size == len(loop.task.tokenizer)
    assert (config.pad_token_id, config.eos_token_id) == (0, 2)
    assert (generation.decoder_start_token_id, generation.num_beams, generation.max_length) == (1, 4, 17)
    assert generation.forced_eos_token_id in (2, None)


def translated(folder, sentences: list[str], capsys, **options) -> list[str]:
    """What translate.py and the pipeline write, which has to be the same."""
    capsys.readouterr()
    imported(TRANSLATE).main([str(folder), *sentences])
    lines = capsys.readouterr().out.splitlines()
    translate = tfm_zoo.pipeline("translation", str(folder), trust_remote_code=True, **options)
    assert [translation["translation_text"] for translation in translate(sentences)] == lines
    return lines


@pytest.mark.parametrize("model_class", ["zoo", "native"])
def test_a_prefix_stays_with_the_model(train_translation, pairs, tmp_path, capsys, model_class):
    marian = {"model_type": "marian", "config_overrides": SIZES_OF_MARIAN}
    options = marian | {"model_class": model_class, "max_train_steps": 8, "num_beams": 1}
    train_translation(source_prefix="e d c: ", **options)
    rows = json.loads((pairs / "test.json").read_text())[:5]
    written = (tmp_path / "run" / "generated_predictions.txt").read_text().splitlines()
    assert translated(tmp_path / "run", [row["en"] for row in rows], capsys) == written[:5]

    # Both read the prefix; another task's prefix is not theirs.
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run", trust_remote_code=True)
    assert model.config.task_specific_params == {"translation": {"prefix": "e d c: "}}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    with_prefix, without = (tfm_zoo.pipeline(task, model, tokenizer=tokenizer) for task in TASKS)
    assert with_prefix.preprocess("a")["input_ids"].equal(without.preprocess("e d c: a")["input_ids"])
    assert not with_prefix.preprocess("a")["input_ids"].equal(without.preprocess("a")["input_ids"])
    named = tfm_zoo.pipeline("translation_en_to_de", model, tokenizer=tokenizer)
    assert named.preprocess("a")["input_ids"].equal(with_prefix.preprocess("a")["input_ids"])
    official = tfm_zoo.to_official(model) if model_class == "zoo" else model
    assert official.config.task_specific_params == model.config.task_specific_params
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"tokenizer(['e d c: {rows[0]['en']}']" in card and "Every text begins with `e d c: `" in card


@pytest.mark.slow
@pytest.mark.parametrize("model_type", [None, "marian"])
def test_separate_vocabularies(train_translation, pairs, tmp_path, capsys, model_type):
    """Digits are read, letters are written: each tokenizer knows its own alone."""
    for split in ("train", "validation", "test"):
        rows = json.loads((pairs / f"{split}.json").read_text())
        digits = str.maketrans("abcde", "12345")
        rows = [{"en": row["en"].translate(digits) + " 6" * 3, "de": row["de"]} for row in rows]
        (tmp_path / f"{split}.json").write_text(json.dumps(rows))
    files = {f"{split}_file": tmp_path / f"{split}.json" for split in ("train", "validation", "test")}
    sizes = SIZES.replace("hidden_size=32", "hidden_size=64")
    if model_type:
        sizes = SIZES_OF_MARIAN
    options = files | {"model_type": model_type, "config_overrides": sizes, "num_beams": 1}
    options |= {"separate_vocabularies": True, "num_train_epochs": 5}
    results = train_translation(**options)
    assert results["eval_loss"] < 0.5 * history(tmp_path / "run", "loss")[0]
    folder = tmp_path / "run"
    source, target = (AutoTokenizer.from_pretrained(folder, subfolder=name) for name in ("", "target_tokenizer"))
    assert "Ġ6" in source.get_vocab() and "Ġ6" not in target.get_vocab()
    assert "Ġa" in target.get_vocab() and "Ġa" not in source.get_vocab()
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
    embeddings = [side.get_input_embeddings().num_embeddings for side in (model.get_encoder(), model.get_decoder())]
    assert embeddings == [len(source), len(target)] and embeddings[0] != embeddings[1]
    rows = json.loads((tmp_path / "test.json").read_text())
    written = (folder / "generated_predictions.txt").read_text().splitlines()
    assert translated(folder, [row["en"] for row in rows], capsys) == written
    assert 'subfolder="target_tokenizer"' in (folder / "README.md").read_text()

    if model_type:  # the official folder has both, too
        exported = CliRunner().invoke(app, ["export", str(folder), str(tmp_path / "official")])
        assert exported.exit_code == 0, exported.output
        assert translated(tmp_path / "official", [row["en"] for row in rows[:5]], capsys) == written[:5]

    # A run from there on has both tokenizers, and so has its model.
    again = {"tokenizer_vocab_size": None, "model_name_or_path": folder, "config_overrides": None, "model_type": None}
    options |= again | {"separate_vocabularies": None, "num_train_epochs": 1, "output_dir": tmp_path / "again"}
    more = train_translation(**options)
    assert more["train_loss"] < results["train_loss"]
    for name in ("", "target_tokenizer"):
        saved = AutoTokenizer.from_pretrained(tmp_path / "again", subfolder=name).get_vocab()
        assert saved == AutoTokenizer.from_pretrained(folder, subfolder=name).get_vocab()


def test_a_tokenizer_of_choice(train_translation, tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    options = {"tokenizer_name": tmp_path / "tokenizer", "tokenizer_vocab_size": None}
    assert train_translation.prepare(**options).task.tokenizer.get_vocab() == tokenizer.get_vocab()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    with pytest.raises(ValueError, match="has no pad_token, which a translation needs"):
        train_translation.prepare(**options)


def test_accumulation_does_not_change_the_steps(train_translation, tmp_path):
    options = {"config_overrides": f"{SIZES},hidden_dropout=0", "max_train_steps": 3, "num_beams": 1}
    parts = {"per_device_train_batch_tokens": 100, "gradient_accumulation_steps": 4}
    whole = train_translation.trained(output_dir=tmp_path / "whole", **options, per_device_train_batch_tokens=400)
    parted = train_translation.trained(output_dir=tmp_path / "parts", **options, **parts)
    assert len(logged(whole, "loss")) == 3
    for key in ("loss", "grad_norm", "eval_loss"):
        assert logged(parted, key) == pytest.approx(logged(whole, key), abs=1e-5), key


def test_smoothing_reaches_the_training_loss_alone(train_translation, tmp_path):
    options = {"max_train_steps": 1, "learning_rate": 1e-12, "config_overrides": f"{SIZES},hidden_dropout=0"}
    options |= {"test_file": None, "num_beams": 1, "max_eval_samples": 5}
    runs = []
    for name, smoothing in (("none", 0), ("others", 0.3), ("all", 0.3)):
        smoothed = {"label_smoothing_factor": smoothing, "label_smoothing_over": "all" if name == "all" else "others"}
        runs.append(train_translation.trained(output_dir=tmp_path / name, **smoothed, **options))
    assert len({logged(run, "loss")[0] for run in runs}) == 3
    assert len({logged(run, "eval_loss")[0] for run in runs}) == 1


def test_translations_leave_training_as_it_is(train_translation, tmp_path):
    options = {"config_overrides": f"{SIZES},hidden_dropout=0.1", "eval_steps": 2, "max_train_steps": 6, "num_beams": 1}
    with_some = train_translation.trained(output_dir=tmp_path / "with", num_eval_translations=5, **options)
    without = train_translation.trained(output_dir=tmp_path / "without", num_samples=0, **options)
    assert logged(with_some, "loss") == logged(without, "loss")
    assert len(logged(with_some, "samples")) == 3 and not logged(without, "samples")


def test_the_papers_schedule(train_translation):
    options = {
        "config_overrides": SIZES,
        "max_train_steps": 4,
        "warmup_steps": 3,
        "lr_scheduler_type": "noam",
        "test_file": None,
    }
    loop = train_translation.trained(learning_rate=None, **options)
    rates = [32**-0.5 * min(step**-0.5, step * 3**-1.5) for step in (2, 3, 4, 5)]  # of the step to come
    assert logged(loop, "learning_rate") == pytest.approx(rates)


def test_mixed_precision_pads_no_further_than_the_positions(train_translation):
    """7 are no multiple of 8, and sources of 4 letters have 5 tokens."""
    sizes = f"{SIZES},position_embedding_type=learned,max_position_embeddings=7"
    lengths = {"max_source_length": 6, "max_target_length": 7}
    train_translation.trained(
        mixed_precision="bf16", config_overrides=sizes, max_train_steps=2, num_samples=0, **lengths
    )


def test_best_model_by_chrf(train_translation):
    options = {"num_eval_translations": 10, "num_beams": 1, "num_samples": 0, "eval_steps": 3, "max_train_steps": 9}
    loop = train_translation.trained(metric_for_best_model="chrf", **options)
    results = loop.results()
    scores = logged(loop, "eval_chrf")
    assert results["eval_chrf"] == max(scores) and results["best_step"] == 3 * (1 + scores.index(max(scores)))


def test_metrics_of_choice(train_translation, tmp_path):
    """One of the zoo's and one of a user's."""
    (tmp_path / "lengths").mkdir()
    (tmp_path / "lengths" / "lengths.py").write_text(
        "import datasets\nimport evaluate\n\n\nclass Lengths(evaluate.Metric):\n    def _info(self):\n"
        "        text = datasets.Value('string')\n"
        "        return evaluate.MetricInfo('', '', datasets.Features(predictions=text, references=text))\n\n"
        "    def _compute(self, predictions, references):\n"
        "        return {'longest': max(map(len, references))}\n"
    )
    metrics = {"metrics": ["chrf", str(tmp_path / "lengths")], "metric_for_best_model": "longest"}
    results = train_translation(num_eval_translations=10, max_train_steps=2, num_samples=0, **metrics)
    assert results["test_longest"] == 7 and 0 <= results["test_chrf"] <= 100 and "test_bleu" not in results
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert {result.metric_type for result in card.data.eval_results} == {"chrf", "longest"}
    assert "chrF2|" in card.text and "BLEU" not in card.text


def test_without_a_test_split_validation_is_translated(train_translation, tmp_path):
    results = train_translation(test_file=None, max_train_steps=2, max_eval_samples=3)
    assert {"eval_bleu", "eval_chrf", "eval_exact_match"} <= results.keys() and "test_loss" not in results
    assert len((tmp_path / "run" / "generated_predictions.txt").read_text().splitlines()) == 3


def test_languages_of_the_card():
    assert language_codes(("en", "de")) == language_codes(("en_XX", "de_DE")) == ["en", "de"]
    assert language_codes(("english", "de")) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_file": "nowhere.json"}, "train_file 'nowhere.json': no such file"),
        ({"source_lang": "fr"}, r"source_lang 'fr': no such column; the columns are \['en', 'de'\]"),
        ({"config_overrides": "hiden_size=32"}, "tfm_encoder_decoder has no field 'hiden_size'; did you mean"),
        ({"model_type": "gpt2", "config_overrides": None}, "model_type 'gpt2' is not a sequence-to-sequence"),
        ({"config_name": "no/where", "config_overrides": None}, "config_name 'no/where': neither a checkpoint"),
        ({"tokenizer_vocab_size": 100}, "tokenizer_vocab_size must be at least 260"),
        ({"per_device_train_batch_tokens": 5}, "per_device_train_batch_tokens 5: too few for an example of"),
        (
            {"config_overrides": f"{SIZES},decoder_vocab_size=100"},
            "decoder_vocab_size 100: the targets' tokenizer has 2",
        ),
        (
            {"separate_vocabularies": True, "model_type": "bart", "config_overrides": SIZES_OF_MARIAN},
            "separate_vocabularies: a model of type 'bart' has one vocabulary",
        ),
        ({"metrics": ["bleeu"]}, "no metric 'bleeu'"),
        ({"metric_for_best_model": "bleu"}, "metric_for_best_model 'bleu': expected one of .*perplexity"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_before_work(train_translation, options, message):
    with pytest.raises(Exception, match=message):
        train_translation.prepare(**options)


def test_an_error_is_one_line(translation_recipe, pairs, tmp_path, monkeypatch, capsys):
    options = ["--train_file", pairs / "train.json", "--source_lang", "en", "--output_dir", tmp_path / "run"]
    shown = shown_error(translation_recipe, options, monkeypatch, capsys)
    assert shown.splitlines()[-1] == (
        "train_translation.py: error: give source_lang and target_lang: the columns are ['en', 'de']"
    )
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["{folder}"], "give sentences, or a --file with one sentence per line"),
        (["{folder}", "a", "--num_beams", "0"], "num_beams must be at least 1, not 0"),
        (["{folder}", "--file", "nowhere.txt"], "--file nowhere.txt: no such file"),
        (
            ["{folder}", "--file", "{folder}/pairs.csv"],
            "pairs.csv is a table, and a file is read line by line: write its",
        ),
        (["{folder}/nowhere", "a"], "nowhere: no such folder"),
        (["{folder}", "a"], "holds no config.json, and so no model"),
        (["no/where", "a"], "no/where is no folder, and the Hub cannot be reached"),
        (["{folder}", "--file", "{folder}/16.txt"], "16.txt cannot be read: 'utf-8' codec"),
        (["{folder}", "--file", "{folder}/clone/notes.txt"], "notes.txt is a Git LFS pointer"),
        (["{folder}/clone", "a"], "model.safetensors is a Git LFS pointer, not the file itself"),
    ],
    ids=["no sentence", "beams", "file", "table", "folder", "no model", "Hub", "UTF-16", "pointer", "weights"],
)
def test_translating_nothing_is_refused(tmp_path, capsys, argv, message):
    (tmp_path / "pairs.csv").write_text("en,de\na dog,ein Hund\n")
    (tmp_path / "16.txt").write_text("a dog", "utf-16")
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone/config.json").write_text("{}")
    for name in ("model.safetensors", "notes.txt"):
        (tmp_path / "clone" / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    with pytest.raises(SystemExit):
        imported(TRANSLATE).main([part.format(folder=tmp_path) for part in argv])
    assert message in capsys.readouterr().err


def test_a_file_has_a_sentence_a_line(tmp_path):
    """A byte order mark is no text, and a line ends at a line break alone."""
    (tmp_path / "a.txt").write_bytes("\ufeffa\u2028b\r\n\r\nc\n".encode())
    assert imported(TRANSLATE).lines_of(tmp_path / "a.txt", pytest.fail) == ["a\u2028b", "", "c"]


def test_sources_that_are_too_long_are_cut_and_it_is_said(official, capsys):
    imported(TRANSLATE).main([str(official), "a " * 40, "b", "--num_beams", "1", "--max_length", "6"])
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert "has 41 tokens: the model reads 20 of them" in shown.err
