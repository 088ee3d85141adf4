"""Sharded models compute and learn what whole ones do: by FSDP, wrapped as Accelerate does it (`_no_split_modules`), in
one process; by tensor parallelism, in two, by plans that name existing modules."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from tfm_zoo import TfmBertForMaskedLM, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM

from ..official_models import both
from ..tiny import NO_DROPOUT, ragged_batch, tiny_model


@pytest.fixture(scope="module")
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
def test_each_layer_is_a_unit(name, version, one_process):
    """And it learns what it does unsharded. The two stacks of BART's zoo model share their embeddings."""
    (_, model), ids = both(name), torch.arange(4, 18).view(2, 7)
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


@pytest.mark.parametrize("has_bias", [False, True])
def test_plans_name_modules_that_are_there(has_bias):
    """A head with a bias of its own stays whole."""
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration, final_logits_bias=has_bias)
    names = {re.sub(r"\.\d+(?=\.|$)", ".*", name) for name, _ in model.named_modules()}
    assert model.tp_plan and set(model.tp_plan) <= names
    assert any(name.endswith(("lm_head", "embed_tokens")) for name in model.tp_plan) != has_bias


@pytest.mark.slow
def test_tensor_parallel(tmp_path):
    """Two processes hold half of every layer each, and have the outputs and gradients of the whole."""
    fields = {"vocab_size": 60, "mlp_type": "gated", "num_key_value_heads": 2} | NO_DROPOUT
    biased = {"relative_attention_num_buckets": 8}  # of all heads at once
    experts = {"mlp_bias": False, "num_local_experts": 3}
    for head, more in ((TfmBertForMaskedLM, biased), (TfmGPTForCausalLM, {}), (TfmGPTForCausalLM, experts)):
        folder = tmp_path / (head.__name__ + "-experts" * (more is experts))
        tiny_model(head, num_hidden_layers=1, **fields, **more).save_pretrained(folder)
        batch = {name: value.clamp(max=59) for name, value in ragged_batch(head, labels=True).items()}
        torch.save(batch, folder / "batch.pt")
    script = Path(__file__).with_name("tensor_parallel.py")
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=600)
