"""Any model that an Auto class loads is recorded and verified; whose code it is, is told before anything runs."""

import errno
import json
import shutil
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
import transformers
from huggingface_hub import HfApi
from safetensors.torch import load_file
from torchao.quantization import Int8WeightOnlyConfig

import tfm_zoo
from tfm_zoo.proof import manifest, verify

from ..command import tfm_zoo as command
from ..official_models import BY_NAME, build_tiny
from ..tiny import tiny_decoder
from .editing import CONFIG, MANIFEST, both, delete, edit, edited, replace, tensors, write

OFFICIAL = (
    *("BertModel", "BertForMaskedLM", "BertForSequenceClassification", "BertForTokenClassification"),
    *("BertForQuestionAnswering", "BertForMultipleChoice", "ModernBertForMaskedLM", "GPT2LMHeadModel"),
    *("LlamaForCausalLM", "T5ForConditionalGeneration", "MarianMTModel", "BartForSequenceClassification"),
    "GPT2ForSequenceClassification",
)
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
IMAGE = {"image_size": 16, "patch_size": 8}
#: what reads images or sounds
SIGNALS = {
    "ViTForImageClassification": TINY | IMAGE | {"num_labels": 3},
    "ResNetModel": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    "CLIPModel": {
        "text_config": TINY | {"vocab_size": 99, "projection_dim": 8},
        "vision_config": TINY | IMAGE | {"projection_dim": 8},
        "projection_dim": 8,
    },
    "Wav2Vec2ForCTC": TINY | {"vocab_size": 9, "conv_dim": [8] * 7, "num_conv_pos_embedding_groups": 4},
    "ASTForAudioClassification": TINY | {"max_length": 32, "num_mel_bins": 16, "num_labels": 3},
    "WhisperForConditionalGeneration": {
        **{"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "num_mel_bins": 8, "vocab_size": 99},
        **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16},
        **{"max_source_positions": 20, "max_target_positions": 20, "pad_token_id": 0, "bos_token_id": 1},
        **{"eos_token_id": 2, "decoder_start_token_id": 3, "suppress_tokens": None, "begin_suppress_tokens": None},
    },
}
CODE = """
import torch
from transformers import PreTrainedConfig, PreTrainedModel

class MineConfig(PreTrainedConfig):
    model_type = "mine"

class Mine(PreTrainedModel):
    config_class = MineConfig

    def __init__(self, config):
        super().__init__(config)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.embed_tokens = torch.nn.Embedding(9, 4)
        self.post_init()

    def forward(self, input_ids):
        states = self.embed_tokens(input_ids)
        for layer in self.layers:
            states = states + layer(states)
        return states
"""


def make(name: str, **fields) -> transformers.PreTrainedModel:
    if name in SIGNALS:
        model_class = getattr(transformers, name)
        return model_class(model_class.config_class(**SIGNALS[name]))
    return build_tiny(BY_NAME[name], **fields | ({"pad_token_id": None} if name == OFFICIAL[-1] else {}))


@pytest.mark.parametrize("name", [*OFFICIAL, *SIGNALS])
def test_official_models(name, tmp_path, here):
    make(name).save_pretrained(tmp_path)
    path = tfm_zoo.record(tmp_path)
    fingerprint, verdict = json.loads(path.read_text())["fingerprint"], verify(tmp_path)
    assert verdict.ok and not verdict.warnings and verdict.figures["bit_for_bit"], verdict
    assert verdict.figures["loader"] == "transformers" and path.stat().st_size < 400_000
    assert len(fingerprint["states"]) > (5 if name in SIGNALS else 20)
    assert any(len(set(output["values"])) > 1 for output in fingerprint["outputs"].values())
    assert ("loss" in fingerprint["outputs"]) == ("For" in name or name.endswith(("HeadModel", "MTModel")))
    weights = load_file(tmp_path / "model.safetensors")
    largest = max(weights, key=lambda name: weights[name].numel())
    tensors(lambda given: given | {largest: given[largest] + 0.5 * given[largest].std()})(tmp_path)
    assert "weights changed: " in (changed := "".join(verify(tmp_path).differences)) and largest in changed


QUANTISED = {
    transformers.LlamaForCausalLM: transformers.TorchAoConfig(Int8WeightOnlyConfig(version=2)),
    tfm_zoo.TfmGPTForCausalLM: tfm_zoo.TfmQuantizationConfig(dtype="int8"),
}


@pytest.mark.parametrize("model_class", QUANTISED)
def test_quantised_and_sharded(model_class, tmp_path, here):
    whole, folder = tmp_path / "whole", tmp_path / "model"
    model = tiny_decoder() if model_class is tfm_zoo.TfmGPTForCausalLM else make("LlamaForCausalLM")
    model.save_pretrained(whole)
    model = model_class.from_pretrained(whole, quantization_config=QUANTISED[model_class])
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    tfm_zoo.record(folder)
    verdict = verify(folder)
    assert verdict.ok and max(verdict.figures["drift"].values()) == 0, verdict
    (weights, *_) = sorted(folder.glob("*.safetensors"))
    tensors(lambda given: {"model.layers.0.mlp.up_proj.weight": torch.ones(3)}, weights.name)(folder)
    assert any(one.startswith(("weights changed", "weights missing")) for one in verify(folder).differences)


