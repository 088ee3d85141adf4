"""A zoo checkpoint is loaded by transformers alone, from a folder and from the Hub: it gives the same there, is
fine-tuned there, and comes back."""

import shutil
import sys

import pytest
import torch
from huggingface_hub import ModelCard

from tfm_zoo import TfmBertForSequenceClassification, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM
from tfm_zoo.hub import push
from tfm_zoo.proof import verify
from tfm_zoo.proof.manifest import FILE

from ..tiny import DECODERS, ENCODER_DECODERS, ENCODERS, HEADS, tiny_model
from ..words import SENTENCES, make_tokenizer
from . import plain
from .conftest import VARIANTS

pytestmark = pytest.mark.slow
#: of each family: every head of it is saved with the same names of classes and the same code
FIRST = (ENCODERS[0], DECODERS[0], ENCODER_DECODERS[0])
TRUST = {"trust_remote_code": True}


def assert_same(one, other) -> None:
    """Bit for bit."""
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def saved(checkpoints, name: str) -> dict:
    return torch.load(checkpoints[name].parent / f"{name}.pt")


def auto_classes_of(head: type) -> list[str]:
    """Its own and its base model's; of a family's first head all."""
    named = {auto: name for auto, name in head.config_class.auto_classes.items() if auto != "AutoConfig"}
    bases = ("AutoModel", "AutoModelForTextEncoding")
    return [auto for auto, name in named.items() if head in FIRST or auto in bases or name == head.__name__]


def test_every_head_loads_from_every_save(checkpoints, do_jobs):
    """From its folder, and a family's first from the Hub's cache, too."""
    places = {(head, str(checkpoints[head.__name__])): auto_classes_of(head) for head in HEADS}
    places |= {(head, f"zoo/{head.__name__}"): auto_classes_of(head) for head in FIRST}
    jobs = [("outputs_by", {"source": where, "auto_classes": autos} | TRUST) for (_, where), autos in places.items()]
    results = dict(zip(places, do_jobs(jobs), strict=True))
    for head in FIRST:
        from_folder, from_hub = (each for (of, _), each in results.items() if of is head)
        assert_same(from_folder, from_hub)
    for head in HEADS:
        name, auto_classes = head.__name__, head.config_class.auto_classes
        from_folder, wanted = results[head, str(checkpoints[name])], saved(checkpoints, name)
        auto_class = next(auto for auto, named in auto_classes.items() if named == name)
        assert_same(from_folder[auto_class], wanted["outputs"])
        reads_source = name == "TfmEncoderDecoderForTokenClassification"  # alone, whose base model has both sides
        base = "encoder_last_hidden_state" if reads_source else "last_hidden_state"
        assert_same(from_folder["AutoModel"][base], wanted["last_hidden_state"])
        if "encoder_last_hidden_state" in wanted["outputs"]:  # of which the encoder alone is loaded too
            encoded = from_folder["AutoModelForTextEncoding"]["last_hidden_state"]
            assert_same(encoded, wanted["outputs"]["encoder_last_hidden_state"])


def test_tables_that_no_checkpoint_stores_are_there(checkpoints, do_jobs):
    asked = [{"source": str(checkpoints[name]), "auto_class": "AutoModel"} for name in VARIANTS]
    results = do_jobs([("outputs", each | TRUST) for each in asked])
    for name, arguments, remote in zip(VARIANTS, asked, results, strict=True):
        for result in (remote, plain.outputs(**arguments)):
            assert_same(result, saved(checkpoints, name)["outputs"])


def test_subfolder(checkpoints, do_jobs, tmp_path):
    """transformers looks for code beside the repository's README alone; with the zoo imported it needs none."""
    folder = checkpoints["TfmBertForMaskedLM"]
    bare, complete = tmp_path / "bare", tmp_path / "complete"
    for repository in (bare, complete):
        shutil.copytree(folder, repository / "model")
    for file in folder.glob("*.py"):
        shutil.copy(file, complete)
    options = {"auto_class": "AutoModelForMaskedLM", "subfolder": "model"}
    sources = (("error", bare), ("outputs", complete))
    error, outputs = do_jobs([(job, {"source": str(source)} | TRUST | options) for job, source in sources])
    assert "modeling_tfm_bert.py" in error
    for result in (outputs, plain.outputs(str(bare), **options)):
        assert_same(result, saved(checkpoints, folder.name)["outputs"])


