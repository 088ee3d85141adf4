"""PEFT takes the zoo's types as it takes official ones: without `target_modules`, and with prefixes."""

import subprocess
import sys

import peft
import pytest
import torch
from peft.utils import constants
from torch import nn

from tfm_zoo import TfmBertForSequenceClassification, from_official
from tfm_zoo.plugin.patches import add_types_to_peft

from ..official_models import BY_NAME, build_tiny
from ..tiny import ragged_batch, tiny_model

LORA = "TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING"
IDS = torch.arange(4, 22).view(3, 6)
MASK = torch.ones_like(IDS)
MASK[0, :2] = 0  # at the left, as a decoder's
#: one of each of the zoo's types
NAMES = ["LlamaForCausalLM", "BartForConditionalGeneration", "BertForSequenceClassification"]


def train(model: nn.Module, steps: int = 3) -> list[float]:
    """Losses of a few steps."""
    model.train()
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=2.0)
    by_token = model.get_base_model().can_generate()
    labels, losses = IDS.where(MASK == 1, -100) if by_token else torch.tensor([0, 1, 2]), []
    for _ in range(steps):
        loss = model(input_ids=IDS, attention_mask=MASK, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def both(name: str, **fields) -> tuple[nn.Module, nn.Module]:
    official = build_tiny(BY_NAME[name], **fields)
    return official, from_official(official)


@pytest.mark.parametrize(
    "config", [peft.LoraConfig, peft.IA3Config, peft.AdaLoraConfig, peft.VeraConfig, peft.OFTConfig]
)
@pytest.mark.parametrize("name", NAMES)
def test_modules_need_no_names(name, config):
    """Queries and values, or what else is usual, of every layer learn; LLaMA's zoo model learns what LLaMA does."""
    options = {peft.AdaLoraConfig: {"total_step": 9}, peft.OFTConfig: {"oft_block_size": 4}}.get(config, {})
    results = []
    for model in both(name)[name != "LlamaForCausalLM" :]:
        torch.manual_seed(0)
        adapted = peft.get_peft_model(model, config(**options))
        with torch.no_grad():  # most adapters begin at zero
            for parameter in adapted.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.05)
        results.append((len(adapted.targeted_module_names), train(adapted)))
        layers = sum(type(part).__name__.endswith("Layer") for part in model.modules())
        assert results[-1][0] >= 2 * layers and results[-1][1][-1] < results[-1][1][0]
    assert results[0][0] == results[-1][0] and results[0][1] == pytest.approx(results[-1][1], rel=1e-3)


@pytest.mark.parametrize("name", ["Qwen3Model", "EuroBertModel"])
def test_an_official_adapter(name, tmp_path):
    """As jina-embeddings-v5-text has them: loaded onto the converted model, and merged before or after."""
    official, zoo = both(name)
    adapted = peft.get_peft_model(
        official, peft.LoraConfig(target_modules="all-linear", init_lora_weights=False)
    ).eval()
    adapted.save_pretrained(tmp_path)
    wanted, loaded = adapted(input_ids=IDS)[0], peft.PeftModel.from_pretrained(zoo, tmp_path).eval()
    for model in (loaded, loaded.merge_and_unload(), from_official(adapted.merge_and_unload())):
        assert (model(input_ids=IDS)[0] - wanted).abs().max() <= 1e-5


@pytest.mark.slow
def test_whichever_is_imported_first():
    """The zoo alone does not import PEFT."""
    wanted = ["q_proj", "v_proj"]
    program = f"""
import sys, tfm_zoo
assert "peft" not in sys.modules
from peft.utils.constants import {LORA} as table
assert table["tfm_gpt"] == table["tfm_bert"] == table["tfm_encoder_decoder"] == {wanted}
assert not any(type(finder).__module__.startswith("tfm_zoo") for finder in sys.meta_path)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    table = getattr(constants, LORA)
    table.pop("tfm_gpt")
    add_types_to_peft()
    assert table["tfm_gpt"] == wanted


@pytest.mark.parametrize(
    "name", ["LlamaForCausalLM", "GPT2LMHeadModel", "BartForConditionalGeneration", "MarianMTModel"]
)
def test_prefix_tuning(name, tmp_path):
    """Losses, greedy tokens and beams of the official class, and of the prefix that was saved."""
    task, fields = "CAUSAL_LM", {}
    if name.startswith(("Bart", "Marian")):
        task, fields = "SEQ_2_SEQ_LM", {"decoder_attention_heads": 4}  # PEFT takes the encoder's number of heads
    prompt = {"input_ids": IDS, "attention_mask": MASK, "max_new_tokens": 6, "min_new_tokens": 6}
    results = []
    for model, fresh in zip(both(name, **fields), both(name, **fields), strict=True):
        torch.manual_seed(0)
        tuned = peft.get_peft_model(model, peft.PrefixTuningConfig(task_type=task, num_virtual_tokens=3))
        losses = train(tuned)
        tokens = [tuned.eval().generate(**prompt, do_sample=False), tuned.generate(**prompt, num_beams=3)]
        folder = tmp_path / type(model).__name__
        tuned.save_pretrained(folder)
        again = peft.PeftModel.from_pretrained(fresh, folder).eval()
        assert again.generate(**prompt, do_sample=False).equal(tokens[0])
        results.append((losses, tokens))
    (wanted, official_tokens), (losses, tokens) = results
    assert losses == pytest.approx(wanted, rel=1e-4) and losses[-1] < losses[0]
    assert all(mine.equal(its) for mine, its in zip(tokens, official_tokens, strict=True))


def test_an_encoder_takes_prompts_and_no_prefix():
    batch = ragged_batch(labels=False) | {"labels": torch.tensor([0, 1, 1, 0])}
    batch.pop("token_type_ids")
    model = tiny_model(TfmBertForSequenceClassification, max_position_embeddings=40)
    prefix = peft.get_peft_model(model, peft.PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3))
    with pytest.raises(ValueError, match="Model does not support past key values"):
        prefix(**batch)
    bare = tiny_model(TfmBertForSequenceClassification).model
    prefix = peft.get_peft_model(bare, peft.PrefixTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3))
    with pytest.raises(ValueError, match=r"an encoder has no cache\. PEFT's prefix tuning needs one"):
        prefix(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    model = tiny_model(TfmBertForSequenceClassification, max_position_embeddings=40)
    prompted = peft.get_peft_model(model, peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3))
    prompted(**batch).loss.backward()
    assert prompted.prompt_encoder.default.embedding.weight.grad.norm() > 0


def test_an_adapter_for_each_row_and_its_beams():
    """PEFT names the adapter of each beam to the decoder, whose beams then share no keys and values of the source."""
    official = build_tiny(BY_NAME["BartForConditionalGeneration"]).eval()
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="SEQ_2_SEQ_LM")
    ids, names, found = torch.arange(3, 27).view(3, 8), ["a", "b", "__base__"], []
    for model in (from_official(official).eval(), official):
        adapted = peft.get_peft_model(model, lora, adapter_name="a").eval()
        adapted.add_adapter("b", lora)
        generator = torch.Generator().manual_seed(0)
        for _, parameter in sorted(pair for pair in adapted.named_parameters() if "lora_" in pair[0]):
            parameter.data.normal_(generator=generator)
        found.append([adapted.generate(input_ids=ids, num_beams=beams, adapter_names=names) for beams in (1, 3)])
    assert all(one.equal(other) for one, other in zip(*found, strict=True))
