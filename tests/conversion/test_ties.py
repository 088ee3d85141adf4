"""Tensors that official models tie, share, hold twice or do not train: what is one stays one, and the rest apart."""

import pytest
import torch

from tests.conversion.comparison import assert_same_model
from tests.conversion.folders import edit_config, rewrite
from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo import TfmEncoderDecoderForConditionalGeneration
from tfm_zoo.converters import ConversionError, from_official, to_official

TRANSLATORS = ("MarianMTModel", "BartForConditionalGeneration", "MBartForConditionalGeneration")
#: what a translator's embeddings and its projection are called
SHARED = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 71}
IDS = torch.tensor([[5, 6, 7, 8, 9, 2], [9, 8, 7, 6, 5, 2]])
BATCH = {"input_ids": IDS, "decoder_input_ids": IDS[:, :4], "use_cache": False}
WITH_HEADS = (
    *("BertForMaskedLM", "RobertaForMaskedLM", "DistilBertForMaskedLM", "GPT2LMHeadModel", "OpenAIGPTLMHeadModel"),
    *("LlamaForCausalLM", "Qwen2ForCausalLM"),
)


@pytest.mark.parametrize("name", WITH_HEADS)
@in_double()
def test_untied_weights_stay_apart(name, tmp_path):
    original = build_tiny(BY_NAME[name], tie_word_embeddings=False)
    original.save_pretrained(tmp_path)
    zoo = from_official(tmp_path)
    assert not torch.equal(zoo.lm_head.weight, zoo.model.embeddings.embed_tokens.weight)
    back = to_official(zoo).state_dict()
    # Untied, BERT and RoBERTa keep a second bias that nothing reads: the one that is read takes its place.
    unread = ("cls.predictions.bias", "lm_head.bias")
    for key, tensor in original.state_dict().items():
        assert key in unread or torch.equal(back[key], tensor), key
    ids = torch.arange(5, 14)[None]
    assert_same(zoo(ids).logits, original(ids).logits)


@pytest.mark.parametrize(
    ("name", "fields", "tied", "names"),
    [
        *((name, {}, ("lm_head", "decoder"), (*SHARED, "lm_head.weight")) for name in TRANSLATORS),
        ("MarianMTModel", TWO_VOCABULARIES, ("lm_head",), (SHARED[2], "lm_head.weight")),
        *((name, {"tie_word_embeddings": False}, (), ()) for name in TRANSLATORS),
        ("FSMTForConditionalGeneration", {}, (), ()),
        (
            "FSMTForConditionalGeneration",
            {"tgt_vocab_size": 99, "tie_word_embeddings": True},
            ("lm_head", "decoder"),
            (*SHARED[1:], "model.decoder.output_projection.weight"),
        ),
    ],
    ids=str,
)
def test_ties_of_two_sides(name, fields, tied, names, tmp_path):
    """Through folders: what is tied on one side is tied on the other, and what is not has memory of its own."""
    original = build_tiny(BY_NAME[name], **fields)
    original.save_pretrained(tmp_path / "official", max_shard_size="20KB")
    zoo = from_official(tmp_path / "official")
    source, target = (side.embeddings.embed_tokens.weight for side in (zoo.model.encoder, zoo.model.decoder))
    assert (target is source) == ("decoder" in tied)
    assert (zoo.lm_head.weight is target) == ("lm_head" in tied)
    to_official(zoo).save_pretrained(tmp_path / "back")
    back = type(original).from_pretrained(tmp_path / "back")
    parameters = dict(back.named_parameters(remove_duplicate=False))
    assert len({parameters[key].data_ptr() for key in names}) == min(len(names), 1)
    if not tied and SHARED[0] in parameters:  # not read
        back.model.shared.weight = original.model.shared.weight
    assert_same_model(back, original)


@pytest.mark.parametrize("kept", [*SHARED, "lm_head.weight", "all"])
def test_of_tied_tensors_one_is_enough(kept, tmp_path):
    original = build_tiny(BY_NAME["BartForConditionalGeneration"])
    original.save_pretrained(tmp_path)
    names = [*SHARED, "lm_head.weight"] if kept == "all" else [kept]

    def renamed(tensors: dict) -> dict:
        others = {name: tensor for name, tensor in tensors.items() if name not in SHARED}
        return others | dict.fromkeys(names, tensors["model.shared.weight"])

    rewrite(tmp_path, renamed)
    zoo = from_official(tmp_path)
    assert zoo.lm_head.weight is zoo.model.decoder.embeddings.embed_tokens.weight
    assert_same_model(to_official(zoo), original)


