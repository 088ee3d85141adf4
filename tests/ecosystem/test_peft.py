"""PEFT takes the zoo's models as it takes official ones: adapters are trained, saved, loaded and merged."""

import copy
import sys

import peft
import pytest
import torch
from torch import nn

import tfm_zoo
from tfm_zoo import TfmGPTForCausalLM, from_official

from ..forks import with_transformers
from ..official_models import both, official_folder
from ..tiny import NO_DROPOUT, ragged_batch, tiny_model

IDS = torch.arange(4, 22).view(3, 6)
MASK = torch.ones_like(IDS)
MASK[0, :2] = 0  # at the left, as a decoder's


def train(model: nn.Module, batch: dict | None = None, learning_rate: float = 2.0) -> list[float]:
    """Losses of a few steps."""
    if batch is None:
        labels = IDS.where(MASK == 1, -100) if model.get_base_model().can_generate() else torch.tensor([0, 1, 2])
        batch = {"input_ids": IDS, "attention_mask": MASK, "labels": labels}
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=learning_rate)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        losses.append(model.train()(**batch).loss)
        losses[-1].backward()
        optimizer.step()
    model.eval()
    return [loss.item() for loss in losses]


@pytest.mark.parametrize("head", [TfmGPTForCausalLM, tfm_zoo.TfmEncoderDecoderForConditionalGeneration])
def test_adapted_generation(head, tmp_path):
    """A low-rank adapter: trained, saved, put on a fresh model, and merged into its weights."""
    batch = ragged_batch(head, side="left" if head is TfmGPTForCausalLM else "right", labels=True)
    prompt = {name: batch[name] for name in ("input_ids", "attention_mask")} | {"max_new_tokens": 6, "num_beams": 2}
    adapted = peft.get_peft_model(tiny_model(head, **NO_DROPOUT), peft.LoraConfig(r=4, target_modules="all-linear"))
    losses = train(adapted, batch, learning_rate=1.0)
    assert losses[-1] < losses[0]
    tokens, logits = adapted.generate(**prompt), adapted(**batch).logits
    assert not logits.allclose(tiny_model(head, **NO_DROPOUT)(**batch).logits, atol=1e-2)
    adapted.save_pretrained(tmp_path / "adapter")
    reloaded = peft.PeftModel.from_pretrained(tiny_model(head, **NO_DROPOUT), tmp_path / "adapter").eval()
    assert reloaded.generate(**prompt).equal(tokens)
    merged = reloaded.merge_and_unload()
    assert type(merged) is head and merged.generate(**prompt).equal(tokens)
    torch.testing.assert_close(merged(**batch).logits, logits, rtol=1e-4, atol=1e-4)


LLAMAS = [peft.LoraConfig(), peft.IA3Config(), peft.VeraConfig()]
LLAMAS += [peft.AdaLoraConfig(total_step=9), peft.OFTConfig(oft_block_size=4)]
ADAPTERS = [("LlamaForCausalLM", config) for config in LLAMAS]
ADAPTERS += [(name, LLAMAS[0]) for name in ("BartForConditionalGeneration", "BertForSequenceClassification")]


@pytest.mark.parametrize(("name", "config"), ADAPTERS)
def test_modules_need_no_names(name, config):
    """Queries and values, or what else is usual, of every layer learn; LLaMA's zoo model learns what LLaMA does."""
    counts, losses = [], []
    for model in both(name)[name != "LlamaForCausalLM" :]:
        torch.manual_seed(0)
        adapted = peft.get_peft_model(model, copy.deepcopy(config))
        with torch.no_grad():  # most adapters begin at zero
            for parameter in filter(lambda each: each.requires_grad, adapted.parameters()):
                parameter.add_(0.05)
        counts.append(len(adapted.targeted_module_names))
        losses.append(train(adapted))
        assert counts[-1] >= 2 * sum(type(part).__name__.endswith("Layer") for part in model.modules())
        assert losses[-1][-1] != losses[-1][0]
    assert len({*counts}) == 1 and losses[0] == pytest.approx(losses[-1], rel=1e-3)


@pytest.mark.slow
def test_the_zoo_imported_first():
    """It does not import PEFT, and what needs no names here needs none there."""
    program = """
import sys, tfm_zoo
assert "peft" not in sys.modules
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as table
assert table["tfm_gpt"] == table["tfm_bert"] == table["tfm_encoder_decoder"] == ["q_proj", "v_proj"]
"""
    with_transformers().run([sys.executable, "-c", program], check=True)


