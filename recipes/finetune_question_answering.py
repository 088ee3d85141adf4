"""Fine-tune any checkpoint to find the answers to questions in texts.

    accelerate launch recipes/finetune_question_answering.py                   # no network, no data: generated passages
    accelerate launch recipes/finetune_question_answering.py --model_name_or_path google-bert/bert-base-uncased \\
        --dataset_name rajpurkar/squad_v2 --version_2_with_negative --doc_stride 128 --output_dir runs/squad

An official checkpoint becomes a zoo model; `--config_name`, `--model_type` or `--config_overrides` make a new one, to
train from nothing. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card, answers, `all_results.json` and a picture
of the training.

Where a step is computed: `AnsweringTask.compute_batch` in tfm_zoo/training/tasks/question_answering.py gives the
losses, `train_step` in tfm_zoo/training/loop.py takes the step.
"""

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.run import LATE_ERRORS, errors_in_one_line, start_run
from tfm_zoo.training.tasks.question_answering import AnsweringOptions, load_task


def main(argv: list[str] | None = None) -> dict[str, float]:
    with errors_in_one_line(argv):
        loop = Loop(load_task(start_run("finetune_question_answering", AnsweringOptions, argv)))
        loop.begin()
    with errors_in_one_line(argv, LATE_ERRORS):  # from here on, only those of the loss, of metrics and of the push
        return train(loop)


if __name__ == "__main__":
    main()
