"""Tokenizers of many languages: which two they read, and which one the model writes."""

import pytest
from datasets import Dataset
from transformers import MBart50Tokenizer, MBartTokenizer

from tfm_zoo import TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.training.tasks.translation import TranslationOptions, load_parallel_texts, set_languages

from ..tiny import tiny_model


@pytest.mark.parametrize("tokenizer_class", [MBartTokenizer, MBart50Tokenizer])
def test_the_model_is_told_which_language_it_writes(tokenizer_class):
    tokenizer = tokenizer_class()
    model = tiny_model(TfmEncoderDecoderForConditionalGeneration, vocab_size=len(tokenizer), start_with_last_token=True)
    set_languages(model, tokenizer, "en_XX", "de_DE")
    english, german = tokenizer.convert_tokens_to_ids(["en_XX", "de_DE"])
    assert english in tokenizer("a")["input_ids"] and german in tokenizer(text_target="a")["input_ids"]
    generated = model.generate(**tokenizer("a", return_tensors="pt"), max_new_tokens=2)[0].tolist()
    assert generated.index(german) == (0 if tokenizer_class is MBartTokenizer else 1)
    with pytest.raises(ValueError, match=r"target_lang 'de': .* knows ar_AR, cs_CZ, de_DE"):
        set_languages(model, tokenizer, "en_XX", "de")


def test_a_code_names_the_column_that_it_begins_with(tmp_path):
    rows = Dataset.from_dict({"en": ["a", "b"] * 4, "de": ["c", "d"] * 4})
    for split in ("train", "validation"):
        rows.to_json(tmp_path / f"{split}.json")
    files = {f"{split}_file": str(tmp_path / f"{split}.json") for split in ("train", "validation")}
    texts = load_parallel_texts(TranslationOptions(**files, source_lang="en_XX", target_lang="de_DE"))
    assert texts.languages == ("en_XX", "de_DE")
    assert texts.splits["validation"][:2] == {"source": ["a", "b"], "target": ["c", "d"]}
