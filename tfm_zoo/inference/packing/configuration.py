"""What a quantised checkpoint says of itself in `config.json`, under `quantization_config`."""

from typing import Any

from transformers import PreTrainedModel
from transformers.quantizers import AutoHfQuantizer, register_quantization_config
from transformers.utils.quantization_config import QuantizationConfigMixin

METHOD = "tfm_zoo"
DTYPES = ("int8", "int4")
#: how a calibrated product reads its inputs, by one scale of all channels or by one of each; or that it was not rounded
INPUTS = ("tensor", "channels", "bfloat16")


@register_quantization_config(METHOD)
class TfmQuantizationConfig(QuantizationConfigMixin):
    """For `from_pretrained(..., quantization_config=...)`, which then does what [`pack_weights`] does, layer by layer.

    Args:
        dtype: `"int8"` or `"int4"`, as for [`pack_weights`].
        modules_to_not_convert: names of modules, or patterns of names, whose layers stay as they are; empty by default.
        bill: what rounding has cost (see [`bill_of`]).
        inputs: for a calibrated model: the name of a layer -> one of `INPUTS`. Other layers read each row by a scale of
            its own.
        least_cosine: for a calibrated model: the least cosine of its vectors to those before.

    Raises:
        ValueError: for another type, or another kind of inputs.
    """

    bill: dict[str, Any] | None = None
    inputs: dict[str, str] | None = None
    least_cosine: float | None = None

    def __init__(
        self,
        dtype: str,
        modules_to_not_convert: list[str] | None = None,
        quant_method: str = METHOD,
        bill: dict[str, Any] | None = None,
        inputs: dict[str, str] | None = None,
        least_cosine: float | None = None,
    ):
        if dtype not in DTYPES:
            raise ValueError(f"A checkpoint is quantised to one of {', '.join(DTYPES)}, not to {dtype!r}.")
        if unknown := {*(inputs or {}).values()} - {*INPUTS}:
            raise ValueError(
                f"The inputs of layers are one of {', '.join(INPUTS)}, not {', '.join(map(repr, unknown))}."
            )
        self.dtype, self.modules_to_not_convert, self.quant_method = dtype, modules_to_not_convert, quant_method
        if bill is not None:  # checkpoints of earlier versions lack it
            self.bill = bill
        if inputs is not None:  # a checkpoint that was not calibrated says nothing of it
            self.inputs, self.least_cosine = inputs, least_cosine


def mark(model: PreTrainedModel, config: TfmQuantizationConfig) -> None:
    """Makes a packed model known to transformers as quantised, so that it is saved as such."""
    model.config.quantization_config = config
    model.hf_quantizer = AutoHfQuantizer.from_config(config, pre_quantized=True)
    model.is_quantized, model.quantization_method = True, METHOD
