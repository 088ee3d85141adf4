"""Exports of a model, each run by its own engine: what it computes for given inputs, and in which type.

Each engine is imported when a file asks for it, and an error says how it is installed.
"""

from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ..utils.errors import in_one_line
from ..utils.folder_kinds import DECODER, ENCODER, file_of_export, is_ctranslate2

Tensors = dict[str, torch.Tensor]
#: operators of ONNX that compute with rounded weights
ROUNDED = {
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "QLinearMatMul",
    "QuantizeLinear",
    "DynamicQuantizeMatMul",
    "QAttention",
}
ROUNDED_TO_4 = {"MatMulNBits", "MatMulBnb4"}


class Engine:
    """An export that can be run.

    Attributes:
        title: the engine and its version.
        dtype: the type that it computes in.
        is_padded: whether it takes padded batches with a mask; else rows are given one by one, without padding.
        has_two_sides: whether it is an encoder and a decoder, which also reads `decoder_input_ids`.
        inputs: the names of what it reads, if they are known.
    """

    title: str
    dtype: str = "float32"
    is_padded = True
    has_two_sides = False
    inputs: Collection[str] = ()

    def __call__(self, inputs: Tensors) -> Tensors:
        """Outputs by name for `input_ids` and `attention_mask`, `(batch, length)`, and what else the model reads."""
        raise NotImplementedError


