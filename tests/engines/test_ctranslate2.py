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
from typer.testing import CliRunner

import tfm_zoo
from tfm_zoo.cli import app

from .checkpoints import INNER, LLAMA, SIZES, official

pytestmark = pytest.mark.slow

#: as Marian's vocabularies: the padding stands at the end
TOKENS = ["<s>", "<unk>", "</s>", *(f"word{index}" for index in range(30)), "<pad>"]
BEGIN, END, PADDING = (TOKENS.index(token) for token in ("<s>", "</s>", "<pad>"))
COMMON = {"vocab_size": len(TOKENS), "pad_token_id": PADDING}
DECODER = COMMON | {"bos_token_id": BEGIN, "eos_token_id": END}
SIDES = ("encoder", "decoder")
ENCODER_DECODER = DECODER | {
    "d_model": SIZES["hidden_size"],
    **{f"{side}_layers": 2 for side in SIDES},
    **{f"{side}_attention_heads": 4 for side in SIDES},
    **{f"{side}_ffn_dim": 192 for side in SIDES},
    "decoder_start_token_id": END,
    "forced_eos_token_id": None,
    "init_std": SIZES["initializer_range"],
    "tie_word_embeddings": False,  # so that a model says more than what it has just read
}
ENCODERS = {
    "BertModel": INNER,
    "RobertaModel": INNER,
    "XLMRobertaForSequenceClassification": INNER,
    "CamembertModel": INNER,
    "DistilBertModel": {"hidden_dim": 256},
}
DECODERS = {
    "GPT2LMHeadModel": {},
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA | {"sliding_window": 64},
    "Qwen2ForCausalLM": LLAMA,
}
ENCODER_DECODERS = {
    "MarianMTModel": {"decoder_start_token_id": PADDING, "scale_embedding": True},
    "BartForConditionalGeneration": {},
    "MBartForConditionalGeneration": {"scale_embedding": True},
}
PROMPTS = [[5, 9, 12], [7, 8, 20, 11, 22, 19, 9, 10, 11, 5, 6, 7, 8]]
NEW_TOKENS = 12


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = models.WordLevel({token: index for index, token in enumerate(TOKENS)}, unk_token="<unk>")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"bos_token": "<s>", "unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def convert(name: str, folder: Path, **fields) -> tuple[PreTrainedModel, str]:
    """The zoo model that an official class of this name becomes, and its folder for the engine."""
    torch.manual_seed(0)
    model = tfm_zoo.from_official(official(name, **fields)).eval()
    model.save_pretrained(folder / "zoo")
    make_tokenizer().save_pretrained(folder / "zoo")
    exported = CliRunner().invoke(app, ["export", "--for-engines", str(folder / "zoo"), str(folder / "official")])
    assert exported.exit_code == 0, exported.output
    converter = ctranslate2.converters.TransformersConverter(str(folder / "official"))
    return model, converter.convert(str(folder / "engine"))


def words(ids: list[int]) -> list[str]:
    return [TOKENS[index] for index in ids]


def generated(model: PreTrainedModel, ids: list[int]) -> list[int]:
    options = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "num_beams": 1}
    return model.generate(torch.tensor([ids]), **options)[0, -NEW_TOKENS:].tolist()


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder(name, tmp_path):
    model, folder = convert(name, tmp_path, **COMMON, **ENCODERS[name])
    engine = ctranslate2.Encoder(folder)
    for ids in PROMPTS:
        states = np.array(engine.forward_batch([ids]).last_hidden_state)
        with torch.no_grad():
            expected = model.base_model(input_ids=torch.tensor([ids])).last_hidden_state
        torch.testing.assert_close(torch.from_numpy(states), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", DECODERS)
def test_decoder(name, tmp_path):
    model, folder = convert(name, tmp_path, **DECODER, **DECODERS[name])
    engine = ctranslate2.Generator(folder)
    lengths = {"max_length": NEW_TOKENS, "min_length": NEW_TOKENS}
    for ids in PROMPTS:
        (result,) = engine.generate_batch([words(ids)], **lengths, include_prompt_in_result=False)
        assert result.sequences_ids == [generated(model, ids)]


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_encoder_decoder(name, tmp_path):
    model, folder = convert(name, tmp_path, **ENCODER_DECODER | ENCODER_DECODERS[name])
    engine = ctranslate2.Translator(folder)
    lengths = {"max_decoding_length": NEW_TOKENS, "min_decoding_length": NEW_TOKENS, "beam_size": 1}
    # mBART begins with a language, which the engine wants from the caller.
    begin = [["</s>"]] if name.startswith("MBart") else None
    for ids in PROMPTS:
        (result,) = engine.translate_batch([words([*ids, END])], begin, **lengths)
        assert result.hypotheses == [words(generated(model, [*ids, END]))]
