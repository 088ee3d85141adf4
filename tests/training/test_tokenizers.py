"""Tokenizers that are made of a text spell it, have as many tokens as were asked for, and are the same each time."""

import pytest

from tfm_zoo.training import tokenizers
from tfm_zoo.training.tokenizers import byte_level_bpe, joint_bpe, learned_word_piece, word_piece_tokenizer

TEXTS = ["the cat sat on the mat", "Cats, cats and dogs!", "der Hund Nummer 12", "the dog number 12"] * 5

SIZES = [("byte_level_bpe", 270, 257), ("joint_bpe", 300, 260), ("learned_word_piece", 100, 41)]


@pytest.mark.parametrize(("name", "size", "least"), [*SIZES, ("bpe_with_sentinels", 400, 360)])
def test_as_large_as_asked_for_and_the_same_each_time(name, size, least):
    make = getattr(tokenizers, name)
    tokenizer, again = (make(TEXTS, size) for _ in range(2))
    assert least < len(tokenizer) <= size and tokenizer.get_vocab() == again.get_vocab()
    text = TEXTS[-1]
    assert len(tokenizer(text)["input_ids"]) < len(make(TEXTS, least)(text)["input_ids"])
    with pytest.raises(ValueError, match=f"must be at least {least}.*, not {least - 1}"):
        make(TEXTS, least - 1)


def test_word_pieces_and_bytes():
    tokenizer, text = byte_level_bpe(TEXTS, 270), "the cat, na\u00efvely\n\t\U0001f600"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text and len(tokenizer("the")["input_ids"]) == 1
    tokenizer = learned_word_piece(["the cats and the dogs", "Cats, cats and dogs!"] * 5, 60)
    assert tokenizer.convert_ids_to_tokens(tokenizer("The cats, cat")["input_ids"])[1:3] == ["the", "cats"]
    assert tokenizer.decode(tokenizer("the gods")["input_ids"], skip_special_tokens=True) == "the gods"
    assert tokenizer("a", "b")["token_type_ids"] == [0, 0, 0, 1, 1]
    tokenizer = word_piece_tokenizer(["The cat sat", "the mat"])
    assert tokenizer.tokenize("The CAT mats!") == ["the", "cat", "mat", "##s", "!"]


def test_a_tokenizer_of_both_sides_spells_any_text():
    joint = joint_bpe(TEXTS, 300)
    for text, read in {
        "Zwei Hunde, die spielen.": "Zwei Hunde, die spielen.",
        "  two\t blanks \u00a0 ": "two blanks",
        "Stra\u00dfe \u2013 \U0001f600 \u6f22": "Stra\u00dfe \u2013 \U0001f600 \u6f22",
        "a\u0308": "\u00e4",  # one form of what has two
    }.items():
        ids = joint(text)["input_ids"]
        assert joint.unk_token_id not in ids and joint.decode(ids, skip_special_tokens=True) == read
    assert [joint.pad_token_id, joint.bos_token_id, joint.eos_token_id, joint.unk_token_id] == [0, 1, 2, 3]
    first, middle = joint("dog number")["input_ids"], joint("the dog number")["input_ids"]
    assert middle[-len(first) :] == first  # a word is itself wherever it stands
