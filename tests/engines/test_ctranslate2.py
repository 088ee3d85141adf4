"""From a zoo checkpoint through `tfm-zoo export --for-engines` into CTranslate2: the same tokens and hidden states.

CTranslate2 takes neither FSMT nor OpenAI GPT. Of Mistral it cuts the window otherwise where a prompt is longer.
"""

from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import tfm_zoo

from ..command import tfm_zoo as command
from .models import INNER, LLAMA, PROMPTS, make

pytestmark = pytest.mark.slow

#: as Marian's vocabularies: the padding stands at the end
TOKENS = ["<s>", "<unk>", "</s>", *(f"word{index}" for index in range(30)), "<pad>"]
NAMES = {"bos_token": "<s>", "unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
BEGIN, END, PADDING = (TOKENS.index(token) for token in ("<s>", "</s>", "<pad>"))
COMMON = {"vocab_size": len(TOKENS), "pad_token_id": PADDING}
DECODER = COMMON | {"bos_token_id": BEGIN, "eos_token_id": END}
ENCODER_DECODER = DECODER | {
    **{"d_model": 128, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 192},
    **{"init_std": 0.15, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 192},
    **{"decoder_start_token_id": END, "forced_eos_token_id": None},
    "tie_word_embeddings": False,  # so that a model says more than what it has just read
}
#: by what the engine makes of a class, official classes and their fields
CLASSES = {
    **dict.fromkeys(("BertModel", "RobertaModel"), ("Encoder", INNER)),
    **{"XLMRobertaForSequenceClassification": ("Encoder", INNER), "DistilBertModel": ("Encoder", {"hidden_dim": 256})},
    **{"GPT2LMHeadModel": ("Generator", {}), "LlamaForCausalLM": ("Generator", LLAMA)},
    **{"MistralForCausalLM": ("Generator", LLAMA | {"sliding_window": 64}), "Qwen2ForCausalLM": ("Generator", LLAMA)},
    "MarianMTModel": ("Translator", {"decoder_start_token_id": PADDING, "scale_embedding": True}),
    "BartForConditionalGeneration": ("Translator", {}),
    "MBartForConditionalGeneration": ("Translator", {"scale_embedding": True}),
}
FIELDS = {"Encoder": COMMON, "Generator": DECODER, "Translator": ENCODER_DECODER}
NEW_TOKENS = 12


def convert(name: str, folder: Path, fields: dict) -> tuple[PreTrainedModel, str]:
    """The zoo model that an official class of this name becomes, and its folder for the engine."""
    words = Tokenizer(models.WordLevel({token: index for index, token in enumerate(TOKENS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = tfm_zoo.from_official(make(name, **fields)).eval()
    for saved in (model, PreTrainedTokenizerFast(tokenizer_object=words, **NAMES)):
        saved.save_pretrained(folder / "zoo")
    assert "warning" not in command("export", "--for-engines", folder / "zoo", folder / "official")
    return model, ctranslate2.converters.TransformersConverter(str(folder / "official")).convert(str(folder / "engine"))


def words(ids: list[int]) -> list[str]:
    return [TOKENS[index] for index in ids]


def generated(model: PreTrainedModel, ids: list[int]) -> list[str]:
    options = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "num_beams": 1}
    return words(model.generate(torch.tensor([ids]), **options)[0, -NEW_TOKENS:].tolist())


@torch.no_grad()
@pytest.mark.parametrize("name", CLASSES)
def test_same_tokens_and_states(name, tmp_path):
    kind, fields = CLASSES[name]
    model, folder = convert(name, tmp_path, FIELDS[kind] | fields)
    engine = getattr(ctranslate2, kind)(folder)
    for ids in PROMPTS:
        if kind == "Encoder":
            states = torch.from_numpy(np.array(engine.forward_batch([ids]).last_hidden_state))
            expected = model.base_model(input_ids=torch.tensor([ids])).last_hidden_state
            torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-4)
        elif kind == "Generator":
            options = {"max_length": NEW_TOKENS, "min_length": NEW_TOKENS, "include_prompt_in_result": False}
            (result,) = engine.generate_batch([words(ids)], **options)
            assert result.sequences == [generated(model, ids)]
        else:
            options = {"max_decoding_length": NEW_TOKENS, "min_decoding_length": NEW_TOKENS, "beam_size": 1}
            # mBART begins with a language, which the engine wants from the caller.
            begin = [["</s>"]] if name.startswith("MBart") else None
            (result,) = engine.translate_batch([words([*ids, END])], begin, **options)
            assert result.hypotheses == [generated(model, [*ids, END])]
