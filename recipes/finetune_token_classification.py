"""Fine-tune any checkpoint to tag words: names of persons and places, parts of speech, or anything else.

    accelerate launch recipes/finetune_token_classification.py                # no network, no data: generated sentences
    accelerate launch recipes/finetune_token_classification.py --model_name_or_path google-bert/bert-base-cased \\
        --train_file train.json --validation_file dev.json --text_column_name tokens --label_column_name ner_tags

An official checkpoint becomes a zoo model; `--config_name`, `--model_type` or `--config_overrides` make a new one, to
train from nothing. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card, `all_results.json` and a picture of the training.

Where a step is computed: `TaggingTask.compute_batch` in tfm_zoo/training/tasks/tagging.py gives the
losses, `train_step` in tfm_zoo/training/loop.py takes the step.
"""

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.run import LATE_ERRORS, errors_in_one_line, start_run
from tfm_zoo.training.tasks.tagging import TaggingOptions, load_task


def main(argv: list[str] | None = None) -> dict[str, float]:
    with errors_in_one_line(argv):
        loop = Loop(load_task(start_run("finetune_token_classification", TaggingOptions, argv)))
        loop.begin()
    with errors_in_one_line(argv, LATE_ERRORS):  # from here on, only those of the loss, of metrics and of the push
        return train(loop)


if __name__ == "__main__":
    main()
