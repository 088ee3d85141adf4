"""The cards' examples of a model of one's own: the zoo's computes what that model does, and gives its weights back."""

import pytest
import torch

import tfm_zoo
from tfm_zoo import converters

from .document import BLOCK, CARDS

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 4, 0, 0]])
MASK = (IDS != 0).long()
SEGMENTS = IDS % 3
TARGET = torch.tensor([[1, 6, 7], [1, 2, 3]])
PADDED, PADDED_TARGET = torch.tensor([[5, 6, 7, 2], [9, 2, 1, 1]]), torch.tensor([[0, 6, 7], [0, 1, 2]])
REAL = PADDED_TARGET != 2
#: file of weights -> what its model makes of a batch, and the zoo's
OUTPUTS = {
    "my-bert.pt": (
        lambda mine: mine(IDS, SEGMENTS, MASK)[1],
        lambda zoo: zoo(IDS, MASK, SEGMENTS).pooler_output,
    ),
    "my-classifier.pt": (lambda mine: mine(IDS), lambda zoo: zoo(IDS, MASK).logits),
    "my-gpt.pt": (lambda mine: mine(IDS[:1]), lambda zoo: zoo(IDS[:1]).logits),
    "my-translator.pt": (
        lambda mine: mine(IDS, TARGET),
        lambda zoo: zoo(IDS, decoder_input_ids=TARGET).logits,
    ),
    "my-seq2seq.pt": (
        lambda mine: mine(PADDED, PADDED_TARGET)[REAL],
        lambda zoo: zoo(PADDED, PADDED != 1, PADDED_TARGET, PADDED_TARGET != 2).logits[REAL],
    ),
}


@pytest.fixture
def converted(clone, monkeypatch) -> dict:
    """What the examples make: file of weights -> its rules and the zoo model."""
    made, files = {}, []
    load, convert = torch.load, converters.from_state_dict

    def loaded(name, **options):
        files.append(name)
        return load(name, **options)

    def from_state_dict(state_dict, rules, *args):
        model = convert(state_dict, rules, *args)
        made[files[-1]] = (rules, model)
        return model

    monkeypatch.setattr(torch, "load", loaded)
    monkeypatch.setattr(converters, "from_state_dict", from_state_dict, raising=False)
    for card in CARDS:
        for block in BLOCK.finditer(card.text):
            if "from_state_dict" in block[3]:
                exec(block[3], {"tfm_zoo": tfm_zoo})
    return made


@torch.no_grad()
def test_same_outputs_and_back(converted, own_models):
    assert converted.keys() == OUTPUTS.keys()
    for file, mine in own_models.items():
        rules, zoo = converted[file.name]
        of_mine, of_zoo = OUTPUTS[file.name]
        torch.testing.assert_close(of_zoo(zoo), of_mine(mine), rtol=0, atol=1e-6, msg=file.name)
        back, own = converters.to_state_dict(zoo, rules), mine.state_dict()
        assert own.keys() - back.keys() <= {"positional_encoding.pe", "pos_encoder.pe"}
        assert all(torch.equal(tensor, own[name]) for name, tensor in back.items())
