"""What encoder-decoders have and others have not: shared embeddings, sinusoids among the weights, a bias that is not
trained, settings of generation in the configuration, an encoder that can stand alone."""

import json

import pytest
import torch
import transformers

import tfm_zoo
from tests.conversion.comparison import assert_same_config, assert_same_model, assert_same_weights
from tests.conversion.folders import edit_config, rewrite
from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo import TfmEncoderDecoderEncoder, TfmEncoderDecoderForConditionalGeneration, TfmEncoderDecoderModel
from tfm_zoo.converters import ConversionError, from_official, to_official

TRANSLATORS = ("MarianMTModel", "BartForConditionalGeneration", "MBartForConditionalGeneration")
#: what a translator's embeddings and its projection are called
SHARED = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
IDS = torch.tensor([[5, 6, 7, 8, 9, 2], [9, 8, 7, 6, 5, 2]])
BATCH = {"input_ids": IDS, "decoder_input_ids": IDS[:, :4], "use_cache": False}


# configurations

TWO_BUCKETS = {"relative_attention_num_buckets": 2}
SINUSOIDAL = {"position_embedding_type": "sinusoidal", "position_offset": 0, "embedding_norm": False}
LEARNED = {"position_embedding_type": "learned", "position_offset": 2, "embedding_norm": True}
UNTIED = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
TIED = {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True}


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("MarianMTModel", {}, SINUSOIDAL | TIED | {"sinusoid_type": "halves", "final_logits_bias": True}),
        ("MarianModel", {}, {"norm_position": "post", "final_norm": False, "weight_init": "normal"}),
        ("MarianModel", {}, {"num_hidden_layers": 3, "encoder_layers": 3, "decoder_layers": 2}),
        ("MarianMTModel", {"tie_word_embeddings": False}, UNTIED),
        (
            "MarianMTModel",
            {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 71},
            {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": True, "decoder_vocab_size": 71},
        ),
        (
            "MarianMTModel",
            {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
            UNTIED | {"decoder_vocab_size": 99},
        ),
        ("MarianMTModel", {}, {"decoder_start_token_id": 3, "pad_token_id": 3, "start_with_last_token": False}),
        ("BartForConditionalGeneration", {}, LEARNED | TIED | {"final_logits_bias": True, "norm_position": "post"}),
        ("BartForConditionalGeneration", {"tie_word_embeddings": False}, UNTIED),
        ("BartModel", {"scale_embedding": True, "max_position_embeddings": 9}, {"scale_embedding": True}),
        ("BartForSequenceClassification", {"classifier_dropout": 0.3}, {"classifier_dropout": 0.3}),
        ("MBartModel", {}, LEARNED | {"norm_position": "pre", "final_norm": True, "start_with_last_token": True}),
        ("MBartForConditionalGeneration", {}, TIED | {"decoder_start_token_id": None, "final_logits_bias": True}),
        (
            "FSMTForConditionalGeneration",
            {},
            SINUSOIDAL | UNTIED | {"sinusoid_type": "tensor2tensor", "position_ids_from_padding": True},
        ),
        (
            "FSMTForConditionalGeneration",
            {"src_vocab_size": 80},
            {"vocab_size": 80, "decoder_vocab_size": 91, "start_with_last_token": True, "final_logits_bias": False},
        ),
        ("FSMTForConditionalGeneration", {"tgt_vocab_size": 99, "tie_word_embeddings": True}, TIED),
    ],
    ids=str,
)
def test_fields(name, fields, expected, tmp_path):
    original = build_tiny(BY_NAME[name], **fields)
    zoo = from_official(original)
    assert {key: getattr(zoo.config, key) for key in expected} == expected
    back = to_official(zoo)
    reloaded = type(zoo.config).from_dict(json.loads(zoo.config.to_json_string()))
    for config in (back.config, to_official(type(zoo)(reloaded)).config):
        assert_same_config(config, original.config)
    # Where nothing is tied, no native class reads the embeddings that might be shared: others take their place.
    if fields.get("tie_word_embeddings") is False and hasattr(back.base_model, "shared"):
        back.base_model.shared.weight = original.base_model.shared.weight
    assert_same_weights(back, original)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("MarianMTModel", {"encoder_layerdrop": 0.1}),
        ("BartForConditionalGeneration", {"decoder_layerdrop": 0.1}),
        ("MBartForConditionalGeneration", {"is_decoder": True}),
    ],
    ids=str,
)
def test_what_the_zoo_does_not_convert(name, fields, tmp_path):
    original = build_tiny(BY_NAME[name])
    original.save_pretrained(tmp_path)
    edit_config(tmp_path, **fields)
    values = ", ".join(f"{key}={value!r}" for key, value in fields.items())
    with pytest.raises(ConversionError) as caught:
        from_official(tmp_path)
    for value in values.split(", "):
        assert value in str(caught.value)
    assert "is not converted" in str(caught.value)