def open_export(path: str | Path) -> Engine:
    """The export in a file or folder.

    Raises:
        FileNotFoundError: if there is no export.
        ModuleNotFoundError: if its engine is not installed.
        ValueError: for a file that the engine cannot read.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder.")
    file = file_of_export(Path(path))
    if file is None:
        kinds = "*.onnx, *.xml of OpenVINO, *.gguf, or model.bin of CTranslate2"
        raise FileNotFoundError(f"{path} holds no export that is known here ({kinds}).")
    engines = {".onnx": OnnxRuntime, ".xml": OpenVino, ".gguf": LlamaCpp, ".bin": CTranslate2}
    if file.suffix == ".bin" and not is_ctranslate2(file):
        raise ValueError(f"{file} is not a model of CTranslate2.")
    engine = engines[file.suffix]
    decoder = file.with_name(file.name.replace(ENCODER, DECODER))
    try:
        return TwoSides(engine(file), engine(decoder)) if ENCODER in file.name and decoder.exists() else engine(file)
    except (ModuleNotFoundError, ValueError):
        raise
    except Exception as error:  # each engine has errors of its own
        raise ValueError(f"{file} cannot be opened: {in_one_line(error)}") from error


def imported(name: str, package: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{package} is not installed, which runs this export: pip install {package}"
        ) from error


class OnnxRuntime(Engine):
    """An ONNX file. What it reads beside the given inputs is made: positions, and caches of length 0."""

    def __init__(self, file: Path):
        onnxruntime = imported("onnxruntime", "onnxruntime")
        self.title = f"ONNX Runtime {onnxruntime.__version__}"
        self.session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        self.inputs = {each.name: each for each in self.session.get_inputs()}
        self.outputs = [each.name for each in self.session.get_outputs()]
        self.dtype = self.type_of(file)

    def type_of(self, file: Path) -> str:
        """By the operators and the weights in the file, where the package `onnx` can read them."""
        outputs = {each.type for each in self.session.get_outputs()}
        try:
            onnx = import_module("onnx")
        except ModuleNotFoundError:
            return "float16" if "tensor(float16)" in outputs else "float32"
        graph = onnx.load(file, load_external_data=False).graph
        operators = {node.op_type for node in graph.node}
        if operators & ROUNDED_TO_4:
            return "int4"
        if operators & ROUNDED:
            return "int8"
        sizes: dict[str, int] = {}
        for tensor in graph.initializer:
            name = onnx.TensorProto.DataType.Name(tensor.data_type)
            sizes[name] = sizes.get(name, 0) + int(np.prod(tensor.dims))
        largest = max(sizes, key=sizes.__getitem__, default="FLOAT")
        return {"FLOAT16": "float16", "BFLOAT16": "bfloat16"}.get(largest, "float32")

    def __call__(self, inputs: Tensors) -> Tensors:
        given = {name: inputs[name].numpy() if name in inputs else self.made(name, inputs) for name in self.inputs}
        for name, array in given.items():
            kind = self.inputs[name].type
            given[name] = array.astype({"tensor(int32)": np.int32, "tensor(int64)": np.int64}.get(kind, array.dtype))
        found = self.session.run(None, given)
        return {name: torch.from_numpy(np.asarray(value)) for name, value in zip(self.outputs, found, strict=True)}

    def made(self, name: str, inputs: Tensors) -> np.ndarray:
        rows, length = inputs["input_ids"].shape
        if name == "position_ids":
            return (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0).numpy()
        if name == "token_type_ids":
            return np.zeros((rows, length), dtype=np.int64)
        if name.startswith("past_key_values"):
            dtype = np.float16 if "float16" in self.inputs[name].type else np.float32
            heads, size = (one for one in self.inputs[name].shape if isinstance(one, int) and one > 0)
            return np.zeros((rows, heads, 0, size), dtype=dtype)
        raise ValueError(f"it reads {name}, which the recorded inputs of the model do not have.")


class OpenVino(Engine):
    """An OpenVINO IR, in the type that OpenVINO chooses for this machine."""

    def __init__(self, file: Path):
        openvino = imported("openvino", "openvino")
        self.title = f"OpenVINO {openvino.__version__.partition('-')[0]}"
        if not file.with_suffix(".bin").is_file():
            raise ValueError(f"{file.with_suffix('.bin')} is missing: an OpenVINO IR is two files.")
        core = openvino.Core()
        model = core.read_model(file)
        self.compiled = core.compile_model(model, "CPU")
        self.inputs = [one.get_any_name() for one in self.compiled.inputs]
        self.outputs = [
            sorted(one.get_names())[0] if one.get_names() else str(i) for i, one in enumerate(self.compiled.outputs)
        ]
        types = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "dynamic": "float32"}
        hint = self.compiled.get_property("INFERENCE_PRECISION_HINT")
        computed = types.get(hint.get_type_name() if hasattr(hint, "get_type_name") else str(hint), "float32")
        stored = {
            node.get_element_type().get_type_name() for node in model.get_ops() if node.get_type_name() == "Constant"
        }
        has_rounded = any(node.get_type_name() == "FakeQuantize" for node in model.get_ops())
        rounded = "int4" if stored & {"i4", "u4", "nf4"} else "int8" if has_rounded or stored & {"i8", "u8"} else None
        halves = computed if computed == "bfloat16" else "float16" if "f16" in stored else computed
        self.dtype = rounded or halves

    def __call__(self, inputs: Tensors) -> Tensors:
        given = {name: inputs[name].numpy() if name in inputs else self.made(name, inputs) for name in self.inputs}
        found = self.compiled(given)
        return {name: torch.from_numpy(np.array(found[i])) for i, name in enumerate(self.outputs)}

    def made(self, name: str, inputs: Tensors) -> np.ndarray:
        ids = inputs["input_ids"]
        if name == "position_ids":
            return (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0).numpy()
        if name in ("token_type_ids", "beam_idx"):
            return np.zeros(tuple(ids.shape) if name == "token_type_ids" else len(ids), dtype=np.int64)
        raise ValueError(f"it reads {name}, which the recorded inputs of the model do not have.")


class TwoSides(Engine):
    """An encoder and a decoder, each a graph of ONNX Runtime or OpenVINO, under optimum's names."""

    has_two_sides = True

    def __init__(self, encoder: Engine, decoder: Engine):
        self.encoder, self.decoder, self.title, self.dtype = encoder, decoder, encoder.title, decoder.dtype

    def __call__(self, inputs: Tensors) -> Tensors:
        source = {name: value for name, value in inputs.items() if name != "decoder_input_ids"}
        states = self.encoder(source)["last_hidden_state"]
        given = {"encoder_hidden_states": states, "encoder_attention_mask": inputs["attention_mask"]}
        target = {"input_ids": inputs["decoder_input_ids"]}
        mask = {"attention_mask": torch.ones_like(target["input_ids"])}
        return {"encoder_last_hidden_state": states} | self.decoder(target | mask | given)


