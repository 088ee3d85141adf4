"""Exports of a model, judged by what they compute: what they have lost is named."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from tfm_zoo.proof import engines, exports, record
from tfm_zoo.proof.kinds import kind_of
from tfm_zoo.proof.reading import Reading
from tfm_zoo.proof.reference import Reference, at_positions
from tfm_zoo.utils.quiet import silenced_export

from ..encoders import make, save, tokenizer
from .test_vectors import verified

NAMES = ("input_ids", "attention_mask", "token_type_ids")
TYPES = {"type_vocab_size": 2, "num_labels": 3, "layer_norm_eps": 1e-7, "max_position_embeddings": 600}


class Graph(nn.Module):
    """A model as a graph, which gives some of its outputs."""

    def __init__(self, model: PreTrainedModel, *names: str, **changes: Callable):
        super().__init__()
        self.model, self.names, self.changes = model, names, changes

    def forward(self, input_ids, attention_mask, token_type_ids):
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        for change in self.changes.values():
            inputs |= change(inputs)
        outputs = self.model(**inputs)
        return tuple(outputs[name] for name in self.names)


def exported(graph: Graph, file: Path) -> Path:
    example = tuple(torch.ones(2, 7, dtype=torch.long) for _ in NAMES)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    file.parent.mkdir(exist_ok=True)
    names = {"input_names": NAMES, "output_names": graph.names, "dynamic_shapes": (axes, axes, axes)}
    with silenced_export():
        torch.onnx.export(graph.eval(), example, file, **names, verbose=False)
    return file


#: names of tensors in a file of GGUF -> those of the official class
LAYER = {
    **{"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value"},
    **{"attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm"},
    **{"ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm"},
}
EMBEDDINGS = {
    **{"token_embd": "word_embeddings", "position_embd": "position_embeddings"},
    **{"token_types": "token_type_embeddings", "token_embd_norm": "LayerNorm"},
}


def write_bert(model: PreTrainedModel, path: Path, gguf: ModuleType) -> None:
    from benchmarks.leaderboard.in_llama_cpp import write_gguf

    names, weights, tensors = {ours: f"embeddings.{name}" for ours, name in EMBEDDINGS.items()}, model.state_dict(), {}
    for index in range(model.config.num_hidden_layers):
        names |= {f"blk.{index}.{ours}": f"encoder.layer.{index}.{theirs}" for ours, theirs in LAYER.items()}
    for ours, theirs in names.items():
        for kind in {"weight", "bias"} & {name.removeprefix(f"{theirs}.") for name in weights}:
            tensors[f"{ours}.{kind}"] = weights[f"{theirs}.{kind}"]
    more = {"layer_norm_eps": model.config.layer_norm_eps, "token_type_count": model.config.type_vocab_size}
    more |= {"causal_attention": False, "pooling_type": gguf.PoolingType.CLS}
    write_gguf(path, "bert", model.config, tensors, **more)


class Pretended(engines.Engine):
    """An export that computes what a model computes, but for what a test takes away."""

    title, dtype = "a pretended engine", "float32"

    def __init__(self, model: PreTrainedModel, loss: str, dtype: str = "float32"):
        self.reference, self.loss, self.dtype = Reference(model, None), loss, dtype

    def __call__(self, inputs):
        loss = next((each for each in self.reference.losses(inputs) if each.name == self.loss), None)
        outputs = self.reference(inputs, loss)
        return {name: outputs[name] for name in self.reference.own}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    for name in ("BertModel", "BertForSequenceClassification"):
        model = make(name, **TYPES)
        model.save_pretrained(root / name)
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


RIGHT = "export: the export computes what the model computes, up to 512 tokens: logits within 0"


@pytest.mark.parametrize(
    ("export", "said"),
    [
        (lambda: Pretended(CLASSIFIER(), ""), {RIGHT: True}),
        (
            lambda: Pretended(CLASSIFIER().bfloat16().float(), "", "bfloat16"),
            {RIGHT: True, "in bfloat16, which allows 0.05": True, "in float32": False},
        ),
        (lambda: Pretended(CLASSIFIER(seed=1), ""), {"logits drifted by": True, "float32 allows 0.0001": True}),
    ],
    ids=["sound", "rounded", "another model"],
)
def test_bounds_are_those_of_the_type(models, export, said):
    found = judged(models, "BertForSequenceClassification", export())
    assert {words: words in found for words in said} == said


def test_the_model_itself_has_changed(models, tmp_path):
    model, other = shutil.copytree(models / "BertModel", tmp_path / "model"), BERT(seed=1)
    other.save_pretrained(model)
    said = judged(tmp_path, "model", Pretended(other, ""))
    assert f"{model} itself is not what was recorded: output last_hidden_state drifted" in said
    (model / "zoo_manifest.json").unlink()
    said = judged(tmp_path, "model", Pretended(other, ""))
    assert "computes what the model computes" in said and "was not recorded (`tfm-zoo record`)" in said


class Pooling(Pretended):
    """An export that also pools."""

    def __call__(self, inputs):
        outputs = self.reference(inputs)
        return {"token_embeddings": outputs["last_hidden_state"], "sentence_embedding": outputs[self.loss]}


def test_vectors_without_length_1(tmp_path):
    engine = Pooling(save(tmp_path / "model"), "sentence_embedding")
    engine.reference.reading = Reading(pooling="mean", normalize=True)
    said = judged(tmp_path, "model", engine)
    assert "the pooler was lost (its vectors are pooled by mean, and do not read it)" in said
    engine.loss = "pooled"
    assert "it has lost normalisation" in judged(tmp_path, "model", engine)


@pytest.mark.slow
def test_onnx(models, tmp_path):
    """By ONNX Runtime, from the command."""
    bert, classifier = models / "BertModel", models / "BertForSequenceClassification"
    names = ("last_hidden_state", "pooler_output")
    exported(Graph(BERT(), *names), tmp_path / "onnx/model.onnx")
    said = verified(tmp_path, "--against", bert)
    assert "up to 512 tokens: last_hidden_state within" in said and "ONNX Runtime" in said
    base = exported(Graph(BERT(), "last_hidden_state"), tmp_path / "base.onnx")
    assert "pooler_output is missing: the pooler was lost" in verified(base, "--against", bert, code=1)
    said = verified(base, "--against", classifier, code=1)
    assert "logits is missing: the head of BertForSequenceClassification was lost" in said
    short = Graph(BERT(), *names, cut=at_positions(0, 64))
    said = verified(exported(short, tmp_path / "short.onnx"), "--against", bert, code=1)
    assert "it has lost positions behind token 64" in said and "sequences of up to 64 tokens are right" in said


@pytest.mark.slow
def test_openvino(models, tmp_path):
    """It computes in bfloat16 where the processor can, which is right, and said."""
    openvino = pytest.importorskip("openvino")
    model = BERT()
    example = dict.fromkeys(NAMES, torch.ones(2, 7, dtype=torch.long))
    with silenced_export():
        whole = openvino.convert_model(model, example_input=example)
        lost = openvino.convert_model(Graph(model, "last_hidden_state"), example_input=example)
    openvino.save_model(whole, tmp_path / "openvino_model.xml")
    openvino.save_model(lost, tmp_path / "lost.xml", compress_to_fp16=False)
    said = verified(tmp_path, "--against", models / "BertModel")
    assert "up to 512 tokens: last_hidden_state within" in said and "OpenVINO" in said
    assert "in bfloat16, which allows 0.05" in said or "in float16, which allows 0.01" in said
    assert "the pooler was lost" in verified(tmp_path / "lost.xml", "--against", models / "BertModel", code=1)


@pytest.mark.slow
def test_gguf(tmp_path):
    """llama.cpp has no pooler for BERT, and gives all tokens one type."""
    pytest.importorskip("llama_cpp")
    gguf = pytest.importorskip("gguf")
    for types in (1, 2):
        model = make("BertModel", **TYPES | {"type_vocab_size": types, "hidden_size": 64, "intermediate_size": 96})
        model.save_pretrained(tmp_path / "model")
        write_bert(model, tmp_path / "model.gguf", gguf)
        said = verified(tmp_path / "model.gguf", "--against", tmp_path / "model", code=1)
        assert "pooler_output is missing: the pooler was lost" in said
        assert ("it has lost token types" in said) == (types == 2)


@pytest.mark.slow
def test_ctranslate2(tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    fields = {"max_position_embeddings": 130, "type_vocab_size": 1}
    model = make("RobertaModel", **fields)
    model.save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text()) | {"position_embedding_type": "absolute"}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    ctranslate2.converters.TransformersConverter(str(tmp_path / "model")).convert(str(tmp_path / "engine"))
    assert kind_of(tmp_path / "engine") == "export"
    said = verified(tmp_path / "engine", "--against", tmp_path / "model")
    assert "pooler_output within" in said and "in float32" in said
    quantised = ctranslate2.converters.TransformersConverter(str(tmp_path / "model"))
    quantised.convert(str(tmp_path / "rounded"), quantization="int8")
    assert "in int8, which allows 0.25" in verified(tmp_path / "rounded", "--against", tmp_path / "model")


def test_bad_input(models, tmp_path):
    bert = models / "BertModel"
    (tmp_path / "x.onnx").write_bytes(b"nothing")
    assert "x.onnx cannot be opened" in verified(tmp_path / "x.onnx", "--against", bert, code=1)
    assert "name the model that it was made from with --against" in verified(tmp_path / "x.onnx", code=1)
    assert "holds no export that is known here" in verified(bert, "--against", bert, code=1)
    assert "There is no folder" in verified(tmp_path / "x.onnx", "--against", tmp_path / "nowhere", code=1)
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    with patch.object(engines, "import_module", side_effect=ModuleNotFoundError("llama_cpp")):
        said = verified(tmp_path / "x.gguf", "--against", bert, code=1)
    assert "llama-cpp-python is not installed, which runs this export: pip install llama-cpp-python" in said
