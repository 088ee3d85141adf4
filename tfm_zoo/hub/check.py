"""A program of its own: loads a checkpoint as a stranger does, and prints as JSON what it then holds and computes.

It imports `tfm_zoo` only for a quantised checkpoint, which does not load without it: transformers then takes the
installed classes, and not the code in the checkpoint.
"""

import importlib
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

PACKAGE = Path(__file__).parents[1]


def check(folder: Path, auto_class: str, dtype: str, saved: dict) -> Iterator[dict]:
    """Loads the model that was saved with the manifest `saved`. Yields its settings first, since loading may fail."""
    import torch
    import transformers

    contents = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("contents.py"))))
    if saved["settings"]["config.json"].get("quantization_config"):
        sys.path.append(str(PACKAGE.parent))
        importlib.import_module(PACKAGE.name)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    readers = {"config.json": type(config).from_dict, "generation_config.json": transformers.GenerationConfig.from_dict}
    pair = (saved["settings"], contents.settings_in(folder))
    # The same code reads both: whether a default is left out or written out makes no difference.
    settings = {name: [read(fields.get(name, {})).to_dict() for fields in pair] for name, read in readers.items()}
    yield {"settings": settings}
    options = {"trust_remote_code": True, "dtype": dtype, "output_loading_info": True}
    model, info = getattr(transformers, auto_class).from_pretrained(folder, **options)
    loaded, digest = model.state_dict(), contents.digest_of_tensor
    inputs = (saved["fingerprint"] or {}).get("inputs")
    yield {
        "dtype": str(model.dtype).removeprefix("torch."),
        "changed": [
            name
            for name, tensor in contents.tensors_in(folder)
            if name in loaded and digest(tensor.to(loaded[name].dtype)) != digest(loaded[name])
        ],
        "outputs": inputs and contents.outputs_of(model, {name: torch.tensor(ids) for name, ids in inputs.items()}),
        **{kind: sorted(map(str, info[f"{kind}_keys"])) for kind in ("missing", "unexpected", "mismatched")},
    }


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose files are no packages to import
    # What the checkpoint's code prints is no part of the answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    folder, auto_class, dtype = sys.argv[1:]
    for answer in check(Path(folder), auto_class, dtype, json.load(sys.stdin)):
        print(json.dumps(answer, default=str), file=answers, flush=True)
