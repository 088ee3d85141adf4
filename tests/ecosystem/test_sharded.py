"""Sharded models compute and learn what whole ones do: by FSDP, wrapped as Accelerate does it (`_no_split_modules`), in
one process; by tensor parallelism, in two, by plans that name existing modules."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from torch import distributed, multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

from tfm_zoo import TfmBertForMaskedLM, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM
from tfm_zoo.proof import manifest

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
        options = {"auto_wrap_policy": plugin.auto_wrap_policy, "use_orig_params": True}
        sharded = FullyShardedDataParallel(model, **options, device_id=torch.device("cpu"))
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
    if version == 2:  # (the first version may gather what is saved)
        with pytest.raises(RuntimeError, match="the model is offloaded or sharded"):
            manifest.fingerprint(sharded)
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


SIZES = {"vocab_size": 60, "num_hidden_layers": 1, "mlp_type": "gated", "num_key_value_heads": 2} | NO_DROPOUT
#: checkpoint -> its class, its fields, and how many tensors of a layer are halved: weights of seven projections, and
#: biases of five, since two are added after the sum; or those of attention, and experts
HALVED = {
    "bias of all heads at once": (TfmBertForMaskedLM, {"relative_attention_num_buckets": 8}, 7 + 5),
    "decoder": (TfmGPTForCausalLM, {}, 7 + 5),
    "experts": (TfmGPTForCausalLM, {"mlp_bias": False, "num_local_experts": 3}, 4 + 3 + 2),
}


def compare(rank: int, folder: Path) -> None:
    """In one of two processes: each checkpoint, loaded in halves, with the whole model."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for name, (head, _, of_layer) in HALVED.items():
        batch = {key: value.clamp(max=59) for key, value in ragged_batch(head, labels=True).items()}
        whole = head.from_pretrained(folder / name)
        sharded = head.from_pretrained(folder / name, distributed_config=DistributedConfig(tp_size=2))
        wanted, outputs = (model(**batch) for model in (whole, sharded))
        for output in ("logits", "loss"):
            torch.testing.assert_close(outputs[output], wanted[output], rtol=1e-5, atol=1e-5)
        wanted.loss.backward()
        outputs.loss.backward()
        halved = 0
        for one, other in zip(whole.parameters(), sharded.parameters(), strict=True):
            gradient = other.grad
            if isinstance(gradient, DTensor):
                halved += gradient.to_local().numel() * 2 == one.numel()
                gradient = gradient.full_tensor()
            torch.testing.assert_close(gradient, one.grad, rtol=1e-4, atol=1e-5)
        assert halved == of_layer + len(dict(whole.lm_head.named_parameters())), name
    distributed.destroy_process_group()


@pytest.mark.slow
def test_tensor_parallel(tmp_path):
    """Two processes hold half of every layer each, and have the outputs and gradients of the whole."""
    for name, (head, fields, _) in HALVED.items():
        tiny_model(head, **SIZES | fields).save_pretrained(tmp_path / name)
    multiprocessing.spawn(compare, (tmp_path,), nprocs=2)
