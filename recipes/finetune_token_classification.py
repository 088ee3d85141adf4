"""Fine-tune any checkpoint to tag words: names of persons and places, parts of speech, or anything else.

    accelerate launch recipes/finetune_token_classification.py                # no network, no data: generated sentences
    accelerate launch recipes/finetune_token_classification.py --model_name_or_path google-bert/bert-base-cased \\
        --train_file train.json --validation_file dev.json --text_column_name tokens --label_column_name ner_tags

An official checkpoint becomes a zoo model; `--config_name`, `--model_type` or `--config_overrides` make a new one, to
train from nothing. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card, `all_results.json` and a picture of the training.

Where a step is computed: the loss is the model's own (`TokenClassification` in tfm_zoo/models/heads.py), `train_step`
in tfm_zoo/training/loop.py takes it, and tfm_zoo/training/token_classification/task.py evaluates.
"""

from dataclasses import replace

from tfm_zoo.training.arguments import fitted
from tfm_zoo.training.labels import LabellingArguments
from tfm_zoo.training.runs import run_script, start_run
from transformers import DataCollatorForTokenClassification

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.token_classification.data import TaggedTextArguments, load_tagged_texts
from tfm_zoo.training.token_classification.model import build_tagger
from tfm_zoo.training.token_classification.task import TokenClassificationArguments, TokenClassificationTask
from tfm_zoo.training.tokenizers import vocabulary_digest


def prepare(argv: list[str] | None = None) -> Loop:
    """Read options, data and model: all that a user can get wrong."""
    classes = (LabellingArguments, TaggedTextArguments, TokenClassificationArguments)
    run = start_run("finetune_token_classification", classes, argv)
    model_args, data_args, args = run.model_args, run.data_args, run.args
    with run.accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        data = load_tagged_texts(data_args, args.seed)
        model, tokenizer = build_tagger(model_args, data.label_names, data.texts(), data_args.max_seq_length)
        data_args = fitted(data_args, longest_input(model.config, tokenizer), "max_seq_length")
        encoded = data.encode(tokenizer, data_args, model.config.label2id)

    multiple = 1 if run.accelerator.mixed_precision == "no" else 8
    task = TokenClassificationTask(
        accelerator=run.accelerator,
        model=model,
        tokenizer=tokenizer,
        collate=DataCollatorForTokenClassification(
            tokenizer,
            padding="max_length" if data_args.pad_to_max_length else True,
            max_length=data_args.max_seq_length if data_args.pad_to_max_length else None,
            pad_to_multiple_of=multiple,
        ),
        lengths=[len(ids) for ids in encoded["train"]["input_ids"]] if args.group_by_length else None,
        facts={"tokenizer": vocabulary_digest(tokenizer), **data.facts},
        args=args,
        data=data,
        splits=encoded,
        width=-(-data_args.max_seq_length // multiple) * multiple,
    )
    return Loop(replace(run, data_args=data_args), task)


def main(argv: list[str] | None = None) -> dict[str, float]:
    return train(prepare(argv))


if __name__ == "__main__":
    run_script(prepare, train)
