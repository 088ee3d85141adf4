"""Translate sentences with a saved model, through plain transformers: `tfm_zoo` is not imported.

python recipes/translate.py runs/multi30k "Two dogs play in the snow." "A man rides a bicycle."
python recipes/translate.py user/model --trust_remote_code --file sentences.txt --num_beams 8
"""

import argparse
import sys
from pathlib import Path

import torch
from trained import add_model_arguments, lines_of, loading, open_config, parsed, positions_of
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        usage="%(prog)s MODEL SENTENCE ... [options]",
        allow_abbrev=False,
        description="Translate sentences with a saved model.",
    )
    add_model_arguments(parser)
    parser.add_argument("sentences", nargs="*", help="what to translate")
    parser.add_argument("--file", type=Path, help="file with one sentence per line")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--num_beams", type=int, help="width of the beam search; default: the model's own")
    parser.add_argument("--max_length", type=int, help="tokens of a translation; default: the model's own")
    args = parsed(parser, argv)
    for name in ("batch_size", "num_beams", "max_length"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"{name} must be at least 1, not {getattr(args, name)}")
    sentences = args.sentences + lines_of(args.file, parser.error, ": write its sentences to a text file")
    if not any(sentence.strip() for sentence in sentences):
        parser.error("give sentences, or a --file with one sentence per line")

    config = open_config(args, "translate.py", "does not translate", parser.error)
    tasks = getattr(config, "task_specific_params", None) or {}
    own = tasks.get("translation", tasks.get("summarization", {}))  # what the recipes say of a model's use
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tokenizer = AutoTokenizer.from_pretrained(args.model, **loading(args))
        target_tokenizer = tokenizer
        if folder := own.get("target_tokenizer"):
            target_tokenizer = AutoTokenizer.from_pretrained(args.model, subfolder=folder, **loading(args))
        model = AutoModelForSeq2SeqLM.from_pretrained(args.model, **loading(args)).eval().to(device)
    except (OSError, ValueError) as error:
        parser.error(f"{args.model} holds no model that translates: {str(error).splitlines()[0]}")
    room = positions_of(model.config, tokenizer)
    options = {name: getattr(args, name) for name in ("num_beams", "max_length") if getattr(args, name) is not None}

    for start in range(0, len(sentences), args.batch_size):
        batch = sentences[start : start + args.batch_size]
        texts = [own.get("prefix", "") + sentence for sentence in batch]
        lengths = map(len, tokenizer(texts, verbose=False)["input_ids"])
        for sentence, length in zip(batch, lengths, strict=True):
            if length > room:
                print(f"({sentence[:40]!r}... has {length} tokens: the model reads {room} of them)", file=sys.stderr)
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=room, return_tensors="pt").to(device)
        ids = model.generate(inputs["input_ids"], attention_mask=inputs["attention_mask"], **options)
        translations = target_tokenizer.batch_decode(ids, skip_special_tokens=True)
        for sentence, translation in zip(batch, translations, strict=True):
            print(translation if sentence.strip() else "")  # a blank line for a blank line


if __name__ == "__main__":
    main()
