"""What the loop has to know of engines that shard a model: FSDP2 and DeepSpeed."""

from dataclasses import replace
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers import PreTrainedModel
from transformers.integrations import unset_hf_deepspeed_config

from tfm_zoo.hub.sharded_models import own_class, plain_name
from tfm_zoo.training.options import TrainingOptions


def is_sharded(accelerator: Accelerator) -> bool:
    """Whether each process holds only a part of the model while it trains: with FSDP and with ZeRO-3."""
    plugin = accelerator.state.deepspeed_plugin
    return accelerator.distributed_type == DistributedType.FSDP or (plugin is not None and plugin.zero_stage == 3)


def set_engine(accelerator: Accelerator, args: TrainingOptions) -> None:
    """Give FSDP or DeepSpeed what it has to know, and refuse what it cannot do."""
    if name := next((name for name in ("freeze", "lora_rank") if getattr(args, name)), None):
        engine = accelerator.distributed_type.value
        raise ValueError(f"{name} works on one process and with DDP; with {engine} the whole model learns")
    if accelerator.is_fsdp2 and (policy := accelerator.state.fsdp_plugin.mixed_precision_policy):
        # Accelerate would have FSDP2 round outputs, losses too, to the dtype of the layers.
        accelerator.state.fsdp_plugin.mixed_precision_policy = replace(policy, output_dtype=None)
    if plugin := accelerator.state.deepspeed_plugin:
        unset_hf_deepspeed_config()  # else `from_pretrained` would shard the model, which then cannot be converted
        passes = plugin.get_value("gradient_accumulation_steps")
        if passes not in (None, "auto", 1, args.gradient_accumulation_steps):
            raise ValueError(f"DeepSpeed's gradient_accumulation_steps {passes}: give it as an option of the recipe")
        plugin.deepspeed_config.update(
            train_micro_batch_size_per_gpu=args.per_device_train_batch_size,
            gradient_accumulation_steps=1,  # the loop itself divides the gradients
            gradient_clipping=args.max_grad_norm,
        )


def shard_shared_tables(accelerator: Accelerator, model: PreTrainedModel) -> None:
    """Let FSDP2 treat all modules that share a weight as one, before an optimiser knows their parameters.

    Accelerate does so for two modules. An encoder-decoder may have three: the embeddings of both sides, and the head.
    """
    plugin = accelerator.state.fsdp_plugin
    plugin.set_auto_wrap_policy(model)
    policy = plugin.mixed_precision_policy or MixedPrecisionPolicy()
    owners: dict[nn.Parameter, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(module)
    for modules in owners.values():
        if len(modules) > 2:
            fully_shard(modules, reshard_after_forward=False, mp_policy=policy, offload_policy=plugin.cpu_offload)


def gather_state_dict(accelerator: Accelerator, model: nn.Module) -> dict[str, Tensor]:
    """The whole weights of a prepared model, on the main process, as precise as the optimiser has them. All processes
    call it. Accelerate would return the weights that DeepSpeed computes with, rounded in bf16."""
    if accelerator.distributed_type != DistributedType.DEEPSPEED:
        weights = accelerator.get_state_dict(model)
        return {plain_name(name): weight for name, weight in weights.items()}  # compiled modules have longer names
    from deepspeed.utils import safe_get_full_fp32_param

    model = accelerator.unwrap_model(model, keep_torch_compile=False)
    weights, precise = dict(model.state_dict()), {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter not in precise:  # a tied parameter is gathered once
            weight = safe_get_full_fp32_param(parameter)
            precise[parameter] = weight.cpu() if accelerator.is_main_process else None
        weights[name] = precise[parameter]
    return weights


@torch.no_grad()
def load_saved(accelerator: Accelerator, model: nn.Module, folder: Path) -> None:
    """Load the weights that lie in a folder into a prepared model, in place. All processes call it. The main process
    reads them into its memory, and sends each tensor to the others, which need not see the folder."""
    unwrapped, weights = accelerator.unwrap_model(model, keep_torch_compile=False), {}
    if accelerator.is_main_process:
        weights = own_class(unwrapped).from_pretrained(folder).state_dict()
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        model = model.module
        if is_sharded(accelerator):
            import deepspeed

            for name, parameter in model.named_parameters():  # one at a time
                with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
                    if accelerator.is_main_process:
                        parameter.copy_(weights[name])
            return
    for module in model.modules() if accelerator.is_fsdp2 else ():
        if isinstance(module, FSDPModule):  # an evaluation leaves some modules whole
            module.reshard()
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=accelerator.num_processes > 1)
    set_model_state_dict(model, weights, options=options)
