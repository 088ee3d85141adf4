"""The result as a page and a picture."""

import platform
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from matplotlib.figure import Figure

import tfm_zoo
from tfm_zoo.visualization.figures import LINES, plain, save

from ..timing import line
from .contenders import CONTENDERS

FAMILIES = ("official", "zoo", "OpenVINO", "ONNX Runtime", "CTranslate2", "llama.cpp", "torchao")
PACKAGES = "torch transformers openvino nncf onnxruntime ctranslate2 llama-cpp-python torchao"
UNITS = {"embeddings": "texts", "classification": "texts", "decoding": "tokens", "translation": "sentences"}
INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8")


def write(results: list[dict], folder: Path) -> None:
    """Writes `leaderboard-<date>.md` and a picture beside it. The date is that of the last result."""
    name = f"leaderboard-{max(result['date'] for result in results)}"
    machines = dict.fromkeys("{date}, {machine}, {threads} threads. {packages}.".format_map(each) for each in results)
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
    lines += ["", "## What each ran", "", "`model` is the official class in float32, `batches` are some texts.", ""]
    lines += ["| | |", "|---|---|", *(line([name, f"`{each.command}`"]) for name, each in CONTENDERS.items())]
    command = "python -m benchmarks leaderboard my-folder"
    lines += ["", "```text", "pip install openvino nncf llama-cpp-python gguf torchao", command, "```", ""]
    (folder / f"{name}.md").write_text("\n".join(lines))
    print(folder / f"{name}.md")


def circumstances(threads: int) -> dict[str, str | int]:
    """When, where and with what a result was made."""
    found = [f"tfm_zoo {tfm_zoo.__version__}"]
    for package in PACKAGES.split():
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return {"date": date.today().isoformat(), "machine": machine(), "packages": ", ".join(found), "threads": threads}


def table(result: dict) -> list[str]:
    cases = result["cases"]
    *_, last = cases.values()  # some that are in the first have failed later on
    measures = [measure for measure in last["official, float32"] if measure not in ("rate", "ratio")]
    units = [f"{case}, {'sequences' if case.endswith('prompt') else UNITS[result['kind']]}/s" for case in cases]
    lines = [line(["", *units, *measures]), line(["---"] * (1 + len(units) + len(measures)))]
    for name in next(iter(cases.values())):
        cells = []
        for found in cases.values():
            cell = f"{found[name]['rate']:.3g} ({found[name]['ratio']:.2f})" if name in found else "-"
            is_best = name == max(found, key=lambda each: found[each]["ratio"])
            cells.append(f"**{cell}**" if is_best else cell)
        worst = [min(found[name][measure] for found in cases.values() if name in found) for measure in measures]
        lines.append(line([name, *cells, *(f"{value:g}" for value in worst)]))
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
    except OSError:
        return f"{platform.processor()} ({torch.backends.cpu.get_cpu_capability()})"
    name = next((line.split(": ")[1] for line in info.splitlines() if line.startswith("model name")), "a CPU")
    return f"{name} ({', '.join(each for each in INSTRUCTIONS if each in info.split())})"
