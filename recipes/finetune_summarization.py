"""Fine-tune any checkpoint to summarise texts, or train a new model to do so.

    accelerate launch recipes/finetune_summarization.py                        # no network, no data: generated passages
    accelerate launch recipes/finetune_summarization.py --model_name_or_path facebook/bart-base \\
        --dataset_name abisee/cnn_dailymail --dataset_config_name 3.0.0 --output_dir runs/summaries

A new model gets a tokenizer made from the texts; an official checkpoint becomes a zoo model. `--help` lists the
options; a YAML file given as `--config` sets them too. The best model goes to `output_dir`, with tokenizer, code, card
with samples, `all_results.json` (ROUGE among them), summaries and a picture of the training.

Where a step is computed: `label_smoothed_loss` in tfm_zoo/training/text_to_text/measures.py is the loss, and
`train_step` in tfm_zoo/training/loop.py takes the step.
"""

from dataclasses import replace

from tfm_zoo.training.arguments import fitted
from tfm_zoo.training.runs import run_script, start_run
from transformers import DataCollatorForSeq2Seq

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.summarization.data import SummaryArguments, load_summaries
from tfm_zoo.training.summarization.task import SummarizationArguments, SummarizationTask
from tfm_zoo.training.text_to_text.model import HEAD, TextToTextModelArguments, new_text_to_text
from tfm_zoo.training.tokenizers import vocabulary_digest


def prepare(argv: list[str] | None = None) -> Loop:
    """Read options, data and model: all that a user can get wrong."""
    classes = (TextToTextModelArguments, SummaryArguments, SummarizationArguments)
    run = start_run("finetune_summarization", classes, argv)
    model_args, args = run.model_args, run.args
    with run.accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        texts = load_summaries(run.data_args, args.seed)
        if model_args.is_new:
            model, tokenizer = new_text_to_text(model_args, texts.texts(), SummarizationTask.writes)
        else:
            model, tokenizer = HEAD.load(model_args)
        data_args = fitted(
            run.data_args, longest_input(model.config, tokenizer), "max_source_length", "max_target_length"
        )
        encoded = texts.encode(tokenizer, data_args)
    max_length = data_args.max_target_length + 1  # with the token that every summary starts with
    args.set_generation(model.generation_config, max_length, model_args.is_new)

    task = SummarizationTask(
        accelerator=run.accelerator,
        model=model,
        tokenizer=tokenizer,
        collate=DataCollatorForSeq2Seq(
            tokenizer, model=model, pad_to_multiple_of=None if run.accelerator.mixed_precision == "no" else 8
        ),
        facts={"tokenizer": vocabulary_digest(tokenizer), **texts.facts},
        args=args,
        data=texts,
        splits=encoded,
        max_length=max_length,
    )
    return Loop(replace(run, data_args=data_args), task)


def main(argv: list[str] | None = None) -> dict[str, float]:
    return train(prepare(argv))


if __name__ == "__main__":
    run_script(prepare, train)
