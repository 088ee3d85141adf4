"""Train a model to translate, from pairs of sentences: from nothing, or from a checkpoint.

    accelerate launch recipes/train_translation.py                          # no network, no data: sequences to reverse
    accelerate launch recipes/train_translation.py --config recipes/configs/multi30k.yaml
    accelerate launch recipes/train_translation.py --model_name_or_path Helsinki-NLP/opus-mt-en-de \\
        --train_file pairs.csv --source_lang en --target_lang de

A new model gets a tokenizer made from the pairs; an official checkpoint becomes a zoo model. `--help` lists the
options; a YAML file given as `--config` sets them too. The best model goes to `output_dir`, with tokenizer, code, card
with samples, `all_results.json` (BLEU and chrF among them), translations and a picture of the training.
"""

from functools import partial
from pathlib import Path

from accelerate.logging import get_logger
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import parse_arguments
from tfm_zoo.training.loop import Loop, Task
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.parallel_texts import ParallelTextArguments, load_parallel_texts
from tfm_zoo.training.runs import errors_in_one_line, is_sharded, open_output_dir, start_accelerator, start_trackers
from tfm_zoo.training.translation import (
    Judge,
    TranslationArguments,
    TranslationReport,
    Translator,
    count_labelled,
    smoothed_loss,
)
from tfm_zoo.training.translation_models import (
    TranslationModelArguments,
    load_translation_model,
    new_translation_model,
)

logger = get_logger(__name__)


def main(argv: list[str] | None = None) -> dict[str, float]:
    arguments = parse_arguments((TranslationModelArguments, ParallelTextArguments, TranslationArguments), argv)
    model_args, data_args, args = arguments
    args.complete(model_args.is_new)
    accelerator = start_accelerator(args)
    sharded = is_sharded(accelerator)
    args.check_evaluation(sharded)
    checkpoint = open_output_dir(accelerator, args)

    # Data and model. The main process downloads; the others read what it left in the cache.
    if not (data_args.dataset_name or data_args.train_file):
        data_args.dataset_name = generated.NAME
        logger.warning("No data set and no file was named: using the built-in GENERATED sequences, to be reversed")
    with accelerator.main_process_first():
        texts = load_parallel_texts(data_args, args.seed)
        if model_args.is_new:
            model, tokenizer = new_translation_model(model_args, texts.to_learn())
        else:
            model, tokenizer = load_translation_model(model_args, *texts.languages)
        changes = data_args.fit(longest_input(model.config, tokenizer))
        encoded = texts.encode(tokenizer, data_args)
    for note in (*changes, *texts.notes):
        logger.warning(note)
    args.set_generation(model.generation_config)
    longest = data_args.max_target_length + 1  # with the token that every translation starts with
    if model_args.is_new:
        model.generation_config.max_length = longest

    is_zoo = model.config.model_type.startswith("tfm_")
    collate = DataCollatorForSeq2Seq(
        tokenizer, model=model, pad_to_multiple_of=None if accelerator.mixed_precision == "no" else 8
    )
    translator = Translator(accelerator, tokenizer, args.per_device_eval_batch_size, longest)

    def judge(split: str, num_samples: int) -> Judge:
        loader = DataLoader(encoded[split], batch_size=args.per_device_eval_batch_size, collate_fn=collate)
        return Judge(
            accelerator,
            texts.splits[split],
            encoded[split],
            accelerator.prepare_data_loader(loader),
            translator,
            is_zoo,
            num_samples,
        )

    validation = judge("validation", 0 if sharded else args.num_samples)
    lengths = [(len(pair["input_ids"]), len(pair["labels"])) for pair in encoded["train"]]
    task = Task(
        model,
        tokenizer,
        examples=encoded["train"],
        collate=collate,
        count=count_labelled,
        loss=partial(smoothed_loss, is_zoo=is_zoo, epsilon=args.label_smoothing_factor, over=args.label_smoothing_over),
        evaluate=partial(validation, scored=args.num_eval_translations),
        after_evaluation=validation.after_evaluation,
        lengths=lengths if args.per_device_train_batch_tokens else list(map(sum, lengths)),
        batch_tokens=args.per_device_train_batch_tokens,
        shaping={
            "max_source_length": data_args.max_source_length,
            "max_target_length": data_args.max_target_length,
            "label_smoothing_factor": args.label_smoothing_factor,
            "label_smoothing_over": args.label_smoothing_over,
        },
    )

    loop = Loop(accelerator, args, task, checkpoint)
    start_trackers(accelerator, Path(__file__).stem, *arguments)
    loop.run()

    # The scores are those of the folder: what was saved is loaded again, and translates.
    best = loop.best_model()
    split, prefix = ("test", "test") if "test" in encoded else ("validation", "eval")
    final = judge(split, args.num_samples)
    figures = final(best)
    results = loop.results() | {f"{prefix}_{name}": value for name, value in figures.items()}
    accelerator.log({f"{prefix}_{name}": value for name, value in figures.items()}, step=loop.state.step)
    if accelerator.is_main_process:
        final.write_translations(Path(args.output_dir))
        TranslationReport(
            args,
            model_args,
            data_args,
            model=best,
            state=loop.state,
            results=results,
            num_processes=accelerator.num_processes,
            texts=texts,
            judge=final,
            tokens={name: sum(map(len, split["labels"])) for name, split in encoded.items()},
        ).finish()
    accelerator.end_training()
    return results


if __name__ == "__main__":
    with errors_in_one_line():
        main()
