"""Exports of a model, judged by what they compute: what they have lost is named."""

import shutil
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from tfm_zoo.proof import engines, exports, record
from tfm_zoo.proof.exports import Pair, drift_of
from tfm_zoo.proof.reading import Reading
from tfm_zoo.proof.reference import Reference
from tfm_zoo.utils.quiet import silenced_export

from ..command import tfm_zoo
from ..encoders import CUT, make, save, tokenizer, write, write_files
from ..hub.editing import CONFIG, edit
from .test_vectors import UNUSED, verified

NAMES = ("input_ids", "attention_mask", "token_type_ids")
TYPES = {"type_vocab_size": 2, "num_labels": 3, "layer_norm_eps": 1e-7, "max_position_embeddings": 600}
TYPES |= {"num_hidden_layers": 1}


class Graph(nn.Module):
    """A model as a graph, which gives some of its outputs."""

    def __init__(self, model: PreTrainedModel, *names: str):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return tuple(self.model(**dict(zip(NAMES, inputs, strict=True)))[name] for name in self.names)

    def exported(self, file: Path) -> Path:
        example = tuple(torch.ones(2, 7, dtype=torch.long) for _ in NAMES)
        axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
        names = {"input_names": NAMES, "output_names": self.names, "dynamic_shapes": ((axes, axes, axes),)}
        with silenced_export():
            torch.onnx.export(self.eval(), example, file, **names, verbose=False)
        return file


class Pretended(engines.Engine):
    """An export that computes what a model computes, but for what a test takes away."""

    title, dtype = "a pretended engine", "float32"
    shown: dict[str, str] = {}  # outputs -> what the model calls them; without any, its own

    def __init__(self, model: PreTrainedModel, loss: str, dtype: str = "float32"):
        self.reference, self.loss, self.dtype = Reference(model, None), loss, dtype

    def __call__(self, inputs):
        loss = next((each for each in self.reference.losses(inputs) if each.name == self.loss), None)
        outputs = self.reference(inputs, loss)
        return {name: outputs[self.shown.get(name, name)] for name in self.shown or self.reference.own}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    for name in ("BertModel", "BertForSequenceClassification"):
        (model := make(name, **TYPES)).save_pretrained(root / name)
        record(model, root / name)
    return root


def judged(root: Path, name: str, engine: engines.Engine) -> str:
    with patch.object(exports, "open_export", lambda _: engine):
        return str(exports.verify_export("export", str(root / name)))


BERT, CLASSIFIER = (partial(make, name, **TYPES) for name in ("BertModel", "BertForSequenceClassification"))
LOSSES = ("token types", "the mask of padding", "the pooler", "the bias of classifier", "the embedding of token types")
LOSSES += ("positions behind token 64", "GELU as it is (it is computed by tanh)", "the epsilon of norms (it is 1e-05)")


@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_lost_is_named(models, loss):
    said = judged(models, "BertForSequenceClassification", Pretended(CLASSIFIER(), loss))
    assert f"it has lost {loss}: without it, the model is within" in said
    assert ("sequences of up to 64 tokens are right" in said) == ("behind token 64" in loss)


def test_bounds_are_those_of_the_type(models):
    right = "export: both compute the same, up to 512 tokens: logits within 0"
    said = partial(judged, models, "BertForSequenceClassification")
    assert right in said(Pretended(CLASSIFIER(), ""))
    rounded = said(Pretended(CLASSIFIER().bfloat16().float(), "", "bfloat16"))
    assert right in rounded and "in bfloat16, which allows 0.05" in rounded
    (more := Pretended(CLASSIFIER(), "")).shown = dict.fromkeys(("logits", "scores", "present.0.key"), "logits")
    assert "outputs that the model does not have: scores)" in said(more)
    another = said(Pretended(CLASSIFIER(seed=1), ""))
    assert "logits drifted by" in another and "float32 allows 0.0001" in another


def test_the_model_itself_has_changed(models, tmp_path):
    model, other = shutil.copytree(models / "BertModel", tmp_path / "model"), BERT(seed=1)
    other.save_pretrained(model)
    assert "last_hidden_state drifted by" in verified(model, "--against", models / "BertModel", code=1)
    said = judged(tmp_path, "model", Pretended(other, ""))
    assert f"{model} itself is not what was recorded: output last_hidden_state drifted" in said
    (model / "zoo_manifest.json").unlink()
    said = judged(tmp_path, "model", Pretended(other, ""))
    assert "both compute the same" in said and "was not recorded (`tfm-zoo record`)" in said


