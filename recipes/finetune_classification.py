"""Fine-tune any checkpoint on any text classification data set.

    accelerate launch recipes/finetune_classification.py --config recipes/configs/imdb.yaml
    accelerate launch recipes/finetune_classification.py --model_name_or_path google-bert/bert-base-uncased \\
        --train_file train.csv --validation_file dev.csv --text_column_name review --label_column_name stars
    accelerate launch recipes/finetune_classification.py --dataset_name generated     # no network, no data

An official checkpoint becomes a zoo model; `--config_name`, `--model_type` or `--config_overrides` make a new one, to
train from nothing. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card, `all_results.json` and a picture of the training.

Where a step is computed: `ClassificationTask.compute_batch` in tfm_zoo/training/tasks/classification.py gives the
losses, `train_step` in tfm_zoo/training/loop.py takes the step. To read a run in its order: `start_run` in run.py reads
the options (of `ClassificationOptions` and its parents), joins the processes, and refuses a folder that holds another
run; `load_task` in tasks/classification.py hands `load_texts` and `build_classifier` to `load_task_of_rows` in task.py,
which reads rows and labels (tfm_zoo/data), loads the model (new_models.py, or models.py for a checkpoint), tokenizes,
and makes the task, which settles what metric picks the best model; `Loop` in loop.py makes batches and optimiser; its
`begin` locks the folder, and loads the checkpoint of a resumed run; its `train` takes the steps, evaluates, and saves
the best model; the function `train` calls it, measures the best model, and has report.py write the card.
"""

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.run import LATE_ERRORS, errors_in_one_line, start_run
from tfm_zoo.training.tasks.classification import ClassificationOptions, load_task


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Train, save the best model, and return the results."""
    with errors_in_one_line(argv):
        loop = Loop(load_task(start_run("finetune_classification", ClassificationOptions, argv)))
        loop.begin()
    with errors_in_one_line(argv, LATE_ERRORS):  # from here on, only those of the loss, of metrics and of the push
        return train(loop)


if __name__ == "__main__":
    main()
