"""Tensors that stay in files, for conversions of models that are larger than memory."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from .errors import ConversionError
from .tensor_rules import Tensors


class Scratch:
    """A folder for the tensors of one model, which are read from it when they are needed."""

    def __init__(self, folder: Path):
        self.folder, self.count = folder, 0

    def keep(self, tensors: Tensors, unless_in: Tensors, dtype: torch.dtype) -> Tensors:
        """The same tensors in this type, mapped from files. Those in `unless_in`, which come from a mapped checkpoint,
        stay as they are if they have this type."""
        stay = {id(tensor) for tensor in unless_in if tensor.dtype == dtype}
        return [tensor if id(tensor) in stay else self.mapped(tensor.to(dtype)) for tensor in tensors]

    def mapped(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same tensor in a file of its own; writing to it does not change the file."""
        file, self.count = self.folder / str(self.count), self.count + 1
        content = tensor.contiguous().view(-1).view(torch.uint8).numpy()
        try:
            content.tofile(file)
        except OSError as error:  # numpy's error for a full disk says nothing but two numbers
            raise ConversionError(f"{self.folder} takes no {content.nbytes:,} bytes more: {error}.") from error
        return torch.from_file(str(file), shared=False, size=tensor.numel(), dtype=tensor.dtype).view(tensor.shape)


@contextmanager
def scratch_in(folder: Path) -> Iterator[Scratch]:
    """A scratch folder in `folder`, which is deleted at the end. (Windows and NFS delete no file that is mapped.)"""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as temporary:
        yield Scratch(Path(temporary))
