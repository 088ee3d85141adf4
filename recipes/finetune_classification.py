"""Fine-tune any checkpoint on any text classification data set.

    accelerate launch recipes/finetune_classification.py --config recipes/configs/imdb.yaml
    accelerate launch recipes/finetune_classification.py --model_name_or_path google-bert/bert-base-uncased \\
        --train_file train.csv --validation_file dev.csv --text_column_name review --label_column_name stars
    accelerate launch recipes/finetune_classification.py --dataset_name generated     # no network, no data

An official checkpoint becomes a zoo model. `--help` lists the options; a YAML file given as `--config` sets them too.
The best model goes to `output_dir`, with tokenizer, code, card, `all_results.json` and a picture of the training.
"""

import math
from pathlib import Path
from time import perf_counter

import torch
from accelerate.logging import get_logger
from accelerate.utils import broadcast_object_list, set_seed
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import DataCollatorWithPadding, get_scheduler

from tfm_zoo.training import generated
from tfm_zoo.training.arguments import LoopArguments, parse_arguments
from tfm_zoo.training.batches import GlobalBatchSampler
from tfm_zoo.training.checkpoints import TrainState, load_checkpoint, save_checkpoint
from tfm_zoo.training.classification import evaluate_classifier, load_saved, save_model, train_step
from tfm_zoo.training.classifiers import (
    DEFAULT_MODEL,
    FRESH,
    ModelArguments,
    fresh_classifier,
    load_classifier,
    longest_input,
)
from tfm_zoo.training.freezing import freeze_base_model
from tfm_zoo.training.metrics import classification_metric
from tfm_zoo.training.optimization import create_optimizer
from tfm_zoo.training.reports import write_reports
from tfm_zoo.training.runs import (
    check_resumed,
    open_output_dir,
    push_output_dir,
    start_accelerator,
    tracker_values,
)
from tfm_zoo.training.text_data import TextDataArguments, choose_dataset, load_text_classification

logger = get_logger(__name__)

SHAPING = (
    "seed",
    "group_by_length",
    "learning_rate",
    "lr_scheduler_type",
    "weight_decay",
    "max_grad_norm",
    "freeze_epochs",
    "mixed_precision",
)


