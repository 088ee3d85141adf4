"""Whether an export computes what the model computes that it was made from, and what it has lost if not."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from torch.nn.functional import cosine_similarity

from ..converters.errors import ConversionError
from ..utils.errors import in_one_line
from ..utils.folder_kinds import MANIFEST, check_is_model, file_of_export
from ..utils.quiet import silenced_loading, silenced_trying
from . import comparisons
from .beside import compare_beside
from .comparisons import QUANTISED_TOLERANCE, TOLERANCE
from .contents import has_tokenizer, read_json
from .engines import Engine, open_export
from .fingerprints import fixed_inputs, given, sample
from .origin import origin_of
from .reference import POOLED, SENTENCE, Reference, Tensors, vectors_of
from .sentence_files import sentence_settings
from .verdict import Verdict
from .verifying import class_of, find, loader_of, read_manifest

#: what other programs call outputs
ALIASES = {"token_embeddings": "last_hidden_state", "sentence_embeddings": SENTENCE, "text_embeds": SENTENCE}
#: how the names of outputs begin that are a decoder's cache
CACHES = ("present", "past_key_values")
#: what it means that an output is missing
LOST = {"pooler_output": "the pooler was lost", "last_hidden_state": "the states of tokens were lost"}
#: texts for which outputs are as large as usual
TEXTS = ("I liked it very much: it was wonderful from the first page to the last.", "A waste of time and of money.")
#: how many times nearer an export has to come without a part for that to be what it has lost, and how near is the same
NEARER, NOISE = 4, 1e-5


def verify_export(
    source: str | Path,
    against: str | None,
    *,
    manifest: str | Path | None = None,
    revision: str | None = None,
    token: str | None = None,
    trust_remote_code: bool = False,
) -> Verdict:
    """Runs an export beside the model that it was made from, and compares what they compute.

    Both get the inputs that were recorded with the model, and longer ones. Outputs are compared within the bounds
    of the export's type, as a share of their largest value (in eight and four bits: or of that for texts). If they
    differ, or a single part left out of the model brings it much nearer to the export, that part is named: a
    pooler, a normalisation, a bias, token types, positions. The tokenizer and the pooling in an export's folder are
    compared, too.

    Args:
        source: an ONNX file, an OpenVINO IR, a GGUF file, a folder of CTranslate2, or a folder that holds one; or the
            folder of another model.
        against: the folder or Hub id of the model.
        manifest: of the model, if it is elsewhere.
        revision, token: of a model on the Hub.
        trust_remote_code: run the model's own code.

    Raises:
        FileNotFoundError: if there is no such export or model.
        ModuleNotFoundError: if the engine that runs the export is not installed.
        ValueError: for what cannot be compared. The message says why.
    """
    if against is None:
        raise ValueError(f"{source} is an export: name the model that it was made from with --against.")
    folder = find(against, revision, token, needed=None).resolve()
    check_is_model(folder, against)
    is_model = Path(source, "config.json").is_file() and file_of_export(Path(source)) is None
    engine = Checkpoint(Path(source).resolve(), trust_remote_code) if is_model else open_export(source)
    verdict = Verdict(str(source))
    origin = origin_of(folder)
    verdict.code = f"{engine.title} in {engine.dtype}, against {against}; {origin}"
    reference = load(folder, loader_of(origin, trust_remote_code) == "folder")
    if reference.has_two_sides != engine.has_two_sides:
        sides = f"the {type(reference.model).__name__} in {against} has {1 + reference.has_two_sides}"
        raise ValueError(f"{source} has {1 + engine.has_two_sides} of an encoder and a decoder, and {sides}.")
    texts, sizes = inputs_of_texts(reference, folder) if engine.dtype in QUANTISED_TOLERANCE else ([], {})
    batches = [recorded_inputs(reference, folder, against, manifest, verdict), *texts, *reference.longer()]
    compare_beside(Path(source), folder, against, verdict)
    if reference.gives_vectors and engine.inputs and "token_type_ids" not in engine.inputs:
        verdict.warnings.append("it reads no token types: right for single texts, which have type 0 alone")
        batches = [{name: each[name] for name in each if name != "token_type_ids"} for each in batches]
    compare_outputs(engine, reference, batches, sizes, verdict)
    return verdict


def load(folder: Path, trust_remote_code: bool) -> Reference:
    """The model with its head, in float32, by the class that its configuration names."""
    config = read_json(folder / "config.json")
    model_class = getattr(transformers, class_of(config))
    with silenced_loading():
        torch.manual_seed(0)
        model = model_class.from_pretrained(folder, dtype=torch.float32, trust_remote_code=trust_remote_code).eval()
    try:
        reading = sentence_settings(str(folder)).reading
    except (FileNotFoundError, ValueError):  # modules that are not read, or lost: states alone are compared
        reading = None
    return Reference(model, reading)


def inputs_of_texts(reference: Reference, folder: Path) -> tuple[list[Tensors], dict[str, float]]:
    """The inputs of `TEXTS`, and the largest value of each output for them, of a model with one side whose tokenizer
    loads and fits. On drawn tokens a classifier may be undecided: its logits are small, and rounding moves them as much
    as ever."""
    if not has_tokenizer(folder) or reference.has_two_sides:
        return [], {}
    try:
        with silenced_trying():
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        made = [with_mask(dict(tokenizer(text, return_tensors="pt"))) for text in TEXTS]
        found = [reference(inputs) for inputs in made]
    except Exception:  # without texts, recorded and drawn tokens alone are the measure
        return [], {}
    return made, {name: max(each[name].abs().max().item() for each in found) for name in found[0]}


def recorded_inputs(
    reference: Reference, folder: Path, source: str, manifest: str | Path | None, verdict: Verdict
) -> Tensors:
    """The inputs that were recorded with the model, whose outputs it should still give; else fixed ones."""
    model = reference.model
    if "input_ids" not in reference.reads:
        raise ValueError(f"{source} is a {type(model).__name__}, which reads no texts: it is not compared here.")
    if manifest is None and not (folder / MANIFEST).is_file():
        verdict.warnings.append(f"{source} was not recorded (`tfm-zoo record`): compared with what it computes now")
        return with_mask(next(fixed_inputs(model)))
    try:
        fingerprint = read_manifest(folder, Path(manifest) if manifest else None)["fingerprint"]
    except ConversionError as error:
        raise ValueError(str(error)) from error
    if not fingerprint:
        return with_mask(next(fixed_inputs(model)))
    inputs, found = with_mask(given(fingerprint["inputs"], model.dtype)), Verdict(source)
    outputs = {name: about for name, about in fingerprint["outputs"].items() if name != "loss"}
    comparisons.compare_outputs(fingerprint | {"outputs": outputs}, sample(reference(inputs)), "float32", found)
    verdict.differences += [f"{source} itself is not what was recorded: {one}" for one in found.differences[:1]]
    return inputs


def with_mask(inputs: Tensors) -> Tensors:
    return {"attention_mask": torch.ones_like(inputs["input_ids"])} | inputs


class Checkpoint(Engine):
    """Another model, such as an official one of `tfm_zoo.to_official`, in float32. Its `dtype` is that of its file."""

    def __init__(self, folder: Path, trust_remote_code: bool):
        self.reference = load(folder, loader_of(origin_of(folder), trust_remote_code) == "folder")
        self.title, config = type(self.reference.model).__name__, read_json(folder / "config.json")
        quantization = config.get("quantization_config") or {}
        dtype = quantization.get("dtype") or config.get("dtype") or config.get("torch_dtype")
        self.dtype = dtype if dtype in TOLERANCE | QUANTISED_TOLERANCE else "float32"
        self.has_two_sides = self.reference.has_two_sides

    def __call__(self, inputs: Tensors) -> Tensors:
        outputs = self.reference(inputs)
        return {name: outputs[name] for name in outputs if name in (*self.reference.own, POOLED, SENTENCE)}


class Pair(NamedTuple):
    """Inputs, what the export gives for them, and what the model gives."""

    inputs: Tensors
    found: Tensors
    expected: Tensors

    @property
    def length(self) -> int:
        return self.inputs["input_ids"].shape[1]


def compare_outputs(
    engine: Engine, reference: Reference, batches: Sequence[Tensors], sizes: dict[str, float], verdict: Verdict
) -> None:
    """Compares outputs for inputs of several lengths; names what was lost. `sizes`: see [`inputs_of_texts`]."""
    bound = (TOLERANCE | QUANTISED_TOLERANCE)[engine.dtype]
    pairs, failed = [], None
    for inputs in batches:
        try:
            expected = reference(inputs)
            pairs.append(Pair(inputs, with_vectors(run(engine, inputs), expected, inputs, reference), expected))
        except Exception as error:  # each engine has errors of its own
            length, reason = inputs["input_ids"].shape[1], in_one_line(error)[:200]
            failed = f"it fails for sequences of {length} tokens: {reason}"
            break
    if not pairs:
        verdict.differences.append(failed)
        return
    names = matched(pairs[0].found, pairs[0].expected)
    if not names:
        raise ValueError(f"{engine.title} and {type(reference.model).__name__} have no output in common.")
    note_missing(reference, names, verdict)
    if unknown := [name for name in pairs[0].found if name not in names and not name.startswith(CACHES)]:
        verdict.warnings.append(f"outputs that the model does not have: {', '.join(unknown)}")
    own_drifts, drifts = ([drift_of(pair, names, sizes=each) for pair in pairs] for each in (None, sizes))
    drift = {name: max(each[name] for each in drifts) for name in drifts[0]}
    verdict.figures |= {"drift": drift, "tolerance": bound, "dtype": engine.dtype, "engine": engine.title}
    verdict.figures["lengths"] = [pair.length for pair in pairs]
    cosine = least_cosine(pairs, names)
    of_vectors = "" if cosine is None else f" (least cosine {cosine:.6f})"
    verdict.figures |= {} if cosine is None else {"cosine": cosine}
    size = "usual size" if sizes else "largest value"
    if lost := find_lost(reference, pairs, own_drifts, names):
        verdict.differences.append(lost)
    else:
        allowed = f"{engine.dtype} allows {bound:g}"
        far = {name: value for name, value in drift.items() if not value <= bound}
        verdict.differences += [
            f"{name} drifted by {far[name]:.2g} of its {size}{of_vectors * (name == SENTENCE)}, and {allowed}"
            for name in far
        ]
    is_right = {pair.length: max(each.values()) <= bound for pair, each in zip(pairs, drifts, strict=True)}
    right, wrong = ([length for length in is_right if is_right[length] is kind] for kind in (True, False))
    if right and wrong and max(right) < min(wrong):
        verdict.differences.append(f"sequences of up to {max(right)} tokens are right, those of {min(wrong)} are not")
    if failed:
        verdict.differences.append(failed)
    shown = ", ".join(f"{name} within {value:.1g}{of_vectors * (name == SENTENCE)}" for name, value in drift.items())
    if verdict.ok:
        verdict.figures["match"] = (
            f"both compute the same, up to {pairs[-1].length} tokens: {shown} of the {size}, "
            f"in {engine.dtype}, which allows {bound:g}"
        )


def note_missing(reference: Reference, names: dict[str, str], verdict: Verdict) -> None:
    """Notes outputs of the model's class that the export does not have. One that gives vectors of texts may do without
    the states of tokens."""
    given = {*names.values()} | ({"last_hidden_state"} if {SENTENCE, POOLED} & {*names.values()} else set())
    head = f"the head of {type(reference.model).__name__} was lost"
    for name in (name for name in reference.own if name not in given):
        note = unread(name, reference)
        (verdict.warnings if note else verdict.differences).append(f"{name} is missing: {LOST.get(name, head)}{note}")


def with_vectors(found: Tensors, expected: Tensors, inputs: Tensors, reference: Reference) -> Tensors:
    """The outputs of an export, and the vectors that its states become by the model's pooling, unless it gives some."""
    states = next((value for name, value in found.items() if ALIASES.get(name, name) == "last_hidden_state"), None)
    has_vectors = any(ALIASES.get(name, name) == SENTENCE for name in found)
    if SENTENCE not in expected or has_vectors or states is None or states.shape != expected["last_hidden_state"].shape:
        return found
    return found | {SENTENCE: vectors_of(states.float(), inputs["attention_mask"], reference.reading)}


