"""A program of its own: loads a checkpoint as a stranger does, and prints as JSON what it then holds and computes.

It imports nothing of `tfm_zoo`, whose classes would otherwise be taken in place of the code in the checkpoint; the two
files that it reads by their path, of functions alone, are those by which manifests are written.
"""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path


def main(folder: str, auto: str, dtype: str, saved: dict) -> Iterator[dict]:
    """Loads the head that was saved, by its Auto class; gives first what its settings say, which may be why it fails.

    Args:
        saved: content of the manifest.
    """
    import torch
    import transformers

    contents, fingerprint = (
        load_module(Path(__file__).parents[1] / f"models/{name}.py") for name in ("contents", "fingerprint")
    )
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    readers = {"config.json": type(config).from_dict, "generation_config.json": transformers.GenerationConfig.from_dict}
    was, now = saved["settings"], contents.settings_in(Path(folder))
    # Both are read by the same code, so that defaults that have been left out, or written out, are no difference.
    yield {
        "settings": {
            name: [read(settings.get(name, {})).to_dict() for settings in (was, now)] for name, read in readers.items()
        }
    }
    model, info = getattr(transformers, auto).from_pretrained(
        folder, trust_remote_code=True, dtype=dtype, output_loading_info=True
    )
    held, digest = model.state_dict(), contents.digest_of_tensor
    inputs = (saved["fingerprint"] or {}).get("inputs")
    yield {
        "dtype": str(model.dtype).removeprefix("torch."),
        "changed": [
            name
            for name, tensor in contents.tensors_in(Path(folder))
            if name in held and digest(tensor.to(held[name].dtype)) != digest(held[name])
        ],
        "outputs": inputs and fingerprint.outputs_of(model, {name: torch.tensor(ids) for name, ids in inputs.items()}),
        **{what: sorted(map(str, info[f"{what}_keys"])) for what in ("missing", "unexpected", "mismatched")},
    }


def load_module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    # What the checkpoint's code prints is no part of the answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    for found in main(*sys.argv[1:], json.load(sys.stdin)):
        print(json.dumps(found, default=str), file=answers, flush=True)
