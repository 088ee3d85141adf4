"""`tfm-zoo convert` and `export`: official checkpoints to zoo models and back."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from shutil import copyfile
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import track

from .options import Debug, Out, Overwrite
from .screen import advise, errors_in_one_line, notes, report

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from ..converters.checkpoint import Checkpoint
    from ..converters.scratch import Scratch


def convert(
    source: Annotated[str, typer.Argument(help="A folder or a Hub id, such as google-bert/bert-base-uncased.")],
    out: Out,
    model_class: Annotated[
        str | None,
        typer.Option(
            *("--model-class", "--head"),
            help="The zoo class, such as TfmBertForTokenClassification, or TokenClassification for short. "
            "By default, the class for the head in the checkpoint.",
        ),
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, ...; by default the checkpoint's.")] = None,
    quantize: Annotated[
        Literal["int8", "int4"] | None,
        typer.Option(help="Round the weights. It is for a CPU with tfm_zoo installed. SOURCE may be a zoo model, too."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            help="With --quantize: a file of texts, or a data set's NAME:SPLIT, to measure what rounding costs.",
        ),
    ] = None,
    text_column: Annotated[
        str | None,
        typer.Option("--text_column_name", "--text-column-name", help="Of --split: the column of texts (text)."),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option("--label_column_name", "--label-column-name", help="Of --split: the column of labels (label)."),
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", help="For a classifier whose --split has labels: the metric to measure.")
    ] = "accuracy",
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Convert an official checkpoint to a zoo model, which carries its code and its tokenizer."""
    from ..converters.new_folders import new_folder
    from ..converters.sources import check_source

    with errors_in_one_line(debug), new_folder(out, overwrite) as folder, ExitStack() as files:
        check_source(source)
        if split and not quantize:
            raise ValueError("--split needs --quantize, whose cost it measures")
        if (text_column or label_column) and not split:
            raise ValueError("--text_column_name and --label_column_name are columns of --split: give it, too")
        # Imported here, since it takes seconds: what is wrong with a name shows before.
        from ..converters import ConversionError
        from ..converters.assembling import as_dtype
        from ..converters.checkpoint import fetch, open_checkpoint, read_config
        from ..converters.choosing import architecture_of
        from ..converters.folders import copy_companions, name_tokenizer_class
        from ..converters.scratch import scratch_in
        from ..hub.cards import write_conversion_card
        from ..inference.packing import pack_weights
        from ..proof.bill import bill_in, sentence_of
        from ..proof.manifest import complete_manifest
        from ..utils.published import shortened
        from .costs import Costs, Split
        from .models import find_class, is_zoo, load, save

        # Weights are downloaded after a look at what options ask for.
        config = read_config(fetch(source, weights=False))
        # (For what is said here. `converted` asks for it again.)
        architecture = None if is_zoo(config) else architecture_of(config, source)
        if architecture is None and (model_class or not quantize):
            mend = "`tfm-zoo export` makes it official again, and --quantize without --model-class rounds it"
            raise ConversionError(f"{source} is a model of the zoo already: {mend}.")
        zoo_class = model_class and find_class(model_class, architecture.family)
        torch_dtype = None if dtype in (None, "auto") else as_dtype(dtype)
        measured_on = Split.read(split, text_column, label_column) if split else None
        checkpoint_folder = fetch(source)
        if architecture is None:
            model = load(checkpoint_folder, dtype=torch_dtype or "auto")
        else:
            # Weights may be more than the memory there is. Those that only get another name stay in the checkpoint's
            # files. Others, also those of another type, go to files in the hidden folder in which OUT is made.
            scratch = files.enter_context(scratch_in(folder.parent))
            checkpoint = replace(open_checkpoint(checkpoint_folder, mapped=True), source=source)
            model = converted(checkpoint, zoo_class, torch_dtype, scratch)
        if quantize:
            costs = Costs.on(measured_on, metric, model, checkpoint_folder)
            pack_weights(model, quantize)
            costs.add(model)
        save(model, folder)  # This writes a manifest, too, since it is a model of the zoo.
        copy_companions(checkpoint_folder, folder)
        if architecture and architecture.tokenizer:
            name_tokenizer_class(checkpoint_folder, folder, default=architecture.tokenizer)
        complete_manifest(folder)  # with what was copied
        given = {"--model-class": model_class, "--dtype": torch_dtype and dtype, "--quantize": quantize}
        given |= {"--split": split, "--text_column_name": text_column, "--label_column_name": label_column}
        given["--metric"] = metric if split and metric != "accuracy" else None
        options = [word for name, value in given.items() if value for word in (name, shortened(value))]
        title = architecture.title if architecture else "zoo"
        write_conversion_card(folder, model, source, title, shortened(str(out)), options)
        name = f"{title} as {type(model).__name__}" if architecture else type(model).__name__
        result = f"{name}{f', rounded to {quantize},' if quantize else ''} in {out}"
        bill = sentence_of(bill_in(model.config))
        del model  # Some systems do not delete scratch files while it maps them.
    report(result)
    if bill:
        report(bill)
    if quantize:
        hint = "" if split or costs.before is None else ". --split, with a file of texts, measures what rounding costs"
        advise(f"It loads after `import tfm_zoo`{hint}")
    advise(f"To check later that it still computes the same: tfm-zoo verify {quote(str(out))}")