# embeddings


@pytest.mark.parametrize(
    ("name", "fields", "tied", "names"),
    [
        *((name, {}, ("lm_head", "decoder"), (*SHARED, "lm_head.weight")) for name in TRANSLATORS),
        (
            "MarianMTModel",
            {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 71},
            ("lm_head",),
            (SHARED[2], "lm_head.weight"),
        ),
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
def test_ties(name, fields, tied, names, tmp_path):
    """Through folders, with shards and without: what is tied on one side is tied on the other, and what is not has
    memory of its own."""
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
    names = [kept] if kept != "all" else [*SHARED, "lm_head.weight"]
    rewrite(
        tmp_path,
        lambda tensors: (
            {name: tensor for name, tensor in tensors.items() if name not in SHARED}
            | dict.fromkeys(names, tensors["model.shared.weight"])
        ),
    )
    zoo = from_official(tmp_path)
    assert zoo.lm_head.weight is zoo.model.decoder.embeddings.embed_tokens.weight
    assert_same_model(to_official(zoo), original)


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({}, "model.shared.weight"),
        ({"share_encoder_decoder_embeddings": False}, "model.decoder.embed_tokens.weight"),
        ({"tie_word_embeddings": False}, "lm_head.weight"),
    ],
    ids=str,
)
def test_embeddings_have_to_be_there(fields, missing, tmp_path):
    build_tiny(BY_NAME["MarianMTModel"], **fields).save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {name: tensor for name, tensor in tensors.items() if name != missing})
    with pytest.raises(ConversionError, match=f"missing: .*{missing}"):
        from_official(tmp_path)


# tensors of other kinds


@pytest.mark.parametrize("name", TRANSLATORS)
def test_bias_of_the_logits(name, tmp_path):
    """A buffer on both sides: saved, not trained; of zeros where a checkpoint has none."""
    original = build_tiny(BY_NAME[name])
    zoo = from_official(original)
    assert torch.equal(zoo.lm_head.bias, original.final_logits_bias[0])
    assert "lm_head.bias" in zoo.state_dict()
    assert "lm_head.bias" not in dict(zoo.named_parameters())
    original.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: {key: value for key, value in tensors.items() if key != "final_logits_bias"})
    for source in (tmp_path, original.model):
        without = from_official(source, TfmEncoderDecoderForConditionalGeneration)
        assert without.lm_head.bias.shape == (99,)
        assert not without.lm_head.bias.any()
        assert not to_official(without).final_logits_bias.any()


def test_bias_of_the_logits_that_is_trained():
    original = build_tiny(BY_NAME["MarianMTModel"])
    zoo = from_official(original, lm_head_bias=True)
    assert not zoo.config.final_logits_bias and "lm_head.bias" in dict(zoo.named_parameters())
    assert torch.equal(zoo.lm_head.bias, original.final_logits_bias[0])
    zoo(**BATCH, labels=IDS[:, :4]).loss.backward()
    assert zoo.lm_head.bias.grad.abs().sum() > 0
    assert torch.equal(to_official(zoo).final_logits_bias, original.final_logits_bias)


@in_double()
def test_no_bias_of_the_logits_is_one_of_zeros():
    zoo = from_official(build_tiny(BY_NAME["MarianModel"]), TfmEncoderDecoderForConditionalGeneration)
    without = TfmEncoderDecoderForConditionalGeneration(
        type(zoo.config).from_dict(zoo.config.to_dict() | {"final_logits_bias": False})
    )
    assert without.lm_head.bias is None
    official = to_official(without)
    assert not official.final_logits_bias.any()
    assert_same(official(**BATCH).logits, without(**BATCH).logits)


