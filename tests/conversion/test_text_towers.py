"""Text towers: as they lie on the Hub, what they pool, and what does not fit."""

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForTextEncoding, CLIPConfig, CLIPModel, CLIPTextModelWithProjection

from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo import TfmTextTowerForProjection, TfmTextTowerModel, from_official, to_official
from tfm_zoo.converters import ConversionError

IDS = torch.tensor([[9, 40, 98, 7, 3, 3], [9, 50, 51, 52, 97, 7]])


@pytest.fixture(scope="module")
def official():
    return build_tiny(BY_NAME["CLIPTextModelWithProjection"])


@in_double()
def test_a_tower_of_a_whole_model(tmp_path):
    """The whole is refused with a hint, and what the hint says converts."""
    tiny = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    text = tiny | {"vocab_size": 99, "eos_token_id": 7, "bos_token_id": 5, "projection_dim": 20}
    CLIPModel(CLIPConfig(text_config=text, vision_config=tiny, projection_dim=20)).save_pretrained(tmp_path / "whole")
    with pytest.raises(ConversionError, match="its text tower is converted where that is saved by itself"):
        from_official(tmp_path / "whole")
    tower = CLIPTextModelWithProjection.from_pretrained(tmp_path / "whole").eval()
    tower.save_pretrained(tmp_path / "tower")
    zoo = from_official(tmp_path / "tower")
    assert isinstance(zoo, TfmTextTowerForProjection)
    assert_same(zoo(IDS).text_embeds, tower(IDS).text_embeds)


@in_double()
def test_a_tower_of_a_diffusion_pipeline(tmp_path):
    """Its files were saved by earlier releases: names begin with `text_model`, and positions are stored."""
    tower = build_tiny(BY_NAME["CLIPTextModel"], eos_token_id=2)
    tower.save_pretrained(tmp_path)
    tensors = {f"text_model.{name}": tensor.clone() for name, tensor in tower.state_dict().items()}
    tensors["text_model.embeddings.position_ids"] = torch.arange(40)[None]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    zoo = from_official(tmp_path)
    assert isinstance(zoo, TfmTextTowerModel)
    assert zoo.config.pooled_position == "highest"
    assert_same(zoo(IDS).pooler_output, tower(IDS).pooler_output)


def test_auto_classes_load_what_was_saved(official, tmp_path):
    zoo = from_official(official)
    zoo.save_pretrained(tmp_path)
    for trust in (False, True):
        loaded = AutoModel.from_pretrained(tmp_path, trust_remote_code=trust)
        assert type(loaded).__name__ == "TfmTextTowerForProjection"
        assert torch.equal(loaded(IDS).text_embeds, zoo(IDS).text_embeds)
    assert isinstance(AutoModelForTextEncoding.from_pretrained(tmp_path), TfmTextTowerModel)


@in_double()
def test_what_is_pooled(official):
    """A text ends at its end token, whatever stands behind it; with 2 for that, at the first highest id."""
    for fields, places in ({}, [3, 5]), ({"eos_token_id": 2, "pooled_position": "highest"}, [2, 4]):
        zoo = from_official(official, **fields)
        mask = (torch.arange(6) <= torch.tensor(places)[:, None]).long()
        bare = zoo.model(IDS)
        assert torch.equal(bare.pooler_output, bare.last_hidden_state[[0, 1], places])
        assert_same(zoo(IDS, mask).text_embeds, zoo(IDS).text_embeds)
        assert not zoo.model(IDS, mask).last_hidden_state[mask == 0].any(), "padding has been computed"
    assert to_official(zoo).config.eos_token_id == 2


def test_what_does_not_fit(official):
    zoo = from_official(official)
    with pytest.raises(ValueError, match=r"input_ids of type torch\.float32 should be integers"):
        zoo(torch.zeros(1, 3, 32))
    with pytest.raises(ValueError, match=r"input_ids of shape \(6,\) should be of shape \(batch, length\)"):
        zoo(IDS[0])
    with pytest.raises(ValueError, match="pooled_position='end' is where the end token stands"):
        from_official(official, eos_token_id=[7, 8])
