"""What heads attend to, against a count by hand."""

import pytest
import torch

from tfm_zoo.visualization import attention_maps, head_shares

from .conftest import TARGET, TEXT, model_of

TEXTS = [f"{TEXT} a film", TARGET]


def target_of(tokens: list[str], query: int, key: int) -> str:
    if tokens[key] in ("[CLS]", "[SEP]"):
        return tokens[key]
    near = {0: "itself", -1: "the token before", 1: "the token after"}
    if key - query in near:
        return near[key - query]
    return "the same token elsewhere" if tokens[key] == tokens[query] else "the rest"


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
    target, layer, head, share, _ = found.strongest()[-1]
    assert target == "the rest" and share == found.shares[-1, layer, head] == found.shares[-1].max()
