"""What `save_pretrained` writes, whatever was done with the model before, and what `from_pretrained` and `verify` make
of it, where the zoo is installed. (`tests/model_api/test_vocabularies.py` has tied weights.)"""

import shutil
from pathlib import Path

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

import tfm_zoo
from tfm_zoo.proof import verify
from tfm_zoo.proof.comparisons import TOLERANCE

from .. import encoders
from ..command import tfm_zoo as command
from ..tiny import HEADS, ragged_batch, tiny_model
from .editing import CONFIG, MANIFEST, edit, tensors
from .test_travelling_code import code_of

#: one of each kind of inputs and outputs
KINDS = (
    *("TfmBertModel", "TfmBertForPreTraining", "TfmBertForQuestionAnswering", "TfmBertForMultipleChoice"),
    *("TfmGPTForCausalLM", "TfmGPTForSequenceClassification", "TfmEncoderDecoderForConditionalGeneration"),
)


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(**ragged_batch(type(model)))[0]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_code_full_map_and_manifest_are_saved_by_every_head(head, checkpoints, tmp_path, here):
    """By the manifest, it is what was saved. Of each kind one is off, in bfloat16, by what that type rounds; and it is
    another after a small change of all weights, by each of its outputs."""
    folder, family = checkpoints[head.__name__], head.config_class
    own = {family.other_auto_classes[head.__name__]: head.__name__} if head is tfm_zoo.TfmEncoderDecoderEncoder else {}
    auto_map = {auto: f"{family.modeling_file}.{name}" for auto, name in (family.auto_classes | own).items()}
    assert edit(folder, CONFIG)["auto_map"] == auto_map
    assert {file.name: file.read_bytes() for file in folder.glob("*.py")} == code_of(family)
    fingerprint = edit(folder, MANIFEST)["fingerprint"]
    assert all(len(set(output["values"])) > 1 for name, output in fingerprint["outputs"].items() if name != "loss")
    verdict = verify(folder)
    assert verdict.ok and not verdict.warnings and max(verdict.figures["drift"].values()) < 1e-6, verdict
    assert verdict.code.startswith(f"code: that of tfm_zoo {tfm_zoo.__version__}, file by file (")
    if head.__name__ not in KINDS:
        return
    rounded = verify(folder, dtype="bfloat16")
    most = max(rounded.figures["drift"].values())
    assert most > 1e-4 and rounded.ok == (most <= TOLERANCE["bfloat16"]), rounded
    changed = Path(shutil.copytree(folder, tmp_path / "changed"))
    tensors(lambda given: {name: 1.01 * tensor for name, tensor in given.items()})(changed)
    found = {one.split()[1] for one in verify(changed).differences if one.startswith("output ")}
    assert found == fingerprint["outputs"].keys()


def test_tables_that_no_checkpoint_holds(checkpoints, tmp_path):
    """Rotary tables stay in float32, in which half precision is read and written (in bfloat16 their frequencies would
    be off by half a percent), and are there on whatever device a model is loaded to."""
    model = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(checkpoints["rotary"], dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    again = tfm_zoo.TfmBertForSequenceClassification.from_pretrained(tmp_path, dtype="auto")
    assert again.dtype == torch.bfloat16 and {buffer.dtype for buffer in again.buffers()} == {torch.float32}
    assert logits(again).equal(logits(model))
    load = tfm_zoo.TfmGPTForCausalLM.from_pretrained  # whose embeddings are tied
    one, other = (load(checkpoints["decoder_rotary"], device_map=place) for place in ("auto", None))
    assert logits(one).equal(logits(other))


def generate(model, folder):
    model.generate(torch.tensor([[5, 6]]), max_new_tokens=2)
    model.save_pretrained(folder)


def wrap(model, folder):
    """As engines wrap layers to recompute activations."""
    apply_activation_checkpointing(model, check_fn=lambda module: type(module).__name__ == "TfmLayer")
    assert any("_checkpoint_wrapped_module" in name for name, _ in model.named_parameters())
    model.save_pretrained(folder)
    next(model.parameters()).ds_tensor = None  # as ZeRO-3 marks what it divides
    with pytest.raises(ValueError, match="is sharded: pass state_dict=acc"):
        model.save_pretrained(folder)


def in_autocast(model, folder):
    """In the midst of a training, which goes on."""
    model.train().lm_head.eval()
    with torch.autocast("cpu", torch.bfloat16):
        model.save_pretrained(folder)
    assert [each.training for each in (model, model.model, model.lm_head)] == [True, True, False]


def compiled(model, folder):
    model.compile(backend=lambda *_: pytest.fail("what was compiled is run"))
    model.save_pretrained(folder)


def where_float32_is_multiplied_in_less(model, folder):
    backends, seen = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul), []
    model.register_forward_pre_hook(lambda *_: seen.extend(each.fp32_precision for each in backends))
    torch.set_float32_matmul_precision("medium")
    try:
        model.save_pretrained(folder)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert {*seen} == {"ieee"}


WAYS = {tfm_zoo.TfmGPTForCausalLM: (generate, wrap), tfm_zoo.TfmEncoderDecoderForConditionalGeneration: (wrap,)}
WAYS |= {tfm_zoo.TfmBertForMaskedLM: (wrap, in_autocast, compiled, where_float32_is_multiplied_in_less)}


@pytest.mark.parametrize(("head", "save"), [(head, save) for head, ways in WAYS.items() for save in ways])
def test_what_is_saved_does_not_depend_on_how_a_model_is_held(head, save, tmp_path):
    """The same bytes, and weights that lie as they lay."""
    model = tiny_model(head)
    model.save_pretrained(tmp_path / "plain")
    save(model, tmp_path / "held")
    held, plain = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("held", "plain"))
    assert held == plain and all(parameter.is_contiguous() for parameter in model.parameters())


def test_other_weights_that_are_given(tmp_path, here):
    given = tiny_model(tfm_zoo.TfmBertForMaskedLM, 1).bfloat16().state_dict()
    tiny_model(tfm_zoo.TfmBertForMaskedLM).save_pretrained(tmp_path, state_dict=given)
    verdict = verify(tmp_path, dtype="float32")
    assert verdict.ok and max(verdict.figures["drift"].values()) < 1e-6, verdict


def test_files_of_sentence_transformers_stay_behind(tmp_path, caplog):
    """This is told once, of an encoder, unless the folder has them."""
    encoders.save(official := tmp_path / "official")
    encoders.write_files(tmp_path / "whole")
    told = f"{official} (1_Pooling/config.json, config_sentence_transformers.json, modules.json, sentence_bert_config."
    for head, name in ((tfm_zoo.TfmBertForMaskedLM, "head"), (None, "whole"), (None, "bare"), (None, "again")):
        tfm_zoo.from_official(official, head).save_pretrained(tmp_path / name)
        assert caplog.text.count(told) == (name in ("bare", "again"))
    command("convert", official, tmp_path / "zoo")
    card = (tmp_path / "zoo" / "README.md").read_text()
    assert "library_name: sentence-transformers" in card and 'SentenceTransformer("zoo", trust_remote' in card
