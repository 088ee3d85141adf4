"""Continue texts with a saved language model, through plain transformers: `tfm_zoo` is not imported.

python recipes/generate.py runs/tiny_shakespeare "ROMEO:" --num_samples 3
python recipes/generate.py user/model --trust_remote_code --temperature 0 "Once upon a time"
"""

import argparse
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Continue texts with a saved language model.")
    parser.add_argument("model", help="folder or Hub id")
    parser.add_argument("prompts", nargs="*", help="how the texts begin; default: at the start of a text")
    parser.add_argument("--max_new_tokens", type=int, default=100)
    parser.add_argument("--num_samples", type=int, default=1, help="continuations of each prompt")
    parser.add_argument("--top_p", type=float, default=0.95, help="nucleus sampling")
    parser.add_argument("--temperature", type=float, default=1.0, help="0: always the likeliest token")
    parser.add_argument("--seed", type=int, help="default: another text each time")
    parser.add_argument("--trust_remote_code", action="store_true", help="run a Hub model's code; a folder's is run")
    args = parser.parse_args(argv)
    if args.temperature < 0 or not 0 < args.top_p <= 1 or min(args.max_new_tokens, args.num_samples) < 1:
        parser.error("temperature is 0 or more, top_p above 0 and at most 1, max_new_tokens and num_samples at least 1")
    if args.seed is not None:
        torch.manual_seed(args.seed)

    trust = args.trust_remote_code or Path(args.model).is_dir()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tokenizer = AutoTokenizer.from_pretrained(args.model, trust_remote_code=trust)
        model = AutoModelForCausalLM.from_pretrained(args.model, trust_remote_code=trust).eval().to(device)
    except (OSError, ValueError) as error:
        parser.error(f"{args.model} is no folder and no Hub id of a language model: {str(error).splitlines()[0]}")
    how = {"do_sample": True, "temperature": args.temperature, "top_p": args.top_p, "top_k": 0}
    if args.temperature == 0:
        how = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    padding = start if tokenizer.pad_token_id is None else tokenizer.pad_token_id

    for prompt in args.prompts or [""]:
        ids = torch.tensor([tokenizer(prompt)["input_ids"] or [start]] * args.num_samples, device=device)
        room = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
        if ids.shape[1] >= room:
            parser.error(f"the prompt {prompt[:40]!r}... has {ids.shape[1]} tokens, and the model takes {room}")
        length = min(args.max_new_tokens, room - ids.shape[1])
        if length < args.max_new_tokens:
            print(f"(the model takes {room} tokens: making {length} of {args.max_new_tokens})", file=sys.stderr)
        texts = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=length, pad_token_id=padding, **how
        )
        for text in tokenizer.batch_decode(texts, skip_special_tokens=True):
            print(text, end="\n\n")


if __name__ == "__main__":
    main()
