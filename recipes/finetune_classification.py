"""Fine-tune any checkpoint on any text classification data set.

    accelerate launch recipes/finetune_classification.py --config recipes/configs/imdb.yaml
    accelerate launch recipes/finetune_classification.py --model_name_or_path google-bert/bert-base-uncased \\
        --train_file train.csv --validation_file dev.csv --text_column_name review --label_column_name stars
    accelerate launch recipes/finetune_classification.py --dataset_name generated     # no network, no data

An official checkpoint becomes a zoo model; `--config_name`, `--model_type` or `--config_overrides` make a new one, to
train from nothing. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card, `all_results.json` and a picture of the training.

Where a step is computed: the loss is the model's own (`TfmBertForSequenceClassification.forward`), `train_step` in
tfm_zoo/training/loop.py takes it, and tfm_zoo/training/classification/task.py evaluates.
"""

from dataclasses import replace

from transformers import DataCollatorWithPadding

from tfm_zoo.training.arguments import fitted
from tfm_zoo.training.classification.data import TextDataArguments, load_text_classification
from tfm_zoo.training.classification.model import ClassifierArguments, build_classifier
from tfm_zoo.training.classification.task import ClassificationArguments, ClassificationTask
from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.runs import run_script, start_run
from tfm_zoo.training.tokenizers import vocabulary_digest


def prepare(argv: list[str] | None = None) -> Loop:
    """Read options, data and model: all that a user can get wrong."""
    classes = (ClassifierArguments, TextDataArguments, ClassificationArguments)
    run = start_run("finetune_classification", classes, argv)
    model_args, data_args, args = run.model_args, run.data_args, run.args
    with run.accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        data = load_text_classification(data_args, args.seed)
        model, tokenizer = build_classifier(model_args, data.label_names, data.texts(), data_args.max_seq_length)
        data_args = fitted(data_args, longest_input(model.config, tokenizer), "max_seq_length")
        encoded = data.encode(tokenizer, data_args, model.config.label2id)

    pooling = getattr(model.config, "classifier_pooling", "cls")
    task = ClassificationTask(
        accelerator=run.accelerator,
        model=model,
        tokenizer=tokenizer,
        collate=DataCollatorWithPadding(
            tokenizer,
            padding="max_length" if data_args.pad_to_max_length else True,
            max_length=data_args.max_seq_length if data_args.pad_to_max_length else None,
            pad_to_multiple_of=None if run.accelerator.mixed_precision == "no" else 8,
        ),
        lengths=[len(ids) for ids in encoded["train"]["input_ids"]] if args.group_by_length else None,
        facts={
            "classifier_pooling": None if pooling in ("cls", "late") else pooling,
            "tokenizer": vocabulary_digest(tokenizer),
            **data.facts,
        },
        args=args,
        data=data,
        splits=encoded,
    )
    return Loop(replace(run, data_args=data_args), task)


def main(argv: list[str] | None = None) -> dict[str, float]:
    return train(prepare(argv))


if __name__ == "__main__":
    run_script(prepare, train)
