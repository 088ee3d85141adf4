"""Fully sharded data parallelism, wrapped as Accelerate does it by a model's `_no_split_modules`, in one process."""

from collections.abc import Iterator

import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from tfm_zoo import from_official

from ..official_models import BY_NAME, build_tiny


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def shard(model: nn.Module, version: int) -> tuple[nn.Module, int]:
    """The model, and how many of its modules are units of their own."""
    options = {"cpu_ram_efficient_loading": False, "auto_wrap_policy": "transformer_based_wrap"}
    plugin = FullyShardedDataParallelPlugin(fsdp_version=version, reshard_after_forward=None, **options)
    plugin.set_auto_wrap_policy(model)
    if version == 1:
        device = torch.device("cpu")
        sharded = FullyShardedDataParallel(
            model, auto_wrap_policy=plugin.auto_wrap_policy, use_orig_params=True, device_id=device
        )
        return sharded, sum(isinstance(part, FullyShardedDataParallel) for part in sharded.modules()) - 1
    is_unit, mesh = fsdp2_prepare_auto_wrap_policy(plugin, model), init_device_mesh("cpu", (1,))
    units = [part for part in model.modules() if is_unit(part)]
    for unit in reversed(units):
        fully_shard(unit, mesh=mesh)
    return fully_shard(model, mesh=mesh), len(units)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["BertForSequenceClassification", "LlamaForCausalLM", "BartForConditionalGeneration"])
def test_each_layer_is_a_unit(name, version):
    """And it learns what it does unsharded. The two stacks of BART's zoo model share their embeddings."""
    model, ids = from_official(build_tiny(BY_NAME[name])), torch.arange(4, 18).view(2, 7)
    batch = {"input_ids": ids, "labels": torch.tensor([0, 1]) if "Sequence" in name else ids}
    whole = model(**batch).loss
    whole.backward()
    wanted = model.get_input_embeddings().weight.grad.clone()
    model.zero_grad()
    layers = sum(type(part).__name__.endswith("Layer") for part in model.modules())
    sharded, units = shard(model, version)
    assert units >= layers > 2
    loss = sharded(**batch).loss
    loss.backward()
    torch.testing.assert_close(loss, whole)
    gradient = model.get_input_embeddings().weight.grad
    gradient = gradient.full_tensor() if version == 2 else gradient
    torch.testing.assert_close(gradient.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-6)
