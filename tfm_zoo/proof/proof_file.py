"""The proof of a store of vectors: a file beside it that says which model made them, and what tells it from others."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .contents import read_json
from .fingerprints import places
from .manifest import write
from .verifying import FIELDS, FORM, misfits

#: in a folder (libraries that read folders of Parquet pass over names with an underscore); beside a file
IN_FOLDER, BESIDE_FILE = "_proof.json", ".proof.json"
#: rows whose vectors are kept, and how many bytes of them at most
CANARIES, BYTES = 64, 1 << 19
#: the types of what a proof has
PROOF = {
    **{
        "transformers": "",
        "torch": "",
        "source": "",
        "texts": {},
        "reading": {},
        "files_say": {},
        "computed": {},
        "model": {},
        "agreement": {},
    },
    "parts": {...: {"bytes": 0, "rows": 0, "pieces": [], "vectors": ""}},
    "canaries": {"rows": [], "texts": [], "tokens": [], "vectors": "", "dtype": "", "size": 0},
}
#: that of the model in it, which is part of a manifest: its fingerprint is of longer inputs
MODEL = {name: form for name, form in FORM.items() if name in (*FIELDS, "files", "loading", "tokenizer")}


def place_of(store: str | Path) -> Path:
    """Where the proof of a store is: in its folder, or beside its file."""
    path = Path(store)
    return path / IN_FOLDER if path.is_dir() else path.with_name(path.name + BESIDE_FILE)


def proof_in(path: Path) -> Path | None:
    """The proof that a name leads to: of a file, of a folder, of the only proven file in a folder, or itself."""
    if path.is_file() and path.name.endswith(("_proof.json", BESIDE_FILE)):
        return path
    if place_of(path).is_file():
        return place_of(path)
    proofs = sorted(path.glob(f"*{BESIDE_FILE}")) if path.is_dir() else []
    return proofs[0] if len(proofs) == 1 else None


def store_of(proof: Path) -> Path:
    """The folder or file that a proof lies in or beside."""
    return proof.parent if proof.name == IN_FOLDER else proof.with_name(proof.name.removesuffix(BESIDE_FILE))


def read_proof(path: Path) -> dict[str, Any]:
    """A proof; a `ValueError` says what is wrong with its form."""
    proof = read_json(path)
    if "fingerprint" in proof:
        raise ValueError(f"{path} is the manifest of a model, not the proof of vectors.")
    if wrong := [*misfits(proof, PROOF), *(f"model.{name}" for name in misfits(proof.get("model", {}), MODEL))]:
        raise ValueError(f"{path} is not a proof of vectors, or has the format of another version: look at {wrong[0]}.")
    return proof


def write_proof(proof: dict[str, Any], path: Path) -> Path:
    write(proof, path)
    return path


def canary_rows(rows: int, size: int, most: int = CANARIES) -> list[int]:
    """The rows whose vectors are kept: evenly spaced, and fewer of long vectors if nobody asks for more."""
    fitting = max(8, BYTES // (4 * size)) if most == CANARIES else most
    return sorted({*places(rows, min(most, fitting))})


def packed(vectors: np.ndarray) -> dict[str, Any]:
    """Vectors, `(rows, size)`, for a JSON file, bit for bit."""
    vectors = np.ascontiguousarray(vectors)
    text = base64.b64encode(vectors.tobytes()).decode()
    return {"vectors": text, "dtype": str(vectors.dtype), "size": int(vectors.shape[1])}


def unpacked(canaries: dict[str, Any]) -> np.ndarray:
    """The vectors that [`packed`] has kept."""
    flat = np.frombuffer(base64.b64decode(canaries["vectors"]), dtype=canaries["dtype"])
    return flat.reshape(-1, canaries["size"])


def chosen(canaries: dict[str, Any], most: int | None) -> Sequence[int]:
    """The places of the canaries that are tried: all, or so many of them."""
    count = len(canaries["rows"])
    return places(count, count if most is None else min(most, count))
