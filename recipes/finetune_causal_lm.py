"""Train a causal language model on any text, or on conversations: from a checkpoint, or from nothing.

    accelerate launch recipes/finetune_causal_lm.py                                  # no network, no data
    accelerate launch recipes/finetune_causal_lm.py --config recipes/configs/tiny_shakespeare.yaml
    accelerate launch recipes/finetune_causal_lm.py --model_name_or_path openai-community/gpt2 \\
        --train_file book.txt --sample_prompt "Chapter 1"
    accelerate launch recipes/finetune_causal_lm.py --model_name_or_path HuggingFaceTB/SmolLM2-135M-Instruct \\
        --train_file conversations.jsonl --sample_prompt "Who are you?"
    accelerate launch recipes/finetune_causal_lm.py --config_name gpt2 --train_file 'shards/*.txt' --streaming \\
        --max_train_steps 100000 --eval_steps 5000

An official checkpoint becomes a zoo model. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card with samples, `all_results.json` and a picture of the
training.

Where a step is computed: the loss is the model's own (`TfmGPTForCausalLM.forward`), `train_step` in
tfm_zoo/training/loop.py takes it, and tfm_zoo/training/language_modeling/task.py evaluates and draws samples.
"""

import logging
from functools import partial

from tfm_zoo.training.runs import run_script, start_run
from tfm_zoo.training.streams import Stream

from tfm_zoo.training.language_modeling.conversations import Conversations, PackedConversations
from tfm_zoo.training.language_modeling.data import (
    Blocks,
    CorpusArguments,
    Joining,
    StreamedBlocks,
    load_corpus,
    split_digest,
)
from tfm_zoo.training.language_modeling.model import HEAD, LanguageModelArguments, new_language_model
from tfm_zoo.training.language_modeling.task import LanguageModelingArguments, LanguageModelingTask, Sampler
from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.tokenizers import vocabulary_digest

logger = logging.getLogger(__name__)
#: documents of a stream that are mixed at a time: so many that chunks, whose last blocks are not full, are as long as
#: their limit of characters allows
MIXED_DOCUMENTS = 128_000


def prepare(argv: list[str] | None = None) -> Loop:
    """Read options, data and model: all that a user can get wrong."""
    classes = (LanguageModelArguments, CorpusArguments, LanguageModelingArguments)
    run = start_run("finetune_causal_lm", classes, argv)
    model_args, data_args, args = run.model_args, run.data_args, run.args
    with run.accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        corpus = load_corpus(data_args)
        if model_args.is_new:
            model, tokenizer = new_language_model(model_args, corpus.texts(), data_args.block_size)
        else:
            model, tokenizer = HEAD.load(model_args)
        tokens = corpus.encode(tokenizer, data_args)
    longest = longest_input(model.config, tokenizer)
    block_size = min(data_args.block_size or 1024, longest)
    if data_args.block_size and block_size < data_args.block_size:
        logger.warning(f"block_size {data_args.block_size} is more than the model takes: using {block_size}")
    is_chat = isinstance(corpus, Conversations)
    prompt_ids = corpus.first_prompt(tokenizer, args.sample_prompt) if is_chat else None
    sampler = Sampler(args, tokenizer, model.generation_config, longest, prompt_ids)
    if model_args.is_new:
        model.generation_config = sampler.config

    kind = PackedConversations if is_chat else Blocks
    blocks = partial(kind, block_size=block_size, filling=tokenizer.eos_token_id or 0)
    if corpus.stream:
        join = Joining(tokenizer, data_args.document_separator)
        examples = Stream(corpus.stream, StreamedBlocks(join, blocks), args.seed, MIXED_DOCUMENTS).dealt()
        if next(examples.first_pass(), None) is None:
            raise ValueError("the training text holds too few tokens to predict any")
    else:
        examples = blocks(tokens["train"], limit=data_args.max_train_samples)
    processes = run.accelerator.num_processes
    validation = blocks(
        tokens["validation"],
        limit=data_args.max_eval_samples,
        multiple_of=args.per_device_eval_batch_size * processes if processes > 1 else 1,
    )
    task = LanguageModelingTask(
        accelerator=run.accelerator,
        model=model,
        tokenizer=tokenizer,
        args=args,
        data=corpus,
        splits={"train": examples, "validation": validation},
        facts={
            "block_size": block_size,
            "streaming": bool(corpus.stream),
            "train_files": data_args.files_identity,
            "training text": corpus.stream.identity if corpus.stream else split_digest(tokens["train"]),
            "validation text": split_digest(tokens["validation"]),
            "tokenizer": vocabulary_digest(tokenizer),
        },
        sampler=sampler,
        tokens={name: len(split) for name, split in tokens.items()},
    )
    return Loop(run, task)


def main(argv: list[str] | None = None) -> dict[str, float]:
    return train(prepare(argv))


if __name__ == "__main__":
    run_script(prepare, train)
