"""A zoo checkpoint is loaded by transformers alone, from a folder and from the Hub's cache."""

import json
import shutil
import subprocess
import sys

import pytest
import torch

import tfm_zoo
from tfm_zoo import TfmBertForSequenceClassification, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM
from tfm_zoo.hub import verify
from tfm_zoo.hub.manifest import FILE

from ..tiny import DECODERS, ENCODER_DECODERS, ENCODERS, HEADS, tiny_model
from ..words import SENTENCES, make_tokenizer
from . import plain
from .conftest import VARIANTS
from .travelling import code_of

pytestmark = pytest.mark.slow

TRAINED = {
    "TfmBertForSequenceClassification": "AutoModelForSequenceClassification",
    "TfmGPTForCausalLM": "AutoModelForCausalLM",
    "TfmEncoderDecoderForConditionalGeneration": "AutoModelForSeq2SeqLM",
}


def sources(checkpoints, name: str) -> list[str]:
    """A checkpoint's folder, and its name on the Hub."""
    return [str(checkpoints[name]), f"zoo/{name}"]


def assert_same(one, other) -> None:
    """Bit for bit."""
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_environments_have_no_zoo(plain_python, sentence_python):
    find = "import importlib.util as u; print(*(u.find_spec(name) is None for name in ('transformers', 'tfm_zoo')))"
    for python in (plain_python, sentence_python):
        assert subprocess.check_output([python, "-I", "-c", find], text=True).split() == ["False", "True"]


#: of each family: every head of it is saved with the same names of classes and the same code
FIRST = (ENCODERS[0], DECODERS[0], ENCODER_DECODERS[0])


def auto_classes_of(head: type) -> list[str]:
    """Its own and its base model's; of a family's first head all."""
    named = {auto: name for auto, name in head.config_class.auto_classes.items() if auto != "AutoConfig"}
    bases = ("AutoModel", "AutoModelForTextEncoding")
    return [auto for auto, name in named.items() if head in FIRST or auto in bases or name == head.__name__]


def test_every_head_loads_from_every_save(checkpoints, do_jobs):
    """From its folder, and a family's first from the Hub, too."""
    places = [(head, 0) for head in HEADS] + [(head, 1) for head in FIRST]
    jobs = []
    for head, place in places:
        arguments = {"auto_classes": auto_classes_of(head), "trust_remote_code": True}
        jobs.append(("outputs_by", {"source": sources(checkpoints, head.__name__)[place], **arguments}))
    results = dict(zip(places, do_jobs(jobs), strict=True))
    for head in FIRST:
        assert_same(results[head, 0], results[head, 1])
    for head in HEADS:
        from_folder, name, auto_classes = results[head, 0], head.__name__, head.config_class.auto_classes
        saved = torch.load(checkpoints[name].parent / f"{name}.pt")
        auto_class = next(auto for auto, named in auto_classes.items() if named == name)
        assert_same(from_folder[auto_class], saved["outputs"])
        reads_source = name == "TfmEncoderDecoderForTokenClassification"  # alone, whose base model has both sides
        base = "encoder_last_hidden_state" if reads_source else "last_hidden_state"
        assert_same(from_folder["AutoModel"][base], saved["last_hidden_state"])
        if "encoder_last_hidden_state" in saved["outputs"]:  # of which the encoder alone is loaded too
            encoded = from_folder["AutoModelForTextEncoding"]["last_hidden_state"]
            assert_same(encoded, saved["outputs"]["encoder_last_hidden_state"])


def test_tables_that_no_checkpoint_stores_are_there(checkpoints, do_jobs):
    arguments = {"auto_class": "AutoModel", "trust_remote_code": True}
    results = do_jobs([("outputs", {"source": str(checkpoints[name]), **arguments}) for name in VARIANTS])
    for name, remote in zip(VARIANTS, results, strict=True):
        saved = torch.load(checkpoints[name].parent / f"{name}.pt")
        for result in (remote, plain.outputs(str(checkpoints[name]), "AutoModel")):
            assert_same(result, saved["outputs"])


def test_refused_without_trust(checkpoints, do_jobs):
    jobs = [
        ("error", {"source": source, "auto_class": head, **trust})
        for source in sources(checkpoints, "TfmBertForMaskedLM")
        for head in ("AutoConfig", "AutoModelForMaskedLM")
        for trust in ({}, {"trust_remote_code": False})
    ]
    for message in do_jobs(jobs):
        assert "contains custom code" in message
        assert "trust_remote_code=True" in message


def test_subfolder(checkpoints, do_jobs, tmp_path):
    """transformers looks for code beside the repository's README alone; with the zoo imported it needs none."""
    saved = checkpoints["TfmBertForMaskedLM"]
    bare, complete = tmp_path / "bare", tmp_path / "complete"
    for repository in (bare, complete):
        shutil.copytree(saved, repository / "model")
    for file in saved.glob("*.py"):
        shutil.copy(file, complete)
    options = {"auto_class": "AutoModelForMaskedLM", "subfolder": "model"}
    jobs = [
        (job, {"source": str(source), "trust_remote_code": True} | options)
        for job, source in (("error", bare), ("outputs", complete))
    ]
    error, outputs = do_jobs(jobs)
    assert "modeling_tfm_bert.py" in error
    for result in (outputs, plain.outputs(str(bare), **options)):
        assert_same(result, torch.load(saved.parent / "TfmBertForMaskedLM.pt")["outputs"])


