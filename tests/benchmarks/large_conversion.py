"""`python -m tests.benchmarks.large_conversion [--layers 36]`: the memory that `tfm-zoo convert` takes for a checkpoint
in shards, of random numbers in bfloat16, of the shape of Qwen3-8B, or of Phi-3's, whose projections are packed.
[`quantized_loading`] reads one of TinyLlama's.

What counts is the process's anonymous memory, `RssAnon` of /proc, at its peak: pages of mapped files, which the system
takes back whenever it needs them, are not among it. With 36 layers in and out take 16 GB each on the disk.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.utils import logging

SHARD = 5_000_000_000  # bytes, as on the Hub
SHAPES = {
    "qwen3": {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "phi3": {},
    "llama": {"hidden_size": 2048, "intermediate_size": 5632, "num_key_value_heads": 4},  # TinyLlama, with 22 layers
}


def write_checkpoint(folder: Path, shape: str, layers: int, shard: int) -> list[int]:
    """Writes a checkpoint of random numbers; returns the sizes of its shards, in bytes."""
    config = CONFIG_MAPPING[shape](**SHAPES[shape], num_hidden_layers=layers, dtype="bfloat16")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    shards, size = [[]], 0
    for name, parameter in model.named_parameters():
        size += 2 * parameter.numel()
        if size > shard:
            shards.append([])
            size = 2 * parameter.numel()
        shards[-1].append((name, parameter.shape))
    weight_map, sizes = {}, []
    for number, content in enumerate(shards, 1):
        file = folder / f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_shard(file, dict(content))
        weight_map |= {name: file.name for name, _ in content}
        sizes.append(file.stat().st_size)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return sizes


def write_shard(file: Path, shapes: dict[str, torch.Size]) -> None:
    """Writes tensors of random numbers in bfloat16, without holding one; after 64 million the numbers begin anew."""
    numbers = torch.empty(1 << 26, dtype=torch.bfloat16).normal_(std=0.02).view(torch.uint8).numpy()
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * shape.numel()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for start in range(0, end, len(numbers)):
            out.write(numbers[: end - start].data)


def run(*command: str | Path) -> dict[str, int]:
    """Runs a command; the peaks of its memory, in bytes, looked at 50 times a second."""
    process, peaks = subprocess.Popen(command), {"RssAnon": 0, "VmRSS": 0}
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        held = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        for name in peaks.keys() & held.keys():
            peaks[name] = max(peaks[name], 1024 * int(held[name].split()[0]))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(process.returncode)
    return peaks


def run_convert(source: Path, out: Path) -> dict[str, int]:
    """Converts a checkpoint in a process of its own; see [`run`]."""
    return run(sys.executable, "-m", "tfm_zoo", "convert", source, out)


def main(
    layers: Annotated[int, typer.Option(help="Qwen3-8B has 36.")] = 4,
    shape: Annotated[Literal["qwen3", "phi3", "llama"], typer.Option()] = "qwen3",
    shard: Annotated[int, typer.Option(help="Bytes of a shard, at most.")] = SHARD,
    folder: Annotated[Path | None, typer.Option(help="Where to make temporary folders.")] = None,
) -> None:
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        source, out = Path(temporary, "official"), Path(temporary, "zoo")
        source.mkdir()
        sizes = write_checkpoint(source, shape, layers, shard)
        start = time.perf_counter()
        peaks = run_convert(source, out)
        seconds = time.perf_counter() - start
        largest, gigabyte = max(sizes), 10**9
        print(
            f"{sum(sizes) / gigabyte:.2f} GB in {len(sizes)} shards, the largest {largest / gigabyte:.2f} GB: "
            f"RssAnon at most {peaks['RssAnon'] / gigabyte:.2f} GB, {peaks['RssAnon'] / largest:.2f} times that; "
            f"with pages of files {peaks['VmRSS'] / gigabyte:.2f} GB; {seconds:.0f} s"
        )


if __name__ == "__main__":
    typer.run(main)
