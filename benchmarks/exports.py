"""`python -m benchmarks exports ENCODER`: what `tfm-zoo verify` says of exports that have lost something, and in how
many seconds, imports included. (Tests judge ONNX alone, since CI has not the other engines.)"""

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Annotated

import torch
import typer
from torch import nn
from transformers import AutoModel, PreTrainedModel

from .leaderboard.in_llama_cpp import write_gguf


def verify(fault: str, *words: object) -> None:
    """Prints the seconds of `tfm-zoo verify`, and the first line that tells what it found."""
    start = perf_counter()
    command = [sys.executable, "-c", "from tfm_zoo.cli import app; app()", "verify", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    took, said = perf_counter() - start, " ".join((done.stdout or done.stderr).split())
    print(f"{fault:24} {took:5.1f} s  exit {done.returncode}  {said[:300]}", flush=True)


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


def main(encoder: Annotated[Path, typer.Argument(help="folder of a BERT")]) -> None:
    """Writes an export without a pooler, one of rounded weights, and one of llama.cpp; and verifies each."""
    import openvino

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
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
