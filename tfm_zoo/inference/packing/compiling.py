"""Decoding steps that are compiled: transformers' own `generate`, told to keep its cache static and to compile."""

import logging
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from transformers import CompileConfig, GenerationMixin

from .linear import LinearPart, PackedLinear

logger = logging.getLogger(__name__)

SHORTEST = 128  # positions of the smallest cache
COMPILED = ("_compiled_call", "_last_compile_config")  # where transformers keeps a compiled step


def compile_steps(model: nn.Module, backend: str | Callable = "inductor") -> None:
    """Makes a model compile its decoding steps when it generates: one graph for each [`room`] and number of sequences.

    (Beyond `torch._dynamo.config.recompile_limit` graphs, 8 by default, torch runs further ones uncompiled.)

    Args:
        model: a model that generates, or one that holds it, such as PEFT's.
        backend: torch's name of the compiler, or a compiler.

    Raises:
        ValueError: for a model that does not generate or has a sliding window, and where a compiler or Python's headers
            are missing.
    """
    generator = next((module for module in model.modules() if is_generator(module)), None)
    if generator is None:
        raise ValueError(f"compile=True compiles decoding steps, and a {type(model).__name__} does not generate.")
    if "sliding_attention" in (getattr(generator.config.get_text_config(decoder=True), "layer_types", None) or ()):
        raise ValueError("compile=True needs layers without a window: with one, transformers compiles every step anew.")
    if backend == "inductor":
        check_compiler()
    options = CompileConfig(backend=backend, mode="default", dynamic=False)  # a graph of unknown sizes is slower
    options._compile_all_devices = True
    generator.generation_config.cache_implementation = "static"
    generator.generation_config.compile_config = options
    kind = type(generator)
    generator.__class__ = type(kind.__name__, (CompiledSteps, kind), {"__module__": kind.__module__})


def is_generator(module: nn.Module) -> bool:
    return isinstance(module, GenerationMixin) and module.can_generate()


def check_compiler() -> None:
    """Raises a `ValueError` if torch cannot compile C++ here."""
    compiler = os.environ.get("CXX", {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++"))
    if shutil.which(compiler) is None:
        raise ValueError(f"compile=True needs a C++ compiler, and there is no {compiler}: install it, or set CXX.")
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists():
        raise ValueError(f"compile=True needs Python's headers (python3-dev), and {headers} has no Python.h.")


def room(positions: int) -> int:
    """The size of a cache for this many positions: a power of two, so that few graphs are compiled."""
    return max(SHORTEST, 1 << (positions - 1).bit_length())


def beyond_packed(guards: list) -> list[bool]:
    """Which guards of a graph torch checks before each step: of packed layers only the number, which tells a copy of a
    model from the model. Nothing else of these layers changes, and its guards are a third or more of all.
    """
    packed = tuple({guard.name for guard in guards if isinstance(guard.value, PackedLinear | LinearPart)})
    return [not guard.name.startswith(packed) or guard.name.endswith(".number") for guard in guards]


class CompiledSteps:
    """Mixed into the class of a model, before its own bases, when its decoding steps are compiled."""

    def __getstate__(self) -> dict:
        """Without the compiled step, which belongs to this model: a copy compiles its own."""
        return {name: value for name, value in vars(self).items() if name not in COMPILED}

    def _prepare_cache_for_generation(self, generation_config, model_kwargs: dict, generation_mode, *sizes: int):
        if "beam" in generation_mode:  # transformers compiles no beam search; there, a static cache would only be slow
            generation_config.cache_implementation = generation_config.compile_config = None
        # transformers makes a cache at least as large as this: as the largest before, which would be slow.
        self._previous_max_cache_length = room(sizes[-1])
        return super()._prepare_cache_for_generation(generation_config, model_kwargs, generation_mode, *sizes)

    def get_compiled_call(self, compile_config: CompileConfig | None) -> Callable:
        """The compiled `forward`, which says how long compiling took."""
        compile_config = compile_config or self.generation_config.compile_config
        options = {"guard_filter_fn": beyond_packed}  # which cannot be saved in the model's generation config
        compiled = super().get_compiled_call(replace(compile_config, mode=None, options=options))

        def step(**inputs):
            graphs, start = count_graphs(), time.perf_counter()
            outputs = compiled(**inputs)
            if count_graphs() > graphs:
                seconds = time.perf_counter() - start
                logger.warning(f"Compiled the decoding step of {type(self).__name__} in {seconds:.0f} seconds.")
            return outputs

        return step


def count_graphs() -> int:
    """The graphs that torch has compiled in this process."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]
