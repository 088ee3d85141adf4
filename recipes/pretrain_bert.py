"""Pre-train an encoder on documents, by masked tokens and next sentences (Devlin et al. 2019) or masked tokens alone.

    accelerate launch recipes/pretrain_bert.py                                          # no network, no data
    accelerate launch recipes/pretrain_bert.py --config recipes/configs/imdb_pretraining.yaml
    accelerate launch recipes/pretrain_bert.py --config_name bert-base --train_file 'shards/*.txt' --streaming \\
        --max_train_steps 1000000 --max_seq_length 512 --eval_steps 10000

A new model gets a tokenizer made from the documents; an official checkpoint becomes a zoo model. `--help` lists the
options; a YAML file given as `--config` sets them too. The best model goes to `output_dir`, with tokenizer, code, card,
`all_results.json` and a picture of the training; `recipes/finetune_classification.py` fine-tunes it.

Where a step is computed: `PretrainingTask.compute_batch` in tfm_zoo/training/tasks/pretraining.py gives the
losses, `train_step` in tfm_zoo/training/loop.py takes the step.
"""

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.run import LATE_ERRORS, errors_in_one_line, start_run
from tfm_zoo.training.tasks.pretraining import PretrainingOptions, load_task


def main(argv: list[str] | None = None) -> dict[str, float]:
    with errors_in_one_line(argv):
        loop = Loop(load_task(start_run("pretrain_bert", PretrainingOptions, argv)))
        loop.begin()
    with errors_in_one_line(argv, LATE_ERRORS):  # from here on, only those of the loss, of metrics and of the push
        return train(loop)


if __name__ == "__main__":
    main()
