"""The bias of relative positions against T5's own, and where it has no meaning."""

from itertools import product

import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from tfm_zoo import TfmDebertaModel, TfmEncoderDecoderEncoder, TfmGPTModel
from tfm_zoo.models.position_bias import TfmRelativeBias

from ..tiny import tiny_config, tiny_model

RELATIVE = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}


def test_buckets_of_t5():
    distances = torch.arange(-300, 300)
    for is_causal, (buckets, farthest) in product((True, False), ((32, 128), (8, 10), (7, 20))):
        fields = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": farthest}
        made = TfmRelativeBias(tiny_config(**fields), 1, is_causal).bucket_of(distances)
        wanted = T5Attention._relative_position_bucket(distances, not is_causal, buckets, farthest)
        assert made.equal(wanted), (is_causal, buckets)


@pytest.mark.parametrize(
    ("head", "fields", "attention", "message"),
    [
        *((TfmGPTModel, RELATIVE, each, "num_buckets=8") for each in ("flash_attention_2", "paged|sdpa", "vllm")),
        (TfmDebertaModel, {}, "flash_attention_2", "takes no bias"),
    ],
)
def test_attention_that_takes_no_bias(head, fields, attention, message):
    model = tiny_model(head, **fields)
    model.config._attn_implementation = attention
    with pytest.raises(ValueError, match=f"'{attention[:5]}.*{message}.* eager, sdpa"):
        model(torch.arange(4, 9)[None])


@pytest.mark.slow
@torch.no_grad()
def test_flex_attention_in_a_graph_reads_each_layers_own_bias():
    model = tiny_model(TfmEncoderDecoderEncoder, hidden_size=64, relative_attention_per_layer=True, **RELATIVE).eval()
    ids, tables = torch.arange(5, 17).view(2, 6), model.encoder.position_bias
    for number, table in enumerate(tables):
        table.weight.copy_(torch.randn(table.weight.shape, generator=torch.Generator().manual_seed(number)))
    wanted = model(ids).last_hidden_state
    model.set_attn_implementation("flex_attention")
    found = torch.compile(model, backend="eager")(ids).last_hidden_state
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