@pytest.mark.usefixtures("forked")
def test_training_where_there_is_no_zoo(checkpoints, do_jobs, tmp_path):
    """A model keeps its code, and gets no manifest. An earlier one is of other weights, as `verify` says."""
    trust, jobs = {"trust_remote_code": True}, []
    for head, auto_class in TRAINED.items():
        target = {"auto_class": auto_class, "target": str(tmp_path / head)}
        jobs.append(("train_and_save", target | trust | {"source": f"zoo/{head}"}))
        jobs.append(("outputs", {"auto_class": auto_class, "source": str(tmp_path / head)} | trust))
    shutil.copytree(checkpoints[head], tmp_path / head)
    results = do_jobs(jobs)
    for (name, auto_class), trained, again in zip(TRAINED.items(), results[::2], results[1::2], strict=True):
        target, family = tmp_path / name, getattr(tfm_zoo, name).config_class
        assert not trained["logits"].allclose(plain.outputs(str(checkpoints[name]), auto_class)["logits"])
        assert_same(again, trained)
        assert_same(plain.outputs(str(target), auto_class), trained)
        assert {file.name: file.read_bytes() for file in target.glob("*.py")} == code_of(family)
        assert json.loads((target / "config.json").read_text())["auto_map"] == family().auto_map
        assert (target / FILE).exists() == (name == head)
    differences = verify(tmp_path / head).differences
    assert any(difference.startswith("weights changed: ") for difference in differences), differences


def test_pipeline_and_sentence_transformer(do_jobs, sentence_python, tmp_path):
    tokenizer = make_tokenizer()
    tiny_model(TfmBertForSequenceClassification, vocab_size=len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    arguments = {"source": str(tmp_path / "model"), "sentences": SENTENCES}
    [remote] = do_jobs([("classify_and_embed", arguments)], sentence_python)
    local = plain.classify_and_embed(**arguments)
    assert_same(remote["vectors"], local["vectors"])
    assert remote["classes"] == local["classes"]


@pytest.mark.parametrize(
    ("auto_class", "head", "fields"),
    [
        ("AutoModelForCausalLM", TfmGPTForCausalLM, {}),
        (
            "AutoModelForSeq2SeqLM",
            TfmEncoderDecoderForConditionalGeneration,
            {"eos_token_id": 3, "decoder_start_token_id": 2, "final_logits_bias": True},
        ),
    ],
)
def test_texts_are_the_same(auto_class, head, fields, do_jobs, tmp_path):
    """Of a tied checkpoint, whole and in shards, where there is no zoo; an encoder loads alone."""
    tokenizer = make_tokenizer()
    tokenizer.padding_side = "left" if head is TfmGPTForCausalLM else "right"
    model = tiny_model(head, vocab_size=len(tokenizer), use_cache=True, **fields)
    folders = [tmp_path / "whole", tmp_path / "sharded"]
    for folder, size in zip(folders, ("1GB", "20KB"), strict=True):
        model.save_pretrained(folder, max_shard_size=size)
        tokenizer.save_pretrained(folder)
    asked = {"auto_class": auto_class, "texts": SENTENCES, "trust_remote_code": True}
    local = plain.written(str(folders[0]), **asked)
    for result in do_jobs([("written", asked | {"source": str(folder)}) for folder in folders]):
        assert result["tied"] and result.keys() == local.keys()
        for name, value in local.items():
            assert result[name].equal(value) if isinstance(value, torch.Tensor) else result[name] == value, name
    assert local["static"].equal(local["dynamic"]) and local["dynamic"].unique().numel() > 8
    if "encoded" in local:
        assert local["encoded"].equal(local["encoded by the whole"])
        assert {name.split(".")[0] for name in local["parameters"]} == {"encoder"}


def test_with_the_zoo_imported_before_or_after(checkpoints, do_jobs):
    arguments = {"source": str(checkpoints["TfmBertForMaskedLM"]), "auto_class": "AutoModelForMaskedLM"}
    wanted = plain.outputs(**arguments)
    jobs = [("with_the_zoo", arguments | {"first": first}) for first in (True, False)]
    for results in do_jobs(jobs, sys.executable):
        for result in results:
            assert_same(result, wanted)


def test_saved_with_the_zoo_imported_after(checkpoints, do_jobs, tmp_path):
    """A model is saved as its class saves: one of the checkpoint's own code, as where there is no zoo."""
    name = "TfmGPTForCausalLM"
    arguments = {"source": str(checkpoints[name]), "auto_class": "AutoModelForCausalLM", "target": str(tmp_path)}
    [modules] = do_jobs([("saved_with_the_zoo_after_remote", arguments)], sys.executable)
    assert modules == ["transformers_modules", "tfm_zoo"]
    files = [{path.name for path in (tmp_path / kind).iterdir()} for kind in ("own", "package")]
    assert FILE not in files[0] and files[1] == files[0] | {FILE}