def test_what_lies_beside_an_export(models, tmp_path):
    """Its tokenizer and its pooling are those of the model, or a difference says so."""
    model, export = (shutil.copytree(models / "BertModel", tmp_path / name) for name in ("model", "onnx"))
    judge = partial(verified, export, "--against", model)
    for folder in (export, model):
        tokenizer().save_pretrained(folder)
        write_files(folder)
        said = judge()
        assert "last_hidden_state within 0" in said and (f"{model} has no modules.json" in said) == (folder == export)
    assert "warning" not in said
    write(model / "sentence_bert_config.json", {"do_lower_case": False})  # as newer releases save the length
    edit(model, "tokenizer_config.json", model_max_length=CUT)
    judge()
    UNUSED(export)
    write_files(export, pooling="cls")
    said = "the tokenizer has another vocabulary or other rules than the model's; pooling was 'mean' and is 'cls'"
    assert said in (answer := judge("--json", code=1)).replace('", "', "; ") and '"match"' not in answer
    (export / "tokenizer.json").write_text("{}")
    assert "warning: its tokenizer does not load: " in judge(code=1)
    (export / "model.safetensors").rename(export / "model.onnx")
    said = tfm_zoo("record", export, code=1)
    assert f"weights (*.safetensors); its model.onnx is an export, which `tfm-zoo verify {export} --against" in said


def test_vectors_without_length_1(tmp_path):
    """Of an export that also pools."""
    engine = Pretended(save(tmp_path / "model"), "")
    engine.reference.reading = Reading(pooling="mean", normalize=True)
    engine.shown = {"token_embeddings": "last_hidden_state", "sentence_embedding": "sentence_embedding"}
    said = judged(tmp_path, "model", engine)
    assert "(warning: pooler_output is missing: the pooler was lost (its vectors are pooled by mean" in said
    engine.shown["sentence_embedding"] = "pooled"
    assert "it has lost normalisation" in judged(tmp_path, "model", engine)
    engine.shown, engine.inputs = {"token_embeddings": "last_hidden_state"}, ("input_ids", "attention_mask")
    said = judged(tmp_path, "model", engine)
    assert "sentence_embedding within 0 (least cosine 1.000000) of" in said and "it reads no token types" in said


def test_rounding_counts_beside_the_usual_logits_of_a_classifier_in_doubt():
    found, expected = ({"logits": torch.tensor([[one, 0.0]])} for one in (0.0, 0.1))
    pair, names = Pair({"attention_mask": torch.ones(1, 9)}, found, expected), {"logits": "logits"}
    assert drift_of(pair, names)["logits"] == 1 and drift_of(pair, names, sizes={"logits": 2.0})["logits"] < 0.06


@pytest.mark.slow
def test_onnx(models, tmp_path):
    """By ONNX Runtime, from the command."""
    bert, classifier = models / "BertModel", models / "BertForSequenceClassification"
    (tmp_path / "onnx").mkdir()
    Graph(BERT(), "last_hidden_state", "pooler_output").exported(tmp_path / "onnx/model.onnx")
    said = verified(tmp_path, "--against", bert)
    assert "up to 512 tokens: last_hidden_state within" in said and "ONNX Runtime" in said
    base = Graph(BERT(), "last_hidden_state").exported(tmp_path / "base.onnx")
    assert "pooler_output is missing: the pooler was lost" in verified(base, "--against", bert, code=1)
    said = verified(base, "--against", classifier, code=1)
    assert "logits is missing: the head of BertForSequenceClassification was lost" in said


@pytest.mark.slow
def test_ctranslate2(tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    save(tmp_path / "model", "RobertaModel", files=False, max_position_embeddings=130, type_vocab_size=1)
    edit(tmp_path / "model", CONFIG, position_embedding_type="absolute")
    ctranslate2.converters.TransformersConverter(str(tmp_path / "model")).convert(str(tmp_path / "engine"))
    said = verified(tmp_path / "engine", "--against", tmp_path / "model")
    assert "pooler_output within" in said and "in float32" in said


def test_bad_input(models, tmp_path):
    bert = models / "BertModel"
    (tmp_path / "x.onnx").write_bytes(b"nothing")
    assert "x.onnx cannot be opened" in verified(tmp_path / "x.onnx", "--against", bert, code=1)
    assert "name the model that it was made from with --against" in verified(tmp_path / "x.onnx", code=1)
    assert "holds no export that is known here" in verified(models, "--against", bert, code=1)
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    (tmp_path / "model.bin").write_bytes(b"\6\0\0\0\x10\0TransformerSpec\0")
    said = verified(tmp_path / "model.bin", "--against", bert, code=1)
    assert "holds a translator. Of CTranslate2, only encoders and decoders can be compared" in said
    with patch.object(engines, "import_module", side_effect=ModuleNotFoundError("llama_cpp")):
        said = verified(tmp_path / "x.gguf", "--against", bert, code=1)
    assert "llama-cpp-python is not installed" in said
