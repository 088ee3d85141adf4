"""Fine-tune any checkpoint on any text classification data set.

    accelerate launch recipes/finetune_classification.py --config recipes/configs/imdb.yaml
    accelerate launch recipes/finetune_classification.py --model_name_or_path google-bert/bert-base-uncased \\
        --train_file train.csv --validation_file dev.csv --text_column_name review --label_column_name stars
    accelerate launch recipes/finetune_classification.py --dataset_name generated     # no network, no data

An official checkpoint becomes a zoo model; `--config_name`, `--model_type` or `--config_overrides` make a new one, to
train from nothing. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card, `all_results.json` and a picture of the training.
"""

from itertools import chain
from pathlib import Path

from accelerate.logging import get_logger
from accelerate.utils import broadcast_object_list
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, PreTrainedModel

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import parse_arguments
from tfm_zoo.training.classification import (
    ClassificationArguments,
    ClassificationReport,
    count_examples,
    evaluate_classifier,
)
from tfm_zoo.training.classifiers import (
    DEFAULT_MODEL,
    ClassifierArguments,
    load_classifier,
    new_classifier,
    reads_mean,
)
from tfm_zoo.training.freezing import freeze, freeze_base_model
from tfm_zoo.training.loop import Loop, Task
from tfm_zoo.training.metrics import classification_metric
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.runs import errors_in_one_line, open_output_dir, start_accelerator, start_trackers
from tfm_zoo.training.text_data import TextDataArguments, choose_dataset, load_text_classification

logger = get_logger(__name__)


def main(argv: list[str] | None = None) -> dict[str, float]:
    arguments = parse_arguments((ClassifierArguments, TextDataArguments, ClassificationArguments), argv)
    model_args, data_args, args = arguments
    metric = classification_metric()
    args.check_metric(["loss", *metric.names])
    accelerator = start_accelerator(args, args.freeze_epochs)
    checkpoint = open_output_dir(accelerator, args)

    # Data and model. The main process decides and downloads; the others read what it left in the cache.
    asked = data_args.dataset_name
    chosen = [choose_dataset(data_args) if accelerator.is_main_process else None]
    data_args.dataset_name = broadcast_object_list(chosen)[0]
    built_in = data_args.dataset_name == generated.NAME
    if built_in and asked is None:
        logger.warning("No data set was named and the default one cannot be reached: using the built-in GENERATED one")
    if model_args.is_new and not model_args.given and not built_in:
        model_args.model_name_or_path = DEFAULT_MODEL

    with accelerator.main_process_first():
        data = load_text_classification(data_args, args.seed)
        if model_args.is_new:
            texts = chain.from_iterable(data.splits["train"][column] for column in data.text_columns)
            model, tokenizer = new_classifier(model_args, data.label_names, texts, data_args.max_seq_length)
        else:
            model, tokenizer = load_classifier(model_args, data.label_names)
        max_length = min(data_args.max_seq_length, longest_input(model.config, tokenizer))
        encoded = data.encode(tokenizer, model.config.label2id, max_length, data_args.preprocessing_num_workers)
    for note in data.notes:
        logger.warning(note)
    if max_length < data_args.max_seq_length:
        logger.warning(f"max_seq_length {data_args.max_seq_length} is more than the model takes: using {max_length}")
    args.complete_learning_rate(model_args.is_new)

    collate = DataCollatorWithPadding(
        tokenizer,
        padding="max_length" if data_args.pad_to_max_length else True,
        max_length=max_length if data_args.pad_to_max_length else None,
        pad_to_multiple_of=None if accelerator.mixed_precision == "no" else 8,
    )
    eval_loaders = {
        split: accelerator.prepare_data_loader(
            DataLoader(encoded[split], batch_size=args.per_device_eval_batch_size, collate_fn=collate)
        )
        for split in encoded
        if split != "train"
    }

    def freeze_at_first(model: PreTrainedModel, epoch: int) -> None:
        freeze_base_model(model, epoch < args.freeze_epochs)
        freeze(model, args.freeze or [])  # by name: for good

    task = Task(
        model,
        tokenizer,
        examples=encoded["train"],
        collate=collate,
        count=count_examples,
        evaluate=lambda model: evaluate_classifier(accelerator, model, eval_loaders["validation"], metric),
        before_epoch=freeze_at_first if args.freeze_epochs else None,
        lengths=[len(ids) for ids in encoded["train"]["input_ids"]] if args.group_by_length else None,
        shaping={
            "max_seq_length": max_length,
            "group_by_length": args.group_by_length,
            "freeze_epochs": args.freeze_epochs,
            "classifier_pooling": "mean" if reads_mean(model.config) else None,
        },
    )

    loop = Loop(accelerator, args, task, checkpoint)
    start_trackers(accelerator, Path(__file__).stem, *arguments)
    loop.run()

    # The figures are those of the folder: what was saved is loaded again and tested.
    best = loop.best_model()
    results = loop.results()
    if "test" in eval_loaders:
        figures = evaluate_classifier(accelerator, best, eval_loaders["test"], metric)
        results |= {f"test_{name}": value for name, value in figures.items()}
    accelerator.log({name: value for name, value in results.items() if name.startswith("test_")}, step=loop.state.step)
    if accelerator.is_main_process:
        ClassificationReport(
            args,
            model_args,
            data_args,
            model=best,
            state=loop.state,
            results=results,
            num_processes=accelerator.num_processes,
            texts=data,
        ).finish()
    accelerator.end_training()
    return results


if __name__ == "__main__":
    with errors_in_one_line():
        main()
