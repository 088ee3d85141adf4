"""What the scripts that use a trained model share. They need transformers alone, but for folders of int8 and int4."""

import argparse
import logging
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

#: loggers that warn when transformers imports torchao, where that is installed, downloads a checkpoint's code, or tries
#: again to reach the Hub
NOISY = ("torchao", "torch.utils._pytree", "transformers.dynamic_module_utils", "huggingface_hub")
#: how the names of files of rows and columns end
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
#: how a file begins that Git LFS has left instead of a large one
POINTER = "version https://git-lfs.github.com/spec/"
#: how the names of classes end whose models predict.py uses, and of those that write
READING = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
WRITING = ("ConditionalGeneration", "MTModel", "CausalLM", "LMHeadModel")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="folder or Hub id")
    parser.add_argument("--revision", help="branch, tag or commit of a Hub model; by default the main branch")
    parser.add_argument("--trust_remote_code", action="store_true", help="run a Hub model's code; a folder's is run")


def parsed(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """The arguments. Texts may stand behind options. An unknown option ends the program, with the nearest one."""
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        near = get_close_matches(unknown[0].partition("=")[0], [*parser._option_string_actions], n=1)
        parser.error(f"unknown option {unknown[0]}{f'; did you mean {near[0]}?' if near else ''}")
    return args


def loading(args: argparse.Namespace) -> dict[str, str | bool | None]:
    """The arguments of `from_pretrained` that [`add_model_arguments`] asks for."""
    return {"revision": args.revision, "trust_remote_code": args.trust_remote_code}


def check_file(file: Path | None, error: Callable[[str], None]) -> None:
    if file and not file.is_file():
        error(f"--file {file}: no such file")


def lines_of(file: Path | None, error: Callable[[str], None], advice: str = "") -> list[str]:
    """The lines of `--file`. `error` ends the program, with `advice` at the end, if that is not a file of lines."""
    check_file(file, error)
    if file and file.suffix.lower() in TABLES:
        error(f"--file {file} is a table, and a file is read line by line{advice}")
    if not file:
        return []
    try:
        text = file.read_text("utf-8-sig")  # a byte order mark is not text
    except UnicodeDecodeError as reason:
        error(f"--file {file} cannot be read: {reason} (save it as UTF-8)")
    if text.startswith(POINTER):
        error(f"--file {file} is a Git LFS pointer, not the file itself: run `git lfs pull`")
    return text.removesuffix("\n").split("\n") if text else []  # `splitlines` also cuts at characters such as U+2028


def positions_of(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens a model reads."""
    positions = getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length
    if getattr(config, "position_ids_from_padding", False):  # RoBERTa's and FSMT's begin after the padding's
        positions -= config.pad_token_id + 1
    positions, special = min(positions, tokenizer.model_max_length), tokenizer.num_special_tokens_to_add()
    if positions <= special:  # a tokenizer would then not truncate at all
        sys.exit(f"error: {tokenizer.name_or_path} takes {positions} tokens, and a text has {special} special ones")
    return positions


def open_config(
    args: argparse.Namespace, script: str | None, does_not: str, error: Callable[[str], None]
) -> PreTrainedConfig:
    """The configuration of `args.model`, a folder, whose code is trusted, or a Hub id.

    Args:
        script: the name of the script that asks; `None` if it takes models with any head.
        does_not: what models that are for other scripts do not do.
        error: called with a message if there is no such model, or if it is for another script; it ends the program.
    """
    disable_progress_bar()
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    folder = Path(args.model)
    args.trust_remote_code |= folder.is_dir()
    if not folder.is_dir():
        if args.model.startswith((".", "~", "/")) or (folder.parent.name and folder.parent.is_dir()):
            others = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
            near = [str(folder.parent / name) for name in get_close_matches(folder.name, others, n=1)]
            error("; did you mean ".join([f"{args.model}: no such folder", *near]))
        print(f"(no folder {args.model}: asking the Hub)", file=sys.stderr)
    try:
        if not folder.is_dir():  # which transformers asks for half a minute when it cannot be reached
            found = snapshot_download(args.model, revision=args.revision, allow_patterns=["config.json"])
            if not (Path(found) / "config.json").is_file():
                main = "on its main branch: if it is on another, give --revision"
                error(f"{args.model} holds no model {f'at revision {args.revision}' if args.revision else main}")
        elif not (folder / "config.json").is_file():
            error(f"{args.model} holds no config.json, and so no model")
        weights = "*.safetensors" if any(folder.glob("*.safetensors")) else "*model*.bin"
        read = ("*.json", "vocab.txt", "merges.txt", "*.model", weights)
        for file in (file for pattern in read for file in folder.glob(pattern)):
            with file.open("rb") as content:
                if content.read(len(POINTER)) == POINTER.encode():
                    error(f"{file} is a Git LFS pointer, not the file itself: run `git lfs pull` in its clone")
        config = AutoConfig.from_pretrained(args.model, **loading(args))
    except LocalEntryNotFoundError:
        error(f"{args.model} is not a folder, and the Hub cannot be reached (or HF_HUB_OFFLINE is set)")
    except (HFValidationError, RepositoryNotFoundError):
        error(f"{args.model} is not a folder, and no model on the Hub that you may read (user/name)")
    except RevisionNotFoundError:
        error(f"{args.model} has no revision {args.revision} on the Hub")
    except (OSError, ValueError) as reason:
        if "trust_remote_code" in str(reason):
            error(f"{args.model} has code of its own: if you trust its author, give --trust_remote_code to run it")
        error(f"{args.model} holds no model that transformers can read: {str(reason).splitlines()[0]}")
    name = (config.architectures or ["no known class"])[0]
    writer = "translate.py" if config.is_encoder_decoder else "generate.py"
    right = "predict.py" if name.endswith(READING) else writer if name.endswith(WRITING) else None
    if script and right not in (script, None):
        error(f"{args.model} is of {name}, which {does_not}: recipes/{right} takes it")
    if (getattr(config, "quantization_config", None) or {}).get("quant_method") == "tfm_zoo":
        import tfm_zoo  # noqa: F401, which knows the format
    return config
