"""Pre-train an encoder-decoder on documents by span corruption: it writes what they lack (T5, Raffel et al. 2020).

    accelerate launch recipes/pretrain_t5.py                                            # no network, no data
    accelerate launch recipes/pretrain_t5.py --config recipes/configs/tiny_shakespeare_t5.yaml
    accelerate launch recipes/pretrain_t5.py --config_name t5-small --train_file 'shards/*.txt' --streaming \\
        --max_train_steps 1000000 --eval_steps 10000

A new model gets a tokenizer made from the documents; an official checkpoint becomes a zoo model. `--help` lists the
options; a YAML file given as `--config` sets them too. The best model goes to `output_dir`, with tokenizer, code, card,
`all_results.json` and a picture of the training; `train_translation.py` and `finetune_summarization.py` fine-tune it.

Where a step is computed: `TargetTask.compute_batch` in tfm_zoo/training/tasks/text_to_text.py gives the
losses, `train_step` in tfm_zoo/training/loop.py takes the step.
"""

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.run import LATE_ERRORS, errors_in_one_line, start_run
from tfm_zoo.training.tasks.denoising import DenoisingOptions, load_task


def main(argv: list[str] | None = None) -> dict[str, float]:
    with errors_in_one_line(argv):
        loop = Loop(load_task(start_run("pretrain_t5", DenoisingOptions, argv)))
        loop.begin()
    with errors_in_one_line(argv, LATE_ERRORS):  # from here on, only those of the loss, of metrics and of the push
        return train(loop)


if __name__ == "__main__":
    main()
