"""Who is compared: how each loads a model, as its own documentation recommends, and what it needs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch

from tfm_zoo.inference.packing.products import has_onednn

from . import in_ctranslate2, in_graphs, in_llama_cpp, in_torch
from .tasks import CLASSIFY, DECODE, EMBED, TRANSLATE, Given, Runner

ENCODING, DECODING, ALL = (EMBED, CLASSIFY), (DECODE,), (EMBED, CLASSIFY, DECODE, TRANSLATE)


@dataclass(frozen=True)
class Contender:
    """One row of the tables.

    Args:
        command: what a user writes.
        load: makes a runner of what a task gives.
        kinds: of tasks that it can do.
        packages: that have to be installed.
    """

    command: str
    load: Callable[[Given], Runner]
    kinds: tuple[str, ...] = ALL
    packages: str = ""

    def lacks(self) -> str:
        """Why it does not run here; empty if it does."""
        if missing := [name for name in self.packages.split() if find_spec(name) is None]:
            return f"{', '.join(missing)} not installed"
        return "this CPU has no bfloat16" if "bfloat16" in self.command and not has_onednn(torch.bfloat16) else ""


def in_python(command: str, kinds: tuple[str, ...] = ALL) -> Contender:
    """Of torch: the command itself is run."""
    return Contender(command, partial(in_torch.computed, command), kinds)


def openvino(dtype: str, command: str) -> Contender:
    return Contender(command, partial(in_graphs.openvino, dtype), ENCODING, "openvino nncf")


def onnx(dtype: str, command: str) -> Contender:
    return Contender(command, partial(in_graphs.onnx, dtype), ENCODING, "onnx onnxruntime onnxscript")


def ctranslate2(dtype: str, more: str = "") -> Contender:
    command = f"ct2-transformers-converter --model folder{more}"
    return Contender(command, partial(in_ctranslate2.load, dtype), (EMBED, DECODE, TRANSLATE), "ctranslate2")


def llama_cpp(kind: str) -> Contender:
    command = f'Llama(model_path="model-{kind}.gguf", n_threads=threads)'
    return Contender(command, partial(in_llama_cpp.load, kind), DECODING, "llama_cpp gguf")


CONTENDERS = {
    "official, float32": in_python("model"),
    "official, bfloat16": in_python("model.bfloat16()"),
    "zoo": in_python("from_official(model)"),
    "zoo, packed as chosen": in_python("pack_weights(from_official(model))"),
    "zoo, float32": in_python('pack_weights(from_official(model), "float32")'),
    "zoo, bfloat16": in_python('pack_weights(from_official(model), "bfloat16")'),
    "zoo, all bfloat16": in_python('pack_weights(from_official(model.bfloat16()), "bfloat16")'),
    "zoo, int8": in_python('pack_weights(from_official(model), "int8")'),
    "zoo, int8, calibrated": in_python('pack_weights(from_official(model), "int8", calibrate=batches)', ENCODING),
    "zoo, int8, calibrated to 0.995": in_python(
        'pack_weights(from_official(model), "int8", calibrate=batches, least_cosine=0.995)', ENCODING
    ),
    "zoo, int8, compiled": in_python('pack_weights(from_official(model), "int8", compile=True)', DECODING),
    "zoo, int4": in_python('pack_weights(from_official(model), "int4")', DECODING),
    "OpenVINO, float32": openvino(
        "float32", 'compile_model(convert_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})'
    ),
    "OpenVINO, bfloat16": openvino(
        "bfloat16", 'compile_model(convert_model(model), "CPU")  # bfloat16, as the CPU has it'
    ),
    "OpenVINO, int8": openvino(
        "int8", "nncf.quantize(convert_model(model), dataset, model_type=ModelType.TRANSFORMER)"
    ),
    "ONNX Runtime, float32": onnx("float32", 'optimize_model(export(model), "bert")'),
    "ONNX Runtime, int8": onnx("int8", "quantize_dynamic(export(model), weight_type=QInt8)"),
    "CTranslate2, float32": ctranslate2("float32"),
    "CTranslate2, int8": ctranslate2("int8_float32", " --quantization int8"),
    "llama.cpp, F32": llama_cpp("F32"),
    "llama.cpp, Q8_0": llama_cpp("Q8_0"),
    "llama.cpp, Q4_K_M": llama_cpp("Q4_K_M"),
    "torchao, int8": Contender(
        "quantize_(model, Int8DynamicActivationInt8WeightConfig()); model.compile()",
        in_torch.torchao,
        ENCODING,
        "torchao",
    ),
}
