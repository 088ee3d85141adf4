"""Pre-train an encoder on documents, by masked tokens and next sentences (Devlin et al. 2019) or masked tokens alone.

    accelerate launch recipes/pretrain_bert.py                                          # no network, no data
    accelerate launch recipes/pretrain_bert.py --config recipes/configs/imdb_pretraining.yaml
    accelerate launch recipes/pretrain_bert.py --config_name bert-base --train_file 'shards/*.txt' --streaming \\
        --max_train_steps 1000000 --max_seq_length 512 --eval_steps 10000

A new model gets a tokenizer made from the documents; an official checkpoint becomes a zoo model. `--help` lists the
options; a YAML file given as `--config` sets them too. The best model goes to `output_dir`, with tokenizer, code, card,
`all_results.json` and a picture of the training; `recipes/finetune_classification.py` fine-tunes it.

Where a step is computed: `losses` in tfm_zoo/training/pretraining/task.py is the loss, and `train_step` in
tfm_zoo/training/loop.py takes the step. tfm_zoo/training/pretraining/examples.py makes the examples.
"""

import logging
from dataclasses import replace
from functools import partial

from accelerate.utils import gather_object
from tfm_zoo.training.arguments import fitted
from tfm_zoo.training.runs import run_script, start_run
from tfm_zoo.training.streams import Stream

from tfm_zoo.training.loop import Loop, train
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.pretraining.data import DocumentArguments, load_documents
from tfm_zoo.training.pretraining.examples import Masking, Padding, PretrainingExamples
from tfm_zoo.training.pretraining.model import MASKED, PAIRS, EncoderArguments, new_encoder
from tfm_zoo.training.pretraining.task import PretrainingArguments, PretrainingTask
from tfm_zoo.training.tokenizers import vocabulary_digest

logger = logging.getLogger(__name__)


def prepare(argv: list[str] | None = None) -> Loop:
    """Read options, data and model: all that a user can get wrong."""
    run = start_run("pretrain_bert", (EncoderArguments, DocumentArguments, PretrainingArguments), argv)
    model_args, data_args, args = run.model_args, run.data_args, run.args
    head = PAIRS if args.next_sentence_prediction else MASKED
    with run.accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        documents = load_documents(data_args, args.seed)
        if model_args.is_new:
            model, tokenizer = new_encoder(model_args, head, documents.texts(), args.max_seq_length)
        else:
            model, tokenizer = head.load(model_args)
    args = fitted(args, longest_input(model.config, tokenizer), "max_seq_length")

    make_examples = PretrainingExamples(
        tokenizer,
        documents.split,
        Masking(tokenizer, args.mlm_probability),
        args.max_seq_length,
        pairs=args.next_sentence_prediction,
        short_probability=args.short_seq_prob,
        whole_words=args.whole_word_mask,
    )
    stream = partial(Stream, make_examples=make_examples, seed=args.seed, chunk_size=args.block_documents)
    examples = stream(documents.train).dealt()
    validation = list(stream(documents.validation).first_pass())
    for split, first in (("training", next(examples.first_pass(), None)), ("validation", next(iter(validation), None))):
        if first is None:
            raise ValueError(f"there is no example in the {split} documents: it takes {make_examples.needs}")
    if not args.max_train_steps:
        logger.info("Counting the examples of an epoch")
        mine = range(run.accelerator.process_index, examples.readers, run.accelerator.num_processes)
        examples.size = sum(gather_object([sum(1 for _ in examples.first_pass(mine))]))

    task = PretrainingTask(
        accelerator=run.accelerator,
        model=model,
        tokenizer=tokenizer,
        splits={"train": examples, "validation": validation},
        collate=Padding(tokenizer, multiple_of=1 if run.accelerator.mixed_precision == "no" else 8),
        facts={
            "streaming": data_args.streaming,
            "train_files": data_args.files_identity,
            "training texts": documents.train.identity,
            "validation texts": documents.validation.identity,
            "tokenizer": vocabulary_digest(tokenizer),
        },
        args=args,
        data=documents,
    )
    return Loop(replace(run, args=args), task)


def main(argv: list[str] | None = None) -> dict[str, float]:
    return train(prepare(argv))


if __name__ == "__main__":
    run_script(prepare, train)
