"""Train a causal language model on any text: from a checkpoint, or from nothing.

    accelerate launch recipes/finetune_causal_lm.py                                  # no network, no data
    accelerate launch recipes/finetune_causal_lm.py --config recipes/configs/tiny_shakespeare.yaml
    accelerate launch recipes/finetune_causal_lm.py --model_name_or_path openai-community/gpt2 \\
        --train_file book.txt --sample_prompt "Chapter 1"
    accelerate launch recipes/finetune_causal_lm.py --config_name gpt2 --train_file 'shards/*.txt' --streaming \\
        --max_train_steps 100000 --eval_steps 5000

An official checkpoint becomes a zoo model. `--help` lists the options; a YAML file given as `--config` sets them too.
Conversations are for `minimal_sft.py`.
The best model goes to `output_dir`, with tokenizer, code, card with samples, `all_results.json` and a picture of the
training.

Where a step is computed: `LanguageModelingTask.compute_batch` in tfm_zoo/training/tasks/language_modeling.py gives the
losses, `train_step` in tfm_zoo/training/loop.py takes the step.
"""

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.run import LATE_ERRORS, errors_in_one_line, start_run
from tfm_zoo.training.tasks.language_modeling import LanguageModelingOptions, load_task


def main(argv: list[str] | None = None) -> dict[str, float]:
    with errors_in_one_line(argv):
        loop = Loop(load_task(start_run("finetune_causal_lm", LanguageModelingOptions, argv)))
        loop.begin()
    with errors_in_one_line(argv, LATE_ERRORS):  # from here on, only those of the loss, of metrics and of the push
        return train(loop)


if __name__ == "__main__":
    main()
