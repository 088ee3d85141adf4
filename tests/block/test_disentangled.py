"""DeBERTa's attention, beyond what the tests of equivalence and conversion say of every official class."""

import pytest
import torch

import tfm_zoo

from ..official_models import BY_NAME, build_tiny
from ..precision import assert_same
from ..tiny import tiny_model, without_kernels

pytestmark = pytest.mark.usefixtures("double")

IDS = torch.arange(1, 27).view(2, 13)
#: of the first sequence nothing is padding; the second has some before, between and behind its tokens
MASK = torch.tensor([[1] * 13, [0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0]])


@torch.no_grad()
def test_padding_between_tokens_counts_in_distances(monkeypatch):
    """Also where the places of a text are read in several parts."""
    monkeypatch.setattr("tfm_zoo.models.modeling_tfm_deberta.PLACES", 5)
    official = build_tiny(BY_NAME["DebertaV2Model"])
    zoo = tfm_zoo.from_official(official)
    states, expected = (model(IDS, attention_mask=MASK).last_hidden_state for model in (zoo, official))
    assert_same(states[MASK == 1], expected[MASK == 1])


@torch.no_grad()
@without_kernels
def test_flex_attention():
    fields = {"position_buckets": 4, "max_relative_positions": 6, "conv_kernel_size": 3}
    model, mask = tiny_model(tfm_zoo.TfmDebertaModel, **fields), (torch.arange(13) < torch.tensor([[13], [5]])).long()
    wanted = model(IDS, attention_mask=mask)[0]
    model.set_attn_implementation("flex_attention")
    assert_same(model(IDS, attention_mask=mask)[0], wanted)


def test_no_other_checkpoint_carries_its_files(tmp_path):
    for head in (tfm_zoo.TfmBertModel, tfm_zoo.TfmDebertaModel):
        tiny_model(head).save_pretrained(tmp_path / head.__name__)
    files = {folder.name: {file.name for file in folder.glob("*.py")} for folder in tmp_path.iterdir()}
    own = {"configuration_tfm_deberta.py", "modeling_tfm_deberta.py"}
    assert files["TfmDebertaModel"] - files["TfmBertModel"] == own and files["TfmBertModel"] < files["TfmDebertaModel"]
