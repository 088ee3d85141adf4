"""Who is compared: how each loads a model, as its own documentation recommends, and what it needs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch

from tfm_zoo.inference.packing.products import has_onednn

from . import in_ctranslate2, in_graphs, in_llama_cpp, in_torch
from .tasks import CLASSIFY, DECODE, EMBED, TRANSLATE, Given, Runner

ENCODING, ALL, ONNX = (EMBED, CLASSIFY), (EMBED, CLASSIFY, DECODE, TRANSLATE), "onnx onnxruntime onnxscript"


@dataclass(frozen=True)
class Contender:
    """One row of the tables.

    Args:
        load: makes a runner of what a task gives.
        command: what a user writes.
        kinds: of tasks that it can do.
        packages: that have to be installed.
    """

    load: Callable[[Given], Runner]
    command: str
    kinds: tuple[str, ...] = ALL
    packages: tuple[str, ...] = ()

    def lacks(self) -> str:
        """Why it does not run here; empty if it does."""
        if missing := [name for name in self.packages if find_spec(name) is None]:
            return f"{', '.join(missing)} not installed"
        return "this CPU has no bfloat16" if "bfloat16" in self.command and not has_onednn(torch.bfloat16) else ""


def row(command: str, kinds: tuple[str, ...], packages: str, load: Callable, *arguments, **options) -> Contender:
    return Contender(partial(load, *arguments, **options), command, kinds, tuple(packages.split()))


def zoo(dtype: str, kinds: tuple[str, ...] = ALL, more: str = "", **options) -> Contender:
    given = "" if dtype == "chosen" else f', "{dtype}"'
    return row(f"pack_weights(from_official(model){given}{more})", kinds, "", in_torch.zoo, dtype, **options)


BFLOAT16 = torch.bfloat16
CT2, CT2_KINDS = "ct2-transformers-converter --model folder", (EMBED, DECODE, TRANSLATE)
CONTENDERS = {
    "official, float32": row("from_pretrained(folder)", ALL, "", in_torch.official),
    "official, bfloat16": row(
        "from_pretrained(folder, dtype=torch.bfloat16)", ALL, "", in_torch.official, dtype=BFLOAT16
    ),
    "zoo": row("from_official(model)", ALL, "", in_torch.zoo, None),
    "zoo, packed as chosen": zoo("chosen"),
    "zoo, float32": zoo("float32"),
    "zoo, bfloat16": zoo("bfloat16"),
    "zoo, all bfloat16": row(
        'pack_weights(from_official(model.bfloat16()), "bfloat16")',
        *(ALL, "", in_torch.zoo, "bfloat16"),
        model_dtype=BFLOAT16,
    ),
    "zoo, int8": zoo("int8"),
    "zoo, int8, calibrated": zoo("int8", ENCODING, ", calibrate=batches", least_cosine=0.99),
    "zoo, int8, calibrated to 0.995": zoo(
        "int8", ENCODING, ", calibrate=batches, least_cosine=0.995", least_cosine=0.995
    ),
    "zoo, int8, compiled": zoo("int8", (DECODE,), ", compile=True", compile=True),
    "zoo, int4": zoo("int4", (DECODE,)),
    "OpenVINO, float32": row(
        'compile_model(convert_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})',
        *(ENCODING, "openvino", in_graphs.openvino, "f32"),
    ),
    "OpenVINO, bfloat16": row(
        'compile_model(convert_model(model), "CPU")  # bfloat16, where the CPU has it',
        *(ENCODING, "openvino", in_graphs.openvino, "bf16"),
    ),
    "OpenVINO, int8": row(
        "nncf.quantize(convert_model(model), dataset, model_type=ModelType.TRANSFORMER)",
        *(ENCODING, "openvino nncf", in_graphs.openvino, "int8"),
    ),
    "OpenVINO, int8, accuracy control": row(
        "nncf.quantize_with_accuracy_control(..., max_drop=0.003)",
        *(ENCODING, "openvino nncf", in_graphs.openvino, "int8 controlled"),
    ),
    "OpenVINO, int8, dynamic": row(
        'compile_model(nncf.compress_weights(model), "CPU", {"DYNAMIC_QUANTIZATION_GROUP_SIZE": "32"})',
        *(ENCODING, "openvino nncf", in_graphs.openvino, "int8 dynamic"),
    ),
    "ONNX Runtime, float32": row('optimize_model(export(model), "bert")', ENCODING, ONNX, in_graphs.onnx, False),
    "ONNX Runtime, int8": row(
        "quantize_dynamic(export(model), weight_type=QInt8)", ENCODING, ONNX, in_graphs.onnx, True
    ),
    "CTranslate2, float32": row(CT2, CT2_KINDS, "ctranslate2", in_ctranslate2.load, "float32"),
    "CTranslate2, int8": row(
        f"{CT2} --quantization int8", CT2_KINDS, "ctranslate2", in_ctranslate2.load, "int8_float32"
    ),
    **{
        f"llama.cpp, {kind}": row(
            f'Llama(model_path="model-{kind}.gguf", n_threads=threads)',
            *((DECODE,), "llama_cpp gguf", in_llama_cpp.load, kind),
        )
        for kind in ("F32", "Q8_0", "Q4_K_M")
    },
    "torchao, int8": row(
        "quantize_(model, Int8DynamicActivationInt8WeightConfig()); model.compile()",
        *(ENCODING, "torchao", in_torch.torchao, "int8"),
    ),
    "torchao, int8, calibrated": row(
        "convert_pt2e(prepare_pt2e(export(model), X86InductorQuantizer())); torch.compile() with freezing",
        *(ENCODING, "torchao", in_torch.torchao_x86),
    ),
    "torchao, int4": row(
        'quantize_(model.bfloat16(), Int4WeightOnlyConfig(32, int4_packing_format="opaque"))',
        *((DECODE,), "torchao", in_torch.torchao, "int4"),
    ),
}
