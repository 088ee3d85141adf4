"""An official model of each architecture that generates, its zoo model, and prompts for both."""

import os
from functools import cache

import torch
import transformers
from packaging.version import Version
from transformers import PreTrainedModel

from tfm_zoo import from_official

from ..official_models import BY_NAME, FALCON_RW, ROPE, build_tiny
from ..tiny import ragged_mask

#: official classes; Mistral's and Qwen2's windows are shorter than every prompt but one
ARCHITECTURES = ("GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "LlamaForCausalLM", "MistralForCausalLM")
ARCHITECTURES += ("Qwen2ForCausalLM",)
#: of them, those that differ most: with learned positions; with an official class that has no cache; with rotary
#: positions and layers with and without a window
MAIN = ("GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "Qwen2ForCausalLM")
#: those that read, count or keep what was said in other ways than these, or in which experts choose
LATER = ("Gemma3ForCausalLM", "Phi3ForCausalLM", "OPTForCausalLM", "FalconForCausalLM", "BloomForCausalLM")
LATER += ("MptForCausalLM", "MixtralForCausalLM", "HunYuanDenseV1ForCausalLM", "Ministral3ForCausalLM")
LATER += ("ModernBertDecoderForCausalLM",)
#: those that read a source with an encoder
TRANSLATORS = ("MarianMTModel", "BartForConditionalGeneration", "M2M100ForConditionalGeneration")
TRANSLATORS += ("T5ForConditionalGeneration", "FSMTForConditionalGeneration")
#: With a tied head, these say each token again and again.
FIELDS = {name: {"tie_word_embeddings": False} for name in (*ARCHITECTURES[:2], *LATER, *TRANSLATORS)}
#: a text outgrows these rotary positions while it is written
FIELDS["Phi3ForCausalLM"] |= {"original_max_position_embeddings": 14, "rope_parameters": ROPE["longrope"]}
FIELDS["FalconForCausalLM"] |= FALCON_RW
FIELDS["OPTForCausalLM"] |= {"do_layer_norm_before": False, "word_embed_proj_dim": 16, "tie_word_embeddings": True}
FIELDS["MixtralForCausalLM"] |= {"output_router_logits": False}  # with which the official class fails to generate
#: options of the official class alone. Before transformers 5.20 Phi 3 reads one token where it drops its cache;
#: without a cache it reads the whole text, as later releases and the zoo do there.
OFFICIAL_OPTIONS = {}
if Version(transformers.__version__) < Version("5.20"):
    OFFICIAL_OPTIONS["Phi3ForCausalLM"] = {"use_cache": False}
VOCABULARY = 99
LENGTHS = (9, 4, 1, 6)
NEW_TOKENS = 12


def pair(architecture: str, seed: int = 0) -> tuple[PreTrainedModel, PreTrainedModel]:
    """The zoo's model and the official one, with the same weights; each test leaves them as they are."""
    return pair_of(architecture, seed, torch.get_default_dtype())


@cache
def pair_of(architecture: str, seed: int, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedModel]:
    official = build_tiny(BY_NAME[architecture], seed, **FIELDS.get(architecture, {})).to(dtype)
    return from_official(official).eval(), official


def prompts(seed: int = 0) -> dict[str, torch.LongTensor]:
    """Four prompts of different lengths, padded on the left."""
    mask = ragged_mask(LENGTHS, side="left")
    ids = torch.randint(3, VOCABULARY, mask.shape, generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids * mask, "attention_mask": mask}


def generate(model: PreTrainedModel, inputs: dict, seed: int = 0, **options):
    """The sequences, with the scores of each step and whatever else `generate` returns."""
    torch.manual_seed(seed)
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False} | options
    return model.generate(**inputs, return_dict_in_generate=True, output_scores=True, **options)


def assert_varied(sequences: torch.LongTensor, length: int = max(LENGTHS), least: int = NEW_TOKENS // 2) -> None:
    """What was generated would show a mistake: no one token over and over, nor the same after every prompt.

    That holds of random weights by chance, and was tried for one seed.
    """
    if "TFM_ZOO_SEED" in os.environ:
        return
    new = sequences[:, length:]
    assert new.shape[1] > 1 and new.unique().numel() >= least, new
    assert len(new.unique(dim=0)) > len(new) // 2, new
