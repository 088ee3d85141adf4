"""Train variants of a decoder under one budget, on the same data and with the same seed: one table, one picture.

    accelerate launch recipes/compare_architectures.py                               # no network, no data
    accelerate launch recipes/compare_architectures.py --config recipes/configs/post_or_pre_norm.yaml
    accelerate launch recipes/compare_architectures.py --train_file book.txt --max_train_steps 1000 \\
        --variants '{softmax: {}, linear: {attention_type: linear, learning_rate: 2e-3}}'

A variant is a name and the fields that it changes in the configuration that all share (`config_overrides`). Without
`--config` the variants are those of recipes/configs/architectures.yaml, one for each axis. `--help` lists the options.

`output_dir` gets `comparison.md` (the table), `comparison.png` and `comparison.json`, written anew after each variant,
and for each variant a folder with its configuration and history. A variant whose result is there already, with the same
settings, is not trained again: the same command continues where it was stopped, and with more variants it trains only
the new ones. Where a step is computed: `train_step` in tfm_zoo/training/loop.py.
"""

from pathlib import Path

from tfm_zoo.training.arguments import parse_arguments
from tfm_zoo.training.runs import Run, run_script, start_accelerator

from tfm_zoo.training.comparison.model import VariantArguments, make_variants, without
from tfm_zoo.training.comparison.report import Result
from tfm_zoo.training.comparison.task import Comparison, ComparisonArguments
from tfm_zoo.training.language_modeling.conversations import Conversations
from tfm_zoo.training.language_modeling.data import CorpusArguments, load_corpus
from tfm_zoo.training.models import new_tokenizer

DEFAULT = Path(__file__).parent / "configs" / "architectures.yaml"


def prepare(argv: list[str] | None = None) -> Comparison:
    """Read options and data, and check every variant: all that a user can get wrong."""
    classes = (VariantArguments, without(CorpusArguments, "streaming"), ComparisonArguments)
    model_args, data_args, args = parse_arguments(classes, argv, DEFAULT)
    accelerator = start_accelerator(args)
    data_args, args = data_args.resolved(), args.resolved(is_new=True)
    run = Run("compare_architectures", accelerator, model_args, data_args, args)
    with accelerator.main_process_first():  # it downloads; the others read what it left in the cache
        corpus = load_corpus(data_args)
        if isinstance(corpus, Conversations):
            raise ValueError("the data hold conversations, and variants learn running text: give a text_column_name")
        tokenizer = new_tokenizer(model_args, corpus.texts())
        tokens = corpus.encode(tokenizer, data_args)
    variants = make_variants(model_args, args, tokenizer, data_args.block_size)
    return Comparison(run, variants, tokenizer, tokens, corpus.notes)


def main(argv: list[str] | None = None) -> list[Result]:
    return prepare(argv).compare()


if __name__ == "__main__":
    run_script(prepare, Comparison.compare)
