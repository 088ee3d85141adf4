"""A zoo checkpoint is loaded by transformers alone, from a folder and from the Hub: it gives the same there, is
fine-tuned there, and comes back."""

import shutil

import pytest
import torch

from tfm_zoo import TfmBertForSequenceClassification, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM
from tfm_zoo.hub import push
from tfm_zoo.proof import verify
from tfm_zoo.proof.manifest import FILE

from ..forks import with_transformers
from ..tiny import DECODERS, ENCODER_DECODERS, ENCODERS, HEADS, tiny_model
from ..words import SENTENCES, make_tokenizer
from . import plain
from .conftest import VARIANTS, run_jobs

pytestmark = pytest.mark.slow
#: of each family: every head of it is saved with the same names of classes and the same code
FIRST, SECOND = zip(ENCODERS[:2], DECODERS[:2], ENCODER_DECODERS[:2], strict=True)
TRUST = {"trust_remote_code": True}
ENDS = {"eos_token_id": 3, "decoder_start_token_id": 2, "final_logits_bias": True}


def assert_same(one, other) -> None:
    """Bit for bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        for each, wanted in zip(one, other, strict=True):
            assert_same(each, wanted)
    else:
        assert one.equal(other) if isinstance(one, torch.Tensor) else one == other


def auto_classes_of(head: type) -> list[str]:
    """Its own; of a family's first head all, and of the second its base model's."""
    named = {auto: name for auto, name in head.config_class.auto_classes.items() if auto != "AutoConfig"}
    bases = ("AutoModel", "AutoModelForTextEncoding") if head in SECOND else ()
    return [auto for auto, name in named.items() if head in FIRST or auto in bases or name == head.__name__]


@pytest.fixture
def writers(tmp_path):
    """Folders of models that write, whole and in shards, with the Auto class that loads them."""
    folders = {}
    for auto_class, head, fields in (
        ("AutoModelForCausalLM", TfmGPTForCausalLM, {}),
        ("AutoModelForSeq2SeqLM", TfmEncoderDecoderForConditionalGeneration, ENDS),
    ):
        tokenizer = make_tokenizer()
        tokenizer.padding_side = "left" if head is TfmGPTForCausalLM else "right"
        model = tiny_model(head, vocab_size=len(tokenizer), use_cache=True, **fields)
        for size in ("1GB", "20KB"):
            folders[folder := str(tmp_path / head.__name__ / size)] = auto_class
            model.save_pretrained(folder, max_shard_size=size)
            tokenizer.save_pretrained(folder)
    return folders


@pytest.mark.usefixtures("hub")
def test_it_gives_the_same_where_there_is_no_zoo(checkpoints, plain_forks, writers, tmp_path):
    """Every head, by its Auto classes; tables that no checkpoint stores; what is in the Hub's cache; a subfolder, for
    which transformers looks for code beside the repository's README alone; and the texts that a model writes."""
    folder = checkpoints["TfmBertForMaskedLM"]
    for repository in ("bare", "complete"):
        shutil.copytree(folder, tmp_path / repository / "model")
    for file in folder.glob("*.py"):
        shutil.copy(file, tmp_path / "complete")
    listed = [(checkpoints[head.__name__], auto_class) for head in HEADS for auto_class in auto_classes_of(head)]
    listed += [(checkpoints[name], "AutoModel") for name in VARIANTS]
    jobs = [("outputs", {"source": str(source), "auto_class": auto_class}) for source, auto_class in listed]
    subfolder = {"auto_class": "AutoModelForMaskedLM", "subfolder": "model"}
    jobs += [("outputs", subfolder | {"source": str(tmp_path / "complete")})]
    jobs += [
        ("written", {"source": source, "auto_class": auto, "texts": SENTENCES}) for source, auto in writers.items()
    ]
    here = plain.each_of(jobs)
    cached = [("outputs", {"source": f"zoo/{head.__name__}", "auto_class": "AutoModel"}) for head in FIRST]
    asked = [*jobs, *cached, ("error", subfolder | {"source": str(tmp_path / "bare")})]
    jobs = [("each_of", {"jobs": [(name, options | TRUST) for name, options in asked]})]
    [there] = run_jobs(jobs, plain_forks, tmp_path)
    assert "modeling_tfm_bert.py" in there.pop()
    assert_same(there, here + [here[listed.index((checkpoints[head.__name__], "AutoModel"))] for head in FIRST])
    for text in here[-len(writers) :]:
        assert text["tied"] and text["static"].equal(text["dynamic"]) and text["dynamic"].unique().numel() > 8
    assert text["encoded"].equal(text["encoded by the whole"])
    assert {name.split(".")[0] for name in text["parameters"]} == {"encoder"}


def test_with_the_zoo_imported_before_or_after(checkpoints, tmp_path):
    """A model is saved as its class saves: one of the checkpoint's own code, as where there is no zoo."""
    source = {"source": str(checkpoints["TfmGPTForCausalLM"]), "auto_class": "AutoModelForCausalLM"}
    jobs = [
        ("with_the_zoo", source | {"first": first, "target": str(tmp_path / str(first))}) for first in (True, False)
    ]
    first, after = run_jobs(jobs, with_transformers(), tmp_path)
    wanted = plain.outputs(**source)
    assert_same([outputs for _, outputs in first + after], [wanted] * 4)
    assert [module for module, _ in after] == ["transformers_modules", "tfm_zoo"]
    own, package = ({path.name for path in (tmp_path / "False" / kind).iterdir()} for kind in ("own", "package"))
    assert FILE not in own and package == own | {FILE}


@pytest.mark.usefixtures("forked")
def test_there_and_back(online, tmp_path, online_forks, hub_server):
    """Of each family a head, fine-tuned here, goes to the Hub, is tuned where there is no zoo and goes again."""
    heads = (TfmBertForSequenceClassification, TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration)
    autos, first = {}, []
    for head in heads:
        model = tiny_model(head)
        plain.fine_tune(model)
        model.save_pretrained(tmp_path / head.__name__)
        repository = f"user/{head.__name__}"
        autos[repository] = next(auto for auto, name in head.config_class.auto_classes.items() if name == head.__name__)
        with torch.no_grad():
            first.append((push(tmp_path / head.__name__, repository).oid, plain.run(model)))
    pushes = [("fine_tune_and_push", {"source": source, "auto_class": auto}) for source, auto in autos.items()]
    second = run_jobs(pushes, online_forks, tmp_path)
    jobs = [
        ("outputs", {"source": source, "auto_class": auto, "revision": commit} | TRUST)
        for pushed in (first, second)
        for (source, auto), (commit, _) in zip(autos.items(), pushed, strict=True)
    ]
    assert_same(run_jobs(jobs, online_forks, tmp_path), [outputs for _, outputs in (*first, *second)])
    for repository, (commit, one), (last, other) in zip(autos, first, second, strict=True):
        kept = hub_server.repositories[repository]
        files = (kept.at(revision).files.items() for revision in (commit, "main"))
        before, after = ({name: text for name, text in each if name.endswith(".py")} for each in files)
        assert before == after and len(before) > 5
        assert f'.from_pretrained("{repository}", trust' in kept.read("README.md").decode()
        assert kept.branches["main"] == last != commit and any((one[name] != other[name]).any() for name in one)
        assert verify(repository, revision=commit, token="hf_user").ok
        # Pushed from where there is no zoo, it has the manifest of the first push, and is not what that says.
        differences = verify(repository, token="hf_user").differences
        assert any(difference.startswith("weights changed: ") for difference in differences), differences