def test_what_is_refused_by_name(tmp_path, here):
    """Of models in memory, too."""
    bert = make("BertModel")
    small = transformers.PatchTSTConfig(d_model=8, ffn_dim=8, num_attention_heads=2, num_hidden_layers=1)
    negated = tensors(lambda given: {name: -one for name, one in given.items()})
    patches, cannot = transformers.PatchTSTModel(small), "cannot be recorded: "
    for change, asked, message in (
        (both(write("adapter_config.json", "{}"), delete(CONFIG)), [tmp_path], f"{cannot}it is an adapter; merge it"),
        (edited(CONFIG, architectures=["Bart3Model"]), [tmp_path], f"{cannot}.*names class Bart3Model, which neither"),
        (patches.save_pretrained, [tmp_path], f"{cannot}.*a PatchTSTModel reads past_values, and "),
        (negated, [bert, tmp_path], f"{cannot}its embeddings.* is not that of the model in memory: save the model f"),
        (bert.save_pretrained, [bert], "folder is missing"),
        (bert.save_pretrained, [tmp_path, tmp_path], "is for a model in memory; where the manifest goes, output= says"),
        (bert.save_pretrained, [torch.nn.Linear(2, 2), tmp_path], "^Linear is not a model of transformers: record tak"),
    ):
        shutil.rmtree(tmp_path)
        bert.save_pretrained(tmp_path)
        change(tmp_path)
        with pytest.raises(ValueError, match=message):
            tfm_zoo.record(*asked)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_code_of_ones_own(tmp_path):
    """It runs where it is asked for, and after a change only where that is asked for too."""
    write("theirs.py", CODE)(tmp_path)
    auto_map = {"AutoConfig": "theirs.MineConfig", "AutoModel": "theirs.Mine"}
    edit(tmp_path, CONFIG, model_type="mine", auto_map=auto_map, vocab_size=9, pad_token_id=0)
    theirs = transformers.AutoConfig.from_pretrained(tmp_path, trust_remote_code=True)
    transformers.AutoModel.from_config(theirs, trust_remote_code=True).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"needs trust_remote_code=True \(code: somebody's own: theirs"):
        tfm_zoo.record(tmp_path)
    tfm_zoo.record(tmp_path, trust_remote_code=True)
    assert verify(tmp_path, trust_remote_code=True).ok
    assert verify(tmp_path).differences == ["it was not run, since that needs trust_remote_code=True"]
    replace("theirs.py", "states + layer", "states - layer")(tmp_path)
    changed, not_run = verify(tmp_path, trust_remote_code=True).differences
    assert changed == "code file theirs.py has been changed" and "run_changed=True" in not_run
    verdict = verify(tmp_path, trust_remote_code=True, run_changed=True)
    assert verdict.figures["first_change"]["part"] == "layers.1"  # the first that is given the changed sum


def test_what_a_full_disk_leaves(tmp_path, monkeypatch):
    """The old file, with its permissions, which the new one takes."""
    path = tmp_path / MANIFEST
    path.write_text("old")
    path.chmod(0o640)
    with monkeypatch.context() as full, pytest.raises(OSError, match=r"not written, and is as it was: .*No space left"):
        full.setattr("os.fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
        manifest.write({"date": "today"}, path)
    assert path.read_text() == "old" and [*tmp_path.iterdir()] == [path]
    manifest.write({"date": "today"}, path)
    assert path.read_text() != "old" and path.stat().st_mode & 0o777 == 0o640


def test_command(tmp_path, here):
    """A manifest elsewhere, a card that says so, and what is not recorded."""
    model, kept = tmp_path / "model", tmp_path / "kept.json"
    make("BertModel").save_pretrained(model)
    command("record", model, "-o", kept)
    write("a.csv", "a")(model)
    assert not (model / MANIFEST).exists()
    for _ in range(2):
        said = command("verify", model, "--manifest", kept, "--card")
    assert f"{model}: code: that of transformers" in said and "that do not belong to the model: a.csv" in said
    assert (model / "README.md").read_text().count("**Verified** on 20") == 1
    assert "'nowhere' is neither a folder nor a model" in command("record", "nowhere", code=1)
    assert "--card writes into the README.md" in command("verify", model, "--card", "--matrix", "torch==9", code=1)


def test_a_pull_request(online, here, tmp_path, monkeypatch):
    """The Hub of the tests takes none: what it is asked for is looked at."""
    make("BertModel").save_pretrained(tmp_path)
    online().create_repo("user/model")
    online().upload_folder(folder_path=tmp_path, repo_id="user/model")
    assert "output is missing: user/model is not a folder" in command("record", "user/model", code=1)
    sent = Mock(return_value=SimpleNamespace(pr_url="https://hub/user/model/discussions/1"))
    monkeypatch.setattr(HfApi, "upload_file", sent)
    assert command("record", "user/model", "--create-pr").endswith("in https://hub/user/model/discussions/1")
    assert sent.call_args.kwargs["create_pr"] and sent.call_args.kwargs["path_in_repo"] == MANIFEST
