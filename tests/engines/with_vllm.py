"""`python with_vllm.py FOLDER`: vLLM serves the checkpoints that `checkpoints.py` made, and computes the same.

It runs in an environment of its own, with vLLM and without `tfm_zoo` (see `.ci/engines`), and ends with 1 if a result
differs. Tokens have to be the same; embeddings and probabilities may differ by `TOLERANCE`.
"""

import argparse
import gc
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}

from vllm import LLM, SamplingParams

TOLERANCE = 1e-4
PATIENCE = 400  # seconds until a server is ready, on a busy machine too
CONTROL = "native_llama"
OPTIONS = {"trust_remote_code": True, "dtype": "float32", "enforce_eager": True, "max_model_len": 100}
ROUTES = {"generate": "/v1/chat/completions", "embed": "/v1/embeddings", "classify": "/classify"}


def load(folder: Path, **options) -> LLM:
    # A native model would be served by the engine's own code: the control goes the zoo's way.
    impl = {"model_impl": "transformers"} if folder.name == CONTROL else {}
    return LLM(model=str(folder), **OPTIONS, **impl, **options)


def compute(engine: LLM, task: str, prompts: list[dict], new_tokens: int) -> list[list]:
    if task == "generate":
        sampling = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        return [list(output.outputs[0].token_ids) for output in engine.generate(prompts, sampling, use_tqdm=False)]
    if task == "embed":
        return [output.outputs.embedding for output in engine.embed(prompts, use_tqdm=False)]
    return [output.outputs.probs for output in engine.classify(prompts, use_tqdm=False)]


def difference(task: str, results: list[list], expected: list[list]) -> str | None:
    """How results differ, in words; `None` if they do not."""
    if task == "generate":
        return None if results == expected else f"tokens {results} and not {expected}"
    pairs = [pair for lists in zip(results, expected, strict=True) for pair in zip(*lists, strict=True)]
    largest = max(abs(result - wanted) for result, wanted in pairs)
    return None if largest <= TOLERANCE else f"differs by {largest:.2g}"


def check(folder: Path, case: dict, prompts: list[dict], new_tokens: int) -> str | None:
    try:
        engine = load(folder, **case["options"])
        return difference(case["task"], compute(engine, case["task"], prompts, new_tokens), case["results"])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        engine = None
        gc.collect()


def ask(folder: Path, task: str, text: str) -> str | None:
    """Starts `vllm serve`, and asks for an answer over HTTP; an error in words, or `None`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--trust-remote-code", "--enforce-eager", "--dtype", "float32", "--max-model-len", "100"]
    program = Path(sys.executable).with_name("vllm")
    server = subprocess.Popen([program, "serve", folder, *flags, "--port", str(port)], stdout=subprocess.DEVNULL)
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8} if task == "generate" else {"input": text}
    address = f"http://127.0.0.1:{port}{ROUTES[task]}"
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        for _ in range(PATIENCE):
            try:
                answer = json.load(urllib.request.urlopen(request))
                return None if answer.get("choices") or answer.get("data") else f"answered {answer}"
            except ConnectionError:
                return_code = server.poll()
            except urllib.error.URLError as error:
                if isinstance(error, urllib.error.HTTPError):
                    return f"{error}: {error.read().decode()[:300]}"
                return_code = server.poll()
            if return_code is not None:
                return f"the server ended with {return_code}"
            time.sleep(1)
        return f"no answer after {PATIENCE} seconds"
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:  # stopped while it started, it may not hear
            server.kill()


def speed(folders: list[Path], prompts: list[dict], new_tokens: int, rounds: int = 9) -> list[float]:
    """Median tokens per second of each checkpoint, measured in turns."""
    engines = [load(folder) for folder in folders]
    seconds: list[list[float]] = [[] for _ in engines]
    for _ in range(rounds + 1):
        for engine, times in zip(engines, seconds, strict=True):
            start = time.perf_counter()
            compute(engine, "generate", prompts, new_tokens)
            times.append(time.perf_counter() - start)
    return [len(prompts) * new_tokens / statistics.median(times[1:]) for times in seconds]  # the first warms up


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", help="names of checkpoints")
    parser.add_argument("--no-http", action="store_true", help="do not start servers")
    parser.add_argument("--speed", nargs=2, type=Path, metavar="FOLDER", help="time two checkpoints, and nothing else")
    args = parser.parse_args()
    expected = json.loads((args.folder / "expected.json").read_text(encoding="utf-8"))
    prompts = [{"prompt_token_ids": ids} for ids in expected["prompts"]]
    if args.speed:
        first, second = speed(args.speed, prompts, new_tokens=64)
        names = [folder.name for folder in args.speed]
        print(f"{names[0]} {first:.1f}, {names[1]} {second:.1f} tokens/s, ratio {second / first:.2f}")
        return 0
    failures, asked = 0, set()
    for name, case in expected["checkpoints"].items():
        if args.only and name not in args.only:
            continue
        problem = check(args.folder / name, case, prompts, expected["new_tokens"])
        print(f"{case['task']:<10}{name:<20}{problem or 'equal'}", flush=True)
        failures += problem is not None
        if name != CONTROL and case["task"] not in asked and not args.no_http:
            asked.add(case["task"])
            problem = ask(args.folder / name, case["task"], expected["text"])
            print(f"{'HTTP':<10}{ROUTES[case['task']]:<22}{problem or 'answers'}", flush=True)
            failures += problem is not None
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
