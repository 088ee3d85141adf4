"""Official -> zoo -> official, in memory and through folders: every tensor bit for bit, its type, its place in memory,
the settings of generation and of attention. (`test_fields.py` has the configuration.)"""

import copy

import pytest
import torch
import transformers

from tests.conversion.comparison import assert_same_config, assert_same_model, assert_same_weights
from tests.conversion.folders import edit_config
from tests.official_models import BY_NAME, build_tiny, distinct
from tfm_zoo import TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.converters import from_official, to_official

#: every head of one architecture of each family, and the architectures that do not combine known parts, or whose files
#: hold other tensors than the model
THROUGH_FOLDERS = [
    each
    for each in distinct(by="rules")
    if each.architecture.model_type in ("bert", "gpt2", "bart")
    or (not each.has_common_head and (each.architecture.stored or not each.is_later))
]


@pytest.mark.parametrize("native", THROUGH_FOLDERS, ids=str)
def test_through_folders(native, tmp_path):
    """Official folder in shards, zoo folder, official folder: what each `from_pretrained` makes of them."""
    original = build_tiny(native, dropout=True, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    original.save_pretrained(tmp_path / "official", max_shard_size="40KB")
    assert len(list(tmp_path.glob("official/model-*.safetensors"))) > 1
    zoo = from_official(tmp_path / "official")
    zoo.save_pretrained(tmp_path / "zoo")
    reloaded = native.head.zoo.from_pretrained(tmp_path / "zoo")
    assert_same_weights(reloaded, zoo)
    to_official(reloaded).save_pretrained(tmp_path / "back")
    assert_same_model(type(original).from_pretrained(tmp_path / "back"), original)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays(dtype, tmp_path):
    original = build_tiny(BY_NAME["RobertaForSequenceClassification"]).to(dtype)
    original.save_pretrained(tmp_path)
    for source in (tmp_path, original):
        zoo = from_official(source)
        assert zoo.dtype == dtype
        assert_same_weights(to_official(zoo), original)


def test_dtype_on_demand():
    original = build_tiny(BY_NAME["BertModel"])
    assert from_official(original, dtype="bfloat16").dtype == torch.bfloat16
    with pytest.raises(ValueError, match="float31"):
        from_official(original, dtype="float31")


def test_t5_in_float16(tmp_path, caplog):
    """Its official class holds a part in float32 there, which does not decide the type of the zoo's."""
    original = build_tiny(BY_NAME["T5Model"])
    original.save_pretrained(tmp_path)
    half = type(original).from_pretrained(tmp_path, dtype=torch.float16)
    assert {tensor.dtype for tensor in half.parameters()} == {torch.float16, torch.float32}
    assert from_official(half).dtype == torch.float16
    assert "T5Model holds wo in float32 there: dtype='bfloat16' is safe." in caplog.text
    caplog.clear()
    assert from_official(half, dtype="bfloat16").dtype == torch.bfloat16
    assert from_official(original).dtype == torch.float32
    assert not caplog.text


def test_weights_are_contiguous_copies():
    """Neither direction shares memory with what it converts; GPT-2's matrices are turned and cut."""
    original = build_tiny(BY_NAME["GPT2LMHeadModel"])
    before = copy.deepcopy(original.state_dict())
    zoo = from_official(original)
    back = to_official(zoo)
    for model in (zoo, back):
        assert all(tensor.is_contiguous() for tensor in model.state_dict().values())
    for parameter in back.parameters():
        torch.nn.init.zeros_(parameter)
    assert_same_model(to_official(zoo), original)
    for parameter in zoo.parameters():
        torch.nn.init.zeros_(parameter)
    for name, tensor in original.state_dict().items():
        assert torch.equal(tensor, before[name])


SETTINGS = {"num_beams": 4, "max_length": 30, "length_penalty": 1.5, "bad_words_ids": [[3]], "forced_bos_token_id": 7}


@pytest.mark.parametrize("own_file", [True, False])
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MarianMTModel", "FSMTForConditionalGeneration"])
def test_settings_of_generation(name, own_file, tmp_path):
    """In a file of their own or, in older checkpoints, in the configuration."""
    original = build_tiny(BY_NAME[name])
    if own_file:
        original.generation_config.update(**SETTINGS)
    original.save_pretrained(tmp_path / "official")
    if not own_file:
        (tmp_path / "official" / "generation_config.json").unlink()
        edit_config(tmp_path / "official", **SETTINGS)
    native = type(original).from_pretrained(tmp_path / "official")
    expected = native.generation_config.to_dict()
    assert SETTINGS.items() <= expected.items()
    for source in (tmp_path / "official", native):
        zoo = from_official(source)
        assert zoo.generation_config is not native.generation_config
        zoo.save_pretrained(tmp_path / "zoo")
        zoo = type(zoo).from_pretrained(tmp_path / "zoo")
        assert zoo.generation_config.to_dict() == expected
        to_official(zoo).save_pretrained(tmp_path / "back")
        back = type(original).from_pretrained(tmp_path / "back")
        assert back.generation_config.to_dict() == expected
        assert_same_config(back.config, native.config)


def test_settings_of_generation_of_a_bare_model():
    """They are those of the official class with the head."""
    original = build_tiny(BY_NAME["BartModel"])
    expected = transformers.BartForConditionalGeneration(original.config).generation_config
    zoo = from_official(original, TfmEncoderDecoderForConditionalGeneration)
    assert zoo.generation_config.to_dict() == expected.to_dict()
    assert zoo.generation_config.forced_eos_token_id == 2


@pytest.mark.parametrize(
    ("name", "official", "asked", "zoo", "back"),
    [
        ("BertModel", "eager", {}, "eager", "eager"),
        ("BertModel", "eager", {"attn_implementation": "sdpa"}, "sdpa", "sdpa"),
        # OpenAI GPT computes its own, and GPT-2 lacks one; the zoo's model may have any.
        ("OpenAIGPTLMHeadModel", None, {}, "sdpa", "eager"),
        ("GPT2Model", None, {"attn_implementation": "flex_attention"}, "flex_attention", "sdpa"),
    ],
)
def test_the_implementation_of_attention_comes_along(name, official, asked, zoo, back):
    original = build_tiny(BY_NAME[name], **({"attn_implementation": official} if official else {}))
    model = from_official(original, **asked)
    assert model.config._attn_implementation == zoo
    assert to_official(model).config._attn_implementation == back