def least_cosine(pairs: list[Pair], names: dict[str, str]) -> float | None:
    """That of the vectors of an export and of the model, if both give some."""
    name = next((name for name, known in names.items() if known == SENTENCE), None)
    if name is None:
        return None
    return min(float(cosine_similarity(each.found[name].float(), each.expected[SENTENCE]).min()) for each in pairs)


def run(engine: Engine, inputs: Tensors) -> Tensors:
    """What an export gives for a batch: as it is, or row by row, whose outputs are put together with padding."""
    if engine.is_padded:
        return engine(inputs)
    mask, rows = inputs["attention_mask"], []
    for row, real in enumerate(mask.bool()):
        one = {name: value[row : row + 1, real] for name, value in inputs.items() if value.shape == mask.shape}
        rows.append(engine(one | {"attention_mask": mask[row : row + 1, real]}))
    return {name: joined([row[name] for row in rows], mask) for name in rows[0]}


def joined(rows: list[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
    if rows[0].ndim < 3:
        return torch.cat(rows)
    whole = torch.zeros(*mask.shape, rows[0].shape[-1])
    for row, states in enumerate(rows):
        whole[row, mask[row].bool()] = states[0]
    return whole


def matched(found: Tensors, expected: Tensors) -> dict[str, str]:
    """Which output of the model each output of an export is: by its name, or else the nearest of its shape."""
    names: dict[str, str] = {}
    for name, value in found.items():
        known = ALIASES.get(name, name)
        if known in expected and expected[known].shape == value.shape:
            names[name] = known
            continue
        shaped = {
            each: one for each, one in expected.items() if one.shape == value.shape and each not in names.values()
        }
        if shaped and known not in (SENTENCE, POOLED):  # which stand for no other output
            names[name] = min(shaped, key=lambda each: float((shaped[each] - value.float()).abs().mean()))
    return names


def drift_of(
    pair: Pair, names: dict[str, str], expected: Tensors | None = None, sizes: Mapping[str, float] | None = None
) -> dict[str, float]:
    """How far the outputs of an export are from those of the model, or from others that are `expected`, as a share of
    the largest value of each, or of its usual size if that is larger."""
    expected, mask, drifts = expected or pair.expected, pair.inputs["attention_mask"], {}
    for name, known in names.items():
        one, other = (real(values, mask) for values in (expected[known], pair.found[name].float()))
        difference = float("inf")
        if one.shape == other.shape:
            largest = max(one.abs().max().item(), (sizes or {}).get(known, 0.0)) or 1
            difference = (one - other).abs().max().item() / largest
        drifts[known] = difference if difference == difference else float("inf")
    return drifts


def real(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The values at real tokens, if there are values for each token."""
    return values[mask.bool()] if values.shape[:2] == mask.shape and values.ndim > 2 else values


def find_lost(
    reference: Reference, pairs: list[Pair], drifts: list[dict[str, float]], names: dict[str, str]
) -> str | None:
    """What was lost, found by trying: the part without which the model comes much nearer to the export. It is looked
    for at the shortest inputs that differ; what is lost of long ones alone, at the longest."""
    differing = [place for place, drift in enumerate(drifts) if max(drift.values(), default=0) > NOISE]
    for place in dict.fromkeys(differing[:1] + differing[-1:]):
        pair, before, found = pairs[place], max(drifts[place].values()), []
        for loss in reference.losses(pair.inputs, only_long=place != differing[0]):
            try:
                now = max(drift_of(pair, names, reference(pair.inputs, loss)).values())
            except (
                RuntimeError,
                IndexError,
                TypeError,
                ValueError,
            ):  # a model that cannot be run so has not lost it so
                continue
            found.append((now, loss.name))
        nearest, name = min(found, default=(before, ""))
        if nearest * NEARER < before:
            distances = f"without it, the model is within {nearest:.1g} of the export, and with it {before:.2g} away"
            return f"it has lost {name}: {distances}"
    return None


def unread(name: str, reference: Reference) -> str:
    """What is said of a pooler that the vectors of the model do not read."""
    pooling = reference.reading.pooling if reference.reading else ""
    return f" (its vectors are pooled by {pooling}, and do not read it)" if name == "pooler_output" and pooling else ""
