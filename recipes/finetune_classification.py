"""Fine-tune any checkpoint on any text classification data set.

    accelerate launch recipes/finetune_classification.py --config recipes/configs/imdb.yaml
    accelerate launch recipes/finetune_classification.py --model_name_or_path google-bert/bert-base-uncased \\
        --train_file train.csv --validation_file dev.csv --text_column_name review --label_column_name stars
    accelerate launch recipes/finetune_classification.py --dataset_name generated     # no network, no data

An official checkpoint becomes a zoo model; `--config_name`, `--model_type` or `--config_overrides` make a new one, to
train from nothing. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card, `all_results.json` and a picture of the training.

Where a step is computed: `ClassificationTask.compute_batch` in tfm_zoo/training/tasks/classification.py gives the
losses, `train_step` in tfm_zoo/training/loop.py takes the step.
"""

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.run import run_script, start_run
from tfm_zoo.training.tasks.classification import ClassificationOptions, load_task


def prepare(argv: list[str] | None = None) -> Loop:
    return Loop(load_task(start_run("finetune_classification", ClassificationOptions, argv)))


def main(argv: list[str] | None = None) -> dict[str, float]:
    return train(prepare(argv))


if __name__ == "__main__":
    run_script(prepare, train)