ENDS = {"eos_token_id": 3, "decoder_start_token_id": 2, "final_logits_bias": True}


@pytest.mark.parametrize(
    ("auto_class", "head", "fields"),
    [
        ("AutoModelForCausalLM", TfmGPTForCausalLM, {}),
        ("AutoModelForSeq2SeqLM", TfmEncoderDecoderForConditionalGeneration, ENDS),
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
    asked = {"auto_class": auto_class, "texts": SENTENCES} | TRUST
    local = plain.written(str(folders[0]), **asked)
    for result in do_jobs([("written", asked | {"source": str(folder)}) for folder in folders]):
        assert result["tied"] and result.keys() == local.keys()
        for name, value in local.items():
            assert result[name].equal(value) if isinstance(value, torch.Tensor) else result[name] == value, name
    assert local["static"].equal(local["dynamic"]) and local["dynamic"].unique().numel() > 8
    if "encoded" in local:
        assert local["encoded"].equal(local["encoded by the whole"])
        assert {name.split(".")[0] for name in local["parameters"]} == {"encoder"}


def test_with_the_zoo_imported_before_or_after(checkpoints, do_jobs, tmp_path):
    """A model is saved as its class saves: one of the checkpoint's own code, as where there is no zoo."""
    arguments = {"source": str(checkpoints["TfmBertForMaskedLM"]), "auto_class": "AutoModelForMaskedLM"}
    decoder = {"source": str(checkpoints["TfmGPTForCausalLM"]), "auto_class": "AutoModelForCausalLM"}
    jobs = [("with_the_zoo", arguments | {"first": first}) for first in (True, False)]
    jobs.append(("saved_with_the_zoo_after_remote", decoder | {"target": str(tmp_path)}))
    *computed, modules = do_jobs(jobs, sys.executable)
    wanted = plain.outputs(**arguments)
    for result in (each for results in computed for each in results):
        assert_same(result, wanted)
    assert modules == ["transformers_modules", "tfm_zoo"]
    own, package = ({path.name for path in (tmp_path / kind).iterdir()} for kind in ("own", "package"))
    assert FILE not in own and package == own | {FILE}


@pytest.mark.usefixtures("forked")
def test_there_and_back(online, tmp_path, do_online, hub_server):
    """Of each family a head, fine-tuned here, goes to the Hub, is tuned where there is no zoo and goes again."""
    heads = (TfmBertForSequenceClassification, TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration)
    first, again = {}, []
    for head in heads:
        name, repository = head.__name__, f"user/{head.__name__}"
        model = tiny_model(head)
        plain.fine_tune(model)
        model.save_pretrained(tmp_path / name)
        with torch.no_grad():
            first[repository] = push(tmp_path / name, repository).oid, plain.run(model)
        auto = next(auto for auto, target in model.config.auto_classes.items() if target == name)
        again.append(("fine_tune_and_push", {"source": repository, "auto_class": auto, "repository": repository}))
    second = dict(zip(first, do_online(again), strict=True))

    jobs, expected = [], []
    for (_, options), pushes in zip(again, zip(first.values(), second.values(), strict=True), strict=True):
        for commit, outputs in pushes:
            where = {"source": options["repository"], "auto_class": options["auto_class"], "revision": commit}
            jobs.append(("outputs", where | TRUST))
            expected.append(outputs)
    assert_same(do_online(jobs), expected)

    for head, (repository, (commit, outputs)) in zip(heads, first.items(), strict=True):
        kept = hub_server.repositories[repository]
        code = [
            {name: kept.read(name, revision) for name in kept.at(revision).files if name.endswith(".py")}
            for revision in (commit, "main")
        ]
        assert code[0] == code[1] and f"modeling_{head.config_class.model_type}.py" in code[0]
        assert kept.branches["main"] == second[repository][0] != commit
        assert any((outputs[name] != second[repository][1][name]).any() for name in outputs)
        card = ModelCard(kept.read("README.md", "main").decode())
        assert card.data.tags[0] == "tfm_zoo" and f'.from_pretrained("{repository}", trust' in card.text
        assert verify(repository, revision=commit, token="hf_user").ok
        # Pushed from where there is no zoo, it has the manifest of the first push, and is not what that says.
        differences = verify(repository, token="hf_user").differences
        assert any(difference.startswith("weights changed: ") for difference in differences), differences
