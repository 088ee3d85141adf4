"""What the zoo is for, in one to two minutes and without network: `make demo`, or

    python recipes/demo.py --output_dir runs/demo

An official model becomes a zoo model, both are fine-tuned on the same batches, and the zoo model is saved, loaded where
there is no `tfm_zoo`, verified, looked at, and turned back. The model is new and the reviews are generated; with
`--model_name_or_path google-bert/bert-base-uncased` it is a real one, and takes longer.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

# first: it quietens what transformers imports
import tfm_zoo

# isort: split
import torch
from matplotlib.figure import Figure
from rich.console import Console
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    get_scheduler,
)

from tfm_zoo.data.built_in_data import LABELS, generated_reviews
from tfm_zoo.hub.cards import facts_of_zoo_model, write_card
from tfm_zoo.hub.model_card import metadata_of
from tfm_zoo.proof.manifest import complete_manifest
from tfm_zoo.training.tokenizers import learned_word_piece
from tfm_zoo.utils import quiet
from tfm_zoo.visualization import attention_maps, attention_page
from tfm_zoo.visualization.figures import LINES, plain, save, title_of_source

SIZES = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 1024}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
REVIEWS = ["the plot was clever . the music was not dull .", "the ending was tedious and the music was not clever ."]
#: runs a script in a process that cannot import tfm_zoo
WITHOUT_ZOO = (
    "import os, runpy, sys; sys.modules['tfm_zoo'] = None; script = sys.argv.pop(1);"
    " sys.path.insert(0, os.path.dirname(script)); runpy.run_path(script, run_name='__main__')"
)
CARD = """
# The classifier of `make demo`

`{{ class_name }}`, fine-tuned by `recipes/demo.py` on generated film reviews: it shows what the zoo does, and is of no
other use.

{% include usage %}

{% include about %}
"""
PREDICT = Path(__file__).with_name("predict.py")
Batch = dict[str, torch.Tensor]


class Training:
    """A model, and what its fine-tuning gave so far."""

    def __init__(self, model: PreTrainedModel, learning_rate: float, steps: int, precision: torch.dtype | None):
        self.model, self.precision = model.train(), precision
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
        self.scheduler = get_scheduler("linear", self.optimizer, num_warmup_steps=steps // 10, num_training_steps=steps)
        self.losses: list[float] = []
        self.seconds = [0.0]  # after each step

    def step(self, batch: Batch) -> None:
        start = perf_counter()
        with torch.autocast(self.model.device.type, self.precision, enabled=self.precision is not None):
            loss = self.model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.item())
        self.seconds.append(self.seconds[-1] + perf_counter() - start)

    @torch.no_grad()
    def accuracy(self, batches: Sequence[Batch]) -> float:
        self.model.eval()
        hits = [self.model(**batch).logits.argmax(dim=-1) == batch["labels"] for batch in batches]
        return torch.cat(hits).float().mean().item()


def official_model(name: str | None, texts: Sequence[str]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A checkpoint, or a small new BERT with a vocabulary made from the texts."""
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {name: index for index, name in enumerate(LABELS)}}
    if name is not None:
        model = AutoModelForSequenceClassification.from_pretrained(name, dtype=torch.float32, **labels)
        return model, AutoTokenizer.from_pretrained(name)
    tokenizer = learned_word_piece(texts, vocab_size=2000)
    config = BertConfig(vocab_size=len(tokenizer), **SIZES, **NO_DROPOUT, **labels)
    return AutoModelForSequenceClassification.from_config(config), tokenizer


def largest_difference(one: PreTrainedModel, other: PreTrainedModel, batch: Batch) -> float:
    """The largest difference between the logits of two models."""
    with torch.no_grad():
        return (one.eval()(**batch).logits - other.eval()(**batch).logits).abs().max().item()


def is_busy() -> bool:
    """Whether more is computed on this machine than this process does, as far as the system tells."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > torch.get_num_threads() + 1


def plot(trainings: dict[str, Training], path: Path) -> None:
    """The losses by step, where those of both lie on each other, and by time; each is the mean of twenty steps."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    by_step, by_time = figure.subplots(1, 2, sharey=True)
    for (name, training), color, width in zip(trainings.items(), LINES, (6, 1.5), strict=False):
        windows = (training.losses[max(0, step - 19) : step + 1] for step in range(len(training.losses)))
        losses, end = [sum(window) / len(window) for window in windows], training.seconds[-1]
        style = {"color": color, "linewidth": width, "label": f"{name}, the {'wide' if width > 2 else 'thin'} line"}
        by_step.plot(range(1, len(losses) + 1), losses, **style)
        by_time.plot(training.seconds[1:], losses, color=color, linewidth=2, label=f"{name}, {end:.0f} s")
    by_step.set(
        xlabel="step", ylabel="training loss, mean of twenty steps", title="Step by step, the losses are the same"
    )
    official, zoo = (training.seconds[-1] for training in trainings.values())
    by_time.set(xlabel="seconds", title=f"The zoo took {zoo / official:.0%} of the official class's time")
    for panel in (by_step, by_time):
        plain(panel)
        panel.legend(frameon=False)
        panel.set_xlim(left=0)
    save(figure, path)


