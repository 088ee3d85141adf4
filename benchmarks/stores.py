"""`python -m benchmarks stores ENCODER`: seconds in which `tfm-zoo verify` names what changed under a store of vectors,
or what an export has lost. Each is a process of its own, whose imports count.

ENCODER is a BERT with the files of sentence-transformers. RoBERTa and MPNet stand in at its sizes, with random weights.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Annotated

import pandas as pd
import torch
import transformers
import typer
from torch import nn
from transformers import AutoModel, PreTrainedModel

from tests.encoders import texts, weights, write, write_files
from tests.proof.test_vectors import PARTS, edit_row, nudge, swap
from tfm_zoo import CorpusReader
from tfm_zoo.corpus.run import CorpusRun
from tfm_zoo.corpus.source import Corpus

from .leaderboard.in_llama_cpp import write_gguf

VERIFY = "from tfm_zoo.cli import app; app()"
#: what a release of transformers could do
POSITIONS = """
import torch; from transformers.models.roberta.modeling_roberta import RobertaEmbeddings as embeddings
embeddings.create_position_ids_from_input_ids = staticmethod(
    lambda ids, *_, **__: torch.arange(ids.shape[1]).expand_as(ids))
"""
BIAS = """
import torch; from transformers.models.mpnet.modeling_mpnet import MPNetEncoder as encoder
encoder.compute_position_bias = lambda self, x, *_, **__: torch.zeros(
    x.shape[0], self.config.num_attention_heads, x.shape[1], x.shape[1])
"""


def another_release(tensors: dict) -> dict:
    return {name: each * 1.01 if each.is_floating_point() else each for name, each in tensors.items()}


def keep_capitals(model: Path) -> None:
    path = model / "tokenizer_config.json"
    write(path, json.loads(path.read_text()) | {"do_lower_case": False})


write_settings = partial(write_files, cut=256)
#: fault -> what makes it, at a model and its store
FAULTS: dict[str, Callable[[SimpleNamespace], object]] = {
    "nothing has changed": lambda at: None,
    "another release of the model": lambda at: weights(another_release)(at.model),
    "one weight off by 1e-3": lambda at: weights(nudge)(at.model),
    "a tokenizer that keeps capitals": lambda at: keep_capitals(at.model),
    "truncation 128 for 256": lambda at: write_files(at.model, cut=128),
    "cls for the mean": lambda at: write_settings(at.model, pooling="cls"),
    "no normalisation": lambda at: write_settings(at.model, normalize=False),
    "a prompt dropped": lambda at: write_settings(at.model, prompt=""),
    "a part exchanged": lambda at: shutil.copy(at.store / PARTS[1], at.store / PARTS[3]),
    "two parts swapped": swap,
    "a row edited": partial(edit_row, column="embedding"),
}
#: a fault of the library, and the class that it is in
RELEASES = {"RoBERTa's positions from 0": (POSITIONS, "Roberta"), "another attention bias": (BIAS, "MPNet")}


def verify(fault: str, *words: object, before: str = "") -> None:
    """Prints the seconds of `tfm-zoo verify`, and the first line that tells what it found."""
    start = perf_counter()
    command = [sys.executable, "-c", before + VERIFY, "verify", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    took, said = perf_counter() - start, " ".join((done.stdout or done.stderr).split())
    said = re.sub(r"/\S*/", "", said)
    print(f"{fault:32} {took:5.1f} s  exit {done.returncode}  {said[:200]}", flush=True)


def embed(model: Path, rows: Path, store: Path) -> Path:
    reader = CorpusReader.from_pretrained(str(model))
    CorpusRun(Corpus.open(data_files=[str(rows)], keep=("text",)), reader, store, rows_per_part=1024)()
    return store


def stand_in(encoder: Path, kind: str, folder: Path) -> Path:
    """The encoder's files, with random weights of another class."""
    shutil.copytree(encoder, folder)
    own = transformers.AutoConfig.from_pretrained(encoder)
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    fields = {name: getattr(own, name) for name in names} | {"max_position_embeddings": 514}
    model_class = getattr(transformers, f"{kind}Model")
    model_class(model_class.config_class(**fields)).save_pretrained(folder)
    return folder


class States(nn.Module):
    """A model that has lost its pooler."""

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(input_ids, attention_mask, token_type_ids)[0]


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


def write_bert(model: PreTrainedModel, path: Path) -> None:
    """In GGUF, which has no pooler."""
    import gguf

    names, weights, tensors = {ours: f"embeddings.{name}" for ours, name in EMBEDDINGS.items()}, model.state_dict(), {}
    for index in range(model.config.num_hidden_layers):
        names |= {f"blk.{index}.{ours}": f"encoder.layer.{index}.{theirs}" for ours, theirs in LAYER.items()}
    for ours, theirs in names.items():
        for kind in {"weight", "bias"} & {name.removeprefix(f"{theirs}.") for name in weights}:
            tensors[f"{ours}.{kind}"] = weights[f"{theirs}.{kind}"]
    more = {"layer_norm_eps": model.config.layer_norm_eps, "token_type_count": model.config.type_vocab_size}
    more |= {"causal_attention": False, "pooling_type": gguf.PoolingType.CLS}
    write_gguf(path, "bert", model.config, tensors, **more)


def judge_exports(encoder: Path, folder: Path) -> None:
    import openvino

    model = AutoModel.from_pretrained(encoder, attn_implementation="eager").eval()
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = dict.fromkeys(names, torch.ones(2, 7, dtype=torch.long))
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    options = {"input_names": names, "output_names": ["last_hidden_state"], "dynamic_shapes": (axes,) * 3}
    torch.onnx.export(States(model), (*inputs.values(),), folder / "lost.onnx", **options, verbose=False)
    openvino.save_model(openvino.convert_model(model, example_input=inputs), folder / "rounded.xml")
    write_bert(model, folder / "lost.gguf")
    verify("ONNX without the pooler", folder / "lost.onnx", "--against", encoder)
    verify("OpenVINO in bfloat16", folder / "rounded.xml", "--against", encoder)
    verify("GGUF without the pooler", folder / "lost.gguf", "--against", encoder)


def main(
    encoder: Annotated[Path, typer.Argument(help="a folder")],
    rows: Annotated[int, typer.Option(help="Texts of the store.")] = 4096,
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        table = root / "texts.parquet"
        pd.DataFrame({"text": [f"{number} {text}" for number, text in enumerate(texts(rows))]}).to_parquet(table)
        prompted = Path(shutil.copytree(encoder, root / "encoder"))
        write_settings(prompted)
        store = embed(prompted, table, root / "store")
        for fault, change in FAULTS.items():
            model, copy = (Path(shutil.copytree(each, root / f"{each.name}-now")) for each in (prompted, store))
            change(SimpleNamespace(model=model, store=copy))
            verify(fault, copy, "--model", model)
            shutil.rmtree(model), shutil.rmtree(copy)
        for fault, (patch, kind) in RELEASES.items():
            model = stand_in(prompted, kind, root / kind)
            verify(fault, embed(model, table, root / f"{kind}-store"), "--model", model, before=patch)
        judge_exports(encoder, root)