def main(argv: list[str] | None = None) -> dict[str, float]:
    model_args, data_args, args = parse_arguments((ModelArguments, TextDataArguments, LoopArguments), argv)
    accelerator = start_accelerator(args)
    output_dir = Path(args.output_dir)
    metric = classification_metric()
    if args.metric_for_best_model not in (figures := ["loss", *metric.names]):
        raise ValueError(f"metric_for_best_model {args.metric_for_best_model!r}: expected one of {figures}")
    checkpoint = open_output_dir(accelerator, args)

    # Data and model. The main process decides and downloads; the others read what it left in the cache.
    asked = data_args.dataset_name
    chosen = [choose_dataset(data_args) if accelerator.is_main_process else None]
    data_args.dataset_name = broadcast_object_list(chosen)[0]
    built_in = data_args.dataset_name == generated.NAME
    if built_in and asked is None:
        logger.warning("No data set was named and the default one cannot be reached: using the built-in GENERATED one")
    model_args.model_name_or_path = model_args.model_name_or_path or (FRESH if built_in else DEFAULT_MODEL)
    is_fresh = model_args.model_name_or_path == FRESH

    with accelerator.main_process_first():
        data = load_text_classification(data_args, args.seed)
        if is_fresh:
            texts = [text for column in data.text_columns for text in data.splits["train"][column]]
            model, tokenizer = fresh_classifier(model_args, data.label_names, texts, data_args.max_seq_length)
        else:
            model, tokenizer = load_classifier(model_args, data.label_names)
        max_length = min(data_args.max_seq_length, longest_input(model.config, tokenizer))
        encoded = data.encode(tokenizer, model.config.label2id, max_length, data_args.preprocessing_num_workers)
    for note in data.notes:
        logger.warning(note)
    if max_length < data_args.max_seq_length:
        logger.warning(f"max_seq_length {data_args.max_seq_length} is more than the model takes: using {max_length}")
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable()

    # Batches: the same global batches in the same order, however many processes share them.
    collate = DataCollatorWithPadding(
        tokenizer,
        padding="max_length" if data_args.pad_to_max_length else True,
        max_length=max_length if data_args.pad_to_max_length else None,
        pad_to_multiple_of=None if accelerator.mixed_precision == "no" else 8,
    )
    lengths = [len(ids) for ids in encoded["train"]["input_ids"]] if args.group_by_length else None
    batches = GlobalBatchSampler(
        len(encoded["train"]),
        args.per_device_train_batch_size,
        accumulation_steps=args.gradient_accumulation_steps,
        num_processes=accelerator.num_processes,
        process_index=accelerator.process_index,
        seed=args.seed,
        lengths=lengths,
    )
    train_loader = DataLoader(
        encoded["train"],
        batch_sampler=batches,
        collate_fn=collate,
        num_workers=args.dataloader_num_workers,
        generator=torch.Generator(),  # its own: starting an epoch must not draw from the generator of dropout
    )
    eval_loaders = {
        split: DataLoader(encoded[split], batch_size=args.per_device_eval_batch_size, collate_fn=collate)
        for split in encoded
        if split != "train"
    }

    # Optimiser and schedule. The schedule counts global batches, so it is not prepared: Accelerate's would count
    # those of every process.
    total_steps, warmup_steps = args.number_of_steps(len(batches))
    if args.learning_rate is None:
        args.learning_rate = 1e-3 if is_fresh else 5e-5
    optimizer = create_optimizer(model, args.learning_rate, args.weight_decay)
    scheduler = get_scheduler(args.lr_scheduler_type, optimizer, warmup_steps, total_steps)
    accelerator.register_for_checkpointing(scheduler)
    model, optimizer, *prepared = accelerator.prepare(model, optimizer, *eval_loaders.values())
    eval_loaders = dict(zip(eval_loaders, prepared, strict=True))
    set_seed(args.seed, device_specific=True)  # each process has its own dropout

    run = {  # what decides which steps are taken: a resumed run must have it in common with the one it continues
        "train_examples": batches.size,
        "global_batch_size": batches.global_batch_size,
        "num_processes": accelerator.num_processes,
        "total_steps": total_steps,
        "warmup_steps": warmup_steps,
        "max_seq_length": max_length,
        **{name: getattr(args, name) for name in SHAPING},
    }
    state = TrainState(run=run)
    if checkpoint:
        state = load_checkpoint(accelerator, checkpoint)
        check_resumed(state, run)
        logger.info(f"Going on from {checkpoint}, step {state.step} of {total_steps}")
    if accelerator.log_with:
        accelerator.init_trackers(Path(__file__).stem, config=tracker_values(model_args, data_args, args))
    logger.info(
        f"{type(accelerator.unwrap_model(model)).__name__}: {batches.size} examples, {total_steps} steps of"
        f" {batches.global_batch_size}, on {accelerator.num_processes} process(es)"
    )

    progress = tqdm(total=total_steps, initial=state.step, disable=None if accelerator.is_main_process else True)
    window_loss = torch.tensor(state.window_loss, device=accelerator.device)
    clock = perf_counter()

    def is_finished() -> bool:
        patience = args.early_stopping_patience
        return state.step >= total_steps or bool(patience and state.evaluations_without_gain >= patience)

    def log(values: dict[str, float]) -> None:
        state.log_history.append({"step": state.step, "epoch": round(state.step / len(batches), 4), **values})
        accelerator.log(values, step=state.step)

    model.train()
    while not is_finished():
        if args.freeze_epochs:
            freeze_base_model(accelerator.unwrap_model(model), state.epoch < args.freeze_epochs)
        batches.set_position(state.epoch, state.step_in_epoch)
        for micro_batches in batches.steps(train_loader):
            loss, grad_norm = train_step(accelerator, model, optimizer, scheduler, micro_batches, args.max_grad_norm)
            window_loss += loss
            state.train_examples += batches.examples(state.step_in_epoch)
            state.step += 1
            state.step_in_epoch += 1
            end_of_epoch = state.step_in_epoch == len(batches)
            if end_of_epoch:
                state.epoch, state.step_in_epoch = state.epoch + 1, 0
            progress.update()

            if state.step % args.logging_steps == 0 or state.step == total_steps:
                state.loss_sum += window_loss.item()
                mean = window_loss.item() / (state.step % args.logging_steps or args.logging_steps)
                if not math.isfinite(mean):
                    raise FloatingPointError(f"the loss is {mean} at step {state.step}: try a lower learning_rate")
                log({"loss": mean, "learning_rate": scheduler.get_last_lr()[0], "grad_norm": float(grad_norm)})
                progress.set_postfix(loss=f"{mean:.4f}")
                window_loss.zero_()
            state.train_seconds += perf_counter() - clock

            if end_of_epoch or state.step == total_steps or (args.eval_steps and state.step % args.eval_steps == 0):
                figures = evaluate_classifier(accelerator, model, eval_loaders["validation"], metric)
                log({f"eval_{name}": value for name, value in figures.items()})
                logger.info(
                    f"step {state.step}: " + ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
                )
                if state.is_best(figures[args.metric_for_best_model], args.greater_is_better):
                    save_model(accelerator, model, tokenizer, output_dir)
            if args.is_checkpoint_due(state.step, end_of_epoch):
                state.window_loss = window_loss.item()
                save_checkpoint(accelerator, state, output_dir, keep=args.save_total_limit)
            clock = perf_counter()
            if is_finished():
                break
    progress.close()
    state.loss_sum += window_loss.item()

    # The figures are those of the folder: what was saved is loaded again and tested.
    best = load_saved(accelerator, model, output_dir)
    results = summarise(state)
    if "test" in eval_loaders:
        figures = evaluate_classifier(accelerator, best, eval_loaders["test"], metric)
        results |= {f"test_{name}": value for name, value in figures.items()}
    accelerator.log({name: value for name, value in results.items() if name.startswith("test_")}, step=state.step)
    if accelerator.is_main_process:
        arguments = model_args, data_args, args
        if not write_reports(output_dir, results, state, best, data, *arguments, accelerator.num_processes):
            logger.warning(f"{output_dir}/README.md was not written by this recipe: it is left as it is")
        if args.push_to_hub:
            logger.info(f"Pushed to {push_output_dir(args)}")
        logger.info(", ".join(f"{name} {value:.4g}" for name, value in results.items()))
        logger.info(f"The best model is in {output_dir}")
    accelerator.end_training()
    return results


def summarise(state: TrainState) -> dict[str, float]:
    """The figures of a run: of its training, and of the best model on the validation split."""
    best = next(e for e in state.log_history if e["step"] == state.best_step and "eval_loss" in e)
    return {
        "best_step": state.best_step,
        "train_steps": state.step,
        "train_loss": state.loss_sum / state.step,
        "train_runtime": state.train_seconds,
        "train_samples_per_second": state.train_examples / state.train_seconds,
        **{name: value for name, value in best.items() if name.startswith("eval_")},
    }


if __name__ == "__main__":
    main()