def test_an_official_adapter(tmp_path):
    """As jina-embeddings-v5-text has them: loaded onto the converted model, and merged before or after."""
    official, zoo = both("Qwen3Model")
    lora = peft.LoraConfig(target_modules="all-linear", init_lora_weights=False)
    adapted = peft.get_peft_model(official, lora).eval()
    adapted.save_pretrained(tmp_path)
    wanted, loaded = adapted(input_ids=IDS)[0], peft.PeftModel.from_pretrained(zoo, tmp_path).eval()
    for model in (loaded, loaded.merge_and_unload(), from_official(adapted.merge_and_unload())):
        assert (model(input_ids=IDS)[0] - wanted).abs().max() <= 1e-5


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "BartForConditionalGeneration"])
def test_prefix_tuning(name):
    """Losses, greedy tokens and beams of the official class."""
    is_bart = name.startswith("Bart")
    fields = {"decoder_attention_heads": 4} if is_bart else {}  # PEFT takes the encoder's number of heads
    config = peft.PrefixTuningConfig(task_type="SEQ_2_SEQ_LM" if is_bart else "CAUSAL_LM", num_virtual_tokens=3)
    prompt = {"input_ids": IDS, "attention_mask": MASK, "max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    losses, tokens = [], []
    for model in both(name, **fields):
        torch.manual_seed(0)
        tuned = peft.get_peft_model(model, config)
        losses.append(train(tuned))
        tokens.append([tuned.generate(**prompt), tuned.generate(**prompt, num_beams=3)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4) and losses[1][-1] < losses[1][0]
    assert all(map(torch.equal, *tokens))


def test_an_encoder_takes_prompts_and_no_prefix():
    bare = peft.PrefixTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
    with pytest.raises(ValueError, match="an encoder has no cache"):
        peft.get_peft_model(tiny_model(tfm_zoo.TfmBertModel), bare)(input_ids=IDS, attention_mask=MASK)
    model = tiny_model(tfm_zoo.TfmBertForSequenceClassification)
    prompted = peft.get_peft_model(model, peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3))
    prompted(input_ids=IDS, attention_mask=MASK, labels=torch.tensor([0, 1, 1])).loss.backward()
    assert prompted.prompt_encoder.default.embedding.weight.grad.norm() > 0


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """The folder of a tiny official model."""
    return official_folder(tmp_path_factory.mktemp("official"), "GPT2LMHeadModel")


def by_peft(model, folder, **how):
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **how))
    adapted.save_pretrained(folder)
    return adapted


def by_transformers(model, folder, **how):
    model.add_adapter(peft.LoraConfig(task_type="CAUSAL_LM", **how))
    model.save_pretrained(folder)
    return model


WAYS = pytest.mark.parametrize("way", [by_peft, by_transformers])
LOAD = """
import sys, torch, transformers, peft
folder, result = sys.argv[1:]
loaders = (peft.AutoPeftModelForCausalLM, transformers.AutoModelForCausalLM)
with torch.no_grad():
    loaded = [loader.from_pretrained(folder, trust_remote_code=True) for loader in loaders]
    torch.save([model.eval()(torch.arange(3, 11)[None]).logits for model in loaded], result)
"""


@pytest.mark.slow
@WAYS
def test_an_adapter_of_a_converted_model_is_found_with_its_base(way, official, tmp_path):
    """It is saved, and loads in a fresh process, where there is the base's own code and no zoo."""
    from_official(official).save_pretrained(tmp_path / "base")
    base, ids = TfmGPTForCausalLM.from_pretrained(tmp_path / "base"), torch.arange(3, 11)[None]
    adapted = way(base, tmp_path / "adapter", init_lora_weights=False).eval()
    with torch.no_grad():
        wanted = adapted(ids).logits
    with_transformers().run(["", "-c", LOAD, tmp_path / "adapter", tmp_path / "logits.pt"], check=True)
    for logits in torch.load(tmp_path / "logits.pt"):
        torch.testing.assert_close(logits, wanted)
    # The weights of the base are those of the official model: the adapter goes with a model that was just converted.
    again = peft.PeftModel.from_pretrained(from_official(official), tmp_path / "adapter").eval()
    torch.testing.assert_close(again(ids).logits, wanted)


@WAYS
def test_an_adapter_without_a_base_is_refused_before_training(way, official, tmp_path):
    model = from_official(official)
    with pytest.raises(ValueError, match=rf"converted from '{official}' and is not in a folder yet.*save_pretrained\("):
        way(model, tmp_path / "adapter")
    assert not [*tmp_path.rglob("*.safetensors")]
