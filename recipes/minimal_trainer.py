"""Fine-tune a zoo model with transformers' Trainer: a twin of `minimal.py`.

    accelerate launch recipes/minimal_trainer.py --dataset_name generated    # a small new model: no network, no data
    accelerate launch recipes/minimal_trainer.py --dataset_name ag_news --metrics accuracy f1 ./mine

The options are those of `finetune_classification.py`. `as_trainer` makes a Trainer of any task: of `tagging`,
`question_answering`, `language_modeling`, ... in `tfm_zoo.training.tasks`, too.
"""

# first: it quietens what transformers imports
from tfm_zoo.training.run import start_run
from tfm_zoo.training.tasks.classification import ClassificationOptions, load_task
from tfm_zoo.training.trainer import as_trainer

# isort: split
from transformers import pipeline


def main(argv: list[str] | None = None) -> list[dict[str, float]]:
    """Train, save, reload and predict. Returns the figures of the validation split after each epoch."""
    # The data, and a model with a label for each class, as the options say
    task = load_task(start_run("minimal_trainer", ClassificationOptions, argv))

    # The Trainer's settings are the options, but for these; its other arguments may follow: callbacks, optimisers
    trainer = as_trainer(task, {"logging_steps": 5})
    trainer.train()

    # The folder holds weights, tokenizer and the model's code: it loads where `tfm_zoo` is not installed
    trainer.save_model()
    if trainer.is_world_process_zero():
        classifier = pipeline("text-classification", trainer.args.output_dir, trust_remote_code=True)
        print(classifier(["the acting was superb .", "a dull and noisy story ."]))
    return [entry for entry in trainer.state.log_history if "eval_loss" in entry]


if __name__ == "__main__":
    main()
