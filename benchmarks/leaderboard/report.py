"""The result as a page and a picture."""

import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from matplotlib.figure import Figure

from tfm_zoo.visualization.figures import LINES, plain, save

from .contenders import CONTENDERS

FAMILIES = ("official", "zoo", "OpenVINO", "ONNX Runtime", "CTranslate2", "llama.cpp", "torchao")
PACKAGES = ("torch", "transformers", "openvino", "nncf", "onnxruntime", "ctranslate2", "llama-cpp-python", "torchao")
UNITS = {"embeddings": "texts", "classification": "texts", "decoding": "tokens", "translation": "sentences"}
INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8")


def write(results: list[dict], folder: Path) -> None:
    """Writes `leaderboard-<date>.md` and a picture beside it. The date is that of the last result."""
    name = f"leaderboard-{max(result['date'] for result in results)}"
    machines = dict.fromkeys(
        f"{result['date']}, {result['machine']}, {result['threads']} threads. {result['packages']}."
        for result in results
    )
    folder.mkdir(parents=True, exist_ok=True)
    picture(results, folder / f"{name}.png")
    lines = [
        "# The zoo beside other engines, on a CPU",
        "",
        *machines,
        "",
        "Each cell: units a second, and in brackets how many times as fast as the official class in float32 that is.",
        "Contenders are processes of their own. They take turns, and compute all batches of a case in a row. Fidelity",
        "is to the official class in float32, the worst of all cases; of decoding, it is that of the logits of the",
        "prompts. Texts come as given, or sorted by length.",
        "",
        f"![Speed of each contender by case; the official class in float32 is 1]({name}.png)",
    ]
    for result in results:
        lines += ["", f"## {result['task']}, {result['kind']}", "", *table(result)]
        if not result["finished"]:
            lines += ["", "This run was stopped: cases are missing."]
        if result["failed"]:
            lines += ["", "Left out: " + "; ".join(f"{name} ({why})" for name, why in result["failed"].items()) + "."]
    lines += ["", "## What each ran", "", "| | |", "|---|---|"]
    lines += [f"| {name} | `{contender.command}` |" for name, contender in CONTENDERS.items()]
    command = "python -m benchmarks leaderboard my-folder"
    lines += ["", "```text", "pip install openvino nncf llama-cpp-python gguf torchao", command, "```", ""]
    (folder / f"{name}.md").write_text("\n".join(lines))
    print(folder / f"{name}.md")


def circumstances(threads: int) -> dict[str, str | int]:
    """When, where and with what a result was made."""
    packages = ", ".join(found for package in PACKAGES if (found := release(package)))
    return {"date": date.today().isoformat(), "machine": machine(), "packages": packages, "threads": threads}


def table(result: dict) -> list[str]:
    cases = result["cases"]
    names, last = [*next(iter(cases.values()))], next(reversed(cases.values()))
    measures = [measure for measure in next(iter(last.values())) if measure not in ("rate", "ratio")]
    units = [f"{case}, {'sequences' if case.endswith('prompt') else UNITS[result['kind']]}/s" for case in cases]
    lines = ["| " + " | ".join(["", *units, *measures]) + " |", "|---" * (1 + len(units) + len(measures)) + "|"]
    best = {case: max(found, key=lambda name: found[name]["ratio"]) for case, found in cases.items()}
    for name in names:
        cells = []
        for case, found in cases.items():
            if name not in found:  # it failed later on
                cells.append("-")
                continue
            cell = f"{found[name]['rate']:.3g} ({found[name]['ratio']:.2f})"
            cells.append(f"**{cell}**" if best[case] == name else cell)
        worst = [min(found[name][measure] for found in cases.values() if name in found) for measure in measures]
        lines.append("| " + " | ".join([name, *cells, *(f"{value:g}" for value in worst)]) + " |")
    return lines


def picture(results: list[dict], path: Path) -> None:
    """Bars of speed by case and contender."""
    panels = [(result["task"], case, found) for result in results for case, found in result["cases"].items()]
    figure = Figure(figsize=(11, 0.2 * sum(len(found) + 3 for _, _, found in panels) / 2 + 1), layout="constrained")
    axes = figure.subplots(-(-len(panels) // 2), 2, squeeze=False, sharex=True).flat
    for (task, case, found), panel in zip(panels, axes, strict=False):
        names = [*reversed(found)]
        colours = [LINES[FAMILIES.index(name.split(",")[0])] for name in names]
        panel.barh(names, [found[name]["ratio"] for name in names], color=colours)
        panel.axvline(1, color="black", linewidth=0.8)
        panel.set_title(f"{task}: {case}", fontsize=9, loc="left")
        panel.tick_params(labelsize=7)
        plain(panel, grid="x")
    for panel in [*axes]:
        panel.set_visible(False)
    figure.supxlabel("times as fast as the official class in float32", fontsize=9)
    save(figure, path)


def machine() -> str:
    """The name of the CPU, and those of its instructions that products depend on."""
    try:
        info = Path("/proc/cpuinfo").read_text()
        name = next(line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name"))
        return f"{name} ({', '.join(each for each in INSTRUCTIONS if f' {each} ' in f'{info} '.replace(chr(10), ' '))})"
    except (OSError, StopIteration):
        return f"{platform.processor()} ({torch.backends.cpu.get_cpu_capability()})"


def release(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""
