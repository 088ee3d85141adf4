"""Run with a folder: two processes load each of its checkpoints in halves, and compare them with the whole model.

Every checkpoint lies in a folder named after its class (what follows a hyphen tells apart), with a batch for it.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

import tfm_zoo

PROCESSES = 2


def compare(folder: Path) -> None:
    batch, head = torch.load(folder / "batch.pt"), getattr(tfm_zoo, folder.name.partition("-")[0])
    whole = head.from_pretrained(folder)
    sharded = head.from_pretrained(folder, distributed_config=DistributedConfig(tp_size=PROCESSES))
    wanted, outputs = (model(**batch) for model in (whole, sharded))
    for name in ("logits", "loss"):
        torch.testing.assert_close(outputs[name], wanted[name], rtol=1e-5, atol=1e-5)
    wanted.loss.backward()
    outputs.loss.backward()
    halved = 0
    for (name, one), other in zip(whole.named_parameters(), sharded.parameters(), strict=True):
        gradient = other.grad
        if isinstance(gradient, DTensor):
            halved += gradient.to_local().numel() * PROCESSES == one.numel()
            gradient = gradient.full_tensor()
        named = {"msg": lambda text, name=name: f"{name}: {text}"}
        torch.testing.assert_close(gradient, one.grad, rtol=1e-4, atol=1e-5, **named)
    # The weights of seven projections, and the biases of five, since two are added after the sum; or attention and
    # experts. Besides, the tied table, and a bias of the head.
    layer = 4 + 3 + 2 if "experts" in folder.name else 7 + 5
    vocabulary = len(dict(whole.lm_head.named_parameters()))
    assert halved == len(whole.model.layers) * layer + vocabulary, halved


def main(folder: Path) -> None:
    children, checkpoints = [], sorted(folder.glob("Tfm*"))
    assert checkpoints
    for rank in range(PROCESSES):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(PROCESSES)}
            dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=PROCESSES)
            for checkpoint in checkpoints:
                compare(checkpoint)
            dist.destroy_process_group()
            os._exit(0)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
