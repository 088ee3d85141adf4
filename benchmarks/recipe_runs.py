"""Short runs of all recipes that train, some seconds each: what `figures.py` starts in two checkouts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fields import fields_by_name

#: options by run; those of `SHARED` are data sets and a checkpoint
RUNS = fields_by_name("""
SHORT: max_train_steps=12 eval_steps=5 max_eval_samples=50 logging_steps=1
GENERATED: SHORT dataset_name=generated
SMALL: tokenizer_vocab_size=1000
    config_overrides=hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64
classification: GENERATED recipe=finetune_classification max_seq_length=64
classification-imdb: classification config=recipes/configs/imdb.yaml max_train_samples=160
    model_name_or_path=SHARED/checkpoints/all-MiniLM-L6-v2 dataset_name=SHARED/datasets/imdb
classification-by-length: classification group_by_length=True gradient_accumulation_steps=2
classification-frozen: classification max_train_samples=80 freeze=embeddings
classification-mean: classification classifier_pooling=mean
classification-native: classification model_class=native pad_to_max_length=True
classification-bf16: classification mixed_precision=bf16
token-classification: GENERATED recipe=finetune_token_classification
question-answering: GENERATED recipe=finetune_question_answering max_seq_length=48 doc_stride=12
WRITING: SHORT recipe=finetune_causal_lm sample_length=20 block_size=64
    train_file=SHARED/datasets/tiny_shakespeare/input.txt
language-model: WRITING config=recipes/configs/tiny_shakespeare.yaml greater_is_better=True
    config_overrides=n_embd=64,n_layer=2,n_head=2
language-model-streaming: WRITING streaming=True SMALL
pretraining: GENERATED SMALL recipe=pretrain_bert max_seq_length=64
pretraining-streaming: pretraining -dataset_name train_file=SHARED/datasets/tiny_shakespeare/input.txt streaming=True
pretraining-masked-tokens: pretraining next_sentence_prediction=False whole_word_mask=True
denoising: GENERATED SMALL recipe=pretrain_t5 max_seq_length=64
translation: GENERATED recipe=train_translation max_train_samples=2000 num_eval_translations=20
translation-multi30k: translation config=recipes/configs/multi30k.yaml dataset_name=SHARED/datasets/multi30k
    config_overrides=d_model=64,encoder_layers=2,decoder_layers=2,encoder_ffn_dim=128,decoder_ffn_dim=128
    tokenizer_vocab_size=1000 num_beams=1
summarization: GENERATED recipe=finetune_summarization max_train_samples=500 num_eval_summaries=10
comparison: SHORT SMALL recipe=compare_architectures block_size=64
    variants={"base":{},"post-norm":{"norm_position":"post","learning_rate":1e-3}}
""")


@dataclass(frozen=True)
class Run:
    """A recipe and its options."""

    recipe: str
    options: Mapping[str, Any]

    @property
    def missing(self) -> list[Path]:
        """The data that are not at hand."""
        return [value for value in self.options.values() if isinstance(value, Path) and not value.exists()]

    def command(self, output_dir: Path, **options: Any) -> list[str]:
        """The recipe and the words of its command line."""
        options = {**self.options, **options, "output_dir": output_dir}
        told = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in options.items()}
        return [f"recipes/{self.recipe}.py", *(f"--{name}={value}" for name, value in told.items())]


def make_runs(shared: Path) -> dict[str, Run]:
    """The runs by name. `shared` holds data sets and a checkpoint."""

    def found(value: Any) -> Any:
        return shared / value.removeprefix("SHARED/") if str(value).startswith("SHARED/") else value

    return {
        name: Run(fields["recipe"], {key: found(value) for key, value in fields.items() if key != "recipe"})
        for name, fields in RUNS.items()
        if name.islower()
    }