class CTranslate2(Engine):
    """A folder of CTranslate2: an encoder, or a decoder."""

    is_padded = False
    KINDS = {"TransformerEncoderSpec": "Encoder", "TransformerDecoderSpec": "Generator"}

    def __init__(self, file: Path):
        spec = specification(file)
        if spec not in self.KINDS:
            kind = "translator" if spec == "TransformerSpec" else spec
            raise ValueError(f"{file} holds a {kind}. Of CTranslate2, only encoders and decoders can be compared.")
        ctranslate2 = imported("ctranslate2", "ctranslate2")
        self.title = f"CTranslate2 {ctranslate2.__version__}"
        self.engine = getattr(ctranslate2, self.KINDS[spec])(str(file.parent))
        self.dtype = {"int8_float32": "int8", "int8_bfloat16": "int8", "int8_float16": "int8"}.get(
            self.engine.compute_type, self.engine.compute_type
        )
        self.is_encoder = spec == "TransformerEncoderSpec"

    def __call__(self, inputs: Tensors) -> Tensors:
        ids = inputs["input_ids"].tolist()
        if not self.is_encoder:
            return {"logits": array_of(self.engine.forward_batch(ids))}
        types = {"token_type_ids": inputs["token_type_ids"].tolist()} if "token_type_ids" in inputs else {}
        found = self.engine.forward_batch(ids, **types)
        outputs = {"last_hidden_state": array_of(found.last_hidden_state)}
        return outputs | ({"pooler_output": array_of(found.pooler_output)} if found.pooler_output is not None else {})


def array_of(storage: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(storage, dtype=np.float32))


def specification(file: Path) -> str:
    """The name in the head of a file of CTranslate2: two bytes say how long it is, and a zero ends it."""
    with file.open("rb") as content:
        content.seek(4)
        size = int.from_bytes(content.read(2), "little")
        return content.read(size).rstrip(b"\0").decode("utf-8", errors="replace")


class LlamaCpp(Engine):
    """A GGUF file, by llama.cpp."""

    is_padded, inputs = False, ("input_ids", "attention_mask")
    #: what GGUF calls the type of most tensors -> the type whose bounds hold
    TYPES = {0: "float32", 1: "float16", 32: "bfloat16"}

    def __init__(self, file: Path):
        self.llama = imported("llama_cpp", "llama-cpp-python")
        self.title = f"llama.cpp ({self.llama.__version__} of llama-cpp-python)"
        options = {"n_ctx": 0, "verbose": False, "n_batch": 512, "n_ubatch": 512}
        reader = self.llama.Llama(str(file), vocab_only=True, verbose=False)
        settings = reader.metadata
        kind = int(settings.get("general.file_type", 0))
        self.dtype = self.TYPES.get(kind, "int8" if kind == 7 else "int4")
        architecture = settings.get("general.architecture", "")
        self.is_encoder = "bert" in architecture
        if self.is_encoder:
            none = self.llama.LLAMA_POOLING_TYPE_NONE
            self.states = self.llama.Llama(str(file), embedding=True, pooling_type=none, **options)
            self.pooling = settings.get(f"{architecture}.pooling_type")
            self.pooled = self.llama.Llama(str(file), embedding=True, **options)
        else:
            self.model = self.llama.Llama(str(file), logits_all=True, **options)

    def __call__(self, inputs: Tensors) -> Tensors:
        rows = inputs["input_ids"].tolist()
        if not self.is_encoder:
            return {"logits": torch.from_numpy(np.stack([self.logits(row) for row in rows]))}
        states = torch.from_numpy(np.stack([self.encoded(self.states, row, len(row)) for row in rows]))
        if self.pooling in (None, "0"):
            return {"last_hidden_state": states}
        pooled = torch.from_numpy(np.stack([self.encoded(self.pooled, row, 1)[0] for row in rows]))
        return {"last_hidden_state": states, "pooled": pooled}

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        self.model.reset()
        self.model.eval(ids)
        return self.model.scores[: len(ids)].copy()

    def encoded(self, model: Any, ids: Sequence[int], count: int) -> np.ndarray:
        """The states of a row's tokens, or its vector."""
        size = model.n_embd()
        batch = self.llama.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for place, token in enumerate(ids):
            batch.token[place], batch.pos[place], batch.logits[place] = token, place, True
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
        context = model.ctx
        if self.llama.llama_encode(context, batch) != 0 and self.llama.llama_decode(context, batch) != 0:
            raise ValueError(f"llama.cpp does not compute a row of {len(ids)} tokens.")
        read = self.llama.llama_get_embeddings_ith if count > 1 else self.llama.llama_get_embeddings_seq
        found = np.stack([np.ctypeslib.as_array(read(context, place), shape=(size,)).copy() for place in range(count)])
        self.llama.llama_batch_free(batch)
        return found
