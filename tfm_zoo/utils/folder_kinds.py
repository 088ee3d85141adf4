"""What a folder or a file holds: a model, vectors, or an export of a model. This file imports no library."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Literal

Kind = Literal["model", "vectors", "export"]
#: the manifest beside a model (`tfm_zoo/proof/manifest.py`)
MANIFEST = "zoo_manifest.json"
#: what vectors are proven by, in a folder and beside a file; what `predict.py` writes; files that hold vectors
PROOF, BESIDE, CORPUS, ARRAYS = "_proof.json", ".proof.json", "_corpus.json", (".parquet", ".npy")
FAISS = (".faiss", ".index")  # an index: what to do with it is said where vectors are read
#: what the files of an encoder-decoder are called: the encoder's, and instead the decoder's
ENCODER, DECODER = "encoder_model", "decoder_model"
#: what exports are: patterns in a folder, the best known names first
ONNX = ("onnx/model.onnx", "model.onnx", f"onnx/{ENCODER}.onnx", f"{ENCODER}.onnx", "onnx/*.onnx", "*.onnx")
OPENVINO = ("openvino/openvino_model.xml", "openvino_model.xml", f"openvino_{ENCODER}.xml", "*.xml")
GGUF = ("*.gguf",)
CTRANSLATE2 = "model.bin"
#: what begins a file of CTranslate2: the number of its format, in four bytes (torch's files begin otherwise)
FORMATS = range(1, 64)


def kind_of(source: str | Path, against: str | None = None) -> Kind:
    """What `tfm-zoo verify` is given. Whatever is to be compared with a model (`against`) counts as its export, such as
    a checkpoint of another class."""
    path = Path(source)
    if against is not None:
        return "export"
    if path.is_file():
        if path.suffix in (*ARRAYS, *FAISS) or path.name.endswith((PROOF, BESIDE)):
            return "vectors"
        return "export" if path.suffix in (".onnx", ".xml", ".gguf") else "model"
    if not path.is_dir():
        return "vectors" if path.suffix in ARRAYS else "model"
    if (path / PROOF).is_file() or (path / CORPUS).is_file() or any(path.glob(f"*{BESIDE}")):
        return "vectors"
    if has_weights(path) or (path / MANIFEST).is_file():
        return "model"
    if any(path.glob("*.parquet")):
        return "vectors"
    return "export" if file_of_export(path) else "model"


def has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin"))


def check_is_model(folder: Path, source: str | Path) -> None:
    """Raises a `FileNotFoundError` for a folder without a configuration or without weights. `source`: what it is called
    in the message."""
    fields = {"model_type": None}
    with suppress(ValueError, RecursionError):  # whoever loads it is told so
        fields = json.loads((folder / "config.json").read_text(encoding="utf-8")) if has_config(folder) else {}
    lacking = [] if "model_type" in fields else ["config.json with a model_type"]
    lacking += [] if has_weights(folder) else ["weights (*.safetensors)"]
    if lacking:
        said = f"{source} is not a folder of a model: it lacks {', '.join(lacking)}"
        if (folder / "adapter_config.json").is_file():
            said += "; it is an adapter: merge it into its base, and record that"
        elif export := file_of_export(folder):
            said += f"; its {export.name} is an export, which `tfm-zoo verify {source} --against MODEL` reads"
        raise FileNotFoundError(f"{said}.")


def has_config(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def file_of_export(path: Path) -> Path | None:
    """The file of an export: itself, or the one in a folder that is looked for first."""
    if path.is_file():
        return path
    found = (file for pattern in (*ONNX, *OPENVINO, *GGUF) for file in sorted(path.glob(pattern)))
    return next(found, None) or next((file for file in path.glob(CTRANSLATE2) if is_ctranslate2(file)), None)


def is_ctranslate2(file: Path) -> bool:
    with file.open("rb") as content:
        return int.from_bytes(content.read(4), "little") in FORMATS
