"""Fine-tune any checkpoint to summarise texts, or train a new model to do so.

    accelerate launch recipes/finetune_summarization.py                        # no network, no data: generated passages
    accelerate launch recipes/finetune_summarization.py --model_name_or_path facebook/bart-base \\
        --dataset_name abisee/cnn_dailymail --dataset_config_name 3.0.0 --output_dir runs/summaries

A new model gets a tokenizer made from the texts; an official checkpoint becomes a zoo model. `--help` lists the
options; a YAML file given as `--config` sets them too. The best model goes to `output_dir`, with tokenizer, code, card
with samples, `all_results.json` (ROUGE among them), summaries and a picture of the training.

Where a step is computed: `TargetTask.compute_batch` in tfm_zoo/training/tasks/text_to_text.py gives the
losses, `train_step` in tfm_zoo/training/loop.py takes the step.
"""

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.run import LATE_ERRORS, errors_in_one_line, start_run
from tfm_zoo.training.tasks.summarization import SummarizationOptions, load_task


def main(argv: list[str] | None = None) -> dict[str, float]:
    with errors_in_one_line(argv):
        loop = Loop(load_task(start_run("finetune_summarization", SummarizationOptions, argv)))
        loop.begin()
    with errors_in_one_line(argv, LATE_ERRORS):  # from here on, only those of the loss, of metrics and of the push
        return train(loop)


if __name__ == "__main__":
    main()
