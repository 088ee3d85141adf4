"""A program of its own: loads a checkpoint as a stranger does, and prints as JSON what it then holds and computes.

It imports nothing of `tfm_zoo`, whose classes would otherwise be taken in place of the code in the checkpoint; the one
file that it reads by its path, of functions alone, is the one by which manifests are written.
"""

import importlib.util
import json
import sys
from pathlib import Path


def main(folder: str, dtype: str) -> dict:
    """Loads the head that was saved, by the Auto class that its configuration says."""
    import torch
    import transformers

    manifest = load_module(Path(__file__).parents[1] / "models/manifest.py")
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    saved = json.loads((Path(folder) / manifest.FILE).read_text(encoding="utf-8"))
    name = config["architectures"][0]
    auto = next(auto for auto, target in config["auto_map"].items() if target.rpartition(".")[2] == name)
    model, info = getattr(transformers, auto).from_pretrained(
        folder, trust_remote_code=True, dtype=dtype, output_loading_info=True
    )
    held = model.state_dict()
    changed = [
        key
        for key, digest in saved["weights"].items()
        if key in held and manifest.digest_of_tensor(held[key]) != digest
    ]
    outputs = None
    if saved["fingerprint"]:
        inputs = {key: torch.tensor(ids) for key, ids in saved["fingerprint"]["inputs"].items()}
        with torch.no_grad():
            outputs = manifest.sample(model.eval()(**inputs, return_dict=True))
    return {
        "class": f"{type(model).__module__}.{type(model).__name__}",
        "dtype": str(model.dtype).removeprefix("torch."),
        "changed": changed,
        "outputs": outputs,
        **{key: sorted(map(str, info[f"{key}_keys"])) for key in ("missing", "unexpected", "mismatched")},
    }


def load_module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    print(json.dumps(main(*sys.argv[1:])))
