"""The cards' examples of a model of one's own: the zoo's computes what that model does, and gives its weights back."""

import re

import pytest
import torch

import tfm_zoo
from tfm_zoo import converters

from .document import BLOCK, CARDS

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 4, 0, 0]])
MASK = (IDS != 0).long()
TARGET = torch.tensor([[1, 6, 7], [1, 2, 3]])
READ, GOAL = torch.tensor([[5, 6, 7, 2], [9, 2, 1, 1]]), torch.tensor([[0, 6, 7], [0, 1, 2]])
REAL = GOAL != 2
#: file of weights -> what its model makes of a batch, and the zoo's
OUTPUTS = {
    "my-bert.pt": (lambda mine: mine(IDS, IDS % 3, MASK)[1], lambda zoo: zoo(IDS, MASK, IDS % 3).pooler_output),
    "my-classifier.pt": (lambda mine: mine(IDS), lambda zoo: zoo(IDS, MASK).logits),
    "my-gpt.pt": (lambda mine: mine(IDS[:1]), lambda zoo: zoo(IDS[:1]).logits),
    "my-translator.pt": (lambda mine: mine(IDS, TARGET), lambda zoo: zoo(IDS, decoder_input_ids=TARGET).logits),
    "my-seq2seq.pt": (lambda mine: mine(READ, GOAL)[REAL], lambda zoo: zoo(READ, READ != 1, GOAL, REAL).logits[REAL]),
}
#: file of weights -> the example that reads it, and its name for the model
EXAMPLES = {
    file: (block[3], name)
    for card in CARDS
    for block in BLOCK.finditer(card.text)
    for name, file in re.findall(r'(\w+) = from_state_dict\(\n *torch\.load\("(.*?)"', block[3])
}


@torch.no_grad()
@pytest.mark.parametrize("file", OUTPUTS)
def test_same_outputs_and_back(file, clone, own_models, monkeypatch):
    convert, all_rules = converters.from_state_dict, []

    def from_state_dict(weights, rules, *rest):
        all_rules.append(rules)
        return convert(weights, rules, *rest)

    monkeypatch.setattr(converters, "from_state_dict", from_state_dict)
    (code, name), made = EXAMPLES[file], {"tfm_zoo": tfm_zoo}
    exec(code, made)
    zoo, (mine,) = made[name], (model for path, model in own_models.items() if path.name == file)
    of_mine, of_zoo = OUTPUTS[file]
    torch.testing.assert_close(of_zoo(zoo), of_mine(mine), rtol=0, atol=1e-6)
    back, own = converters.to_state_dict(zoo, all_rules[-1]), mine.state_dict()
    assert own.keys() - back.keys() <= {"positional_encoding.pe", "pos_encoder.pe"}
    assert all(torch.equal(tensor, own[key]) for key, tensor in back.items())
