"""A program of its own: loads a checkpoint as a stranger does, and prints as JSON what it then holds and computes.

It imports `tfm_zoo` only for a model that the zoo's own classes load: transformers then takes these, and not the code
in the checkpoint.
"""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parents[1]
#: the name of a package made up here, of the files beside this one: they then import nothing of `tfm_zoo`. It stays as
#: it is: the `batch.py` in every saved checkpoint knows `watched` in `states.py` as "files_of_the_hub.watched"
NEIGHBOURS = "files_of_the_hub"


def check(folder: Path, model_class: str, loader: str, dtype: str, saved: dict | None) -> Iterator[dict]:
    """Loads a model and says what it is, part by part, since loading may fail.

    Args:
        model_class: a class of transformers.
        loader: whose code is run: "transformers", "tfm_zoo", or "folder", the checkpoint's own.
        saved: the manifest to compare with; `None`: what a first one would hold is computed.
    """
    import torch
    import transformers

    yield {"transformers": transformers.__version__}
    contents, fingerprints = neighbour("contents"), neighbour("fingerprints")
    settings, was = contents.settings_in(folder), (saved or {}).get("fingerprint")
    quantization = settings["config.json"].get("quantization_config") or {}
    if loader == "tfm_zoo" or quantization.get("quant_method") == "tfm_zoo":
        sys.path.append(str(PACKAGE.parent))
        importlib.import_module(PACKAGE.name)
    trust = {"trust_remote_code": loader == "folder"}
    config = transformers.AutoConfig.from_pretrained(folder, **trust)
    if saved:
        # The same code reads both: whether a default is left out or written out makes no difference.
        classes = dict(zip(contents.SETTINGS, (type(config), transformers.GenerationConfig), strict=True))
        both = contents.both_settings(saved, settings).items()
        yield {"settings": {name: [classes[name].from_dict(each).to_dict() for each in pair] for name, pair in both}}
    torch.manual_seed(0)  # of weights that the checkpoint lacks
    # (Its own error for weights of other shapes names none of them.)
    options = {"dtype": dtype, "output_loading_info": True, "ignore_mismatched_sizes": True} | trust
    model, info = getattr(transformers, model_class).from_pretrained(folder, **options)
    if misfits := sorted(info["mismatched_keys"]):
        shapes = [f"{name} is {tuple(given)} and should be {tuple(wanted)}" for name, given, wanted in misfits[:3]]
        others = f", and {len(misfits) - 3} more" if len(misfits) > 3 else ""
        raise ValueError(f"weights do not have the shapes of config.json: {', '.join(shapes)}{others}")
    loaded = model.state_dict()
    yield {
        "class": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "not_as_in_file": [
            name
            for name, tensor in contents.tensors_in(folder)
            if name in loaded and not contents.is_same(tensor.to(loaded[name].dtype), loaded[name])
        ],
        **{kind: sorted(map(str, info[f"{kind}_keys"])) for kind in ("missing", "unexpected")},
    }
    if saved is None:
        yield {"fingerprint": fingerprints.fingerprint_of(model)}
    elif was:
        inputs = fingerprints.given(was["inputs"], model.dtype)
        yield fingerprints.compute(model, inputs, labels=was.get("labels") or {})
    has_tokenizer = bool(saved.get("tokenizer")) if saved else contents.has_tokenizer(folder)
    if has_tokenizer:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **trust)
        yield {"tokenizer": fingerprints.text_through(tokenizer)}


def neighbour(name: str) -> ModuleType:
    if NEIGHBOURS not in sys.modules:
        sys.modules[NEIGHBOURS] = package = ModuleType(NEIGHBOURS)
        package.__path__ = [str(Path(__file__).parent)]
    return importlib.import_module(f"{NEIGHBOURS}.{name}")


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose files are not packages to import
    # What the checkpoint's code prints is not a part of the answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    folder, *asked = sys.argv[1:]
    for answer in check(Path(folder), *asked, json.load(sys.stdin)):
        print(json.dumps(answer, default=str), file=answers, flush=True)