@pytest.mark.parametrize(
    ("name", "fields", "missing"),
    [
        ("MarianMTModel", {}, "model.shared.weight"),
        ("MarianMTModel", {"share_encoder_decoder_embeddings": False}, "model.decoder.embed_tokens.weight"),
        ("MarianMTModel", {"tie_word_embeddings": False}, "lm_head.weight"),
        ("BertForMaskedLM", {"tie_word_embeddings": False}, "cls.predictions.decoder.weight"),
        ("GPT2LMHeadModel", {"tie_word_embeddings": False}, "lm_head.weight"),
        ("LlamaForCausalLM", {"tie_word_embeddings": False}, "lm_head.weight"),
    ],
)
def test_what_is_not_tied_has_to_be_there(name, fields, missing, tmp_path):
    build_tiny(BY_NAME[name], **fields).save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {key: tensor for key, tensor in tensors.items() if key != missing})
    with pytest.raises(ConversionError, match=f"missing: .*{missing}"):
        from_official(tmp_path)


@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "MT5ForConditionalGeneration"])
@in_double()
def test_a_projection_of_its_own(name, tmp_path):
    """T5 1.1, and so flan-T5, and mT5 have one, whatever their configurations say."""
    original = build_tiny(BY_NAME[name], tie_word_embeddings=False)
    original.lm_head.weight = torch.nn.Parameter(original.lm_head.weight.flip(0))
    original.save_pretrained(tmp_path / "official")
    edit_config(tmp_path / "official", tie_word_embeddings=False, scale_decoder_outputs=...)  # as on the Hub
    for source in (tmp_path / "official", original):
        zoo = from_official(source)
        assert (zoo.config.tie_word_embeddings, zoo.config.logit_scale) == (False, 1)
        assert_same(zoo(**BATCH).logits, original(**BATCH).logits)
        zoo.save_pretrained(tmp_path / "zoo")
        zoo = type(zoo).from_pretrained(tmp_path / "zoo")
        zoo.resize_token_embeddings(97)
        assert not torch.equal(zoo.lm_head.weight, zoo.get_input_embeddings().weight)
        assert_same_model(to_official(type(zoo).from_pretrained(tmp_path / "zoo")), original)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_bias_of_the_logits(name, tmp_path):
    """A buffer on both sides: saved, not trained; of zeros where a checkpoint has none."""
    original = build_tiny(BY_NAME[name])
    zoo = from_official(original)
    assert torch.equal(zoo.lm_head.bias, original.final_logits_bias[0])
    assert "lm_head.bias" in zoo.state_dict() and "lm_head.bias" not in dict(zoo.named_parameters())
    original.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {key: value for key, value in tensors.items() if key != "final_logits_bias"})
    for source in (tmp_path, original.model):
        without = from_official(source, TfmEncoderDecoderForConditionalGeneration)
        assert torch.equal(without.lm_head.bias, torch.zeros(99))
        assert not to_official(without).final_logits_bias.any()


def test_bias_of_the_logits_that_is_trained():
    original = build_tiny(BY_NAME["MarianMTModel"])
    zoo = from_official(original, lm_head_bias=True)
    assert not zoo.config.final_logits_bias and "lm_head.bias" in dict(zoo.named_parameters())
    assert torch.equal(zoo.lm_head.bias, original.final_logits_bias[0])
    zoo(**BATCH, labels=IDS[:, :4]).loss.backward()
    assert zoo.lm_head.bias.grad.abs().sum() > 0
    assert torch.equal(to_official(zoo).final_logits_bias, original.final_logits_bias)


@pytest.mark.parametrize("name", ["MarianMTModel", "FSMTForConditionalGeneration"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sinusoids_among_the_weights(name, dtype, tmp_path):
    """They are not read, unless they have been trained; the way back has those of the official class."""
    original = build_tiny(BY_NAME[name]).to(dtype)
    original.save_pretrained(tmp_path)
    table = "model.encoder.embed_positions.weight"
    tables = {key: value for key, value in original.state_dict().items() if key.endswith("embed_positions.weight")}
    assert len(tables) == 2
    rewrite(tmp_path, lambda tensors: tensors | tables)
    zoo = from_official(tmp_path)
    assert not any("embed_positions" in key for key in zoo.state_dict())
    assert_same_model(to_official(zoo), original)
    rewrite(tmp_path, lambda tensors: tensors | {table: tables[table] + 0.1})
    with pytest.raises(ConversionError, match=f"{table} of .* is not the table of sinusoids .* differs by 0.1"):
        from_official(tmp_path)