def from_here(path: str | Path) -> Path:
    """The path as a user would type it."""
    path, here = Path(path), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def in_a_fresh_process(*command: str | Path) -> str:
    """What a Python program prints."""
    result = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stdout + result.stderr)
    return result.stdout.rstrip()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Show what the zoo is for.")
    parser.add_argument("--model_name_or_path", help="an official encoder; default: a small new BERT")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/demo"))
    parser.add_argument("--max_train_steps", type=int, default=160)
    parser.add_argument("--per_device_train_batch_size", type=int, default=16)
    parser.add_argument("--learning_rate", type=float, help="default: 5e-4, or 5e-5 for a checkpoint")
    parser.add_argument(
        "--mixed_precision", choices=["no", "bf16"], default="no", help="bf16: faster, if the CPU has it"
    )
    args = parser.parse_args(argv)
    quiet.silence_progress_bars()
    quiet.silence_deepspeed()
    screen = Console(highlight=False, soft_wrap=True)
    say = screen.print

    def begin(stage: str) -> None:
        """Say in a log what takes a while; the longest stage has a bar besides."""
        if not screen.is_terminal:
            print(f"{stage} ...", flush=True)

    torch.manual_seed(0)

    begin("Making a model and reviews")
    reviews = generated_reviews()
    official, tokenizer = official_model(args.model_name_or_path, reviews["train"]["text"])
    reviews = reviews.map(lambda rows: tokenizer(rows["text"]), batched=True, remove_columns="text")
    options = {"batch_size": args.per_device_train_batch_size, "collate_fn": DataCollatorWithPadding(tokenizer)}
    loader, test = DataLoader(reviews["train"], shuffle=True, **options), [*DataLoader(reviews["test"], **options)]
    passes = -(-args.max_train_steps // len(loader))
    batches = [batch for _ in range(passes) for batch in loader][: args.max_train_steps]

    zoo = tfm_zoo.from_official(official)
    difference = largest_difference(official, zoo, test[0])
    say(
        f"[bold]1.[/] tfm_zoo.from_official made a {type(zoo).__name__} of a {type(official).__name__}: on a padded "
        f"batch their logits differ by {difference:.0e}."
    )
    rate = args.learning_rate or (5e-5 if args.model_name_or_path else 5e-4)
    precision = torch.bfloat16 if args.mixed_precision == "bf16" else None
    models = {"official": official, "zoo": zoo}
    trainings = {name: Training(model, rate, len(batches), precision) for name, model in models.items()}
    begin(f"Fine-tuning both, in turn, for {len(batches)} steps")
    every = 0.1 if screen.is_terminal else 5  # seconds between two states of the bar, each of them a line in a log
    for batch in tqdm(batches, "Fine-tuning both, in turn", leave=False, mininterval=every, maxinterval=every):
        for training in trainings.values():
            training.step(batch)
    padding = 1 - sum(batch["attention_mask"].float().mean().item() for batch in batches) / len(batches)
    speeds = [sum(len(batch["labels"]) for batch in batches) / each.seconds[-1] for each in trainings.values()]
    others = " (other programs were computing, too: on a quiet machine it is more)" if is_busy() else ""
    accuracies = [training.accuracy(test) for training in trainings.values()]
    say(
        f"[bold]2.[/] Both learned from the same {len(batches)} batches of film reviews ({padding:.0%} is padding). "
        f"The official class read {speeds[0]:.0f} reviews a second, the zoo {speeds[1]:.0f}, "
        f"{speeds[1] / speeds[0]:.1f} times as many{others}. Accuracy on other reviews: "
        f"{accuracies[0]:.1%} and {accuracies[1]:.1%}."
    )
    begin("Saving the zoo model, and loading it in a fresh process")
    folder = args.output_dir
    zoo.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    complete_manifest(folder)  # which a model writes when it is saved: with the tokenizer
    zoo.name_or_path = str(folder)  # which the page of attention names
    write_card(folder, CARD, metadata_of(zoo), title_of_source(folder), **facts_of_zoo_model(zoo))
    say(
        f"[bold]3.[/] {folder} holds weights, code and card. A process that cannot import tfm_zoo loads it, and "
        "predicts (* marks the likelier label):"
    )
    say(in_a_fresh_process("-c", WITHOUT_ZOO, PREDICT, folder, *REVIEWS))
    say("[bold]4.[/] tfm-zoo verify asks whether it still computes what it did when it was saved:")
    begin("Verifying")
    say(in_a_fresh_process("-m", "tfm_zoo", "verify", str(folder)))
    begin("Turning it back, and drawing")
    back = tfm_zoo.to_official(zoo)
    say(
        f"[bold]5.[/] tfm_zoo.to_official made a {type(back).__name__} of it again: its logits differ by "
        f"{largest_difference(zoo, back, test[0]):.0e}."
    )
    curves, page = folder / "training.png", folder / "attention.html"
    plot(trainings, curves)
    attention_page(attention_maps(zoo, tokenizer, REVIEWS[1]), page)
    say(f"[bold]6.[/] See the curves in {curves}, and which tokens attend to which in {page}.")
    say(f'Next: {from_here(sys.executable)} {from_here(PREDICT)} {folder} "the film was clever ."')


if __name__ == "__main__":
    main()
