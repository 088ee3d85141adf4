"""Train variants of a decoder under one budget, on the same data and seed: one table and one picture of them all.

    accelerate launch recipes/compare_architectures.py                               # no network, no data
    accelerate launch recipes/compare_architectures.py --config recipes/configs/post_or_pre_norm.yaml
    accelerate launch recipes/compare_architectures.py --train_file book.txt --max_train_steps 1000 \\
        --variants '{softmax: {}, linear: {attention_type: linear, learning_rate: 2e-3}}'

A variant is a name and the fields that it changes in the configuration of all, `config_overrides`. Without a `--config`
those of recipes/configs/architectures.yaml are compared: an axis each. `--help` lists the options.

`output_dir` gets `comparison.md` (the table), `comparison.png` and `comparison.json`, after each variant anew, and a
folder for each with its configuration and history. A variant whose result is there already, of the same settings, is
not trained again: the same command goes on where it was stopped, and one with more variants trains those alone.
"""

import math
from pathlib import Path

from accelerate.logging import get_logger

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import parse_arguments
from tfm_zoo.training.comparison import Comparison, ComparisonArguments, Result, loss_of_frequencies
from tfm_zoo.training.comparison_report import FREQUENCIES, UNIFORM, ComparisonReport
from tfm_zoo.training.corpora import CorpusArguments, load_corpus
from tfm_zoo.training.language_models import new_tokenizer
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.reports import shortened
from tfm_zoo.training.runs import errors_in_one_line, start_accelerator
from tfm_zoo.training.variants import VariantArguments, make_variants

logger = get_logger(__name__)

DEFAULT = Path(__file__).parent / "configs" / "architectures.yaml"


def main(argv: list[str] | None = None) -> list[Result]:
    arguments = parse_arguments((VariantArguments, CorpusArguments, ComparisonArguments), argv, DEFAULT)
    model_args, data_args, args = arguments
    accelerator = start_accelerator(args)

    # Data and variants. The main process downloads; the others read what it left in the cache.
    if not (data_args.dataset_name or data_args.train_file):
        data_args.dataset_name = generated.NAME
        logger.warning("No data set and no file was named: using the built-in GENERATED text")
    with accelerator.main_process_first():
        corpus = load_corpus(data_args)
        tokenizer = new_tokenizer(model_args, corpus.splits["train"]["text"])
        tokens = corpus.encode(tokenizer, data_args.document_separator, data_args.preprocessing_num_workers)
    for note in corpus.notes:
        logger.warning(note)
    variants = make_variants(model_args, args, tokenizer, data_args.block_size)
    comparison = Comparison(
        args,
        tokenizer,
        tokens,
        block_size=data_args.block_size or min(1024, *(longest_input(v.config, tokenizer) for v in variants)),
        max_train_samples=data_args.max_train_samples,
        max_eval_samples=data_args.max_eval_samples,
    )
    learned = comparison.blocks("train", data_args.max_train_samples).tokens
    judged = comparison.blocks("validation", data_args.max_eval_samples).tokens
    report = ComparisonReport(
        dataset=shortened(data_args.dataset_name or data_args.train_file),
        notes=corpus.notes,
        block_size=comparison.block_size,
        num_processes=accelerator.num_processes,
        levels={
            UNIFORM: math.log(len(tokenizer)),
            FREQUENCIES: loss_of_frequencies(learned, judged, len(tokenizer)),
        },
    )
    results = comparison.finished(accelerator, variants)
    accelerator.wait_for_everyone()  # everybody has looked before anybody writes

    for number, variant in enumerate(variants, 1):
        logger.info(f"Variant {number} of {len(variants)}: {variant.name}")
        if variant.name in results:
            logger.info(f"It is in {variant.folder} already")
        else:
            accelerator = start_accelerator(variant.args)  # which holds nothing of the variants before
            results[variant.name] = comparison.train(accelerator, variant)
        done = [results[variant.name] for variant in variants if variant.name in results]
        if accelerator.is_main_process:
            report.write(Path(args.output_dir), done)
    if accelerator.is_main_process:
        print(report.table(done))
        logger.info(f"Table and picture are in {args.output_dir}")
    accelerator.end_training()
    return done


if __name__ == "__main__":
    with errors_in_one_line():
        main()
