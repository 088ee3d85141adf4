"""Pre-train an encoder on documents, by masked tokens and next sentences (Devlin et al. 2019), or by the former alone.

    accelerate launch recipes/pretrain_bert.py                                          # no network, no data
    accelerate launch recipes/pretrain_bert.py --config recipes/configs/imdb_pretraining.yaml
    accelerate launch recipes/pretrain_bert.py --config_name bert-base --train_file 'shards/*.txt' --streaming \\
        --max_train_steps 1000000 --max_seq_length 512 --eval_steps 10000

A new model gets a tokenizer made from the documents; an official checkpoint becomes a zoo model. `--help` lists the
options; a YAML file given as `--config` sets them too. The best model goes to `output_dir`, with tokenizer, code, card,
`all_results.json` and a picture of the training; `recipes/finetune_classification.py` goes on from there.
"""

from functools import partial
from pathlib import Path

from accelerate.logging import get_logger
from torch.utils.data import DataLoader

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import parse_arguments
from tfm_zoo.training.documents import DocumentArguments, load_documents
from tfm_zoo.training.loop import Loop, Task
from tfm_zoo.training.masking import Masking
from tfm_zoo.training.models import longest_input
from tfm_zoo.training.pretraining import (
    PretrainingArguments,
    PretrainingReport,
    count_parts,
    evaluate_pretraining,
    losses,
    unigram_entropy,
)
from tfm_zoo.training.pretraining_data import Padding, PretrainingExamples
from tfm_zoo.training.pretraining_models import EncoderArguments, Heads, load_encoder, new_encoder
from tfm_zoo.training.runs import errors_in_one_line, open_output_dir, start_accelerator, start_trackers
from tfm_zoo.training.streams import Stream
from tfm_zoo.training.tokenizers import TOKENIZER_TEXT, vocabulary_digest

logger = get_logger(__name__)


def main(argv: list[str] | None = None) -> dict[str, float]:
    arguments = parse_arguments((EncoderArguments, DocumentArguments, PretrainingArguments), argv)
    model_args, data_args, args = arguments
    args.check_metric([*args.figures])
    accelerator = start_accelerator(args)
    data_args.check_stream(args)
    checkpoint = open_output_dir(accelerator, args)

    # Data and model. The main process downloads; the others read what it left in the cache.
    if not (data_args.dataset_name or data_args.train_file):
        data_args.dataset_name = generated.NAME
        logger.warning("No data set and no file was named: using the built-in GENERATED documents")
    heads = Heads(args.next_sentence_prediction)
    with accelerator.main_process_first():
        documents = load_documents(data_args, args.seed)
        if model_args.is_new:
            texts = partial(documents.train.first_texts, TOKENIZER_TEXT)
            model, tokenizer = new_encoder(model_args, heads, texts, args.max_seq_length)
        else:
            model, tokenizer = load_encoder(model_args, heads)
    for note in documents.notes:
        logger.warning(note)
    max_length = min(args.max_seq_length, longest_input(model.config, tokenizer))
    if max_length < args.max_seq_length:
        logger.warning(f"max_seq_length {args.max_seq_length} is more than the model takes: using {max_length}")
    args.complete_learning_rate(model_args.is_new)

    # Examples to train on, made while they are read, and those to evaluate on.
    make_examples = PretrainingExamples(
        tokenizer,
        documents.split,
        Masking(tokenizer, args.mlm_probability),
        max_length,
        pairs=args.next_sentence_prediction,
        short_probability=args.short_seq_prob,
        whole_words=args.whole_word_mask,
    )
    stream = partial(Stream, make_examples=make_examples, seed=args.seed, block_size=args.block_documents)
    train = stream(documents.train)
    evaluated = list(stream(documents.validation).first_pass())
    for split, some in (("training", train.first_pass()), ("validation", evaluated)):
        if next(iter(some), None) is None:
            raise ValueError(f"there is no example in the {split} documents: it takes {make_examples.needs}")
    entropy = unigram_entropy(evaluated)
    if not args.max_train_steps:
        logger.info("Counting the examples of an epoch")
        train.size = sum(1 for _ in train.first_pass())
    collate = Padding(tokenizer, multiple_of=1 if accelerator.mixed_precision == "no" else 8)
    eval_loader = accelerator.prepare_data_loader(
        DataLoader(evaluated, batch_size=args.per_device_eval_batch_size, collate_fn=collate)
    )
    is_zoo = model.config.model_type.startswith("tfm_")
    task = Task(
        model,
        tokenizer,
        examples=train,
        collate=collate,
        count=count_parts,
        loss=partial(losses, is_zoo=is_zoo),
        evaluate=lambda model: evaluate_pretraining(accelerator, model, eval_loader, is_zoo),
        shaping={
            "next_sentence_prediction": args.next_sentence_prediction,
            "max_seq_length": max_length,
            "short_seq_prob": args.short_seq_prob,
            "mlm_probability": args.mlm_probability,
            "whole_word_mask": args.whole_word_mask,
            "block_documents": args.block_documents,
            "streaming": documents.is_stream,
            "train_files": data_args.files_identity,
            "training texts": documents.train.identity,
            "validation texts": documents.validation.identity,
            "tokenizer": vocabulary_digest(tokenizer),
        },
    )

    loop = Loop(accelerator, args, task, checkpoint)
    start_trackers(accelerator, Path(__file__).stem, *arguments)
    loop.run()

    results = loop.results()
    if accelerator.is_main_process:
        PretrainingReport(
            args,
            model_args,
            data_args,
            model=loop.best_model(),
            state=loop.state,
            results=results,
            num_processes=accelerator.num_processes,
            documents=documents,
            examples={
                "train": f"{train.size:,} an epoch" if train.size else "not counted",
                "validation": f"{len(evaluated):,}",
            },
            max_length=max_length,
            entropy=entropy,
        ).finish()
    accelerator.end_training()
    return results


if __name__ == "__main__":
    with errors_in_one_line():
        main()
