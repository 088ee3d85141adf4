"""transformers alone loads a zoo checkpoint, from a folder and from the Hub, trains it, and gives it back."""

import os
import shutil

import pytest
import torch

from tfm_zoo import TfmBertForSequenceClassification, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM
from tfm_zoo.hub import push
from tfm_zoo.proof import verify
from tfm_zoo.utils.folder_kinds import MANIFEST

from ..forks import with_transformers
from ..precision import assert_alike
from ..tiny import DECODERS, ENCODER_DECODERS, ENCODERS, HEADS, tiny_model
from ..words import SENTENCES, make_tokenizer
from . import plain
from .conftest import VARIANTS, run_jobs
from .editing import write

pytestmark = pytest.mark.slow
#: of each family: every head of it is saved with the same names of classes and the same code
FIRST, SECOND = zip(ENCODERS[:2], DECODERS[:2], ENCODER_DECODERS[:2], strict=True)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TRUST = {"trust_remote_code": True}
ENDS = {"eos_token_id": 3, "decoder_start_token_id": 2, "final_logits_bias": True}


def auto_classes_of(head: type) -> list[str]:
    """Its own; of a family's first head all, and of the second its base model's."""
    named = {auto: name for auto, name in head.config_class.auto_classes.items() if auto != "AutoConfig"}
    bases = ("AutoModel", "AutoModelForTextEncoding") if head in SECOND else ()
    return [auto for auto, name in named.items() if head in FIRST or auto in bases or name == head.__name__]


@pytest.fixture
def writers(tmp_path):
    """Folders of models that write, in shards, with the Auto class that loads them."""
    folders, tokenizer = {}, make_tokenizer()
    for auto_class, head, fields, tokenizer.padding_side in (
        ("AutoModelForCausalLM", TfmGPTForCausalLM, {}, "left"),
        ("AutoModelForSeq2SeqLM", TfmEncoderDecoderForConditionalGeneration, ENDS, "right"),
    ):
        folders[folder := str(tmp_path / head.__name__)] = auto_class
        model = tiny_model(head, vocab_size=len(tokenizer), use_cache=True, **fields)
        model.save_pretrained(folder, max_shard_size="20KB")
        tokenizer.save_pretrained(folder)
    return folders


def test_it_gives_the_same_where_there_is_no_zoo(checkpoints, plain_forks, home, writers, tmp_path):
    """Every head, by its Auto classes; tables that no checkpoint stores; what is in the Hub's cache; a subfolder, whose
    code lies beside the repository's README, with other fields; and the texts that a model writes."""
    for file in shutil.copytree(checkpoints["TfmBertForMaskedLM"], tmp_path / "repository" / "model").glob("*.py"):
        shutil.copy(file, tmp_path / "repository")
    for head in FIRST:  # as if they had been downloaded
        cache = home / "hub" / f"models--zoo--{head.__name__}"
        shutil.copytree(checkpoints[head.__name__], cache / "snapshots" / COMMIT)
        write("refs/main", COMMIT)(cache)
    listed = [(checkpoints[head.__name__], auto_class) for head in HEADS for auto_class in auto_classes_of(head)]
    listed += [(checkpoints[name], "AutoModel") for name in VARIANTS]
    jobs = [("outputs", {"source": str(source), "auto_class": auto_class}) for source, auto_class in listed]
    subfolder = {"subfolder": "model", "n_heads": 2, "position_embedding_type": "rotary"}
    jobs += [("outputs", subfolder | {"source": str(tmp_path / "repository"), "auto_class": "AutoModelForMaskedLM"})]
    jobs += [("written", {"source": path, "auto_class": auto, "texts": SENTENCES}) for path, auto in writers.items()]
    here = plain.each_of(jobs)
    cached = [("outputs", {"source": f"zoo/{head.__name__}", "auto_class": "AutoModel"}) for head in FIRST]
    jobs = [("each_of", {"jobs": [(name, options | TRUST) for name, options in jobs + cached]})]
    [there] = run_jobs(jobs, plain_forks, tmp_path)
    assert_alike(there, here + [here[listed.index((checkpoints[head.__name__], "AutoModel"))] for head in FIRST])
    for text in here[-len(writers) :]:
        assert text["tied"] and text["static"].equal(text["dynamic"]) and text["dynamic"].unique().numel() > 8
    assert text["encoded"].equal(text["encoded by the whole"])


def test_with_the_zoo_imported_before_or_after(checkpoints, tmp_path):
    """A model is saved as its class saves: one of the checkpoint's own code, as where there is no zoo."""
    source = {"source": str(checkpoints["TfmGPTForCausalLM"]), "auto_class": "AutoModelForCausalLM"}
    options = [source | {"first": first, "target": str(tmp_path / str(first))} for first in (True, False)]
    first, after = run_jobs([("with_the_zoo", each) for each in options], with_transformers(), tmp_path, **os.environ)
    assert_alike([outputs for _, outputs in first + after], [plain.outputs(**source)] * 4)
    assert [module for module, _ in after] == ["transformers_modules", "tfm_zoo"]
    own, package = ({path.name for path in (tmp_path / "False" / kind).iterdir()} for kind in ("own", "package"))
    assert MANIFEST not in own and package == own | {MANIFEST}


@pytest.mark.usefixtures("here")
def test_there_and_back(online, tmp_path, online_forks, hub_server):
    """Of each family a head, fine-tuned here, goes to the Hub, is tuned where there is no zoo and goes again."""
    for head in (TfmBertForSequenceClassification, TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration):
        auto = next(auto for auto, name in head.config_class.auto_classes.items() if name == head.__name__)
        model, name = tiny_model(head), f"user/{head.__name__}"
        plain.fine_tune(model)
        model.save_pretrained(tmp_path / name)
        with torch.no_grad():
            commit, first = push(tmp_path / name, name).oid, plain.run(model)
        asked = {"source": name, "auto_class": auto} | TRUST
        [second] = run_jobs([("train_and_save", asked | {"target": name, "push": True})], online_forks, tmp_path)
        jobs = [("outputs", asked | {"revision": revision}) for revision in (commit, "main")]
        assert_alike(run_jobs(jobs, online_forks, tmp_path), [first, second])
        kept = hub_server.repositories[name]
        assert kept.branches["main"] != commit and any((first[name] != second[name]).any() for name in first)
        files = (kept.at(revision).files.items() for revision in (commit, "main"))
        before, after = ({name: text for name, text in each if name.endswith(".py")} for each in files)
        assert before == after and len(before) > 5 and verify(name, revision=commit).ok
        # Pushed from where there is no zoo, it has the manifest of the first push, and is not what that says.
        differences = verify(name).differences
        assert any(difference.startswith("weights changed: ") for difference in differences), differences
