"""What heads attend to, against a count by hand."""

import pytest
import torch

from tfm_zoo.training.tokenizers import byte_level_bpe
from tfm_zoo.visualization import attention_maps, head_shares
from tfm_zoo.visualization.heads import PLACES, pairs_of

from .conftest import TARGET, TEXT, model_of

TEXTS = [f"{TEXT} a film", TARGET]


def target_of(tokens: list[str], query: int, key: int) -> str:
    if tokens[key] in ("[CLS]", "[SEP]"):
        return tokens[key]
    near = {0: "itself", -1: "the token before", 1: "the token after"}
    if key - query in near:
        return near[key - query]
    return "the same token elsewhere" if tokens[key] == tokens[query] else "any other token"


def test_a_part_of_a_character_and_a_blank_are_no_punctuation():
    tokenizer = byte_level_bpe(["a"], 257)  # each byte is a token
    pairs = pairs_of(tokenizer, tokenizer("abé ,", return_tensors="pt").input_ids[0], [])
    places = [PLACES[target] for target in pairs[:, 0].float().argmax(0).tolist()]
    assert places == ["itself", "the token after", *["any other token"] * 3, "punctuation"]
    assert PLACES[pairs[:, 3, 0].float().argmax()] == "the first token"


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_shares(kind, tokenizer):
    model = model_of(kind)
    found = head_shares(model, tokenizer, TEXTS)
    expected, chance, count = torch.zeros(found.shares.shape), torch.zeros(len(found.targets)), 0
    for text in TEXTS:
        attention = attention_maps(model, tokenizer, text)[kind]
        last = len(attention.keys) - 1
        for query in range(1, last):  # between [CLS] and [SEP]
            seen = range(query + 1) if kind == "decoder" else range(last + 1)
            for key in seen:
                target = found.targets.index(target_of(attention.keys, query, key))
                expected[target] += attention.weights[:, :, query, key]
                chance[target] += 1 / len(seen)
            count += 1
    torch.testing.assert_close(found.shares, expected / count)
    torch.testing.assert_close(found.chance, chance / count)
    torch.testing.assert_close(found.shares.sum(dim=0), torch.ones(found.shares.shape[1:]))
    # No panel is blank: a decoder's tokens see none after them, and the first one here is [CLS].
    assert found.chance.min() > 0 and ("the token after" in found.targets) == (kind == "encoder")
    assert "the first token" not in found.targets
    target, layer, head, share, _ = found.strongest()[-1]
    assert target == "any other token" and share == found.shares[-1, layer, head] == found.shares[-1].max()
