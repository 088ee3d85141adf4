"""Train a model to translate, from pairs of sentences: from nothing, or from a checkpoint.

    accelerate launch recipes/train_translation.py                          # no network, no data: sequences to reverse
    accelerate launch recipes/train_translation.py --config recipes/configs/multi30k.yaml
    accelerate launch recipes/train_translation.py --model_name_or_path Helsinki-NLP/opus-mt-en-de \\
        --train_file pairs.csv --source_lang en --target_lang de

A new model gets a tokenizer made from the pairs; an official checkpoint becomes a zoo model. `--help` lists the
options; a YAML file given as `--config` sets them too. The best model goes to `output_dir`, with tokenizer, code, card
with samples, `all_results.json` (BLEU and chrF among them), translations and a picture of the training.

Where a step is computed: `TargetTask.compute_batch` in tfm_zoo/training/tasks/text_to_text.py gives the
losses, `train_step` in tfm_zoo/training/loop.py takes the step.
"""

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.run import LATE_ERRORS, errors_in_one_line, start_run
from tfm_zoo.training.tasks.translation import TranslationOptions, load_task


def main(argv: list[str] | None = None) -> dict[str, float]:
    with errors_in_one_line(argv):
        loop = Loop(load_task(start_run("train_translation", TranslationOptions, argv)))
        loop.begin()
    with errors_in_one_line(argv, LATE_ERRORS):  # from here on, only those of the loss, of metrics and of the push
        return train(loop)


if __name__ == "__main__":
    main()
