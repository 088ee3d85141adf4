"""One field changed, in the call or in a saved configuration, and what follows from it follows."""

import pytest
import transformers

from tfm_zoo import TfmBertConfig, TfmBertModel

from ..tiny import tiny_config, tiny_model


@pytest.mark.parametrize(
    "override",
    [
        {"norm_position": "pre"},
        {"num_attention_heads": 8},
        {"hidden_size": 64},
        {"position_embedding_type": "rotary", "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    ],
    ids=lambda override: next(iter(override)),
)
def test_override_of_a_saved_config(tmp_path, override):
    tiny_config().save_pretrained(tmp_path)
    changed = transformers.AutoConfig.from_pretrained(tmp_path, **override)
    assert changed.to_dict() == tiny_config(**override, name_or_path=str(tmp_path)).to_dict()
    assert (changed.final_norm, changed.head_dim, changed.num_key_value_heads) == (
        changed.norm_position == "pre",
        changed.hidden_size // changed.num_attention_heads,
        changed.num_attention_heads,
    )


def test_what_was_chosen_stays_chosen(tmp_path):
    chosen = {"final_norm": True, "head_dim": 4, "num_key_value_heads": 2}
    tiny_config(**chosen).save_pretrained(tmp_path)
    changed = TfmBertConfig.from_pretrained(tmp_path, num_attention_heads=8)
    assert {name: getattr(changed, name) for name in chosen} == chosen


def test_overrides_are_checked(tmp_path):
    tiny_config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="hidden_size=32 is not a multiple of num_attention_heads=3"):
        TfmBertConfig.from_pretrained(tmp_path, num_attention_heads=3)


@pytest.mark.parametrize(("wrong", "right"), [("norm_postion", "norm_position"), ("hidden_sizes", "hidden_size")])
def test_misspelt_field(wrong, right):
    with pytest.raises(ValueError, match=rf"no field '{wrong}'\. Is it '{right}'"):
        tiny_config(**{wrong: "pre"})


def test_failed_save_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", lambda *args, **kwargs: 1 / 0)
    for folder in (tmp_path, tmp_path / "new"):
        with pytest.raises(ZeroDivisionError):
            tiny_model(TfmBertModel).save_pretrained(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
