"""What a serving engine takes a model by, with stand-ins for the engine. `.ci/engines` tries the real one.

An engine builds the base model on the meta device, replaces linears, norms, the table of tokens and attention by its
own, and calls the model on one row of all tokens of all sequences, with positions that begin anew for each sequence.
"""

import ast
import inspect
import operator
import textwrap

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import AttentionInterface, AutoModel, RobertaConfig, RobertaModel

import tfm_zoo
from tfm_zoo.models.layers import TfmAttention
from tfm_zoo.models.norms import TfmZeroCenteredRMSNorm
from tfm_zoo.models.pretrained import check_shards

from ..tiny import NO_DROPOUT, tiny_config, tiny_model

#: tensor-parallel styles that every engine knows
STYLES = {"colwise", "rowwise", "colwise_rep", "rowwise_rep", "replicate", "replicated_with_grad_allreduce"}
STYLES |= {"colwise_gather_output", "rowwise_split_input"}
STYLES |= {"packed_colwise", "moe_tp_experts"}  # of experts, whose official classes have the same
LENGTHS = (5, 1, 3)
IDS = torch.arange(3, 12)[None]
POSITIONS = torch.cat([torch.arange(length) for length in LENGTHS])[None]
PARTIAL = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
BY_KIND = {"full_attention": PARTIAL, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
MODELS = {
    "gpt2": (tfm_zoo.TfmGPTModel, {"norm_position": "pre"}),
    "llama": (
        tfm_zoo.TfmGPTModel,
        {"position_embedding_type": "rotary", "norm_type": "rmsnorm", "mlp_type": "gated", "num_key_value_heads": 2},
    ),
    "qwen3": (
        tfm_zoo.TfmGPTModel,
        {"position_embedding_type": "rotary", "norm_type": "rmsnorm", "num_key_value_heads": 2, "qk_norm": "head"},
    ),
    "olmo2": (
        tfm_zoo.TfmGPTModel,
        {"position_embedding_type": "rotary", "norm_position": "output", "qk_norm": "whole", "num_key_value_heads": 2},
    ),
    "gemma3": (
        tfm_zoo.TfmGPTModel,
        {
            "norm_position": "both",
            "norm_type": "zero_centered_rmsnorm",
            "qk_norm": "head",
            "scale_embedding": True,
            "attention_scale": 0.3,
            "position_embedding_type": "rotary",
            "layer_types": ["full_attention", "sliding_attention"],
            "sliding_window": 20,
            "rope_parameters": BY_KIND,
        },
    ),
    "neox": (
        tfm_zoo.TfmGPTModel,
        {"position_embedding_type": "rotary", "use_parallel_residual": True, "rope_parameters": PARTIAL},
    ),
    "phi": (tfm_zoo.TfmGPTModel, {"use_parallel_residual": True, "num_ln_in_parallel_attn": 1}),
    "granite": (
        tfm_zoo.TfmGPTModel,
        {
            "position_embedding_type": "rotary",
            "no_rope_layers": [1, 0],
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "attention_scale": 0.2,
        },
    ),
    "mixtral": (tfm_zoo.TfmGPTModel, {"mlp_type": "gated", "mlp_bias": False, "num_local_experts": 4}),
    "sinusoidal": (tfm_zoo.TfmGPTModel, {"position_embedding_type": "sinusoidal", "scale_embedding": True}),
    "bert": (tfm_zoo.TfmBertModel, {}),
    "roberta": (tfm_zoo.TfmBertModel, {"position_ids_from_padding": True, "pad_token_id": 1}),
    "nomic_bert": (
        tfm_zoo.TfmBertModel,
        {"position_embedding_type": "rotary", "mlp_type": "gated", "attention_bias": False, "mlp_bias": False},
    ),
    "modernbert": (
        tfm_zoo.TfmBertModel,
        {
            "norm_position": "pre",
            "norm_bias": False,
            "first_norm": False,
            "position_embedding_type": "rotary",
            "layer_types": ["full_attention", "sliding_attention"],
            "sliding_window": 20,
            "rope_parameters": BY_KIND,
        },
    ),
    "eurobert": (
        tfm_zoo.TfmBertModel,
        {
            "norm_position": "pre",
            "norm_type": "rmsnorm",
            "embedding_norm": False,
            "position_embedding_type": "rotary",
            "mlp_type": "gated",
            "num_key_value_heads": 2,
        },
    ),
    "gte": (
        tfm_zoo.TfmBertModel,
        {"position_embedding_type": "rotary", "mlp_type": "gated", "mlp_bias": False, "mlp_output_bias": True},
    ),
    "jina_embeddings_v3": (tfm_zoo.TfmBertModel, {"position_embedding_type": "rotary"}),
    "xlm_roberta_xl": (
        tfm_zoo.TfmBertModel,
        {"norm_position": "pre", "embedding_norm": False, "position_ids_from_padding": True, "pad_token_id": 1},
    ),
    "electra": (tfm_zoo.TfmBertModel, {"embedding_size": 16, "add_pooling_layer": False}),
    "albert": (tfm_zoo.TfmBertModel, {"embedding_size": 16, "num_hidden_groups": 1}),
}


def engine_attention(module, query, key, value, attention_mask, scaling, attention_instances=None, **kwargs):
    """As an engine's: it knows where each sequence ends, takes no mask, and returns `(tokens, heads * head_dim)`."""
    assert attention_mask is None
    assert attention_instances[module.layer_idx] == module.layer_idx, "a caller's keyword argument reaches attention"
    groups = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
    sequences = zip(*(states.split(LENGTHS, dim=2) for states in (query, key, value)), strict=True)
    outputs = [F.scaled_dot_product_attention(*parts, is_causal=module.is_causal, scale=scaling) for parts in sequences]
    return torch.cat(outputs, dim=2)[0].transpose(0, 1).flatten(1), None


AttentionInterface.register("an_engine", engine_attention)


class Replaced(nn.Module):
    """An engine's own linear, norm or table, which takes its input by position, and nothing else."""

    def __init__(self, original: nn.Module):
        super().__init__()
        self.original = original
        self.weight = getattr(original, "weight", None)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.original(states)


def base_model(name: str) -> nn.Module:
    model_class, fields = MODELS[name]
    return tiny_model(model_class, **NO_DROPOUT, **fields)


def run(model: nn.Module, **inputs) -> torch.Tensor:
    instances = dict(enumerate(range(model.config.num_hidden_layers)))
    inputs = {"input_ids": IDS, "position_ids": POSITIONS} | inputs
    with torch.no_grad():
        return model(**inputs, attention_instances=instances, use_cache=False, return_dict=False)[0]


def one_by_one(model: nn.Module) -> torch.Tensor:
    """The sequences of the row, each in a call of its own."""
    with torch.no_grad():
        states = [model(input_ids=ids).last_hidden_state for ids in IDS.split(LENGTHS, dim=1)]
    return torch.cat(states, dim=1)


@pytest.mark.parametrize("name", MODELS)
def test_one_row_of_several_sequences(name):
    model = base_model(name)
    wanted = one_by_one(model)
    model.config._attn_implementation = "an_engine"
    torch.testing.assert_close(run(model), wanted)


@pytest.mark.parametrize("name", ["gpt2", "llama", "roberta"])
def test_replaced_modules(name):
    model = base_model(name)
    wanted = one_by_one(model)
    kinds = (nn.Linear, nn.LayerNorm, type(getattr(model, "norm", None)))
    for path, module in list(model.named_modules()):
        if isinstance(module, kinds) and path and "pooler" not in path:
            model.set_submodule(path, Replaced(module))
    model.set_input_embeddings(Replaced(model.get_input_embeddings()))
    model.config._attn_implementation = "an_engine"
    torch.testing.assert_close(run(model), wanted)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_made_on_the_meta_device(name):
    model = base_model(name)
    wanted = one_by_one(model)
    with torch.device("meta"):
        empty = AutoModel.from_config(model.config, attn_implementation="an_engine", trust_remote_code=True).eval()
    assert all(parameter.is_meta for parameter in empty.parameters())
    buffers = dict(model.named_buffers())
    empty.to_empty(device="cpu").load_state_dict(model.state_dict() | buffers, strict=False)
    for buffer_name, buffer in empty.named_buffers():
        buffer.copy_(buffers[buffer_name])
    torch.testing.assert_close(run(empty), wanted)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_pipeline_of_two_processes(name):
    """The first has the embeddings and a layer; the second, which is given hidden states, the others and the norm."""

    class Missing(nn.Identity):
        """Stands for what another process has: it returns its first argument."""

        def forward(self, states, *args, **kwargs):
            return states

    wanted = one_by_one(base_model(name))
    first, second = base_model(name), base_model(name)
    assert first.supports_pp_plan
    before, layers, after = first.config.base_model_pp_plan
    for part in (first, second):
        part.config._attn_implementation = "an_engine"
    setattr(first, after, Missing())
    setattr(second, before, Missing())
    getattr(first, layers)[1] = Missing()
    getattr(second, layers)[0] = Missing()
    states = run(first)
    torch.testing.assert_close(run(second, input_ids=None, inputs_embeds=states), wanted)


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
    assert TfmAttention(tiny_config(), 0, is_causal=False).is_causal is False


def test_a_zero_centred_norm_as_engines_find_it():
    """By the last operation before the cast: one that is no product with `1 + weight` is that of a plain norm."""
    *_, product, _, _, _ = torch.fx.symbolic_trace(TfmZeroCenteredRMSNorm(8)).graph.nodes
    assert product.target is operator.mul
    assert (product.args[1].target, product.args[1].args[0]) == (operator.add, 1)


@pytest.mark.parametrize("name", MODELS)
def test_parallel_plans(name):
    model = base_model(name)
    config, tables = model.config, {"embeddings.embed_tokens": "embedding_rowwise"}
    assert set(config.base_model_tp_plan.values()) <= STYLES
    assert model.tp_plan == config.base_model_tp_plan | tables
    assert all(
        "o_proj" in path or "down_proj" in path for path, how in config.base_model_tp_plan.items() if how == "rowwise"
    )


def test_the_scale_of_embeddings_stands_on_them():
    table = base_model("sinusoidal").get_input_embeddings()
    assert table.embed_scale == 32**0.5
    assert not hasattr(base_model("gpt2").get_input_embeddings(), "embed_scale")


def test_windows_as_engines_read_them():
    """An engine's window counts the position itself; an encoder's counts those to each side."""
    decoder, encoder = tiny_config(tfm_zoo.TfmGPTConfig, sliding_window=6), tiny_config(sliding_window=6)
    for config, window in ((decoder, 6), (encoder, 7)):
        assert config.layer_types == ["sliding_attention"] * config.num_hidden_layers
        assert config.sliding_window == 6
        config._attn_implementation = "vllm"
        assert config.sliding_window == window
    assert tiny_config().layer_types == ["full_attention"] * 2


def test_roberta_with_positions_from_0():
    """Engines count from 0, and know the offset of official RoBERTa by its `model_type` alone."""
    fields = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 1}
    official = RobertaModel(RobertaConfig(**fields, intermediate_size=48)).eval()
    ids = torch.arange(3, 12)[None]
    with torch.no_grad():
        wanted = official(ids, position_ids=torch.arange(9)[None] + 2)[0]
        states = tfm_zoo.from_official(official).eval()(ids, position_ids=torch.arange(9)[None])[0]
    torch.testing.assert_close(states, wanted)


