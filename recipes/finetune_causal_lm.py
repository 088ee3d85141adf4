"""Train a causal language model on any text: from a checkpoint, or from nothing.

    accelerate launch recipes/finetune_causal_lm.py                                  # no network, no data
    accelerate launch recipes/finetune_causal_lm.py --config recipes/configs/tiny_shakespeare.yaml
    accelerate launch recipes/finetune_causal_lm.py --model_name_or_path openai-community/gpt2 \\
        --train_file book.txt --sample_prompt "Chapter 1"
    accelerate launch recipes/finetune_causal_lm.py --config_name gpt2 --train_file 'shards/*.txt' --streaming \\
        --max_train_steps 100000 --eval_steps 5000

An official checkpoint becomes a zoo model. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card with samples, `all_results.json` and a picture of the
training.
"""

from functools import partial
from pathlib import Path

from accelerate.logging import get_logger
from torch.utils.data import DataLoader

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import parse_arguments
from tfm_zoo.training.corpora import Blocks, Joining, StreamedBlocks, StreamedCorpusArguments, load_corpus
from tfm_zoo.training.language_modeling import (
    LanguageModelingArguments,
    LanguageModelReport,
    Sampler,
    count_predicted,
    evaluate_language_model,
)
from tfm_zoo.training.language_models import (
    LanguageModelArguments,
    load_language_model,
    new_language_model,
)
from tfm_zoo.training.loop import Loop, Task
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.runs import errors_in_one_line, open_output_dir, start_accelerator, start_trackers
from tfm_zoo.training.sources import digest
from tfm_zoo.training.streams import Stream
from tfm_zoo.training.tokenizers import vocabulary_digest

logger = get_logger(__name__)


def main(argv: list[str] | None = None) -> dict[str, float]:
    arguments = parse_arguments((LanguageModelArguments, StreamedCorpusArguments, LanguageModelingArguments), argv)
    model_args, data_args, args = arguments
    args.check_metric(["loss", "perplexity"])
    accelerator = start_accelerator(args)
    data_args.check_stream(args)
    checkpoint = open_output_dir(accelerator, args)

    # Data and model. The main process downloads; the others read what it left in the cache.
    if not (data_args.dataset_name or data_args.train_file):
        data_args.dataset_name = generated.NAME
        logger.warning("No data set and no file was named: using the built-in GENERATED text")
    with accelerator.main_process_first():
        corpus = load_corpus(data_args)
        if model_args.is_new:
            model, tokenizer = new_language_model(model_args, corpus.texts(), data_args.block_size)
        else:
            model, tokenizer = load_language_model(model_args)
        tokens = corpus.encode(tokenizer, data_args.document_separator, data_args.preprocessing_num_workers)
    for note in corpus.notes:
        logger.warning(note)
    room = longest_input(model.config, tokenizer)
    block_size = min(data_args.block_size or 1024, room)
    if data_args.block_size and block_size < data_args.block_size:
        logger.warning(f"block_size {data_args.block_size} is more than the model takes: using {block_size}")
    sampler = Sampler(args, tokenizer, model.generation_config, room)
    if model_args.is_new:
        model.generation_config = sampler.config
    args.complete_learning_rate(model_args.is_new)

    # Blocks to train on, read while it trains or in memory, and blocks to evaluate on, of which every process has as
    # many.
    blocks = partial(Blocks, block_size=block_size, filling=tokenizer.eos_token_id or 0)
    if corpus.stream:
        join = Joining(tokenizer, data_args.document_separator)
        train = Stream(corpus.stream, StreamedBlocks(join, blocks), args.seed)
        if next(train.first_pass(), None) is None:
            raise ValueError("the training text holds too few tokens to predict any")
    else:
        train = blocks(tokens["train"], limit=data_args.max_train_samples)
    evaluated = blocks(
        tokens["validation"],
        limit=data_args.max_eval_samples,
        multiple_of=args.per_device_eval_batch_size * accelerator.num_processes if accelerator.num_processes > 1 else 1,
    )
    eval_loader = accelerator.prepare_data_loader(DataLoader(evaluated, batch_size=args.per_device_eval_batch_size))
    task = Task(
        model,
        tokenizer,
        examples=train,
        collate=None,
        count=count_predicted,
        evaluate=lambda model: evaluate_language_model(accelerator, model, eval_loader, evaluated.size),
        after_evaluation=partial(sampler.after_evaluation, accelerator),
        shaping={
            "block_size": block_size,
            "streaming": bool(corpus.stream),
            "train_files": data_args.files_identity,
            "training text": corpus.stream.identity if corpus.stream else digest([tokens["train"].numpy().tobytes()]),
            "validation text": digest([tokens["validation"].numpy().tobytes()]),
            "document_separator": data_args.document_separator,
            "tokenizer": vocabulary_digest(tokenizer),
        },
    )

    loop = Loop(accelerator, args, task, checkpoint)
    start_trackers(accelerator, Path(__file__).stem, *arguments)
    loop.run()

    # The samples are those of the folder: what was saved is loaded again.
    results = loop.results()
    if accelerator.is_main_process:
        best = loop.best_model()
        LanguageModelReport(
            args,
            model_args,
            data_args,
            model=best,
            state=loop.state,
            results=results,
            num_processes=accelerator.num_processes,
            corpus=corpus,
            tokens={"train": "not counted"} | {name: f"{len(split):,}" for name, split in tokens.items()},
            block_size=block_size,
            samples=sampler.draw(best, loop.state.best_step) if sampler.length else [],
        ).finish()
    accelerator.end_training()
    return results


if __name__ == "__main__":
    with errors_in_one_line():
        main()
