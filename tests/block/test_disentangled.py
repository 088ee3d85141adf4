"""DeBERTa's attention, beyond what the tests of equivalence and conversion say of every official class."""

import pytest
import torch

import tfm_zoo
from tfm_zoo.converters import ConversionError

from ..official_models import BY_NAME, build_tiny
from ..precision import assert_same
from ..tiny import tiny_model, without_kernels

pytestmark = pytest.mark.usefixtures("double")

IDS = torch.arange(1, 27).view(2, 13)
#: of the first sequence nothing is padding; the second has some before, between and behind its tokens
MASK = torch.tensor([[1] * 13, [0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0]])
FIELDS = {"position_buckets": 4, "max_relative_positions": 6, "conv_kernel_size": 3}


@torch.no_grad()
def test_padding_between_tokens_counts_in_distances():
    official = build_tiny(BY_NAME["DebertaV2Model"])
    zoo = tfm_zoo.from_official(official)
    states, expected = (model(IDS, attention_mask=MASK).last_hidden_state for model in (zoo, official))
    assert_same(states[MASK == 1], expected[MASK == 1])


@torch.no_grad()
@without_kernels
def test_attention_implementations_agree():
    """Also where weights are asked for, which are those of the padded batch."""
    model, mask = tiny_model(tfm_zoo.TfmDebertaModel, **FIELDS), (torch.arange(13) < torch.tensor([[13], [5]])).long()
    outputs = {}
    for implementation in ("sdpa", "eager", "flex_attention"):
        model.set_attn_implementation(implementation)
        outputs[implementation] = model(IDS, attention_mask=mask, output_attentions=implementation == "eager")
    for other in ("eager", "flex_attention"):
        assert_same(outputs[other][0], outputs["sdpa"][0])
    assert outputs["eager"].attentions[0].shape == (2, 4, 13, 13)


def test_what_takes_no_bias_is_refused():
    model = tiny_model(tfm_zoo.TfmDebertaModel)
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match=r"'flash_attention_2' takes no bias .* eager, sdpa"):
        model(IDS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pos_att_type": ["p2p"]}, r"pos_att_type=\['p2p'\] should name 'c2p', 'p2c' or both"),
        ({"pos_att_type": []}, r"pos_att_type=\[\] should name"),
        ({"position_buckets": 46}, "position_buckets=46 .* max_relative_positions=24"),
        ({"conv_kernel_size": 4}, "conv_kernel_size=4 should be odd"),
        ({"conv_kernel_size": 3, "conv_groups": 5}, "conv_groups=5 should divide hidden_size=32"),
        ({"conv_act": "relu"}, "conv_act='relu' has no effect without conv_kernel_size"),
        ({"num_key_value_heads": 2}, "num_key_value_heads=2 is a field of other families"),
        ({"layer_types": ["linear_attention"] * 2}, "choose no linear layer"),
    ],
    ids=str,
)
def test_refused_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        tiny_model(tfm_zoo.TfmDebertaModel, **{"position_buckets": 4} | fields)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("DebertaV2Model", {"relative_attention": False}, "relative_attention=False .* converted: .*: True"),
        ("DebertaV2Model", {"pos_att_type": None}, "pos_att_type=None"),
        ("DebertaV2Model", {"embedding_size": 16}, "embedding_size=16 .* embedding_size: 32"),
        ("DebertaModel", {"talking_head": True}, "talking_head=True"),
    ],
    ids=str,
)
def test_refused_conversions(name, fields, message):
    with pytest.raises(ConversionError, match=message):
        tfm_zoo.from_official(build_tiny(BY_NAME[name], **fields))


def test_no_other_checkpoint_carries_its_files(tmp_path):
    for head in (tfm_zoo.TfmBertModel, tfm_zoo.TfmDebertaModel):
        tiny_model(head).save_pretrained(tmp_path / head.__name__)
    files = {folder.name: {file.name for file in folder.glob("*.py")} for folder in tmp_path.iterdir()}
    own = {"configuration_tfm_deberta.py", "disentangled.py", "modeling_tfm_deberta.py"}
    assert files["TfmDebertaModel"] - files["TfmBertModel"] == own and files["TfmBertModel"] < files["TfmDebertaModel"]


@pytest.mark.parametrize("fields", [{"position_buckets": 8}, {"position_buckets": None, "key_bias": False}], ids=str)
def test_a_model_that_never_was_official_is_exported(fields):
    """Keys without a bias, and a row for each distance: DeBERTa v1."""
    own = {"share_att_key": False, "norm_rel_ebd": "none"} if "key_bias" in fields else {}
    zoo = tiny_model(tfm_zoo.TfmDebertaForMaskedLM, **fields, **own)
    official = tfm_zoo.to_official(zoo)
    assert type(official).__name__ == ("DebertaForMaskedLM" if own else "DebertaV2ForMaskedLM")
    assert_same(zoo(IDS).logits, official(IDS).logits)
