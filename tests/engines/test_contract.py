"""A serving engine that takes the model by transformers' contract computes what the model does, or says why not.

An engine builds the base model on the meta device, replaces linears, norms, the table of tokens and attention by its
own, and calls the model on one row of all tokens of all sequences, with positions that begin anew for each sequence.
Here stand-ins do so; `.ci/engines` tries the real vLLM.
"""

import ast
import inspect
import operator
import textwrap
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import AttentionInterface, AutoModel

import tfm_zoo
from tfm_zoo.models.layers import TfmAttention, TfmZeroCenteredRMSNorm
from tfm_zoo.models.pretrained import check_shards

from ..official_models import BY_NAME, build_tiny
from ..tiny import tiny_config, tiny_model

#: tensor-parallel styles that every engine knows; the last two are of experts, whose official classes have the same
STYLES = {"colwise", "rowwise", "colwise_gather_output", "rowwise_split_input", "replicated_with_grad_allreduce"}
STYLES |= {"packed_colwise", "moe_tp_experts"}
LENGTHS = (4, 1, 4)  # no longer than the windows of tiny models
IDS = torch.arange(3, 12)[None]
POSITIONS = torch.cat([torch.arange(length) for length in LENGTHS])[None]
MODELS = ("GPT2", "Llama", "Qwen3", "Olmo2", "Gemma3Text", "GPTNeoX", "Phi", "Granite", "Mixtral", "sinusoidal")
MODELS += ("Bert", "Roberta", "NomicBert", "ModernBert", "EuroBert", "Gte", "JinaEmbeddingsV3", "Electra", "Albert")


def base_model(name: str) -> nn.Module:
    if name == "sinusoidal":
        return tiny_model(tfm_zoo.TfmGPTModel, position_embedding_type="sinusoidal", scale_embedding=True)
    return tfm_zoo.from_official(build_tiny(BY_NAME[f"{name}Model"])).eval()


def engine_attention(module, query, key, value, attention_mask, scaling, attention_instances=None, **kwargs):
    """As an engine's: it knows where each sequence ends, takes no mask, and returns `(tokens, heads * head_dim)`."""
    assert attention_mask is None
    assert attention_instances[module.layer_idx] == module.layer_idx, "a caller's keyword argument reaches attention"
    key, value = (states.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for states in (key, value))
    sequences = zip(*(states.split(LENGTHS, dim=2) for states in (query, key, value)), strict=True)
    outputs = [F.scaled_dot_product_attention(*parts, is_causal=module.is_causal, scale=scaling) for parts in sequences]
    return torch.cat(outputs, dim=2)[0].transpose(0, 1).flatten(1), None


for engine in ("an_engine", "vllm"):
    AttentionInterface.register(engine, engine_attention)


class Replaced(nn.Module):
    """An engine's own linear, norm or table, which takes its input by position, and nothing else."""

    def __init__(self, original: nn.Module):
        super().__init__()
        self.original = original
        self.weight = getattr(original, "weight", None)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.original(states)


def replaced(model: nn.Module) -> nn.Module:
    """With an engine's own modules."""
    kinds = (nn.Linear, nn.LayerNorm, type(getattr(model, "norm", None)))
    for path, module in list(model.named_modules()):
        if isinstance(module, kinds) and path and "pooler" not in path:
            model.set_submodule(path, Replaced(module))
    model.set_input_embeddings(Replaced(model.get_input_embeddings()))
    return model


def filled(model: nn.Module) -> nn.Module:
    """Made on the meta device, and given weights later."""
    with torch.device("meta"):
        empty = AutoModel.from_config(model.config, attn_implementation="an_engine", trust_remote_code=True).eval()
    assert all(parameter.is_meta for parameter in empty.parameters())
    buffers = dict(model.named_buffers())
    empty.to_empty(device="cpu").load_state_dict(model.state_dict() | buffers, strict=False)
    for name, buffer in empty.named_buffers():
        buffer.copy_(buffers[name])
    return empty


CHANGED = [(name, replaced) for name in ("GPT2", "Llama", "Roberta")] + [("Llama", filled), ("Bert", filled)]


