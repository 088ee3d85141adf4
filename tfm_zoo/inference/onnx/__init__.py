"""Models as ONNX graphs, for ONNX Runtime and what is built on it. It needs the packages of the extra `onnx`.

File names and the names of inputs and outputs are those of Hugging Face's optimum, which other tools follow.
"""

try:
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401
except ModuleNotFoundError as error:
    message = f"ONNX needs {error.name}, which is not installed: pip install -e '.[onnx]' in a clone of tfm_zoo."
    raise ModuleNotFoundError(message, name=error.name) from error

from .export import export_onnx

__all__ = ["export_onnx"]