def converted(
    checkpoint: "Checkpoint", zoo_class: type["PreTrainedModel"] | None, dtype: "torch.dtype | None", scratch: "Scratch"
) -> "PreTrainedModel":
    """The zoo model of an official checkpoint. Shows a progress bar."""
    from ..converters import conversion

    bar = {"description": "Converting", "console": notes, "disable": not notes.is_terminal, "transient": True}
    return conversion.convert(checkpoint, zoo_class, partial(track, **bar), dtype=dtype, scratch=scratch)


def export(
    zoo_dir: Annotated[
        str, typer.Argument(help="Folder or Hub id of a zoo model; with --onnx, also of an official one.")
    ],
    out: Out,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write graphs for ONNX Runtime instead, checked against the model.")
    ] = False,
    for_engines: Annotated[
        bool,
        typer.Option(
            "--for-engines",
            help="Add fields to config.json that CTranslate2 and llama.cpp read, and transformers 5 leaves out.",
        ),
    ] = False,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Write a zoo model, with its tokenizer, as a checkpoint of the official class that computes the same.

    With --onnx: write a zoo model or an official one as ONNX graphs, in OUT/onnx, beside configuration and tokenizer.
    """
    from ..converters.new_folders import new_folder
    from ..converters.sources import check_source

    if onnx and for_engines:
        raise typer.BadParameter("--onnx writes no official checkpoint: leave out one of --onnx and --for-engines.")
    with errors_in_one_line(debug), new_folder(out, overwrite) as folder:
        check_source(zoo_dir)
        from ..converters.checkpoint import fetch, read_config
        from ..converters.folders import copy_companions
        from .models import check_is_zoo

        if not onnx:  # before weights are downloaded
            check_is_zoo(read_config(fetch(zoo_dir, weights=False)), zoo_dir)
        zoo_folder = fetch(zoo_dir)
        result = write_onnx(zoo_folder, folder) if onnx else write_official(zoo_folder, folder, zoo_dir, for_engines)
        copy_companions(zoo_folder, folder)
    report(f"{result} in {out}")
    if not onnx:
        advise(f"To check that it computes the same: tfm-zoo verify {quote(str(out))} --against {quote(zoo_dir)}")


def write_official(zoo_folder: Path, folder: Path, source: str, for_engines: bool) -> str:
    """Writes the official checkpoint; returns what it is."""
    from transformers import PreTrainedModel

    from ..converters import ConversionError, to_official
    from ..converters.engine_fields import add_engine_fields, misread_by_ctranslate2
    from .models import load, save

    with notes.status("Converting"):
        official = to_official(load(zoo_folder))
    if not isinstance(official, PreTrainedModel):
        found = f"{source} goes back to nn.{type(official).__name__}"
        raise ConversionError(f"{found}, which no checkpoint holds: use tfm_zoo.to_official(model).")
    if for_engines:
        add_engine_fields(official.config)
        if misread := misread_by_ctranslate2(official):
            advise(f"warning: {misread} Run it in transformers, or in ONNX Runtime: tfm-zoo export --onnx")
    save(official, folder)
    return type(official).__name__


def write_onnx(source: Path, folder: Path) -> str:
    """Writes ONNX files of a zoo model or an official one, and its configuration; returns what they are."""
    from ..converters.checkpoint import read_config
    from ..inference.onnx import export_onnx
    from .models import is_zoo, load_any, save_config

    model, config = load_any(str(source)), read_config(source)
    if is_zoo(config):
        save_config(model, source, folder / "config.json")
    else:
        copyfile(source / "config.json", folder / "config.json")
    with notes.status("Exporting, and comparing with the model"):
        difference = export_onnx(model, folder / "onnx")
    name = (config.get("architectures") or [type(model).__name__])[0]
    return f"{name} as ONNX, which differs by at most {difference:.0e},"
