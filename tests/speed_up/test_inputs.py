"""Inputs of every kind, and generation: the outputs of the official class, of its class, whoever computes them."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from transformers import BigBirdConfig, BigBirdModel, DynamicCache, StaticCache
from transformers.utils import ModelOutput

from tests.equivalence.comparison import gradients_of, ragged_batch
from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same, tensors_in
from tests.speed_up.models import LENGTHS, fell_back, pair_of
from tfm_zoo import from_official
from tfm_zoo.inference import speed_up
from tfm_zoo.inference.calls import OWN_PADDING

pytestmark = pytest.mark.usefixtures("double")

ENCODERS = ("BertModel", "RobertaForTokenClassification", "DebertaV2Model", "ModernBertModel", "EsmModel")
ENCODERS += ("RoFormerModel", "MegatronBertModel", "MvpModel")
DECODERS = ("GPT2LMHeadModel", "Qwen2ForCausalLM", "OPTForCausalLM", "BloomForCausalLM", "GPTJForCausalLM")
SEQUENCES = ("BartForConditionalGeneration", "T5ForConditionalGeneration", "MarianMTModel")
IDS = torch.randint(5, 99, (4, 13), generator=torch.Generator().manual_seed(0))
RIGHT = (torch.arange(13) < torch.tensor(LENGTHS)[:, None]).long()
LEFT = RIGHT.flip(1)
HOLES = RIGHT.clone()
HOLES[:, 2:4] = 0
COUNTED = (LEFT.cumsum(1) - 1).clamp(min=0)
PAIRS = (torch.ones(13, 13).tril().bool() & RIGHT[:, None, None].bool()) | torch.eye(13).bool()
STARTS = torch.tensor([[*range(7), *range(6)]] * 4)


def embeddings(config) -> torch.Tensor:
    width = getattr(config, "embedding_size", config.hidden_size)
    return torch.randn(4, 13, width, generator=torch.Generator().manual_seed(1))


#: kind of inputs -> what they are, and, if no mask is among them, the usual one
INPUTS = {
    "holes": lambda config: {"attention_mask": HOLES},
    "no mask": lambda config: {"input_ids": IDS.where(RIGHT == 1, config.pad_token_id or 0), "attention_mask": None},
    "an empty row": lambda config: {"attention_mask": RIGHT * torch.tensor([[1], [0], [1], [1]])},
    "a mask of floats": lambda config: {"attention_mask": RIGHT.to(torch.get_default_dtype())},
    "a mask of pairs": lambda config: {"attention_mask": PAIRS},
    "one token": lambda config: {"input_ids": IDS[:, :1], "attention_mask": RIGHT[:, :1]},
    "positions": lambda config: {"attention_mask": LEFT, "position_ids": COUNTED},
    "gaps": lambda config: {"attention_mask": None, "position_ids": torch.arange(13)[None] * 2 + 3, "use_cache": False},
    "documents": lambda config: {"attention_mask": None, "position_ids": STARTS, "use_cache": False},
    "embeddings": lambda config: {"input_ids": None, "inputs_embeds": embeddings(config)},
    "a tuple": lambda config: {"return_dict": False},
    "attentions": lambda config: {"output_attentions": True, "output_hidden_states": True},
    "a chosen state": lambda config: {"output_hidden_states": [1]},
    "an unknown argument": lambda config: {"something": 3},
    "an unknown token": lambda config: {"input_ids": IDS + 500},
    "a mask of twos": lambda config: {"attention_mask": 2 * RIGHT},
}
#: those that the official class computes, whatever the architecture, or of some architectures
DECLINED = ("a mask of pairs", "a mask of twos", "gaps", "documents", "attentions", "a chosen state")
DECLINED += ("an unknown argument", "an unknown token")


@pytest.fixture(scope="module", params=[*ENCODERS, *DECODERS], ids=str)
def pair(request):
    return pair_of(BY_NAME[request.param])


def real_of(outputs, inputs: dict) -> dict[str, torch.Tensor]:
    """The tensors of outputs at real tokens."""
    outputs = outputs if isinstance(outputs, ModelOutput) else dict(enumerate(outputs))
    tensors = tensors_in({str(name): each for name, each in outputs.items() if isinstance(each, torch.Tensor | tuple)})
    mask = inputs.get("attention_mask")
    mask = RIGHT if mask is None or mask.dim() == 4 else mask
    kept = {name: each[mask.bool()] if each.shape[:2] == mask.shape else each for name, each in tensors.items()}
    return {name: each.nan_to_num() for name, each in kept.items()}


@pytest.mark.parametrize("kind", INPUTS)
@torch.no_grad()
def test_inputs(pair, kind):
    official_class, official, _ = pair
    inputs = {"input_ids": IDS, "attention_mask": RIGHT} | INPUTS[kind](official.config)
    inputs = {name: value for name, value in inputs.items() if value is not None}
    model = speed_up(copy.deepcopy(official))
    try:
        expected = official(**inputs)
    except Exception as error:  # what the official class refuses, the one that is sped up refuses in its words
        with pytest.raises(type(error)):
            model(**inputs)
        return
    outputs = model(**inputs)
    assert type(outputs) is type(expected)
    made, wanted = real_of(outputs, inputs), real_of(expected, inputs)
    names = [name for name in wanted if kind != "attentions" or "attentions" not in name]
    assert made.keys() == wanted.keys()
    assert_same({name: made[name] for name in names}, {name: wanted[name] for name in names})
    model_type = official_class.architecture.model_type
    is_odd = kind == "an empty row" and model_type in OWN_PADDING
    is_odd |= kind == "positions" and (not official_class.is_decoder or model_type == "bloom")
    if kind not in DECLINED and not is_odd:
        assert not fell_back(model)


GENERATORS = (*DECODERS, *SEQUENCES, "LlamaForCausalLM", "Gemma2ForCausalLM", "FalconForCausalLM", "MptForCausalLM")


WAYS = [(name, {}) for name in GENERATORS]
WAYS += [(name, {"num_beams": 3}) for name in (*SEQUENCES, "GPT2LMHeadModel", "LlamaForCausalLM")]
WAYS += [(name, {"do_sample": True}) for name in ("GPT2LMHeadModel", "T5ForConditionalGeneration")]


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_tokens(name, options):
    official_class, official, [model] = pair_of(BY_NAME[name])
    for side in ("left", "right"):
        batch = ragged_batch(official_class, official, side, [9, 4, 6])
        batch = {name: batch[name] for name in ("input_ids", "attention_mask")}
        made = []
        for each in (official, model):
            torch.manual_seed(0)
            made.append(each.generate(**batch, max_new_tokens=7, **options))
        assert torch.equal(*made), side


@pytest.mark.parametrize("name", [*DECODERS, "FalconForCausalLM", "CohereForCausalLM", "GPTBigCodeForCausalLM"])
@torch.no_grad()
def test_a_cache_is_read_by_both(name):
    """A generation may go on where the other has begun."""
    official_class = BY_NAME[name]
    _, official, [model] = pair_of(official_class)
    batch = ragged_batch(official_class, official, "left", [9, 4, 6])
    ids, mask = batch["input_ids"], batch["attention_mask"]
    caches = [lambda: None, DynamicCache, lambda: StaticCache(official.config, max_cache_len=12)]
    for new_cache in caches[: 2 if name == "BloomForCausalLM" else 3]:  # official BLOOM takes no static cache
        results = []
        for turns in ([official] * 4, [model, official, model, official], [official, model, model, model]):
            cache, logits = new_cache(), []
            for each, (start, end) in zip(turns, ((0, 4), (4, 7), (7, 8), (8, 9)), strict=True):
                inputs = {"input_ids": ids[:, start:end], "attention_mask": mask[:, :end], "use_cache": True}
                outputs = each(**inputs, past_key_values=cache)
                cache = outputs.past_key_values
                logits.append(outputs.logits)
            results.append(torch.cat(logits, dim=1)[mask == 1])
        assert_same(results[1], results[0])
        assert_same(results[2], results[0])


@torch.no_grad()
def test_the_last_position_is_that_of_who_generates():
    """By a loop of one's own it may be padding."""
    _, official, [model] = pair_of(BY_NAME["GPT2LMHeadModel"])
    assert_same(*(each(IDS, attention_mask=RIGHT, use_cache=True).logits[:, -1] for each in (model, official)))


