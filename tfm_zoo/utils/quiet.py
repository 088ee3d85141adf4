"""Keeps off the screen what other libraries print and the user can do nothing about.

`silenced_x()` silences while it is open, `silence_x()` for good. They switch loggers and progress bars, and never look
at what a message says, which changes between releases.
"""

import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any


@contextmanager
def silenced(*names: str, bars: str | None = None, warns: bool = True) -> Iterator[None]:
    """While it is open, the loggers of these names say nothing, and a module of Hugging Face shows no progress bar.

    Args:
        bars: the module that switches the bars on and off.
        warns: whether Python's own warnings are shown.
    """
    with ExitStack() as afterwards:
        for logger in map(logging.getLogger, names):
            afterwards.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        if bars and (switch := import_module(bars)).is_progress_bar_enabled():
            afterwards.callback(switch.enable_progress_bar)
            switch.disable_progress_bar()
        if not warns:
            afterwards.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        yield


#: torchao, which transformers imports, warns of kernels built for other GPUs; torch warns of an Enum of torchao's
silenced_imports = partial(silenced, "torchao", "torch.utils._pytree")
#: a configuration is only tried
silenced_trying = partial(silenced, "transformers.configuration_utils")
#: of attempts and missing files an error tells in the end
silenced_retrying = partial(silenced, "huggingface_hub.utils._http", "huggingface_hub._snapshot_download")
#: no model reads the text that is longer than a model reads
silenced_tokenizing = partial(silenced, "transformers.tokenization_utils_base")
#: an error tells of the file that cannot be read, too
silenced_reading = partial(silenced, *(f"datasets.packaged_modules.{kind}.{kind}" for kind in ("csv", "json")))
#: Accelerate writes tied weights once: loading ties them again
silenced_checkpoint = partial(silenced, "accelerate.utils.other")
#: a metric is a file of a few lines
silenced_metrics = partial(silenced, "evaluate", bars="evaluate.utils.logging")
#: torch's exporter warns of packages that it could do without, and of axes that it joins as they have the same size
silenced_export = partial(silenced, "torch.onnx", warns=False)


@contextmanager
def silenced_loading() -> Iterator[None]:
    """While it is open, transformers shows no bar and does not list the parameters that a model initialises. The logger
    is switched off: with a higher level, transformers checks more."""
    logger = logging.getLogger("transformers.modeling_utils")
    before, logger.disabled = logger.disabled, True
    try:
        with silenced(bars="transformers.utils.logging"):
            yield
    finally:
        logger.disabled = before


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


def silence_progress_bars() -> None:
    """Show no bar for loading weights or mapping a data set, which hide lines of the log; downloads keep theirs."""
    import_module("transformers.utils.logging").disable_progress_bar()
    if "datasets" in sys.modules:  # an optional dependency
        sys.modules["datasets"].disable_progress_bars()


def silence_deepspeed() -> None:
    """Show only DeepSpeed's errors. Where it is installed, transformers imports it to save any model, and it then warns
    of the device that it would train on."""
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)


def silence_downloads() -> None:
    """Do not list the files of a checkpoint's code, which the user has asked to run, nor each attempt to reach the Hub:
    an error tells of the last."""
    for name in ("transformers.dynamic_module_utils", "huggingface_hub.utils._http"):
        logging.getLogger(name).setLevel(logging.ERROR)


def silence_tokenizers() -> None:
    """Stop the tokenizers' warning in forked workers of a `DataLoader`, which need no threads of their own."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def printable(text: str) -> str:
    """A text that a terminal only shows: what would move its cursor, or name its window, is spelt out."""
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)


def silence_control_codes() -> None:
    """Log messages as `printable` text: they may name what a checkpoint, a card or a data set holds."""
    make_record = logging.getLogRecordFactory()

    def make_printable(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make_record(*args, **kwargs)
        message = record.getMessage()
        if (shown := printable(message)) != message:  # others keep their arguments, which uvicorn's formatter reads
            record.msg, record.args = shown, ()
        return record

    logging.setLogRecordFactory(make_printable)


def silence_interrupt() -> None:
    """End a program at Ctrl-C with exit code 130 and no traceback, also while it imports. A session goes on."""
    show = sys.excepthook
    if show.__module__ == __name__:  # a second run of one program
        return

    def end(kind: type[BaseException], *others: Any) -> None:
        if hasattr(sys, "ps1") or not issubclass(kind, KeyboardInterrupt):
            show(kind, *others)
        else:
            sys.exit(128 + signal.SIGINT)

    sys.excepthook = end
