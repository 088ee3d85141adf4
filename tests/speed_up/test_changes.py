"""What is done to a model after the zoo took over: it computes what the official class does, whoever computes it."""

import copy
import io
import pickle

import peft
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from transformers import PreTrainedModel

from tests.equivalence.comparison import assert_same_outputs, gradients_of, ragged_batch, target_mask
from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same
from tests.speed_up.models import LENGTHS, fell_back
from tfm_zoo.inference import restore, speed_up

pytestmark = pytest.mark.usefixtures("double")

NAMES = ("BertForSequenceClassification", "GPT2LMHeadModel", "LlamaForCausalLM")
LORA = peft.LoraConfig(r=3, lora_alpha=30, target_modules=["query", "value", "q_proj", "v_proj", "c_attn"])


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    base = model.base_model
    return base.encoder.layer if hasattr(base, "encoder") else base.h if hasattr(base, "h") else base.layers


def with_adapter(model):
    torch.manual_seed(0)
    adapted = peft.get_peft_model(model, LORA)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    return adapted


def merged(model):
    return with_adapter(model).merge_and_unload().requires_grad_(True)


def stepped(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(input_ids=torch.arange(5, 15).view(2, 5)).logits.square().mean()
    loss.backward()
    optimizer.step()
    return model


def loaded(model):
    torch.manual_seed(1)
    model.load_state_dict({name: tensor + 0.1 for name, tensor in model.state_dict().items()}, strict=False)
    return model


def assigned(model):
    state = {name: tensor.clone() * 1.1 for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    return model


def with_other_data(model):
    for parameter in model.parameters():
        parameter.data = parameter.data * 1.1
    next(model.parameters()).data.mul_(0.5)
    return model


def with_other_parameter(model):
    norm = next(each for each in layers_of(model)[1].modules() if "Norm" in type(each).__name__)
    norm.weight = nn.Parameter(norm.weight.detach() * 3)
    return model


def with_other_layer(model):
    linear = [each for each in layers_of(model)[0].named_modules() if isinstance(each[1], nn.Linear)]
    if not linear:
        return model
    name, old = linear[0]
    parent, _, child = name.rpartition(".")
    new = nn.Linear(old.in_features, old.out_features)
    torch.manual_seed(3)
    nn.init.normal_(new.weight)
    nn.init.zeros_(new.bias)
    setattr(layers_of(model)[0].get_submodule(parent), child, new)
    return model


class Doubled(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, states, *args, **kwargs):
        return self.inner(states, *args, **kwargs) * 2


def with_wrapped_module(model):
    name = "output" if hasattr(layers_of(model)[1], "output") else "mlp"
    setattr(layers_of(model)[1], name, Doubled(getattr(layers_of(model)[1], name)))
    return model


def shifted(module, inputs, output):
    return output + 1


def with_hook(model):
    layers_of(model)[1].register_forward_hook(lambda module, args, output: 1.5 * output)
    return model


def with_hook_of_a_layer(model):
    model.get_input_embeddings().register_forward_hook(shifted)
    return model


def with_hook_on_itself(model):
    model.base_model.register_forward_hook(
        lambda module, args, output: output.__setitem__("last_hidden_state", output[0] * 2)
    )
    return model


def resized(model):
    torch.manual_seed(2)
    model.resize_token_embeddings(120)
    return model


def with_fewer_layers(model):
    base, layers = model.base_model, layers_of(model)[:2]
    if hasattr(base, "encoder"):
        base.encoder.layer = layers
    else:
        setattr(base, "h" if hasattr(base, "h") else "layers", layers)
    return model


def with_fewer_layers_in_the_configuration(model):
    model.config.num_hidden_layers = 2
    return with_fewer_layers(model)


def in_float32(model):
    return model.float().double()


def with_eager_attention(model):
    model.set_attn_implementation("eager")
    return model


def with_other_eps(model):
    for module in model.modules():
        for name in ("eps", "variance_epsilon"):
            if hasattr(module, name):
                setattr(module, name, 0.5)
    return model


def with_other_activation(model):
    for module in layers_of(model)[0].modules():
        for name in ("act", "act_fn", "intermediate_act_fn"):
            if name in module._modules:
                setattr(module, name, nn.ReLU())
    return model


def with_patched_forward(model):
    inner = next(each for each in layers_of(model)[0].modules() if isinstance(each, nn.Linear) or hasattr(each, "nf"))
    inner.forward = lambda states, run=inner.forward: run(states) * 2
    return model


def parametrized(model):
    linear = [each for each in layers_of(model)[0].modules() if isinstance(each, nn.Linear)]
    for each in linear[:1]:
        parametrizations.weight_norm(each)
        each.parametrizations.weight.original0.data.mul_(2)
    return model


def pruned(model):
    linear = [each for each in layers_of(model)[0].modules() if isinstance(each, nn.Linear)]
    for each in linear[:1]:
        prune.l1_unstructured(each, "weight", amount=0.5)
    return model


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def checkpointing(model):
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def checkpointing_again(model):
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    return model.train()


def in_training_mode(model):
    return model.train()


def frozen_below(model):
    layers_of(model)[0].requires_grad_(False)
    return model.train()


def partly_evaluated(model):
    model.train()
    layers_of(model)[0].eval()
    return model


def asked_for_hidden_states(model):
    model(input_ids=torch.arange(5, 15).view(2, 5), output_hidden_states=True)
    return model


#: a change -> whether the zoo computes the changed model (of a few, all but GPT-2, whose layers are not a linear ones)
CHANGES = {
    with_adapter: "linear",
    merged: True,
    stepped: True,
    loaded: True,
    assigned: True,
    with_other_data: True,
    with_other_parameter: True,
    with_other_layer: True,
    with_wrapped_module: False,
    with_hook: False,
    with_hook_of_a_layer: True,
    with_hook_on_itself: True,
    resized: True,
    with_fewer_layers: True,
    with_fewer_layers_in_the_configuration: True,
    in_float32: True,
    with_eager_attention: True,
    with_other_eps: False,
    with_other_activation: False,
    with_patched_forward: False,
    parametrized: True,
    pruned: True,
    copy.deepcopy: True,
    pickled: True,
    saved: True,
    checkpointing: True,
    checkpointing_again: True,
    in_training_mode: True,
    frozen_below: True,
    partly_evaluated: True,
    asked_for_hidden_states: True,
}


@pytest.fixture(scope="module", params=NAMES)
def official(request):
    """As it is, and with a name of its class."""
    return request.param, build_tiny(BY_NAME[request.param], attn_implementation="sdpa")


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
@pytest.mark.filterwarnings("ignore")
def test_changes(official, change):
    name, model = official
    if change in (checkpointing, checkpointing_again) and "Llama" in name:
        pytest.skip("what a backward pass computes again is not in double precision: see tests/precision.py")
    changed = change(copy.deepcopy(model))
    fast = speed_up(copy.deepcopy(model))
    batch = ragged_batch(BY_NAME[name], model, "right", LENGTHS)
    with torch.no_grad():
        fast(**batch)
    fast = change(fast)
    expected, outputs = changed(**batch), fast(**batch)
    assert_same_outputs(outputs, expected, batch["attention_mask"], target_mask(batch))
    for each in (expected, outputs):
        each.logits[batch["attention_mask"] == 1 if "LM" in name else ...].square().sum().backward()
    wanted = gradients_of(changed)
    assert_same({path: gradients_of(fast)[path] for path in wanted}, wanted, "gradient")
    is_followed = CHANGES[change]
    if is_followed is True or (is_followed == "linear" and "GPT2" not in name):
        assert not fell_back(fast)
    elif change is not with_patched_forward:
        assert fell_back(fast)


def test_copies_are_their_own():
    """A copy that is changed leaves the first as it is, and both are sped up."""
    model = build_tiny(BY_NAME["BertModel"])
    fast = speed_up(model)
    other = copy.deepcopy(fast)
    ids = torch.arange(5, 15).view(2, 5)
    with torch.no_grad():
        before = fast(ids)[0]
        for parameter in other.parameters():
            parameter.mul_(0.5)
        assert torch.equal(fast(ids)[0], before)
        assert_same(other(ids)[0], restore(copy.deepcopy(other))(ids)[0])
    assert not fell_back(fast) and not fell_back(other)


def test_the_object_stays():
    model = build_tiny(BY_NAME["BertForMaskedLM"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names, parameters, kind = [*model.state_dict()], [*model.parameters()], type(model)
    modules = [*model.modules()]
    assert speed_up(model) is model and type(model) is kind
    assert [*model.state_dict()] == names and all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert [*model.modules()] == modules
    ids = torch.arange(5, 15).view(2, 5)
    before = [each.clone() for each in parameters]
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    assert sum(not torch.equal(a, b) for a, b in zip(parameters, before, strict=True)) > 20
    restore(model)
    assert all("forward" not in vars(each) for each in model.modules())


@pytest.mark.parametrize(
    "name", ["BertForSequenceClassification", "BartForConditionalGeneration", "DebertaV2ForMaskedLM"]
)
def test_dropout(name):
    """Where there is no padding, the same seed drops the same; what is set to 0, or evaluated, drops nothing."""
    official = build_tiny(BY_NAME[name], dropout=True, attn_implementation="eager")
    fast = speed_up(copy.deepcopy(official))
    whole, ragged = (ragged_batch(BY_NAME[name], official, "right", lengths) for lengths in ([13] * 4, LENGTHS))
    made = []
    for model in (official.train(), fast.train()):
        torch.manual_seed(0)
        made.append(model(**whole).logits)
    assert_same(made[1], made[0])
    first, second = (fast(**ragged).logits for _ in range(2))
    assert (first - second).abs().max() > 1e-3
    for model in (official, fast):
        for module in model.modules():
            for rate in [name for name in vars(module) if "drop" in name and isinstance(vars(module)[name], float)]:
                setattr(module, rate, 0.0)
            if isinstance(module, nn.Dropout):
                module.p = 0.0
    expected, outputs = official(**ragged), fast(**ragged)
    assert_same_outputs(outputs, expected, ragged["attention_mask"], target_mask(ragged))
    assert not fell_back(fast)


def test_dropout_of_a_part():
    """What the twin has no counterpart for, the official forward drops."""
    fast = speed_up(build_tiny(BY_NAME["BertModel"], dropout=True)).train()
    layers_of(fast)[1].output.dropout.p = 0.7
    fast(input_ids=torch.arange(5, 15).view(2, 5))
    assert fell_back(fast) == ["encoder.layer.1.output.dropout drops {'p': 0.7}, and its configuration says {'p': 0.1}"]
    fast.eval()
    fast(input_ids=torch.arange(5, 15).view(2, 5))
    assert len(fell_back(fast)) == 1  # what was said before


def test_a_mask_of_the_caller_stays():
    model = speed_up(build_tiny(BY_NAME["LlamaForCausalLM"]))
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    model(torch.arange(5, 15).view(2, 5), attention_mask=mask, use_cache=True)
    assert mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2]


def test_an_error_of_the_twin_is_no_error():
    """Whatever goes wrong in it, the official forward computes."""
    model = build_tiny(BY_NAME["BertModel"])
    fast = speed_up(copy.deepcopy(model))
    fast.forward.call.twin.model.run = None
    ids = torch.arange(5, 15).view(2, 5)
    assert_same(fast(ids)[0], model(ids)[0])
    assert fell_back(fast) == ["TypeError: 'NoneType' object is not callable"]


@pytest.mark.parametrize("is_before", [False, True])
def test_a_class_that_is_patched(is_before, monkeypatch):
    """As libraries of kernels patch layers, for all models at once."""
    model = build_tiny(BY_NAME["LlamaForCausalLM"])
    fast, kind = copy.deepcopy(model), type(model.model.layers[0].mlp)
    ids, run = torch.arange(5, 15).view(2, 5), kind.forward
    fast = fast if is_before else speed_up(fast)
    monkeypatch.setattr(kind, "forward", lambda self, states: run(self, states) * 2)
    if is_before:
        with pytest.raises(ValueError, match="the forward of the class LlamaMLP is replaced"):
            speed_up(fast)
    assert_same(fast(ids).logits, model(ids).logits)
