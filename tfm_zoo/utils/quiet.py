"""Keeps off the screen what other libraries print and the user can do nothing about.

This file switches loggers and progress bars. It never looks at what a message says, which changes between releases.
"""

import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


@contextmanager
def only_errors(*names: str) -> Iterator[None]:
    """While it is open, the loggers of these names show only errors."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def switched_off(*names: str) -> Iterator[None]:
    """While it is open, the loggers of these names show nothing."""
    loggers = [logging.getLogger(name) for name in names]
    were_disabled = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, were_disabled, strict=True):
            logger.disabled = was_disabled


def quiet_imports() -> AbstractContextManager:
    """While it is open, importing transformers warns of nothing. It imports torchao wherever that is installed."""
    return only_errors(
        "torchao",  # warns of kernels that were built for another GPU. Nothing here calls them
        "torch.utils._pytree",  # warns of an Enum that torchao registers in a way that torch will drop
    )


def quiet_trying() -> AbstractContextManager:
    """While it is open, transformers does not warn of a configuration's values: the configuration is only tried."""
    return switched_off("transformers.configuration_utils")


def quiet_retrying() -> AbstractContextManager:
    """While it is open, the Hub's client logs neither attempts nor missing files: an error tells of them in the end."""
    return switched_off("huggingface_hub.utils._http", "huggingface_hub._snapshot_download")


def quiet_tokenizing() -> AbstractContextManager:
    """While it is open, transformers does not warn of a text that is longer than a model reads: no model reads it."""
    return switched_off("transformers.tokenization_utils_base")


def quiet_reading() -> AbstractContextManager:
    """While it is open, datasets does not log which file it cannot read: an error tells of it, too."""
    return switched_off(*(f"datasets.packaged_modules.{kind}.{kind}" for kind in ("csv", "json")))


def quiet_checkpoint() -> AbstractContextManager:
    """While it is open, Accelerate does not warn that it writes tied weights once: loading ties them again."""
    return switched_off("accelerate.utils.other")


@contextmanager
def quiet_loading() -> Iterator[None]:
    """While it is open, transformers shows no progress bar and does not list the parameters that a model initialises.

    The logger is switched off: with a higher level, transformers checks more.
    """
    from transformers.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

    shows_bars = is_progress_bar_enabled()
    disable_progress_bar()
    try:
        with switched_off("transformers.modeling_utils"):
            yield
    finally:
        if shows_bars:
            enable_progress_bar()


@contextmanager
def quiet_metrics() -> Iterator[None]:
    """While it is open, evaluate shows no progress bar and only errors: a metric is a file of a few lines."""
    from evaluate.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

    shows_bars = is_progress_bar_enabled()
    disable_progress_bar()
    try:
        with only_errors("evaluate"):
            yield
    finally:
        if shows_bars:
            enable_progress_bar()


@contextmanager
def quiet_export() -> Iterator[None]:
    """While it is open, torch's exporter to ONNX shows only errors.

    It warns of packages that it could do without, and of axes that it joins since they always have the same size.
    """
    with only_errors("torch.onnx"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def shown_bars(is_main_process: bool = True) -> Iterator[None]:
    """While it is open, datasets shows a bar where somebody looks: tokenizing may take minutes."""
    import datasets

    if is_main_process and sys.stderr.isatty():
        datasets.enable_progress_bars()
    try:
        yield
    finally:
        datasets.disable_progress_bars()


def hush_progress_bars() -> None:
    """Show no bar for loading weights or mapping a data set; downloads, which take long, keep theirs.

    Bars of work that takes a moment hide the lines that tell what happens.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    if "datasets" in sys.modules:  # an optional dependency
        sys.modules["datasets"].disable_progress_bars()


def hush_deepspeed() -> None:
    """Show only DeepSpeed's errors. Where it is installed, transformers imports it to save any model, and it then warns
    of the device that it would train on."""
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)


def hush_downloads() -> None:
    """Do not list the files of a checkpoint's code when transformers downloads them: the user has asked to run it. Nor
    tell of each attempt to reach the Hub: an error tells of the last."""
    for name in ("transformers.dynamic_module_utils", "huggingface_hub.utils._http"):
        logging.getLogger(name).setLevel(logging.ERROR)


def printable(text: str) -> str:
    """A text that a terminal only shows: what would move its cursor, or name its window, is spelt out."""
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)


def hush_control_codes() -> None:
    """Log messages as `printable` text: they may name what a checkpoint, a card or a data set holds."""
    make_record = logging.getLogRecordFactory()

    def make_printable(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make_record(*args, **kwargs)
        message = record.getMessage()
        if (shown := printable(message)) != message:  # others keep their arguments, which uvicorn's formatter reads
            record.msg, record.args = shown, ()
        return record

    logging.setLogRecordFactory(make_printable)


def hush_interrupt() -> None:
    """End a program at Ctrl-C with exit code 130 and no traceback, also while it imports. A session goes on."""
    show = sys.excepthook

    def end(kind: type[BaseException], *others: Any) -> None:
        if hasattr(sys, "ps1") or not issubclass(kind, KeyboardInterrupt):
            show(kind, *others)
        else:
            sys.exit(128 + signal.SIGINT)

    sys.excepthook = end


def hush_tokenizers() -> None:
    """Stop the tokenizers' warning in forked workers of a `DataLoader`, which need no threads of their own."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
