"""What learns, if not all weights do: what is not frozen; or low-rank adapters (LoRA, Hu et al. 2021), by PEFT."""

import difflib
import re
from collections.abc import Sequence
from copy import copy
from fnmatch import fnmatchcase
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from tfm_zoo.training.options import TrainingOptions

#: the folder, beside the merged model, that holds the adapters alone, as PEFT reads them
ADAPTER_FOLDER = "adapter"
ADAPTER = "default"  # PEFT's name of the only one
#: how the class of a model ends -> PEFT's name of its task
TASKS = {"SequenceClassification": "SEQ_CLS", "TokenClassification": "TOKEN_CLS", "QuestionAnswering": "QUESTION_ANS"}


def freeze(model: PreTrainedModel, patterns: Sequence[str]) -> None:
    """Freeze the parameters that shell patterns name.

    A pattern matches whole parts of a dotted name, anywhere in it: `embeddings` means all parameters of the embeddings,
    `layers.[0-3]` those of the first four layers of each stack. A weight that is tied to another is frozen by either
    name. A pattern that matches nothing is refused, and so are patterns that leave nothing to learn.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        frozen = [parameter for name, parameter in named if fnmatchcase(f".{name}.", f"*.{pattern}.*")]
        if not frozen:
            near = difflib.get_close_matches(f"model.{pattern}", dict(model.named_modules()), cutoff=0)
            raise ValueError(f"freeze {pattern!r}: {type(model).__name__} has no parameter of that name; near: {near}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for _, parameter in named):
        raise ValueError(f"freeze {list(patterns)}: nothing is left to learn")


class Adapters:
    """Adapters in the linear layers of a model, whose own weights stay as they are. A head of labels learns whole."""

    def __init__(self, model: PreTrainedModel, args: TrainingOptions):
        try:
            import peft
        except ImportError as error:
            raise ValueError("lora_rank needs PEFT: pip install peft (the extra 'lora')") from error
        if args.is_new:
            raise ValueError("lora_rank adapts a checkpoint, and this model is new: give model_name_or_path")
        parts = [name for name, part in model.named_children() if any(True for _ in part.parameters())]
        # What writes tokens is not a new head, and is most often tied to the embeddings.
        has_head = model.base_model_prefix in parts and model.get_output_embeddings() is None
        self.heads = [name for name in parts if name != model.base_model_prefix] if has_head else []
        task = "SEQ_2_SEQ_LM" if model.config.is_encoder_decoder else "CAUSAL_LM"
        self.config = peft.LoraConfig(
            r=args.lora_rank,
            lora_alpha=args.lora_alpha,
            lora_dropout=args.lora_dropout,
            target_modules=args.lora_target_modules or "all-linear",
            exclude_modules=rf"({'|'.join(map(re.escape, self.heads))})(\..*)?" if has_head else None,
            # A model that was converted lies nowhere: the checkpoint that it comes from has modules of other names.
            base_model_name_or_path=args.model_name_or_path if model.name_or_path else None,
            revision=args.model_revision,
            task_type=TASKS.get(type(model).__name__.rpartition("For")[2], task),
        )
        for target in args.lora_target_modules or ():
            if not any(f".{name}".endswith(f".{target}") for name, _ in model.named_modules()):
                linear = {name.split(".")[-1] for name, part in model.named_modules() if isinstance(part, nn.Linear)}
                raise ValueError(f"lora_target_modules {target!r}: choose from {', '.join(sorted(linear))}")
        self.model, self.tuner = model, peft.LoraModel(model, self.config, ADAPTER)
        del model.peft_config  # by which other libraries would take it for a model with adapters loaded
        for name in self.heads:
            model.get_submodule(name).requires_grad_(True)

    def merged(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """`weights`, with adapters, as those of an ordinary model: an adapter is added to the weight of its layer."""
        merged = {name.replace(".base_layer.", "."): weight for name, weight in weights.items() if ".lora_" not in name}
        for name, layer in self.model.named_modules():
            if hasattr(layer, "get_delta_weight"):
                merged[f"{name}.weight"] = merged[f"{name}.weight"] + layer.get_delta_weight(ADAPTER)
        return merged

    def save(self, weights: dict[str, Tensor], folder: Path) -> None:
        """Save adapters and head, without the weights that they are for, as `PeftModel.from_pretrained` reads them."""
        heads = tuple(f"{name}." for name in self.heads)
        kept = {
            f"base_model.model.{name.replace(f'.{ADAPTER}.', '.')}": weight.contiguous()
            for name, weight in weights.items()
            if ".lora_" in name or name.startswith(heads)
        }
        folder.mkdir()
        save_file(kept, folder / "adapter_model.safetensors")
        config = copy(self.config)
        config.inference_mode, config.modules_to_save = True, self.heads or None
        config.save_pretrained(folder)