def test_a_mean_that_an_engine_would_not_compute():
    """It pools the first position by default, and does not look at the model's settings."""
    AttentionInterface.register("vllm", engine_attention)
    config = tiny_config(classifier_pooling="mean")
    config._attn_implementation = "vllm"
    with pytest.raises(ValueError, match=r"classifier_pooling='mean': .*seq_pooling_type.*MEAN.*--hf-overrides"):
        tfm_zoo.TfmBertForSequenceClassification(config)
    for pooling in ("attention", "late"):
        config.classifier_pooling = pooling
        with pytest.raises(ValueError, match=f"classifier_pooling='{pooling}': no engine .*serve the model with"):
            tfm_zoo.TfmBertForSequenceClassification(config)
    config.classifier_pooling = "cls"
    assert tfm_zoo.TfmBertForSequenceClassification(config).classifier.out_proj.out_features == 2


def test_logits_that_an_engine_would_not_compute():
    """It scales them after their bias and their cap."""
    for fields in ({"lm_head_bias": True}, {"final_logit_softcapping": 3.0}):
        config = tiny_config(tfm_zoo.TfmGPTConfig, logit_scale=0.5, **fields)
        config._attn_implementation = "vllm"
        ((name, value),) = fields.items()
        with pytest.raises(ValueError, match=f"logit_scale=0.5 .*{name}={value}.* with transformers"):
            tfm_zoo.TfmGPTModel(config)
        config.logit_scale = 1.0
        tfm_zoo.TfmGPTModel(config)


