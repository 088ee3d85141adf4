"""Positions as the models have them, and how alike they are."""

import pytest
import torch

import tfm_zoo
from tfm_zoo.models.positions import rotate
from tfm_zoo.visualization import plot_positions, position_vectors, similarity_by_distance

from ..tiny import tiny_config, tiny_model


def config_of(kind: str, **fields):
    return tiny_config(tfm_zoo.TfmBertConfig, position_embedding_type=kind, **fields)


@pytest.mark.parametrize("sinusoid_type", ["interleaved", "halves"])
def test_similarity_of_sinusoids_depends_on_distance_alone(sinusoid_type):
    config = config_of("sinusoidal", sinusoid_type=sinusoid_type)
    (vectors,) = position_vectors(config, length=50).values()
    mean, low, high = similarity_by_distance(vectors)
    torch.testing.assert_close(low, high, atol=1e-6, rtol=0)
    half = config.hidden_size // 2
    angles = torch.arange(50)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    torch.testing.assert_close(mean, angles.cos().mean(1).double(), atol=1e-5, rtol=0)
    assert mean[0] == pytest.approx(1) and mean[1:].max() < 0.99


def test_similarity_of_learned_positions_does_not():
    model = tiny_model(tfm_zoo.TfmBertModel)
    (vectors,) = position_vectors(model).values()
    assert torch.equal(vectors, model.embeddings.embed_positions.weight)
    mean, low, high = similarity_by_distance(vectors)
    assert (high - low)[1:10].min() > 0.05
    similarity = torch.cosine_similarity(vectors[:, None], vectors[None], dim=-1).double()
    torch.testing.assert_close(mean[3], similarity.diagonal(3).mean(), atol=1e-6, rtol=0)


def test_rotary_positions_decay_as_a_dot_product_does():
    model = tiny_model(tfm_zoo.TfmGPTModel, position_embedding_type="rotary")
    (vectors,) = position_vectors(model).values()
    head_dim = model.config.head_dim
    assert vectors.shape == (24, head_dim)
    cos, sin = model.rotary_emb(torch.zeros(1), torch.arange(24)[None])
    ones = rotate(torch.ones(1, 1, 24, head_dim), cos, sin)[0, 0]
    products = (ones @ ones.T)[0] / head_dim
    torch.testing.assert_close(similarity_by_distance(vectors)[0].float(), products, atol=1e-5, rtol=0)


def test_rows_of_the_first_positions():
    """The tables of some models begin with rows that belong to no position."""
    offset = tiny_model(tfm_zoo.TfmEncoderDecoderModel, position_embedding_type="learned", position_offset=2)
    vectors = position_vectors(offset, length=5)
    assert vectors.keys() == {"encoder", "decoder"}
    for name in vectors:
        table = getattr(offset, name).embeddings.embed_positions.weight
        assert torch.equal(vectors[name], table[2:7])
    padded = tiny_model(tfm_zoo.TfmBertModel, position_ids_from_padding=True, pad_token_id=1)
    assert torch.equal(position_vectors(padded)[""], padded.embeddings.embed_positions.weight[2:])


def test_no_more_than_are_asked_for():
    assert len(position_vectors(config_of("sinusoidal", max_position_embeddings=2000))[""]) == 512
    assert len(position_vectors(config_of("sinusoidal"), length=700)[""]) == 700


@pytest.mark.parametrize(
    ("source", "length", "complaint"),
    [
        (config_of("none"), None, "position_embedding_type='none': the model has no positions"),
        (config_of("learned"), None, "a configuration has none"),
        (config_of("learned"), 25, "length 25 should be at least 2, and at most 24"),
        (config_of("rotary"), 1, "length 1 should be at least 2"),
        (torch.nn.Linear(2, 2), None, "Linear is none of the zoo: tfm_zoo.from_official"),
    ],
)
def test_bad_input(source, length, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        plot_positions(source, tmp_path / "positions.png", length)
    assert not list(tmp_path.iterdir())