@torch.no_grad()
@pytest.mark.parametrize(("name", "change"), [*((name, lambda model: model) for name in MODELS), *CHANGED])
def test_one_row_of_several_sequences(name, change):
    """As each of them by itself."""
    model = base_model(name)
    wanted = [model(input_ids=ids).last_hidden_state for ids in IDS.split(LENGTHS, dim=1)]
    model = change(model)
    model.config._attn_implementation = "an_engine"
    options = {"attention_instances": dict(enumerate(range(3))), "use_cache": False, "return_dict": False}
    torch.testing.assert_close(model(input_ids=IDS, position_ids=POSITIONS, **options)[0], torch.cat(wanted, dim=1))


def test_the_attention_call_as_engines_find_it():
    """They read the source of `forward`: the interface's function is bound to a local, and called once."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(TfmAttention.forward)))
    lookups = [
        node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("ALL_ATTENTION_FUNCTIONS.get_interface(")
    ]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) in lookups]
    assert len(lookups) == len(calls) == 1
    (scaling,) = (keyword.value for keyword in calls[0].keywords if keyword.arg == "scaling")
    assert ast.unparse(scaling) == "self.scaling"


def test_a_zero_centred_norm_and_the_scale_of_embeddings_as_engines_find_them():
    """The norm by the last operation before the cast: without a product with `1 + weight` it is plain."""
    *_, product, _, _, _ = torch.fx.symbolic_trace(TfmZeroCenteredRMSNorm(8)).graph.nodes
    assert product.target is operator.mul and (product.args[1].target, product.args[1].args[0]) == (operator.add, 1)
    assert base_model("sinusoidal").get_input_embeddings().embed_scale == 32**0.5
    assert not hasattr(base_model("GPT2").get_input_embeddings(), "embed_scale")


@pytest.mark.parametrize("name", MODELS)
def test_parallel_plans(name):
    model = base_model(name)
    plan = model.config.base_model_tp_plan
    assert model.tp_plan == plan | {"embeddings.embed_tokens": "embedding_rowwise"} and set(plan.values()) <= STYLES
    assert all("o_proj" in path or "down_proj" in path for path, style in plan.items() if style == "rowwise")


def test_key_heads_that_processes_cannot_divide():
    check_shards(tiny_config(num_key_value_heads=2), 2)
    with pytest.raises(ValueError, match=r"num_key_value_heads=2 .*tp_size=4"):
        check_shards(tiny_config(num_key_value_heads=2), 4)


@pytest.mark.parametrize(("family", "window"), [(tfm_zoo.TfmGPTConfig, 6), (tfm_zoo.TfmBertConfig, 7)])
def test_windows_as_engines_read_them(family, window):
    """An engine's window counts the position itself; an encoder's counts those to each side."""
    config = tiny_config(family, sliding_window=6)
    assert config.sliding_window == 6
    config._attn_implementation = "vllm"
    assert config.sliding_window == window


CLASSIFIER, DECODER = tfm_zoo.TfmBertForSequenceClassification, tfm_zoo.TfmGPTModel
EXPERTS = {"mlp_type": "gated", "mlp_bias": False, "num_local_experts": 4}


@pytest.mark.parametrize(
    ("head", "fields", "complaint"),
    [
        # what an engine computes
        (CLASSIFIER, {"classifier_pooling": "cls"}, None),
        *((DECODER, fields, None) for fields in ({"logit_scale": 0.5}, EXPERTS | {"hidden_act": "silu"})),
        # what it would compute otherwise
        (DECODER, {"lm_head_transform": True}, "lm_head_transform=True .* with transformers"),
        (CLASSIFIER, {"classifier_pooling": "mean"}, "='mean': .*seq_pooling_type.*MEAN.*--hf-overrides"),
        (CLASSIFIER, {"classifier_pooling": "attention"}, "='attention': no engine .*serve the model with"),
        (tfm_zoo.TfmBertModel, {"dropped_token_id": 4}, "dropped_token_id=4 scales .* packs .*serve the model with"),
        (DECODER, {"logit_scale": 0.5, "lm_head_bias": True}, "logit_scale=0.5 .*lm_head_bias=True"),
        (DECODER, {"embedding_size": 16, "project_tokens": True}, "embedding_size=16, .* read hidden_size=32"),
        (DECODER, EXPERTS, "hidden_act='gelu_new': .* with transformers"),
    ],
)
def test_what_an_engine_would_not_compute(head, fields, complaint):
    config = tiny_config(head.config_class, **fields)
    config._attn_implementation = "vllm"
    with pytest.raises(ValueError, match=complaint) if complaint else nullcontext():
        head(config)