@pytest.mark.parametrize("name", ["MarianMTModel", "FSMTForConditionalGeneration"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sinusoids_among_the_weights(name, dtype, tmp_path):
    """They are not read, unless they have been trained; the way back has those of the native class."""
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


@pytest.mark.parametrize("name", ["BartModel", "MBartModel"])
def test_learned_positions_come_whole(name):
    """With the rows before the first position."""
    original = build_tiny(BY_NAME[name])
    zoo = from_official(original)
    assert torch.equal(zoo.encoder.embeddings.embed_positions.weight, original.encoder.embed_positions.weight)
    assert zoo.decoder.embeddings.embed_positions.weight.shape == (42, 32)


# generation


@pytest.mark.parametrize("own_file", [True, False])
@pytest.mark.parametrize("name", ["MarianMTModel", "FSMTForConditionalGeneration"])
def test_settings_of_generation(name, own_file, tmp_path):
    """In a file of their own or, in older checkpoints, in the configuration."""
    settings = {
        "num_beams": 4,
        "max_length": 30,
        "length_penalty": 1.5,
        "bad_words_ids": [[3]],
        "forced_bos_token_id": 7,
    }
    original = build_tiny(BY_NAME[name])
    if own_file:
        original.generation_config.update(**settings)
    original.save_pretrained(tmp_path / "official")
    if not own_file:
        (tmp_path / "official" / "generation_config.json").unlink()
        edit_config(tmp_path / "official", **settings)
    native = type(original).from_pretrained(tmp_path / "official")
    expected = native.generation_config.to_dict()
    assert settings.items() <= expected.items()
    assert expected["forced_eos_token_id"] is not None
    for source in (tmp_path / "official", native):
        zoo = from_official(source)
        zoo.save_pretrained(tmp_path / "zoo")
        zoo = type(zoo).from_pretrained(tmp_path / "zoo")
        assert zoo.generation_config.to_dict() == expected
        to_official(zoo).save_pretrained(tmp_path / "back")
        back = type(original).from_pretrained(tmp_path / "back")
        assert back.generation_config.to_dict() == expected
        assert_same_config(back.config, native.config)


def test_settings_of_generation_of_a_bare_model():
    """They are those of the native class with the head."""
    original = build_tiny(BY_NAME["BartModel"])
    expected = transformers.BartForConditionalGeneration(original.config).generation_config
    zoo = from_official(original, TfmEncoderDecoderForConditionalGeneration)
    assert zoo.generation_config.to_dict() == expected.to_dict()
    assert zoo.generation_config.forced_eos_token_id == 2


# checkpoints as they lie on the Hub


def test_opus_mt_as_it_lies_on_the_hub(tmp_path):
    """Every tied tensor and the sinusoids among the weights, and a configuration with fields of old."""
    original = build_tiny(BY_NAME["MarianMTModel"], num_beams=6, max_length=512, bad_words_ids=[[3]])
    original.save_pretrained(tmp_path)
    for name in ("model.safetensors", "generation_config.json"):
        (tmp_path / name).unlink()
    torch.save(original.state_dict(), tmp_path / "pytorch_model.bin")
    old = {"num_hidden_layers": 3, "classif_dropout": 0.0, "add_final_layer_norm": False, "torch_dtype": "float32"}
    generation = {"num_beams": 6, "max_length": 512, "bad_words_ids": [[3]]}
    unknown = dict.fromkeys(("dtype", "decoder_vocab_size", "share_encoder_decoder_embeddings"), ...)
    edit_config(tmp_path, **old, **generation, **unknown)
    zoo = from_official(tmp_path)
    native = type(original).from_pretrained(tmp_path)
    assert_same_model(to_official(zoo), native)
    assert zoo.generation_config.num_beams == 6
    zoo, original = zoo.double(), original.double()  # outside: the sinusoids are those of float32, as in any process
    with in_double():
        assert_same(zoo(**BATCH).logits, original(**BATCH).logits)


def test_fsmt_as_it_lies_on_the_hub(tmp_path):
    original = build_tiny(BY_NAME["FSMTForConditionalGeneration"])
    original.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    decoder = {"bos_token_id": 2, "model_type": "fsmt_decoder", "vocab_size": 91}
    edit_config(tmp_path, decoder=decoder, num_hidden_layers=3, encoder_layerdrop=0, decoder_layerdrop=0)
    zoo = from_official(tmp_path)
    native = type(original).from_pretrained(tmp_path)
    assert_same_model(to_official(zoo), native)
    assert zoo.generation_config.to_dict() == native.generation_config.to_dict()
    assert zoo.generation_config.num_beams == 5


@in_double()
def test_bare_fsmt_gives_logits():
    """Its native class holds the projection."""
    original = build_tiny(BY_NAME["FSMTForConditionalGeneration"])
    zoo = from_official(original.model)
    assert type(zoo) is TfmEncoderDecoderForConditionalGeneration
    assert_same(zoo(**BATCH).logits, original.model(**BATCH).last_hidden_state)


# other classes


@pytest.mark.parametrize("name", [*TRANSLATORS, "FSMTForConditionalGeneration", "BartModel"])
@in_double()
def test_the_encoder_alone(name, tmp_path, caplog):
    original = build_tiny(BY_NAME[name])
    original.save_pretrained(tmp_path)
    for source in (original, tmp_path):
        zoo = from_official(source, TfmEncoderDecoderEncoder)
        encoder = original.base_model.encoder
        expected = encoder(input_ids=IDS, attention_mask=torch.ones_like(IDS)).last_hidden_state
        assert_same(zoo(IDS).last_hidden_state, expected)
        assert all(key.startswith("encoder.") for key in zoo.state_dict())
    assert not caplog.text
    with pytest.raises(ConversionError, match="TfmEncoderDecoderEncoder has no counterpart"):
        to_official(zoo)


@in_double()
def test_answers_from_an_encoded_source():
    original = build_tiny(BY_NAME["T5ForQuestionAnswering"])
    batch = {"encoder_outputs": (torch.randn(*IDS.shape, original.config.d_model),), "decoder_input_ids": IDS}
    places = dict.fromkeys(("start_positions", "end_positions"), torch.ones(len(IDS), dtype=torch.long))
    made, expected = (model(**batch, **places) for model in (from_official(original), original))
    assert_same(made.start_logits, expected.start_logits)
    assert_same(made.loss, expected.loss)


@in_double()
def test_classifier_from_a_denoiser(caplog):
    original = build_tiny(BY_NAME["BartForConditionalGeneration"])
    model = from_official(original, tfm_zoo.TfmEncoderDecoderForSequenceClassification, num_labels=7)
    assert model.classification_head.out_proj.weight.shape == (7, 32)
    fresh, left_out = caplog.messages
    assert "classification_head.dense.weight" in fresh
    assert "model." not in fresh
    assert left_out.endswith("left out what belongs to another head: final_logits_bias, lm_head.weight.")
    official = to_official(model)
    assert_same(official(IDS).logits, model(IDS).logits)


def test_translator_from_a_bare_model(tmp_path, caplog):
    """Its projection comes with the embeddings."""
    for name in ("MarianModel", "BartModel"):
        build_tiny(BY_NAME[name]).save_pretrained(tmp_path / name)
        zoo = from_official(tmp_path / name, TfmEncoderDecoderForConditionalGeneration)
        assert zoo.lm_head.weight is zoo.model.encoder.embeddings.embed_tokens.weight
    assert not caplog.text


@pytest.mark.parametrize(
    ("native", "message"),
    [
        ("BartForCausalLM", "is_decoder=True"),
        ("MarianForCausalLM", "is_decoder=True"),
    ],
)
def test_native_classes_that_the_zoo_has_not(native, message):
    config = build_tiny(BY_NAME["MarianModel" if native.startswith("Marian") else "BartModel"]).config
    with pytest.raises(ConversionError, match=message):
        from_official(getattr(transformers, native)(config))


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


@pytest.mark.parametrize(
    ("name", "source"),
    [("T5EncoderModel", "T5ForConditionalGeneration"), ("UMT5EncoderModel", "UMT5Model")],
)
@in_double()
def test_t5s_encoder_alone(name, source, tmp_path):
    """It has a class of its own on both sides."""
    original = build_tiny(BY_NAME[source])
    original.save_pretrained(tmp_path)
    zoo = from_official(tmp_path, TfmEncoderDecoderEncoder)
    expected = getattr(transformers, name).from_pretrained(tmp_path)
    assert_same(zoo(IDS).last_hidden_state, expected(IDS).last_hidden_state)
    assert_same_model(to_official(zoo), expected)


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
    with pytest.raises(ConversionError, match=r"(?s)T5 with these fields .* relative_attention_num_buckets=2 should"):
        from_official(type(original)(type(original.config)(**original.config.to_dict() | TWO_BUCKETS)))


def test_what_fsmt_has_not():
    """No classifier, and no model without the projection."""
    model = from_official(build_tiny(BY_NAME["FSMTForConditionalGeneration"]), TfmEncoderDecoderModel)
    assert model(**BATCH).last_hidden_state.shape == (2, 4, 32)
    with pytest.raises(ConversionError, match="TfmEncoderDecoderModel has no counterpart among the classes of FSMT"):
        to_official(model)
