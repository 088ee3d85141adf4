"""Continue texts with a saved language model, through plain transformers: `tfm_zoo` is not imported.

python recipes/generate.py runs/tiny_shakespeare "ROMEO:" --num_samples 3
python recipes/generate.py runs/tiny_shakespeare --file prompts.txt --num_beams 4 --repetition_penalty 1.2
python recipes/generate.py user/model --trust_remote_code --temperature 0 "Once upon a time"

The last lines say how fast, how likely and how diverse the text is.
"""

import argparse
import math
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from trained import add_model_arguments, lines_of, loading, open_config, parsed
from transformers import AutoModelForCausalLM, AutoTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FIGURES = """figures of the text, the prompts left out:
  perplexity    of the text, as the model itself sees it: low for what beams find, higher for samples
  distinct-n    share of the n-grams of all texts that differ from each other (Li et al. 2016)
  repetition    share of the 4-grams of a text that it has had before (Welleck et al. 2020)
"""


class Shape(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Defaults are shown where there are any."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return super()._get_help_string(action) if action.default else action.help


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        usage="%(prog)s MODEL [PROMPT ...] [options]",
        allow_abbrev=False,
        description="Continue texts with a saved language model.",
        epilog=FIGURES,
        formatter_class=Shape,
    )
    add_model_arguments(parser)
    parser.add_argument("prompts", nargs="*", help="how the texts begin; default: at the start of a text")
    parser.add_argument("--file", type=Path, help="file with one prompt per line")
    parser.add_argument("--max_new_tokens", type=int, default=100, help="of each continuation")
    parser.add_argument("--num_samples", type=int, default=1, help="continuations of each prompt")
    parser.add_argument("--temperature", type=float, default=1.0, help="0: always the likeliest token")
    parser.add_argument("--top_p", type=float, default=0.95, help="nucleus sampling (Holtzman et al. 2020)")
    parser.add_argument("--top_k", type=int, default=0, help="sample among so many tokens (of top_p); 0: among all")
    parser.add_argument("--num_beams", type=int, default=1, help="above 1: beam search, without sampling")
    parser.add_argument("--repetition_penalty", type=float, default=1.0, help="above 1: what was said is less likely")
    parser.add_argument("--stop_strings", action="append", help="where a text ends; give it again for another")
    parser.add_argument("--seed", type=int, help="default: another text each time")
    args = parsed(parser, argv)
    for name, is_right, bounds in (
        ("temperature", args.temperature >= 0, "0 or more"),
        ("top_k", args.top_k >= 0, "0 or more"),
        ("top_p", 0 < args.top_p <= 1, "above 0 and at most 1"),
        ("repetition_penalty", args.repetition_penalty > 0, "above 0"),
    ):
        if not is_right:
            parser.error(f"{name} must be {bounds}, not {getattr(args, name):g}")
    if min(args.max_new_tokens, args.num_samples, args.num_beams) < 1:
        parser.error("max_new_tokens, num_samples and num_beams are at least 1")
    if args.num_beams > 1 and args.num_samples > args.num_beams:
        parser.error(f"--num_samples {args.num_samples}: {args.num_beams} beams give at most so many texts")
    if args.num_beams == 1 and args.temperature == 0 and args.num_samples > 1:
        parser.error("--temperature 0 gives one text for each prompt: leave --num_samples out, or take --num_beams")
    args.prompts += filter(None, lines_of(args.file, parser.error, ": write its prompts to a text file"))
    args.error = parser.error
    return args


def strategy(args: argparse.Namespace) -> dict:
    """The options of `generate`."""
    options = {"num_return_sequences": args.num_samples, "repetition_penalty": args.repetition_penalty}
    if args.stop_strings:
        options["stop_strings"] = args.stop_strings
    if args.num_beams > 1 or args.temperature == 0:
        none = dict.fromkeys(("temperature", "top_p", "top_k"))
        return options | none | {"num_beams": args.num_beams, "do_sample": False}
    return options | {"do_sample": True, "temperature": args.temperature, "top_p": args.top_p, "top_k": args.top_k}


def likelihood(model: "PreTrainedModel", text: list[int], prompt: int) -> float:
    """The summed log-probability of the ids after the first `prompt` ones."""
    ids = torch.tensor([text], device=model.device)
    with torch.inference_mode():
        logits = model(input_ids=ids).logits[0, prompt - 1 : -1].float()
    return logits.log_softmax(-1).gather(1, ids[0, prompt:, None]).sum().item()


def diversity(texts: list[list[int]]) -> str:
    """distinct-1 to distinct-3, and repetition; see `FIGURES`."""

    def ngrams(text: list[int], n: int) -> list[tuple[int, ...]]:
        return list(zip(*(text[start:] for start in range(n)), strict=False))

    figures = []
    for n in (1, 2, 3):
        counts = Counter(ngram for text in texts for ngram in ngrams(text, n))
        figures.append(f"distinct-{n} {len(counts) / max(counts.total(), 1):.2f}")
    fours = [ngrams(text, 4) for text in texts]
    repeated = sum(len(text) - len(set(text)) for text in fours) / max(sum(map(len, fours)), 1)
    return ", ".join([*figures, f"repetition {repeated:.2f}"])


def load(args: argparse.Namespace) -> tuple["PreTrainedTokenizerBase", "PreTrainedModel"]:
    open_config(args, "generate.py", "does not continue texts", args.error)
    try:
        tokenizer = AutoTokenizer.from_pretrained(args.model, **loading(args))
        model = AutoModelForCausalLM.from_pretrained(args.model, **loading(args))
    except (OSError, ValueError) as error:
        args.error(f"{args.model} holds no language model: {str(error).splitlines()[0]}")
    return tokenizer, model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    if args.seed is not None:
        torch.manual_seed(args.seed)
    tokenizer, model = load(args)
    start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    padding = start if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    room = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    written, logarithms, seconds = [], 0.0, 0.0

    for prompt in args.prompts or [""]:
        ids = torch.tensor([tokenizer(prompt)["input_ids"] or [start]], device=model.device)
        begun = ids.shape[1]
        if begun >= room:
            args.error(f"the prompt {prompt[:40]!r}... has {begun} tokens, and the model takes {room}")
        length = min(args.max_new_tokens, room - begun)
        if length < args.max_new_tokens:
            print(
                f"(the model takes {room} tokens, {begun} of them in the prompt: at most {length} new ones)",
                file=sys.stderr,
            )
        options = {"max_new_tokens": length, "pad_token_id": padding, "tokenizer": tokenizer} | strategy(args)
        clock = perf_counter()
        texts = model.generate(ids, attention_mask=torch.ones_like(ids), **options).tolist()
        seconds += perf_counter() - clock
        for text in texts:
            if args.num_samples > 1 or len(args.prompts) > 1:
                print(f"--- {len(written) + 1} ---", file=sys.stderr)
            print(tokenizer.decode(text, skip_special_tokens=True), end="\n\n", flush=True)
            while len(text) > begun + 1 and text[-1] == padding:  # the end, and what fills a batch after it
                text.pop()
            written.append(text[begun:])
            logarithms += likelihood(model, text, begun)

    tokens = sum(map(len, written))
    print(
        f"{tokens} tokens, {tokens / seconds:.1f} per second; perplexity {math.exp(-logarithms / tokens):.2f}, "
        f"{diversity(written)}\n{FIGURES}",
        end="",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
