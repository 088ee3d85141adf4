"""Short runs of all recipes that train, some seconds each: what `figures.py` starts in two checkouts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS, KILLED = 12, 7  # of a run, and the one after which it is killed: in mid-epoch, between two evaluations
SHORT = {"max_train_steps": STEPS, "eval_steps": 5, "max_eval_samples": 50, "logging_steps": 1}
GENERATED = SHORT | {"dataset_name": "generated"}
SMALL = {
    "config_overrides": "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64",
    "tokenizer_vocab_size": 1000,
}
MARIAN = "d_model=64,encoder_layers=2,decoder_layers=2,encoder_ffn_dim=128,decoder_ffn_dim=128"
VARIANTS = {"base": {}, "post-norm": {"norm_position": "post", "learning_rate": 1e-3}}


@dataclass(frozen=True)
class Run:
    """A recipe and its options."""

    recipe: str
    options: Mapping[str, Any]

    @property
    def variants(self) -> list[str]:
        """Those of a comparison of architectures, which has no checkpoints."""
        return [*json.loads(self.options.get("variants", "{}"))]

    @property
    def kept(self) -> Path:
        """What is there when the run is killed: its checkpoint or, of a comparison, the first variant."""
        return Path("variants", self.variants[0]) if self.variants else Path(f"checkpoint-{KILLED}")

    @property
    def missing(self) -> list[Path]:
        """The data that are not at hand."""
        return [value for value in self.options.values() if isinstance(value, Path) and not value.exists()]

    @property
    def script(self) -> str:
        return f"recipes/{self.recipe}.py"

    def command(self, output_dir: Path, **options: Any) -> list[str]:
        """The recipe and the words of its command line; it saves checkpoints, if it can."""
        saved = {} if self.variants else {"checkpointing_steps": KILLED}
        options = {**self.options, **saved, **options, "output_dir": output_dir}
        words = (f"--{name}={value}" for name, value in options.items() if value is not None)
        return [self.script, *words]


def make_runs(shared: Path) -> dict[str, Run]:
    """The runs by name. `shared` holds data sets and a checkpoint."""
    shakespeare = shared / "datasets/tiny_shakespeare/input.txt"

    def classifier(**options: Any) -> Run:
        return Run("finetune_classification", GENERATED | {"max_seq_length": 64} | options)

    def language_model(**options: Any) -> Run:
        return Run("finetune_causal_lm", SHORT | {"sample_length": 20, "block_size": 64} | options)

    def encoder(**options: Any) -> Run:
        return Run("pretrain_bert", GENERATED | SMALL | {"max_seq_length": 64} | options)

    def translator(**options: Any) -> Run:
        return Run("train_translation", GENERATED | {"max_train_samples": 2000, "num_eval_translations": 20} | options)

    return {
        "classification-imdb": classifier(
            config="recipes/configs/imdb.yaml",
            model_name_or_path=shared / "checkpoints/all-MiniLM-L6-v2",
            dataset_name=shared / "datasets/imdb",
            max_train_samples=160,
        ),
        "classification": classifier(),
        "classification-by-length": classifier(
            group_by_length=True, gradient_accumulation_steps=2, layerwise_lr_decay=0.8
        ),
        "classification-frozen": classifier(
            max_train_samples=80, freeze_epochs=1, frozen_learning_rate=0.01, freeze="embeddings"
        ),
        "classification-mean": classifier(classifier_pooling="mean"),
        "classification-native": classifier(model_class="native", pad_to_max_length=True),
        "classification-bf16": classifier(mixed_precision="bf16"),
        "token-classification": Run("finetune_token_classification", GENERATED),
        "question-answering": Run("finetune_question_answering", GENERATED | {"max_seq_length": 48, "doc_stride": 12}),
        "language-model": language_model(
            config="recipes/configs/tiny_shakespeare.yaml",
            train_file=shakespeare,
            config_overrides="n_embd=64,n_layer=2,n_head=2",
            greater_is_better=True,  # of the losses: the best model is the first, which is there when the run is killed
        ),
        "language-model-streaming": language_model(train_file=shakespeare, streaming=True, **SMALL),
        "pretraining": encoder(),
        "pretraining-streaming": encoder(dataset_name=None, train_file=shakespeare, streaming=True),
        "pretraining-masked-tokens": encoder(next_sentence_prediction=False, whole_word_mask=True),
        "denoising": Run("pretrain_t5", GENERATED | SMALL | {"max_seq_length": 64}),
        "translation-multi30k": translator(
            config="recipes/configs/multi30k.yaml",
            dataset_name=shared / "datasets/multi30k",
            config_overrides=MARIAN,
            tokenizer_vocab_size=1000,
            num_beams=1,
        ),
        "translation": translator(),
        "summarization": Run(
            "finetune_summarization", GENERATED | {"max_train_samples": 500, "num_eval_summaries": 10}
        ),
        "comparison": Run(
            "compare_architectures", SHORT | SMALL | {"block_size": 64, "variants": json.dumps(VARIANTS)}
        ),
    }
