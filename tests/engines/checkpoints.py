"""`python -m tests.engines.checkpoints FOLDER`: checkpoints for a serving engine, and what transformers computes.

`FOLDER/expected.json` holds, for each checkpoint, the task and its results for `PROMPTS`. They are compared in the
engine's environment, which lacks `tfm_zoo`.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers
import typer
from torch.nn import functional as F
from transformers import PreTrainedModel

import tfm_zoo

from ..words import SENTENCES, make_tokenizer

#: ids of a prompt; one is longer than the windows below
PROMPTS = [[5, 9, 12], [7, 8, 20, 11, 22, 19, 9, 10, 11, 5, 6, 7, 8], [20, 6, 14, 9, 25, 7]]
NEW_TOKENS = 24
MINILM = Path(__file__).parents[3] / "shared" / "checkpoints" / "all-MiniLM-L6-v2"
CHAT = "{% for message in messages %}{{ message.content }} {% endfor %}"
VOCABULARY = len(make_tokenizer())
#: kernels of engines want heads of at least 32 channels; weights this large make logits that differ
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "initializer_range": 0.15,
}
INNER = {"intermediate_size": 256}
LLAMA = INNER | {"num_key_value_heads": 2}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 6, "layer_types": MIXED}
QWEN3_MOE = {"head_dim": 32, "num_experts": 4, "moe_intermediate_size": 64, "mlp_only_layers": [1]}
QWEN3_MOE |= {"num_experts_per_tok": 2, "norm_topk_prob": False}
TOKENS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}


def official(name: str, **fields: Any) -> PreTrainedModel:
    """An official model of random weights, by the name of its class."""
    model_class = getattr(transformers, name)
    return model_class(model_class.config_class(**SIZES | fields))


def converted(name: str, **fields: Any) -> PreTrainedModel:
    return tfm_zoo.from_official(official(name, **fields))


def zoo(name: str, **fields: Any) -> PreTrainedModel:
    model_class = getattr(tfm_zoo, name)
    return model_class(model_class.config_class(**SIZES | INNER | fields))


def minilm() -> PreTrainedModel:
    return tfm_zoo.from_official(MINILM)


#: name of a folder -> the model in it; the first is the control
GENERATE: dict[str, Callable[[], PreTrainedModel]] = {
    "native_llama": lambda: official("LlamaForCausalLM", **LLAMA, **TOKENS),
    "llama": lambda: converted("LlamaForCausalLM", **LLAMA, **TOKENS),
    "gpt2": lambda: converted("GPT2LMHeadModel", **TOKENS),
    "mistral": lambda: converted("MistralForCausalLM", **LLAMA, **TOKENS, sliding_window=6),
    "qwen2": lambda: converted("Qwen2ForCausalLM", **LLAMA, **TOKENS),
    "qwen3": lambda: converted("Qwen3ForCausalLM", **LLAMA, **TOKENS, head_dim=32),
    "gemma3": lambda: converted("Gemma3ForCausalLM", **LLAMA, **TOKENS, **GEMMA),
    "gpt_neox": lambda: converted("GPTNeoXForCausalLM", **INNER, **TOKENS),
    "mixtral": lambda: converted("MixtralForCausalLM", **LLAMA, **TOKENS, num_local_experts=4),
    "qwen3_moe": lambda: converted("Qwen3MoeForCausalLM", **LLAMA, **TOKENS, **QWEN3_MOE),
    "sinusoidal_scaled": lambda: zoo(
        "TfmGPTForCausalLM", **TOKENS, position_embedding_type="sinusoidal", scale_embedding=True
    ),
    "post_norm": lambda: zoo("TfmGPTForCausalLM", **TOKENS, norm_position="post"),
}
EMBED: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": lambda: zoo("TfmBertModel"),
    "roberta": lambda: converted("RobertaModel", **INNER, pad_token_id=1),
    "windowed_encoder": lambda: zoo("TfmBertModel", sliding_window=3),
    "minilm": minilm,
}
CLASSIFY: dict[str, Callable[[], PreTrainedModel]] = {
    "classifier": lambda: zoo("TfmBertForSequenceClassification", num_labels=3),
    "roberta_classifier": lambda: converted("RobertaForSequenceClassification", **INNER, pad_token_id=1, num_labels=3),
    "mean_classifier": lambda: zoo("TfmBertForSequenceClassification", num_labels=3, classifier_pooling="mean"),
}
#: what an engine has to be told of a checkpoint
OPTIONS = {
    "mean_classifier": {
        "pooler_config": {"seq_pooling_type": "MEAN"},
        "hf_overrides": {"classifier_pooling": "cls"},  # the engine does it
    }
}


@torch.no_grad()
def generated(model: PreTrainedModel, ids: torch.Tensor) -> list[int]:
    """Greedy, past every end of text."""
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "eos_token_id": None}
    return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :].tolist()


@torch.no_grad()
def embedded(model: PreTrainedModel, ids: torch.Tensor) -> list[float]:
    """The first position, as engines pool by default; of MiniLM the mean, as its folder says."""
    states = model(input_ids=ids).last_hidden_state[0]
    pooled = states.mean(dim=0) if model.config.hidden_size != SIZES["hidden_size"] else states[0]
    return F.normalize(pooled, dim=0).tolist()


@torch.no_grad()
def classified(model: PreTrainedModel, ids: torch.Tensor) -> list[float]:
    return model(input_ids=ids).logits[0].softmax(dim=0).tolist()


TASKS = {"generate": (GENERATE, generated), "embed": (EMBED, embedded), "classify": (CLASSIFY, classified)}


def save_all(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Saves every checkpoint with a tokenizer; yields its name, and its task with the results."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template, tokenizer.model_max_length = CHAT, 100
    for task, (models, compute) in TASKS.items():
        for name, make in models.items():
            if make is minilm and not MINILM.exists():
                print(f"{name} is left out: {MINILM} is not there")
                continue
            torch.manual_seed(0)
            model = make().eval()
            if make is minilm:
                # Its tokenizer, and how sentences are pooled.
                ignored = shutil.ignore_patterns("*.safetensors", "*.bin", "onnx", "openvino")
                shutil.copytree(MINILM, folder / name, ignore=ignored)
            model.save_pretrained(folder / name)
            if make is not minilm:
                tokenizer.save_pretrained(folder / name)
            results = [compute(model, torch.tensor([prompt])) for prompt in PROMPTS]
            yield name, {"task": task, "results": results, "options": OPTIONS.get(name, {})}


def main(folder: Annotated[Path, typer.Argument(help="A new folder.")]) -> None:
    """Makes checkpoints for a serving engine, and writes down what transformers computes."""
    transformers.logging.disable_progress_bar()
    folder.mkdir(parents=True)
    expected = {
        "prompts": PROMPTS,
        "new_tokens": NEW_TOKENS,
        "text": SENTENCES[0],
        "checkpoints": dict(save_all(folder)),
    }
    (folder / "expected.json").write_text(json.dumps(expected), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