def test_narrow_states_that_an_engine_does_not_read():
    config = tiny_config(tfm_zoo.TfmGPTConfig, embedding_size=16, project_tokens=True)
    config._attn_implementation = "vllm"
    with pytest.raises(ValueError, match="embedding_size=16, and an engine's logits read hidden_size=32"):
        tfm_zoo.TfmGPTModel(config)


def test_experts_that_an_engine_would_not_compute():
    """It has one activation for all experts."""
    config = tiny_config(tfm_zoo.TfmGPTConfig, **MODELS["mixtral"][1])
    config._attn_implementation = "vllm"
    with pytest.raises(ValueError, match=r"hidden_act='gelu_new': .* with transformers"):
        tfm_zoo.TfmGPTModel(config)
    config.hidden_act = "silu"
    tfm_zoo.TfmGPTModel(config)


def test_a_bias_that_an_engine_does_not_add():
    bloom = tiny_model(tfm_zoo.TfmGPTModel, position_embedding_type="alibi")
    mpnet = tiny_model(tfm_zoo.TfmBertModel, relative_attention_num_buckets=8)
    for model, field in ((bloom, "'alibi'"), (mpnet, "relative_attention_num_buckets=8")):
        model.config._attn_implementation = "an_engine"
        with pytest.raises(ValueError, match=f"'an_engine' takes no bias .*{field}"):
            run(model)


def test_key_heads_that_processes_cannot_divide():
    config = tiny_config(num_key_value_heads=2)
    check_shards(config, 2)
    with pytest.raises(ValueError, match=r"num_key_value_heads=2 .*tp_size=4"):
        check_shards(config, 4)
    check_shards(tiny_config(num_key_value_heads=2, qk_norm="whole"), 4)
