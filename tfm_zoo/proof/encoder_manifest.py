"""The manifest of a model that makes vectors: that of any model, with inputs as long as its texts may be."""

from typing import Any

import transformers

from . import comparisons
from .comparisons import TOLERANCE
from .contents import digest_of_tensor, digests_of_tensors, is_same, settings_in, tensors_in
from .diagnosis import Change, first_change
from .encoder import Encoder
from .fingerprints import compute, fixed_inputs, given, sequences
from .manifest import described, files_beside
from .origin import origin_of
from .verdict import Verdict

CONFIG = "config.json"
#: the tokens of the longest inputs that a fingerprint is of, and sentences about settings at most
LENGTH, SENTENCES = 512, 4
#: the share of tensors that are others in another release of a model
OTHER = 0.9


def manifest_of(encoder: Encoder, max_length: int | None) -> dict[str, Any]:
    """Versions, settings, digests of files and tensors, what the tokenizer makes of a text, and a fingerprint: fixed
    inputs of `max_length` tokens with outputs and states after each part of the model."""
    manifest = described(encoder.folder) | files_beside(encoder.folder)
    manifest["weights"] = manifest["weights"] or weights_of(encoder)
    made = {"loading": encoder.loading, "tokenizer": encoder.fixed_text()}
    return manifest | made | {"fingerprint": fingerprint_of(encoder, max_length)}


def weights_of(encoder: Encoder) -> dict[str, str]:
    """The digests of the tensors in memory, of a checkpoint that has no safetensors."""
    return {name: digest_of_tensor(tensor) for name, tensor in encoder.model.state_dict().items()}


def fingerprint_of(encoder: Encoder, max_length: int | None) -> dict[str, Any]:
    model, length = encoder.model, min(max_length or LENGTH, LENGTH, encoder.longest)
    text = model.config.get_text_config()
    fixed = sequences(text, text.vocab_size, length)
    inputs = {name: ids for name, ids in fixed.items() if name in next(fixed_inputs(model))}
    kept = {name: ids.tolist() for name, ids in inputs.items()}
    return {"dtype": encoder.dtype, "inputs": kept} | compute(model, inputs, labels={})


def compare_model(saved: dict[str, Any], encoder: Encoder, verdict: Verdict) -> set[str]:
    """Compares a model's code, configuration and tensors with its manifest. Returns the names of the tensors that have
    changed."""
    comparisons.compare_with_release(saved, origin_of(encoder.folder), verdict)
    comparisons.compare_tested(saved, transformers.__version__, verdict)
    compare_config(saved, encoder, verdict)
    changed = compare_weights(saved, encoder, verdict)
    comparisons.compare_loading(saved, encoder.loading, verdict)
    return changed


def compare_config(saved: dict[str, Any], encoder: Encoder, verdict: Verdict) -> None:
    before, now = ({CONFIG: fields[CONFIG]} for fields in (saved["settings"], settings_in(encoder.folder)))
    read = type(encoder.model.config).from_dict
    loaded = {CONFIG: [read(dict(fields[CONFIG])).to_dict() for fields in (before, now)]}
    found = Verdict(verdict.source)
    comparisons.compare_settings({"settings": before}, now, loaded, encoder.folder, found)
    more = len(found.differences) - SENTENCES
    verdict.differences += found.differences[:SENTENCES] + ([f"{more} more settings differ"] if more > 0 else [])
    verdict.warnings += found.warnings


def compare_weights(saved: dict[str, Any], encoder: Encoder, verdict: Verdict) -> set[str]:
    """Compares tensors with their digests; one sentence says so if nearly all of them are others. (Tables of positions
    may stay.)"""
    before, now = saved["weights"], digests_of_tensors(encoder.folder) or weights_of(encoder)
    changed, gone = comparisons.changed_in(before, now), comparisons.but_positions(before.keys() - now.keys())
    if len(before) > 2 and len(changed | gone) > OTHER * len(before):
        share = f"{len(changed | gone)} of {len(before)} tensors are others"
        cast = comparisons.cast_of(saved, encoder.folder)
        verdict.differences.append(f"{cast or 'another model, or another release of it'}: {share}")
        return changed | gone
    verdict.add("weights missing", gone)
    verdict.add("weights that were not there", comparisons.but_positions(now.keys() - before.keys()))
    verdict.add("weights changed", changed)
    loaded = encoder.model.state_dict()
    files = ((name, tensor) for name, tensor in tensors_in(encoder.folder) if name in loaded)
    unlike = {name for name, tensor in files if not is_same(tensor.to(loaded[name].dtype), loaded[name])}
    verdict.add("weights are not as in their file once loaded", unlike)
    return changed | unlike


def first_part(saved: dict[str, Any], encoder: Encoder, changed: set[str]) -> Change | None:
    """The first part of the model whose states are not those of the fingerprint."""
    was = saved["fingerprint"]
    loaded = compute(encoder.model, given(was["inputs"], encoder.model.dtype), labels={})
    loaded |= {"dtype": encoder.dtype, "missing": encoder.loading["missing"], "changed": sorted(changed)}
    return first_change(was, loaded, max(TOLERANCE.get(one, 1e-4) for one in (encoder.dtype, was["dtype"])))
