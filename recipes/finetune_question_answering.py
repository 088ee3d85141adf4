"""Fine-tune any checkpoint to find the answers to questions in texts.

    accelerate launch recipes/finetune_question_answering.py                   # no network, no data: generated passages
    accelerate launch recipes/finetune_question_answering.py --model_name_or_path google-bert/bert-base-uncased \\
        --dataset_name rajpurkar/squad_v2 --version_2_with_negative --doc_stride 128 --output_dir runs/squad

An official checkpoint becomes a zoo model; `--config_name`, `--model_type` or `--config_overrides` make a new one, to
train from nothing. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card, answers, `all_results.json` and a picture
of the training.

Where a step is computed: `loss` in tfm_zoo/training/question_answering/task.py is the loss, and `train_step` in
tfm_zoo/training/loop.py takes the step.
"""

from dataclasses import replace

from tfm_zoo.training.arguments import fitted
from tfm_zoo.training.finetuning import FineTuningArguments
from tfm_zoo.training.runs import run_script, start_run
from transformers import DataCollatorWithPadding

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.question_answering.data import QuestionArguments, load_questions
from tfm_zoo.training.question_answering.model import build_answerer
from tfm_zoo.training.question_answering.task import QuestionAnsweringArguments, QuestionAnsweringTask
from tfm_zoo.training.tokenizers import vocabulary_digest


def prepare(argv: list[str] | None = None) -> Loop:
    """Read options, data and model: all that a user can get wrong."""
    classes = (FineTuningArguments, QuestionArguments, QuestionAnsweringArguments)
    run = start_run("finetune_question_answering", classes, argv)
    model_args, data_args, args = run.model_args, run.data_args, run.args
    with run.accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        data = load_questions(data_args, args.seed)
        model, tokenizer = build_answerer(model_args, data.texts(), data_args.max_seq_length)
        data_args = fitted(data_args, longest_input(model.config, tokenizer), "max_seq_length")
        encoded = data.encode(tokenizer, data_args)

    task = QuestionAnsweringTask(
        accelerator=run.accelerator,
        model=model,
        tokenizer=tokenizer,
        collate=DataCollatorWithPadding(
            tokenizer,
            padding="max_length" if data_args.pad_to_max_length else True,
            max_length=data_args.max_seq_length if data_args.pad_to_max_length else None,
            pad_to_multiple_of=None if run.accelerator.mixed_precision == "no" else 8,
        ),
        lengths=[len(ids) for ids in encoded["train"]["input_ids"]] if args.group_by_length else None,
        facts={"tokenizer": vocabulary_digest(tokenizer), **data.facts},
        args=args,
        data=data,
        splits=encoded,
        may_be_unanswered=data_args.version_2_with_negative,
    )
    return Loop(replace(run, data_args=data_args), task)


def main(argv: list[str] | None = None) -> dict[str, float]:
    return train(prepare(argv))


if __name__ == "__main__":
    run_script(prepare, train)
