"""`tfm-zoo record` and `verify`: whether a model, vectors or an export still are what they were."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..utils.quiet import silenced_loading
from .options import Debug, Model, Revision, Token, TrustRemoteCode
from .screen import as_typed, errors_in_one_line, in_one_line, printable, report, working

if TYPE_CHECKING:
    from ..proof import Matrix, Verdict
    from ..proof.vector_recording import Recorded

DType = Literal["auto", "float32", "float64", "float16", "bfloat16"]


def verify(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A model, vectors, or an export of a model.")],
    revision: Revision = None,
    dtype: Annotated[DType, typer.Option(help="The type to load the model in. A coarser one may drift more.")] = "auto",
    matrix: Annotated[
        str | None,
        typer.Option(help="Install these releases, and check under each: transformers==5.12,5.15,latest."),
    ] = None,
    manifest: Annotated[Path | None, typer.Option(help="The manifest or proof, if it is not with SOURCE.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="For vectors: the model to compare with, if not the one that wrote them."),
    ] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="For vectors: the number of rows to embed again.")] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option("--texts", "--text_file", help="For vectors: where the files of their texts are now."),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="For vectors: read all files to their end, not just for ten seconds, and all texts, not just those of "
            "the proof's rows and of small files.",
        ),
    ] = False,
    against: Annotated[
        str | None, typer.Option("--against", help="For an export, or a model: the model that it was made from.")
    ] = None,
    code_only: Annotated[
        bool, typer.Option("--code-only", help="Say whose code it is, and whether it was changed.")
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
    run_changed: Annotated[
        bool, typer.Option("--run-changed", help="With --trust-remote-code: also run code that was changed since.")
    ] = False,
    card: Annotated[
        bool, typer.Option("--card", help="If nothing differs, say so in the folder's card (README.md).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON, for programs.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="The exit code is 1 if there is a warning, too.")] = False,
    token: Token = None,
    debug: Debug = False,
) -> None:
    """Check that a model, vectors or an export still are what they were. The exit code is 0 if they are, else 1.

    A model: the first line says whose code the checkpoint carries. Then all files are compared, and a fresh process
    loads the model and compares its outputs and the states after each layer. The first layer that differs is named. No
    code of the checkpoint runs: the classes of transformers or of tfm_zoo load it. (With --matrix, its own code does,
    if it is that of a release of tfm_zoo.) With --trust-remote-code its own code runs, if it is as it was recorded.

    Vectors (a folder of recipes/predict.py, or a .parquet or .npy file that was recorded): the files are compared with
    their digests, and the rows of the proof are embedded again. If store and model do not fit, the part, the row, the
    setting, the tensor or the layer is named.

    An export (ONNX, OpenVINO, GGUF, CTranslate2, a model of another class), with --against MODEL: both get the recorded
    inputs, and outputs are compared within the bounds of the export's type. What was lost is named.

    This finds accidents and drift, not forgers, who can write a new manifest. Against these, sign the folder, such as
    with OpenSSF model signing (model_signing sign FOLDER).

    JSON, on stdout: {"source", "ok", "code", "differences": [...], "warnings": [...], "figures": {...}}. Progress and
    errors go to stderr. If the check itself fails: {"source", "ok": false, "error"}, and exit code 1. With --matrix:
    {"source", "ok", "matrix": {...}}, with such a result for each release, the release that was "installed" and the
    "seconds" that it took.
    """
    from ..utils.folder_kinds import kind_of

    given = {"revision": revision, "token": token, "trust_remote_code": trust_remote_code, "manifest": manifest}
    given |= {"against": against, "run_changed": run_changed, "model": model, "rows": rows, "texts": texts or []}
    given |= {"whole": whole, "code_only": code_only, "card": card, "dtype": dtype, "matrix": matrix}
    with errors_in_one_line(debug):
        try:  # what is wrong shows before `proof` is imported, which takes seconds
            kind = kind_of(source, against)
            check_options(kind, given)
            found = (judge_by_command if matrix and kind != "model" else JUDGES[kind])(source, given)
        except Exception as error:
            if as_json:
                print(json.dumps({"source": source, "ok": False, "error": in_one_line(error)}, indent=1))
            raise
        verdicts = found.matrix.values() if matrix else [asdict(found)]
        fails_by_warning = found.ok and strict and any(each["warnings"] for each in verdicts)
        is_ok = found.ok and not fails_by_warning
        if as_json:
            print(json.dumps({"source": source, "ok": is_ok} | asdict(found), indent=1))
        else:
            lines = [str(found)] if matrix or not found.code else [f"{source}: {found.code}", str(found)]
            lines += ["The exit code is 1 for the warning, because of --strict."] if fails_by_warning else []
            print(printable(as_typed("\n".join(lines))))
        if card and is_ok and not matrix:
            from ..hub.card_line import write_line

            write_line(Path(source), found)
    raise typer.Exit(0 if is_ok else 1)


#: options of `verify` -> whose they are
OPTIONS_OF = {
    **dict.fromkeys(("code_only", "card", "dtype"), "model"),
    **dict.fromkeys(("model", "rows", "texts", "whole"), "vectors"),
    "run_changed": "model and vectors",
}
ARTICLES = {"model": "a model", "vectors": "a store of vectors", "export": "an export"}
#: options of models and of vectors
COMMON = ("revision", "token", "trust_remote_code", "run_changed")


def check_options(kind: str, given: dict[str, Any]) -> None:
    """Refuses options of `verify` that are about something else than what it was given."""
    for name, whose in OPTIONS_OF.items():
        if given[name] not in (None, False, [], "auto") and kind not in whose.split(" and "):
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} is for {whose.replace('model', 'models')}, and this is {ARTICLES[kind]}")


def judge_model(source: str, given: dict[str, Any]) -> "Verdict | Matrix":
    """Verifies a model, with --matrix under each of its releases."""
    from ..converters.sources import check_recorded, check_source

    matrix = given["matrix"]
    check_source(source, given["revision"], given["token"])
    if given["card"] and (matrix or not Path(source).is_dir()):
        raise ValueError("--card writes into the README.md of a folder: give a folder, without --matrix")
    if given["manifest"] is None and Path(source).is_dir():
        check_recorded(source)
    options = {name: given[name] for name in (*COMMON, "dtype", "manifest", "code_only")}
    what = "reading its code" if given["code_only"] else "reading its files, then running it in a fresh process"
    with working(f"Verifying {source}: {what}"):
        from ..proof import verify, verify_matrix

        return verify_matrix(source, matrix, **options) if matrix else verify(source, **options)


def judge_export(source: str, given: dict[str, Any]) -> "Verdict":
    """Verifies an export, beside the model that it was made from."""
    with working(f"Verifying {source}: running it beside the model that it was made from"):
        from ..proof import verify_export

        options = {name: given[name] for name in ("revision", "token", "trust_remote_code", "manifest")}
        return verify_export(source, given["against"], **options)


def judge_by_command(source: str, given: dict[str, Any]) -> "Matrix":
    """Verifies vectors or an export by this command, in an environment for each release."""
    with working(f"Verifying {source}: in an environment for each release"):
        from ..proof.matrix import verify_by_command, verify_matrix

        words = [f"--texts={name}" for name in given["texts"]]
        for name in (*COMMON, "manifest", "against", "model", "rows", "whole"):
            option, value = f"--{name.replace('_', '-')}", given[name]
            words += [option] if value is True else [] if value in (None, False) else [f"{option}={value}"]
        return verify_matrix(source, given["matrix"], verify_by_command, words=words)


def judge_vectors(source: str, given: dict[str, Any]) -> "Verdict":
    """Verifies vectors, whose texts may have to be read again: from a data set, or from where their files are now."""
    texts, options = given["texts"], {name: given[name] for name in (*COMMON, "model", "rows", "whole")}
    with working(f"Verifying {source}: reading its files, then embedding rows again"), silenced_loading():
        return verify_with_texts(source, texts, options | {"proof": given["manifest"]})


#: what verifies each kind
JUDGES = {"model": judge_model, "vectors": judge_vectors, "export": judge_export}


def verify_with_texts(source: str, texts: Sequence[str], options: dict[str, Any]) -> "Verdict":
    """Verifies vectors with texts that lie outside them."""
    from ..data.row_files import matching_files
    from ..proof.proof_file import proof_in
    from ..proof.vectors import verify_vectors

    for name in texts:
        if not matching_files(name):
            folder = f", but a folder: name its files, such as {name}/*.parquet" if Path(name).is_dir() else ""
            raise FileNotFoundError(f"--texts: there is no file {name}{folder}")
    asked, proof = [], options["proof"] or proof_in(Path(source))

    def corpus_of(place: dict[str, Any]) -> dict[str, Any]:
        """The texts of `--texts`, or those beside the vectors if they lay there, or those that were recorded."""
        files = texts or ([str(proof.parent / place["beside"])] if "beside" in place else [])
        named = {"dataset_name": None, "dataset_config_name": None, "split": [], "data_files": files}
        return place["corpus"] | (named if files else {})

    def digest_texts(place: dict[str, Any]) -> str | None:
        from ..corpus.source import Corpus, are_small, digest_of_texts

        corpus = corpus_of(place)
        if not options["whole"] and not are_small(corpus.get("data_files") or ()):
            return None
        return digest_of_texts(Corpus.open(**corpus), len(place.get("shards") or [1]))

    def read_texts(place: dict[str, Any], rows: Sequence[int]) -> dict[int, str]:
        from ..corpus.source import texts_again

        asked.append(rows)
        try:
            whole = {"shards": None} if texts else {}
            return texts_again(place | {"corpus": corpus_of(place)} | whole, rows)
        except FileNotFoundError as error:
            corpus = corpus_of(place)
            names = ", ".join(corpus.get("data_files") or ()) or corpus.get("dataset_name")
            raise FileNotFoundError(f"{source} has its texts in {names}: say where they are now (--texts)") from error

    verdict = verify_vectors(source, read_texts=read_texts, digest_texts=digest_texts, **options)
    if texts and not asked and verdict.ok:
        needless = ", ".join(texts)
        raise ValueError(
            f"--texts: {source} or its proof holds the texts, so that {needless} was not read: leave it out"
        )
    return verdict


def record(
    model: Model,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write.")] = None,
    vectors: Annotated[
        Path | None,
        typer.Option("--vectors", help="Record vectors that MODEL has made: a .parquet or .npy file, or a folder."),
    ] = None,
    text_column: Annotated[
        str | None,
        typer.Option("--text_column_name", "--text-column-name", help="For vectors: the column of texts (text)."),
    ] = None,
    vector_column: Annotated[
        str | None,
        typer.Option("--vector_column_name", "--vector-column-name", help="For vectors: their column (embedding)."),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            "--texts", "--text_file", help="For vectors: the files of the texts, if they are not in the same one."
        ),
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="For vectors: the text put before each text.")] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max_length", "--max-length", min=1, help="For vectors: the tokens that texts were cut to."),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", help="For vectors: the number of rows in the proof.")] = 64,
    keep_texts: Annotated[
        bool, typer.Option("--keep_texts", "--keep-texts", help="For vectors: keep the texts of these rows, too.")
    ] = False,
    create_pr: Annotated[
        bool, typer.Option("--create-pr", help="Open a pull request on the Hub that adds the manifest.")
    ] = False,
    trust_remote_code: TrustRemoteCode = False,
    revision: Revision = None,
    token: Token = None,
    debug: Debug = False,
) -> None:
    """Write a manifest of any model that an Auto class loads. By it, `verify` later finds what has changed.

    It holds digests of all files and tensors, settings, and what the model computes for fixed inputs, layer by layer.
    It is written to zoo_manifest.json in the model's folder, or to --output. Check a model before you record it: verify
    takes what it computes now for right.

    With --vectors: write the proof of vectors that any program has made. Some rows are embedded again. That shows at
    once whether MODEL writes these vectors, and how (it tries pooling, length 1, prompt and truncation). The proof is
    written to _proof.json in a folder, to FILE.proof.json beside a file, or to --output.
    """
    from ..converters.sources import check_folder
    from ..utils.folder_kinds import MANIFEST

    with errors_in_one_line(debug), TemporaryDirectory() as place:
        check_folder(model, token)
        options = {"trust_remote_code": trust_remote_code, "revision": revision, "token": token}
        if vectors is not None:
            if create_pr:
                raise ValueError("--create-pr is for the manifest of a model; leave it out, or leave out --vectors")
            columns = {"text_column": text_column, "vector_column": vector_column}
            options |= {"prompt": prompt, "max_length": max_length}
            options |= {"rows": rows, "keep_texts": keep_texts, "output": output}
            with working(f"Recording {vectors}: reading it, then embedding some rows again"):
                recorded = record_with_texts(model, vectors, texts or [], columns, options)
            report(f"{vectors} is recorded in {recorded.path}; {recorded}")
            return
        if text_column or vector_column or texts or prompt or max_length:
            raise ValueError(
                "--text_column_name, --vector_column_name, --texts, --prompt and --max_length need --vectors"
            )
        with working(f"Recording {model}: reading its files, then running it in a fresh process"):
            from .. import proof
            from ..proof.model_recording import propose

            kept = output or (Path(place, MANIFEST) if create_pr else None)
            path = proof.record(model, output=kept, **options)
            address = propose(path, model, token, revision) if create_pr else path
    report(f"{model} is recorded in {address}")


def record_with_texts(
    model: str, vectors: Path, texts: Sequence[str], columns: dict[str, str | None], options: dict[str, Any]
) -> "Recorded":
    """Records vectors, whose texts may be in other files."""
    from ..proof.proof_file import place_of
    from ..proof.vector_recording import record_vectors

    with silenced_loading():
        if not texts:
            return record_vectors(model, vectors, **columns, **options)
        from ..corpus.source import Corpus, digest_of_texts, texts_again

        files = [Path(name).resolve() for name in texts]
        corpus = Corpus.open(data_files=[*map(str, files)], text_column=columns.pop("text_column"))
        place = {"corpus": corpus.source, "digest": digest_of_texts(corpus)}
        if [file.parent for file in files] == [Path(options["output"] or place_of(vectors)).resolve().parent]:
            place["beside"] = files[0].name  # it is found if both are moved
        return record_vectors(model, vectors, texts=place, read_texts=texts_again, **columns, **options)
