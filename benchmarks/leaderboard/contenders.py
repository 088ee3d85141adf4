"""Who is compared: how each loads a model, as its own documentation recommends, and what it needs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch

from tfm_zoo.packing.products import has_onednn

from . import in_ctranslate2, in_llama_cpp, in_onnx, in_openvino, in_torch
from .tasks import CLASSIFY, DECODE, EMBED, TRANSLATE

ENCODING, ALL = (EMBED, CLASSIFY), (EMBED, CLASSIFY, DECODE, TRANSLATE)


@dataclass(frozen=True)
class Contender:
    """One row of the tables.

    Args:
        load: takes the official model, the kind of task, its batches and a folder for converted files; it gives a
            function from a batch to outputs.
        kinds: of tasks that it can do.
        command: what a user writes.
        packages: that have to be installed.
    """

    load: Callable
    command: str
    kinds: tuple[str, ...] = ALL
    packages: tuple[str, ...] = ()

    def lacks(self) -> str:
        """Why it does not run here; empty if it does."""
        if missing := [name for name in self.packages if find_spec(name) is None]:
            return f"{', '.join(missing)} not installed"
        return "this CPU has no bfloat16" if "bfloat16" in self.command and not has_onednn(torch.bfloat16) else ""


def zoo(dtype: str | None, kinds: tuple[str, ...] = ALL, compile: bool = False) -> Contender:
    command = "from_official(model)"
    if dtype:
        options = (f', "{dtype}"' if dtype != "chosen" else "") + (", compile=True" if compile else "")
        command = f"pack_weights({command}{options})"
    return Contender(partial(in_torch.zoo, dtype, compile), command, kinds)


OPENVINO, ONNX = ("openvino",), ("onnx", "onnxruntime", "onnxscript")
CONTENDERS = {
    "official, float32": Contender(in_torch.official, "from_pretrained(folder)"),
    "official, bfloat16": Contender(
        partial(in_torch.official, dtype=torch.bfloat16), "from_pretrained(folder, dtype=torch.bfloat16)"
    ),
    "zoo": zoo(None),
    "zoo, packed as chosen": zoo("chosen"),
    "zoo, float32": zoo("float32"),
    "zoo, bfloat16": zoo("bfloat16"),
    "zoo, all bfloat16": Contender(
        partial(in_torch.zoo, "bfloat16", False, model_dtype=torch.bfloat16),
        'pack_weights(from_official(model.bfloat16()), "bfloat16")',
    ),
    "zoo, int8": zoo("int8"),
    "zoo, int8, compiled": zoo("int8", (DECODE,), compile=True),
    "zoo, int4": zoo("int4", (DECODE,)),
    "OpenVINO, float32": Contender(
        partial(in_openvino.load, "f32"),
        'compile_model(convert_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})',
        ENCODING,
        OPENVINO,
    ),
    "OpenVINO, bfloat16": Contender(
        partial(in_openvino.load, "bf16"),
        'compile_model(convert_model(model), "CPU")  # bfloat16, where the CPU has it',
        ENCODING,
        OPENVINO,
    ),
    "OpenVINO, int8": Contender(
        partial(in_openvino.load, "int8"),
        "nncf.quantize(convert_model(model), dataset, model_type=ModelType.TRANSFORMER)",
        ENCODING,
        (*OPENVINO, "nncf"),
    ),
    "ONNX Runtime, float32": Contender(
        partial(in_onnx.load, False), 'optimize_model(export(model), "bert")', ENCODING, ONNX
    ),
    "ONNX Runtime, int8": Contender(
        partial(in_onnx.load, True), "quantize_dynamic(export(model), weight_type=QInt8)", ENCODING, ONNX
    ),
    "CTranslate2, float32": Contender(
        partial(in_ctranslate2.load, "float32"),
        "ct2-transformers-converter --model folder",
        (EMBED, DECODE, TRANSLATE),
        ("ctranslate2",),
    ),
    "CTranslate2, int8": Contender(
        partial(in_ctranslate2.load, "int8_float32"),
        "ct2-transformers-converter --model folder --quantization int8",
        (EMBED, DECODE, TRANSLATE),
        ("ctranslate2",),
    ),
    **{
        f"llama.cpp, {kind}": Contender(
            partial(in_llama_cpp.load, kind),
            f'Llama(model_path="model-{kind}.gguf", n_threads=threads)',
            (DECODE,),
            ("llama_cpp", "gguf"),
        )
        for kind in ("F32", "Q8_0", "Q4_K_M")
    },
    "torchao, int8": Contender(
        partial(in_torch.torchao, "int8"),
        "quantize_(model, Int8DynamicActivationInt8WeightConfig()); model.compile()",
        ENCODING,
        ("torchao",),
    ),
    "torchao, int4": Contender(
        partial(in_torch.torchao, "int4"),
        'quantize_(model.bfloat16(), Int4WeightOnlyConfig(32, int4_packing_format="opaque"))',
        (DECODE,),
        ("torchao",),
    ),
}
