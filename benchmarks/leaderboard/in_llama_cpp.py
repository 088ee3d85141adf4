"""A LLaMA in llama.cpp: written as a GGUF file without a vocabulary, and quantised by llama.cpp itself.

Sequences are decoded one after another: several at once are `llama-server`'s, not the Python package's.
"""

from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from .tasks import Given, Runner

#: names in files of GGUF -> transformers'
LAYERS = {
    **{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"},
    **{"attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj"},
    **{"ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
}


def load(kind: str, given: Given) -> Runner:
    import llama_cpp

    model, _, _, folder = given
    if model.config.model_type != "llama":
        raise ValueError(f"no file of {model.config.model_type} is written here")
    path = folder / f"model-{kind}.gguf"
    if not (folder / "model-F32.gguf").exists():
        write(model, folder / "model-F32.gguf")
    if not path.exists():
        options = llama_cpp.llama_model_quantize_default_params()
        options.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
        if llama_cpp.llama_model_quantize(str(folder / "model-F32.gguf").encode(), str(path).encode(), options):
            raise RuntimeError(f"llama.cpp has not written {path.name}")
    threads = {"n_threads": torch.get_num_threads(), "n_threads_batch": torch.get_num_threads()}
    loaded = llama_cpp.Llama(str(path), n_ctx=256, logits_all=True, verbose=False, **threads)

    return lambda batch: np.array([written(loaded, row, batch["steps"]) for row in batch["input_ids"].tolist()])


def written(loaded, ids: list[int], steps: int) -> np.ndarray | list[int]:
    """The logits of a prompt, or the tokens behind it."""
    loaded.reset()
    loaded.eval(ids)
    if not steps:
        return loaded.scores[: len(ids)].copy()
    tokens = []
    for _ in range(steps):
        tokens.append(int(loaded.scores[loaded.n_tokens - 1].argmax()))
        if len(tokens) < steps:
            loaded.eval(tokens[-1:])
    return tokens


def write(model: PreTrainedModel, path: Path) -> None:
    """Writes a model of float32, without a vocabulary. The channels of rotated heads lie in pairs there, and in halves
    here."""
    import gguf

    config, weights, writer = model.config, model.state_dict(), gguf.GGUFWriter(path, "llama")
    fields = {"context_length": config.max_position_embeddings, "embedding_length": config.hidden_size}
    fields |= {"block_count": config.num_hidden_layers, "feed_forward_length": config.intermediate_size}
    fields |= {"head_count": config.num_attention_heads, "vocab_size": config.vocab_size, "tokenizer_model": "no_vocab"}
    fields |= {"rope_freq_base": config.rope_parameters["rope_theta"], "rope_dimension_count": config.head_dim}
    fields |= {"head_count_kv": config.num_key_value_heads, "layer_norm_rms_eps": config.rms_norm_eps}
    for name, value in (fields | {"file_type": gguf.LlamaFileType.ALL_F32}).items():
        getattr(writer, f"add_{name}")(value)
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    for index in range(config.num_hidden_layers):
        names |= {f"blk.{index}.{ours}": f"model.layers.{index}.{theirs}" for ours, theirs in LAYERS.items()}
    for ours, theirs in names.items():
        weight = weights[f"{theirs}.weight"]
        if ours.endswith(("attn_q", "attn_k")):
            weight = weight.view(-1, 2, config.head_dim // 2, config.hidden_size).transpose(1, 2).reshape(weight.shape)
        writer.add_tensor(f"{ours}.weight", weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
