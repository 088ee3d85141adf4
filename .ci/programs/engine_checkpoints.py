"""`python engine_checkpoints.py FOLDER`: checkpoints for a serving engine, and what transformers computes.

`FOLDER/expected.json` holds, for each checkpoint, the task and its results for `PROMPTS`. They are compared in the
engine's environment, which lacks `tfm_zoo`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.nn import functional as F
from transformers import PreTrainedModel

import tfm_zoo
from tests.engines.models import INNER, LLAMA, PROMPTS, SIZES, make
from tests.words import SENTENCES, make_tokenizer

NEW_TOKENS = 24
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 6}
GEMMA |= {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
QWEN3_MOE = {"head_dim": 32, "num_experts": 4, "moe_intermediate_size": 64, "mlp_only_layers": [1]}
QWEN3_MOE |= {"num_experts_per_tok": 2, "norm_topk_prob": False}
SINUSOIDAL = {"position_embedding_type": "sinusoidal", "scale_embedding": True}
ROBERTA = INNER | {"pad_token_id": 1}
#: by task, names of checkpoints: the class, and its fields. The first is the control, which stays official
MODELS = {
    "generate": {
        "native_llama": ("LlamaForCausalLM", LLAMA),
        "llama": ("LlamaForCausalLM", LLAMA),
        "gpt2": ("GPT2LMHeadModel", {}),
        "mistral": ("MistralForCausalLM", LLAMA | {"sliding_window": 6}),
        "qwen2": ("Qwen2ForCausalLM", LLAMA),
        "qwen3": ("Qwen3ForCausalLM", LLAMA | {"head_dim": 32}),
        "gemma3": ("Gemma3ForCausalLM", LLAMA | GEMMA),
        "gpt_neox": ("GPTNeoXForCausalLM", INNER),
        "mixtral": ("MixtralForCausalLM", LLAMA | {"num_local_experts": 4}),
        "qwen3_moe": ("Qwen3MoeForCausalLM", LLAMA | QWEN3_MOE),
        "sinusoidal_scaled": ("TfmGPTForCausalLM", INNER | SINUSOIDAL),
        "post_norm": ("TfmGPTForCausalLM", INNER | {"norm_position": "post"}),
    },
    "embed": {
        "bert": ("TfmBertModel", INNER),
        "roberta": ("RobertaModel", ROBERTA),
        "windowed_encoder": ("TfmBertModel", INNER | {"sliding_window": 3}),
        "sentence_transformer": ("TfmBertModel", INNER),
    },
    "classify": {
        "classifier": ("TfmBertForSequenceClassification", INNER | {"num_labels": 3}),
        "roberta_classifier": ("RobertaForSequenceClassification", ROBERTA | {"num_labels": 3}),
        "mean_classifier": (
            "TfmBertForSequenceClassification",
            INNER | {"num_labels": 3, "classifier_pooling": "mean"},
        ),
    },
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
#: what an engine has to be told of a checkpoint
OPTIONS = {
    "mean_classifier": {
        "pooler_config": {"seq_pooling_type": "MEAN"},
        "hf_overrides": {"classifier_pooling": "cls"},  # the engine does it
    }
}
MODULES = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
POOLING = {"word_embedding_dimension": SIZES["hidden_size"], "pooling_mode_mean_tokens": True}


@torch.no_grad()
def compute(model: PreTrainedModel, task: str, name: str, ids: torch.Tensor) -> list:
    if task == "generate":  # greedily, past every end of text
        options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "eos_token_id": None}
        return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :].tolist()
    if task == "classify":
        return model(input_ids=ids).logits[0].softmax(dim=0).tolist()
    states = model(input_ids=ids).last_hidden_state[0]
    # Engines pool the first position, unless the folder says something else.
    return F.normalize(states.mean(dim=0) if name == "sentence_transformer" else states[0], dim=0).tolist()


def save(folder: Path, task: str, name: str) -> dict[str, Any]:
    """Saves a checkpoint with a tokenizer; returns its task with the results."""
    class_name, fields = MODELS[task][name]
    model = make(class_name, **(TOKENS if task == "generate" else {}) | fields)
    if name != "native_llama" and not class_name.startswith("Tfm"):
        model = tfm_zoo.from_official(model).eval()
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    tokenizer.model_max_length = 100
    for saved in (model, tokenizer):
        saved.save_pretrained(folder)
    if name == "sentence_transformer":
        types = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in MODULES.items()]
        modules = [{"idx": index, "name": str(index), **module} for index, module in enumerate(types)]
        (folder / "1_Pooling").mkdir()
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling/config.json").write_text(json.dumps(POOLING))
    results = [compute(model, task, name, torch.tensor([prompt])) for prompt in PROMPTS]
    return {"task": task, "results": results, "options": OPTIONS.get(name, {})}


def main(folder: Path) -> None:
    transformers.logging.disable_progress_bar()
    folder.mkdir(parents=True)
    checkpoints = {name: save(folder / name, task, name) for task, models in MODELS.items() for name in models}
    expected = {"prompts": PROMPTS, "new_tokens": NEW_TOKENS, "text": SENTENCES[0], "checkpoints": checkpoints}
    (folder / "expected.json").write_text(json.dumps(expected), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