class Own(nn.Module):
    """A head of a user's."""

    def __init__(self, base: nn.Module):
        super().__init__()
        self.encoder, self.out = base, nn.Linear(32, 2)

    def forward(self, **inputs):
        return self.out(self.encoder(**inputs).last_hidden_state[:, 0])


def test_a_head_of_ones_own():
    """The base model inside is found, in training too."""
    model = Own(build_tiny(BY_NAME["BertModel"]))
    fast = speed_up(copy.deepcopy(model))
    for mask in (RIGHT, LEFT):
        found = []
        for each in (model, fast):
            each.zero_grad()
            each(input_ids=IDS, attention_mask=mask).square().sum().backward()
            found.append(gradients_of(each))
        assert_same(found[1], found[0])
    assert not fell_back(fast)


def sharded(module: nn.Module) -> nn.Module:
    """As FSDP2 does, whose `fully_shard` makes a subclass of each class."""
    module.__class__ = type(f"FSDP{type(module).__name__}", (FSDPModule, type(module)), {})
    return module


def divided(model: nn.Module) -> nn.Module:
    """As DeepSpeed's third stage does, which numbers parameters."""
    for number, parameter in enumerate(model.parameters()):
        parameter.ds_id = number
    return model


def test_a_head_whose_parts_are_whole():
    """It is still known to read labels at padding."""
    model, inputs = build_tiny(BY_NAME["BertForMaskedLM"]), {"input_ids": IDS, "attention_mask": RIGHT, "labels": IDS}
    expected = model(**inputs).loss
    assert_same(speed_up(sharded(model))(**inputs).loss, expected)


REFUSED = [
    (lambda model: sharded(model.encoder.layer[0]) and model, {}, "FSDP has divided its parameters"),
    (divided, {}, r"DeepSpeed \(ZeRO-3\) has divided its parameters"),
    (lambda model: nn.Linear(2, 2), {}, "speed_up changes nothing in this Linear"),
    (from_official, {}, "a model of the zoo, .* anyway .pack_weights takes it"),
    (lambda model: setattr((own := from_official(model)).config, "model_type", "own") or own, {}, "a model of the zoo"),
    (lambda model: model, {"dtype": "int3"}, "dtype='int3' should be"),
    (lambda model: "bert", {}, "speed_up takes a model, not the name 'bert'"),
    (lambda model: type("Own", (type(model),), {})(model.config), {}, "Own is not a class of transformers"),
    (lambda model: BigBirdModel(BigBirdConfig(hidden_size=36)), {}, "the zoo does not compute 'big_bird'"),
]


@pytest.mark.parametrize(("change", "options", "message"), REFUSED)
def test_what_is_refused(change, options, message):
    with pytest.raises(ValueError, match=message):
        speed_up(change(build_tiny(BY_NAME["BertModel"])), **options)
