"""`python with_vllm.py FOLDER [NAME] ...`: vLLM computes what transformers does of `engine_checkpoints.py`'s models.

It runs in an environment of its own, with vLLM and without `tfm_zoo` (see `.ci/engines`), and ends with 1 if a result
differs. Tokens have to be the same; embeddings and probabilities may differ by `TOLERANCE`.
"""

import gc
import json
import os
import signal
import socket
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


def compute(engine: LLM, task: str, prompts: list[dict], new_tokens: int) -> list[list]:
    if task == "generate":
        sampling = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        return [list(output.outputs[0].token_ids) for output in engine.generate(prompts, sampling, use_tqdm=False)]
    if task == "embed":
        return [output.outputs.embedding for output in engine.embed(prompts, use_tqdm=False)]
    return [output.outputs.probs for output in engine.classify(prompts, use_tqdm=False)]


def check(folder: Path, case: dict, prompts: list[dict], new_tokens: int) -> str | None:
    """How the engine's results differ, in words; `None` if they do not."""
    # A native model would be served by the engine's own code: the control goes the zoo's way.
    options = OPTIONS | case["options"] | ({"model_impl": "transformers"} if folder.name == CONTROL else {})
    try:
        results, expected = compute(LLM(str(folder), **options), case["task"], prompts, new_tokens), case["results"]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        gc.collect()
    if case["task"] == "generate":
        return None if results == expected else f"tokens {results} and not {expected}"
    pairs = [pair for lists in zip(results, expected, strict=True) for pair in zip(*lists, strict=True)]
    largest = max(abs(result - wanted) for result, wanted in pairs)
    return None if largest <= TOLERANCE else f"differs by {largest:.2g}"


def ask(folder: Path, task: str, text: str) -> str | None:
    """Starts `vllm serve`, and asks for an answer over HTTP; an error in words, or `None`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--trust-remote-code", "--enforce-eager", "--dtype", "float32", "--max-model-len", "100"]
    program = Path(sys.executable).with_name("vllm")
    words = [program, "serve", folder, *flags, "--port", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8} if task == "generate" else {"input": text}
    address, headers = f"http://127.0.0.1:{port}{ROUTES[task]}", {"Content-Type": "application/json"}
    request, end = urllib.request.Request(address, json.dumps(body).encode(), headers), time.monotonic() + PATIENCE
    try:
        while time.monotonic() < end and server.poll() is None:
            try:
                answer = json.load(urllib.request.urlopen(request))
                return None if answer.get("choices") or answer.get("data") else f"answered {answer}"
            except urllib.error.HTTPError as error:
                return f"{error}: {error.read().decode()[:300]}"
            except OSError:  # not ready
                time.sleep(1)
        return f"no answer after {PATIENCE} seconds" if server.poll() is None else f"ended with {server.returncode}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # its engine is a process of its own
        server.wait()


def main(folder: Path, *only: str) -> int:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    prompts = [{"prompt_token_ids": ids} for ids in expected["prompts"]]
    problems, asked = [], set()
    for name, case in expected["checkpoints"].items():
        if only and name not in only:
            continue
        problems.append(check(folder / name, case, prompts, expected["new_tokens"]))
        print(f"{case['task']:<10}{name:<22}{problems[-1] or 'equal'}", flush=True)
        if name != CONTROL and case["task"] not in asked:
            asked.add(case["task"])
            problems.append(ask(folder / name, case["task"], expected["text"]))
            print(f"{'HTTP':<10}{ROUTES[case['task']]:<22}{problems[-1] or 'answers'}", flush=True)
    return int(any(problems))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
