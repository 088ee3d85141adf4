"""MosaicBERT (and DNABERT-2) and Jina v2, whose own code no longer loads, and which transformers does not have.

The reference is written for this test, from the papers (Portes et al. 2023; Günther et al. 2023) and from the names and
shapes of the checkpoints' tensors: BERT (Devlin et al. 2018) without positions, whose scores fall with the distance to
either side (Press et al. 2022), and with gated feed-forwards (Shazeer 2020). No original code has been run.
"""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from tests.precision import assert_same
from tfm_zoo import TfmBertForMaskedLM
from tfm_zoo.converters import ARCHITECTURES, ConversionError, from_official, to_official, to_state_dict
from tfm_zoo.converters.choosing import table_for
from tfm_zoo.converters.config_conversion import completed, to_zoo_config

pytestmark = pytest.mark.usefixtures("double")

WIDTH, HEADS, INNER, LAYERS, WORDS, EPS = 48, 6, 40, 2, 99, 1e-3
CONFIG = {
    **{"model_type": "bert", "hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": INNER},
    **{"num_hidden_layers": LAYERS, "vocab_size": WORDS, "layer_norm_eps": EPS, "type_vocab_size": 2},
    "auto_map": {"AutoModel": "nowhere.Model"},  # code that cannot be loaded, and is not
}
MOSAIC = CONFIG | {"alibi_starting_size": 512, "architectures": ["BertForMaskedLM"]}
JINA = CONFIG | {"position_embedding_type": "alibi", "feed_forward_type": "geglu", "emb_pooler": "mean"}
SLOPES = torch.tensor([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])  # of 4 heads, and two of those between them


def weights_of(config: dict) -> dict[str, torch.Tensor]:
    """Random tensors under the names that checkpoints have, which the reference reads; each asks for its gradient."""
    table = table_for(config)
    zoo = TfmBertForMaskedLM(to_zoo_config(table, completed(table, config), TfmBertForMaskedLM, {}))
    shapes = to_state_dict(zoo, table.tensor_rules([table.head(TfmBertForMaskedLM)], zoo.config))
    untied = {name: tensor.shape for name, tensor in shapes.items() if "predictions.decoder" not in name}
    return {name: (torch.randn(shape) * 0.3).requires_grad_() for name, shape in untied.items()}


def reference(weights: dict[str, torch.Tensor], ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor):
    """The last hidden state and the logits of masked tokens."""

    def linear(name: str, states: torch.Tensor) -> torch.Tensor:
        return F.linear(states, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name: str, states: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(states, (WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"], EPS)

    words = weights["bert.embeddings.word_embeddings.weight"]
    states = words[ids] + weights["bert.embeddings.token_type_embeddings.weight"][segments]
    states = norm("bert.embeddings.LayerNorm", states)
    places = torch.arange(ids.shape[1])
    bias = -SLOPES[:, None, None] * (places[:, None] - places).abs()
    bias = bias.masked_fill(mask[:, None, None] == 0, -torch.inf)
    for layer in (f"bert.encoder.layer.{i}" for i in range(LAYERS)):
        own = f"{layer}.attention.self"
        if f"{own}.Wqkv.weight" in weights:
            parts = linear(f"{own}.Wqkv", states).chunk(3, dim=-1)
        else:
            parts = (linear(f"{own}.{name}", states) for name in ("query", "key", "value"))
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        attention = (query @ key.mT * (WIDTH // HEADS) ** -0.5 + bias).softmax(dim=-1)
        attended = linear(f"{layer}.attention.output.dense", (attention @ value).transpose(1, 2).flatten(2))
        states = norm(f"{layer}.attention.output.LayerNorm", states + attended)
        gate, up = linear(f"{layer}.mlp.gated_layers", states).chunk(2, dim=-1)
        states = norm(f"{layer}.mlp.layernorm", states + linear(f"{layer}.mlp.wo", F.gelu(gate) * up))
    transformed = F.gelu(linear("cls.predictions.transform.dense", states))
    transformed = norm("cls.predictions.transform.LayerNorm", transformed)
    return states, transformed @ words.T + weights["cls.predictions.bias"]


def save(folder, config: dict, weights: dict[str, torch.Tensor]) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.detach() for name, tensor in weights.items()}, folder / "model.safetensors")


@pytest.mark.parametrize("config", [MOSAIC, JINA], ids=["mosaic", "jina"])
def test_as_the_papers_say(config, tmp_path):
    """Outputs, loss, gradients, and every tensor back again, bit for bit."""
    weights = weights_of(config)
    save(tmp_path, config, weights)
    zoo = from_official(tmp_path)
    assert type(zoo).__name__ == "TfmBertForMaskedLM" and zoo.config.mlp_output_bias
    ids, segments = torch.randint(5, WORDS, (3, 11)), torch.randint(0, 2, (3, 11))
    mask = (torch.arange(11) < torch.tensor([[11], [4], [7]])).long()
    for side in (mask, mask.flip(1)):
        labels = ids.masked_fill(side == 0, -100)
        batch = {"input_ids": ids, "attention_mask": side, "token_type_ids": segments}
        states, logits = reference(weights, ids, side, segments)
        outputs = zoo(**batch, labels=labels, output_hidden_states=True)
        assert_same(outputs.hidden_states[-1][side == 1], states[side == 1], "last hidden state")
        assert_same(outputs.logits[side == 1], logits[side == 1], "logits")
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    assert_same(outputs.loss, loss)
    table = ARCHITECTURES[zoo.config.official["model_type"]]
    rules = table.tensor_rules([table.head(type(zoo))], zoo.config)
    back = to_state_dict(zoo, rules)
    assert all(torch.equal(back[name], tensor) for name, tensor in weights.items())
    gradients = torch.autograd.grad(outputs.loss, [*zoo.parameters()])
    for parameter, gradient in zip(zoo.parameters(), gradients, strict=True):
        parameter.data = gradient
    found, wanted = to_state_dict(zoo, rules), torch.autograd.grad(loss, [*weights.values()])
    assert_same({name: found[name] for name in weights}, dict(zip(weights, wanted, strict=True)), "gradient")


def test_what_is_refused(tmp_path):
    save(tmp_path, JINA, weights_of(JINA))
    with pytest.raises(ConversionError, match="Jina v2 has no class in transformers"):
        to_official(from_official(tmp_path))
    save(tmp_path, JINA | {"feed_forward_type": "reglu"}, weights_of(JINA))
    with pytest.raises(ConversionError, match="Jina v2 with feed_forward_type='reglu'"):
        from_official(tmp_path)
