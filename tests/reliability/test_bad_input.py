"""Bad input is refused before work is done, with an error that names the value and says what would be right."""

import re

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers.modeling_outputs import BaseModelOutput

import tfm_zoo

from ..tiny import SIZES, tiny_config, tiny_model

IDS = torch.arange(1, 15).view(2, 7)
ONES = torch.ones_like(IDS)
MASK = (torch.arange(7) < torch.tensor([[7], [4]])).long()
SENTENCES = IDS[:, 1]  # 2 and 9, where there are two classes


def refused(message: str, head: str | None = None, **values):
    return pytest.param(
        values, message, *filter(None, [head]), id="-".join(filter(None, [head, *values, message[:30]]))
    )


def rope(kind: str, **parameters) -> dict:
    parameters |= {"rope_type": kind, "rope_theta": 10000.0}
    return {"position_embedding_type": "rotary", "rope_parameters": parameters}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        refused("hidden_size=30 .* num_attention_heads=4.* head_dim", hidden_size=30),
        refused("'hidden_size' expected int, got str", hidden_size="32"),
        *[
            refused(f"{name}={value} .* at least 1", **{name: value})
            for name, value in {
                "vocab_size": -1,
                "num_hidden_layers": 0,
                "num_attention_heads": 0,
                "num_key_value_heads": 0,
                "head_dim": 0,
                "intermediate_size": 0,
                "max_position_embeddings": 0,
                "sliding_window": 0,
            }.items()
        ],
        refused("num_attention_heads=4 .* num_key_value_heads=3", num_key_value_heads=3),
        refused("type_vocab_size=-1 .* 0 .* or more", type_vocab_size=-1),
        refused(r"hidden_dropout=1\.0 .* \[0, 1\)", hidden_dropout=1.0),
        refused(r"attention_output_dropout=-0\.1 .* \[0, 1\)", attention_output_dropout=-0.1),
        refused(r"classifier_dropout=2 .* \[0, 1\)", classifier_dropout=2),
        refused(r"norm_eps=0\.0 .* above 0", norm_eps=0.0),
        refused(r"initializer_range=-1\.0 .*at least 0", initializer_range=-1.0),
        refused("pad_token_id=61 .* 0 to 60", pad_token_id=61),
        refused("'norm_position' .*'post', 'pre'.* middle", norm_position="middle"),
        refused("'norm_type' .*'layernorm', 'rmsnorm'.* batchnorm", norm_type="batchnorm"),
        refused("'position_embedding_type' .*'rotary'.* relative", position_embedding_type="relative"),
        refused("'mlp_type' .*'dense', 'gated'.* moe", mlp_type="moe"),
        refused("'attention_type' .*'softmax'.* quadratic", attention_type="quadratic"),
        refused("'classifier_pooling' .*'cls', 'mean'.* max", classifier_pooling="max"),
        refused("'attention_bias' expected bool, got str", attention_bias="yes"),
        refused("problem_type='ranking' .*regression", problem_type="ranking"),
        refused("hidden_act='gelo' .* gelu", hidden_act="gelo"),
        refused("pooler_act='tan' .* tanh", pooler_act="tan"),
        refused("lm_head_act='re' .* relu", lm_head_act="re"),
        refused("from_padding=True .*pad_token_id=None", position_ids_from_padding=True, pad_token_id=None),
        refused("id=30 .*max_position_embeddings=24", position_ids_from_padding=True, pad_token_id=30),
        refused("position_embedding_type='learned'", rope_parameters={"rope_type": "default"}),
        refused("'rotary' .* head_dim=7 is odd", position_embedding_type="rotary", head_dim=7),
        refused(
            "'sinusoidal' .* hidden_size=9 is odd", position_embedding_type="sinusoidal", hidden_size=9, head_dim=2
        ),
        refused("rope_type='yarnn' .* yarn", **rope("yarnn")),
        refused("'linear': .*factor", **rope("linear")),
        refused(r"partial_rotary_factor=1\.5 .* \(0, 1\]", **rope("default", partial_rotary_factor=1.5)),
    ],
)
def test_configuration(fields, message):
    with pytest.raises((ValueError, KeyError, StrictDataclassError)) as error:
        tiny_config(**fields)
    assert re.search(message, str(error.value), flags=re.DOTALL)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize(
    ("inputs", "message", "head"),
    [
        refused("Exactly one of input_ids and inputs_embeds .* neither", "Model"),
        refused("Exactly one of .* both", "Model", input_ids=IDS, inputs_embeds=torch.zeros(2, 7, 32)),
        refused(r"input_ids of shape \(7,\) .*\(batch, length\)", "Model", input_ids=IDS[0]),
        refused("input_ids holds 64, .*vocab_size.* 0 to 60", "Model", input_ids=IDS + 50),
        refused("input_ids holds -2, .*vocab_size.* 0 to 60", "Model", input_ids=IDS - 3),
        refused(r"inputs_embeds of shape \(2, 7, 31\) .*32", "Model", inputs_embeds=torch.zeros(2, 7, 31)),
        refused(r"inputs_embeds of shape \(7, 32\) .*\(batch, length, 32\)", "Model", inputs_embeds=torch.zeros(7, 32)),
        refused("position_ids holds 27, .*max_position_embeddings.* 0 to 23", "Model", input_ids=ONES.repeat(1, 4)),
        refused("position_ids holds 24, .*max_position_embeddings", "Model", inputs_embeds=torch.zeros(1, 25, 32)),
        refused("position_ids holds 24, .*max_position_embeddings", "Model", input_ids=IDS, position_ids=IDS + 10),
        refused(r"position_ids of shape \(2, 6\) .*\(2, 7\)", "Model", input_ids=IDS, position_ids=IDS[:, :6]),
        refused("token_type_ids holds 2, .*type_vocab_size.* 0 to 1", "Model", input_ids=IDS, token_type_ids=2 * ONES),
        refused(r"token_type_ids of shape \(2, 6\) .*\(2, 7\)", "Model", input_ids=IDS, token_type_ids=ONES[:, :6]),
        *[
            refused(
                rf"attention_mask of shape {re.escape(str(shape))} .*\(2, 7\)",
                "Model",
                input_ids=IDS,
                attention_mask=mask,
            )
            for shape in [(2, 6), (2, 7, 7), (2, 1, 7, 6), (2, 3, 7, 7), (3, 1, 7, 7)]
            for mask in [torch.ones(shape)]
        ],
        refused("labels holds 64, .*vocab_size.* 0 to 60", "ForMaskedLM", input_ids=IDS, labels=IDS + 50),
        refused("labels holds -1, .*vocab_size.* 0 to 60", "ForMaskedLM", input_ids=IDS, labels=-ONES),
        refused(r"labels of shape \(2, 6\) .*\(2, 7\)", "ForMaskedLM", input_ids=IDS, labels=IDS[:, :6]),
        refused(r"labels of shape \(2, 6\) .*\(2, 7\)", "ForPreTraining", input_ids=IDS, labels=IDS[:, :6]),
        refused(
            "next_sentence_label holds 9, .*0 to 1", "ForPreTraining", input_ids=IDS, next_sentence_label=SENTENCES
        ),
        refused("labels holds 9, .*0 to 1", "ForNextSentencePrediction", input_ids=IDS, labels=SENTENCES),
        refused("labels holds 9, .*num_labels.* 0 to 1", "ForSequenceClassification", input_ids=IDS, labels=SENTENCES),
        refused(r"labels of shape \(3,\) .*\(2,\)", "ForSequenceClassification", input_ids=IDS, labels=ONES[0, :3]),
        refused("labels holds 14, .*num_labels.* 0 to 1", "ForTokenClassification", input_ids=IDS, labels=IDS),
        refused(r"labels of shape \(2, 6\) .*\(2, 7\)", "ForTokenClassification", input_ids=IDS, labels=ONES[:, :6]),
        refused("Exactly one of input_ids and inputs_embeds .* neither", "ForMultipleChoice"),
        refused(r"input_ids of shape \(2, 7\) .*\(batch, choices, length\)", "ForMultipleChoice", input_ids=IDS),
        refused("labels holds 2, .*choices.* 0 to 1", "ForMultipleChoice", input_ids=IDS[None], labels=SENTENCES[:1]),
        refused("one of .* neither", "ForQuestionAnswering", start_positions=ONES[0, :1], end_positions=ONES[0, :1]),
    ],
)
def test_inputs(inputs, message, head, padded):
    ids = inputs.get("input_ids")
    if padded and ids is not None and ids.shape == MASK.shape:
        inputs = {"attention_mask": MASK} | inputs
    model = tiny_model(getattr(tfm_zoo, f"TfmBert{head}"))
    with pytest.raises(ValueError) as error:
        model(**inputs)
    assert re.search(message, str(error.value))


def test_resized_vocabulary_takes_new_ids():
    model = tiny_model(tfm_zoo.TfmBertForMaskedLM)
    model.resize_token_embeddings(SIZES["vocab_size"] + 4)
    assert model(IDS + 50, labels=IDS + 50).logits.shape[-1] == SIZES["vocab_size"] + 4
    with pytest.raises(ValueError, match="0 to 64"):
        model(IDS + 51)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        refused("hidden_size=30 .* num_attention_heads=4.* head_dim", hidden_size=30),
        refused("num_attention_heads=4 .* num_key_value_heads=3", num_key_value_heads=3),
        refused(r"num_hidden_layers.*2.*layer_types.*1", layer_types=["full_attention"]),  # transformers' own words
        refused("layer_types=.*chunked.* should name one of full_attention, sl", layer_types=["chunked_attention"] * 2),
        refused("layer_types=.* sliding_window=None", layer_types=["full_attention", "sliding_attention"]),
        refused("sliding_window=0 .* at least 1", sliding_window=0),
        refused(r"classifier_dropout=2 .* \[0, 1\)", classifier_dropout=2),
        refused("token_types_as_tokens=True .* type_vocab_size=2", token_types_as_tokens=True, type_vocab_size=2),
    ],
)
def test_decoder_fields(fields, message):
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        tiny_config(tfm_zoo.TfmGPTConfig, **fields)
    assert re.search(message, str(error.value), flags=re.DOTALL)


def cache_of(seen: int = 5, **fields) -> transformers.Cache:
    """The cache of a model that has read two texts of so many tokens."""
    model = tiny_model(tfm_zoo.TfmGPTModel, use_cache=True, **fields)
    with torch.no_grad():
        return model(torch.ones(2, seen, dtype=torch.long)).past_key_values


@pytest.mark.parametrize(
    ("inputs", "message", "head"),
    [
        refused("one of .* neither", "Model"),
        refused("one of .* both", "ForCausalLM", input_ids=IDS, inputs_embeds=torch.zeros(2, 7, 32)),
        refused(r"input_ids of shape \(7,\) .*\(batch, length\)", "Model", input_ids=IDS[0]),
        refused(r"inputs_embeds of shape \(2, 7, 31\) .*32", "Model", inputs_embeds=torch.zeros(2, 7, 31)),
        refused("input_ids holds 64, .*vocab_size.* 0 to 60", "ForCausalLM", input_ids=IDS + 50),
        refused("input_ids holds -1, .*vocab_size.* 0 to 60", "Model", input_ids=-ONES),
        refused("position_ids holds 27, .*max_position_embeddings.* 0 to 23", "Model", input_ids=ONES.repeat(1, 4)),
        refused("position_ids holds 24, .*max_position_emb", "ForCausalLM", input_ids=IDS, position_ids=IDS + 10),
        refused("position_ids holds 26, .*max_position_emb", "Model", input_ids=IDS, past_key_values=cache_of(20)),
        refused(r"position_ids of shape \(2, 6\) .*\(2, 7\)", "Model", input_ids=IDS, position_ids=IDS[:, :6]),
        refused("past_key_values is a tuple.* Cache", "Model", input_ids=IDS, past_key_values=((ONES, ONES),)),
        *[
            refused(
                r"cache of another model.*\(layers, key-value heads, head_dim\).*\(2, 4, 8\)",
                "ForCausalLM",
                input_ids=IDS,
                past_key_values=cache_of(**fields),
            )
            for fields in (
                {"num_hidden_layers": 3},
                {"num_key_value_heads": 3, "num_attention_heads": 3, "head_dim": 8},
            )
        ],
        refused(r"cache of another model.*\(2, 4, 6\)", "Model", input_ids=IDS, past_key_values=cache_of(head_dim=6)),
        *[
            refused(
                rf"attention_mask of shape {re.escape(str(shape))} .*5 positions in the cache.*\(2, 12\)",
                "ForCausalLM",
                input_ids=IDS,
                past_key_values=cache_of(),
                attention_mask=torch.ones(shape),
            )
            for shape in [(2, 7), (2, 11), (2, 13), (3, 12), (2, 3, 7, 12)]
        ],
        refused("labels holds 64, .*vocab_size.* 0 to 60", "ForCausalLM", input_ids=IDS, labels=IDS + 50),
        refused("labels holds -1, .*vocab_size.* 0 to 60", "ForCausalLM", input_ids=IDS, labels=-ONES),
        refused("shift_labels holds 64, .* 0 to 60", "ForCausalLM", input_ids=IDS, shift_labels=IDS + 50),
        refused(r"labels of shape \(2, 6\) .*\(2, 7\)", "ForCausalLM", input_ids=IDS, labels=IDS[:, :6]),
        refused(r"labels of shape \(7,\) .*\(2, 7\)", "ForCausalLM", input_ids=IDS, labels=IDS[0]),
        refused("labels holds 9, .*num_labels.* 0 to 1", "ForSequenceClassification", input_ids=IDS, labels=SENTENCES),
        refused(r"labels of shape \(3,\) .*\(2,\)", "ForSequenceClassification", input_ids=IDS, labels=ONES[0, :3]),
        refused("labels holds 14, .*num_labels.* 0 to 1", "ForTokenClassification", input_ids=IDS, labels=IDS),
        refused(r"labels of shape \(2, 6\) .*\(2, 7\)", "ForTokenClassification", input_ids=IDS, labels=ONES[:, :6]),
        refused(
            r"start_positions of shape \(1,\) .*\(2,\)",
            "ForQuestionAnswering",
            input_ids=IDS,
            start_positions=ONES[0, :1],
            end_positions=ONES[0, :2],
        ),
    ],
)
def test_decoder_inputs(inputs, message, head):
    model = tiny_model(getattr(tfm_zoo, f"TfmGPT{head}"))
    refuse(model, inputs, message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        refused("hidden_size=30 .* num_attention_heads=4.* head_dim", hidden_size=30),
        refused("num_hidden_layers=0 must be at least 1", encoder_layers=0),
        refused("decoder_layers=0 must be at least 1", decoder_layers=0),
        refused("decoder_vocab_size=-1 must be at least 1", decoder_vocab_size=-1),
        refused(
            "share_encoder_decoder_embeddings=True .* vocab_size=61 and decoder_vocab_size=50",
            decoder_vocab_size=50,
            share_encoder_decoder_embeddings=True,
        ),
        refused("pad_token_id=61 .* 0 to 60", pad_token_id=61),
        refused("pad_token_id=55 .*target.* 0 to 49", pad_token_id=55, decoder_vocab_size=50),
        refused("decoder_start_token_id=61 .*target.* 0 to 60", decoder_start_token_id=61),
        refused(r"classifier_dropout=2 .* \[0, 1\)", classifier_dropout=2),
        refused("'weight_init' .*'xavier', 'normal'.* kaiming", weight_init="kaiming"),
        refused("'sinusoid_type' .*'halves'.* thirds", sinusoid_type="thirds"),
        refused("position_offset=2 .* position_embedding_type='sinusoidal'", position_offset=2),
        refused("position_offset=-1", position_offset=-1, position_embedding_type="learned"),
        refused("from_padding=True .*pad_token_id=None", position_ids_from_padding=True, pad_token_id=None),
        refused(
            "from_padding=True .*pad_token_id=30 .*max_position_embeddings=24",
            position_ids_from_padding=True,
            position_embedding_type="learned",
            pad_token_id=30,
        ),
        refused(
            "from_padding=True and position_offset=2",
            position_ids_from_padding=True,
            position_embedding_type="learned",
            position_offset=2,
        ),
        *[
            refused(f"no field '{wrong}'.* '{right}'", **{wrong: 4})
            for wrong, right in {
                "d_model": "hidden_size",
                "encoder_attention_heads": "num_attention_heads",
                "decoder_ffn_dim": "intermediate_size",
                "src_vocab_size": "vocab_size",
                "tgt_vocab_size": "decoder_vocab_size",
                "decoder_layer": "decoder_layers",
            }.items()
        ],
    ],
)
def test_encoder_decoder_fields(fields, message):
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        tiny_config(tfm_zoo.TfmEncoderDecoderConfig, **fields)
    assert re.search(message, str(error.value), flags=re.DOTALL), error.value


TARGET = torch.arange(3, 9).view(2, 3)
BOTH = {"input_ids": IDS, "decoder_input_ids": TARGET}
LONG = ONES.repeat(1, 4)


def encoded(*shape: int) -> BaseModelOutput:
    return BaseModelOutput(last_hidden_state=torch.zeros(shape))


def both_caches(rows: int = 2, source: int = 7, **fields) -> transformers.Cache:
    """The cache of a model that has read two tokens of each target."""
    model = tiny_model(tfm_zoo.TfmEncoderDecoderModel, use_cache=True, **fields)
    with torch.no_grad():
        return model(
            ONES[:1].repeat(rows, 1)[:, :source], decoder_input_ids=ONES[:1, :2].repeat(rows, 1)
        ).past_key_values


@pytest.mark.parametrize(
    ("inputs", "message", "head"),
    [
        refused("one of input_ids and inputs_embeds .* neither", "Model", decoder_input_ids=TARGET),
        refused("one of input_ids and .* both", "Model", **BOTH, inputs_embeds=torch.zeros(2, 7, 32)),
        refused("one of decoder_input_ids and .* both", "Model", **BOTH, decoder_inputs_embeds=torch.zeros(2, 3, 32)),
        refused("Neither decoder_input_ids nor .* labels", "Model", inputs_embeds=torch.zeros(2, 7, 32)),
        refused(r"input_ids of shape \(7,\) .*\(batch, length\)", "Model", input_ids=IDS[0], decoder_input_ids=TARGET),
        refused(
            r"decoder_input_ids of shape \(3,\) .*\(batch, length\)",
            "Model",
            input_ids=IDS,
            decoder_input_ids=TARGET[0],
        ),
        refused("hold no token", "Model", input_ids=IDS[:, :0], decoder_input_ids=TARGET),
        refused("hold no token", "Model", input_ids=IDS, decoder_input_ids=TARGET[:, :0]),
        refused(
            r"inputs_embeds of shape \(2, 7, 31\) .*32",
            "Model",
            inputs_embeds=torch.zeros(2, 7, 31),
            decoder_input_ids=TARGET,
        ),
        refused(
            r"decoder_inputs_embeds of shape \(2, 3, 31\) .*32",
            "Model",
            input_ids=IDS,
            decoder_inputs_embeds=torch.zeros(2, 3, 31),
        ),
        refused(
            r"^input_ids holds 64, .*\(vocab_size\).* 0 to 60", "Model", input_ids=IDS + 50, decoder_input_ids=TARGET
        ),
        refused(
            r"decoder_input_ids holds 63, .*\(decoder_vocab_size\).* 0 to 60",
            "Model",
            input_ids=IDS,
            decoder_input_ids=TARGET + 55,
        ),
        refused(
            "decoder_input_ids holds -8, .* 0 to 60",
            "ForConditionalGeneration",
            input_ids=IDS,
            decoder_input_ids=-TARGET,
        ),
        refused(
            r"^position_ids holds 27, .*max_position_embeddings.* 0 to 23",
            "Model",
            input_ids=LONG,
            decoder_input_ids=TARGET,
        ),
        refused(
            "decoder_position_ids holds 27, .*max_position_embeddings.* 0 to 23",
            "Model",
            input_ids=IDS,
            decoder_input_ids=LONG,
        ),
        refused(
            "source is a batch of 2 .*target.* of 4", "Model", input_ids=IDS, decoder_input_ids=TARGET.repeat(2, 1)
        ),
        *[
            refused(
                rf"^attention_mask of shape {re.escape(str(shape))} .*\(2, 7\)",
                "Model",
                **BOTH,
                attention_mask=torch.ones(shape),
            )
            for shape in [(2, 6), (2, 3), (2, 7, 7), (2, 1, 7, 7), (3, 7)]
        ],
        refused(
            r"attention_mask of shape \(2, 6\) .*\(2, 7\)",
            "Model",
            decoder_input_ids=TARGET,
            encoder_outputs=encoded(2, 7, 32),
            attention_mask=ONES[:, :6],
        ),
        refused(
            r"decoder_attention_mask of shape \(2, 4\) .*\(2, 3\)", "Model", **BOTH, decoder_attention_mask=ONES[:, :4]
        ),
        refused(
            r"last hidden state of shape \(2, 7, 31\) .*32",
            "Model",
            decoder_input_ids=TARGET,
            encoder_outputs=encoded(2, 7, 31),
        ),
        refused(
            r"last hidden state of shape \(7, 32\) .*32",
            "Model",
            decoder_input_ids=TARGET,
            encoder_outputs=(torch.zeros(7, 32),),
        ),
        refused(
            "source is a batch of 3 .*target.* of 2",
            "Model",
            decoder_input_ids=TARGET,
            encoder_outputs=encoded(3, 7, 32),
        ),
        refused(
            "encoder_outputs is a Tensor.* tuple",
            "Model",
            decoder_input_ids=TARGET,
            encoder_outputs=torch.zeros(2, 7, 32),
        ),
        refused("encoder_hidden_states=None", "Model", decoder_input_ids=TARGET, encoder_outputs={}),
        refused("past_key_values is a tuple.* Cache", "Model", **BOTH, past_key_values=((ONES, ONES),)),
        refused(
            r"another model.*\(2, 4, 8\).*\(3, 4, 8\)", "Model", **BOTH, past_key_values=both_caches(decoder_layers=2)
        ),
        refused(r"another model.*\(3, 4, 6\).*\(3, 4, 8\)", "Model", **BOTH, past_key_values=both_caches(head_dim=6)),
        refused("holds 3 sequences, and the inputs are 2", "Model", **BOTH, past_key_values=both_caches(rows=3)),
        refused("source of 5 positions, and this one has 7", "Model", **BOTH, past_key_values=both_caches(source=5)),
        refused(
            r"labels holds 63, .*\(decoder_vocab_size\).* 0 to 60",
            "ForConditionalGeneration",
            input_ids=IDS,
            labels=TARGET + 55,
        ),
        refused("labels holds -8, .* 0 to 60", "ForConditionalGeneration", input_ids=IDS, labels=-TARGET),
        refused(
            r"labels of shape \(2, 2\) .*\(2, 3\), as the decoder's",
            "ForConditionalGeneration",
            **BOTH,
            labels=TARGET[:, :2],
        ),
        refused(
            r"labels of shape \(1, 3\) .*\(2, 3\), as the decoder's",
            "ForConditionalGeneration",
            **BOTH,
            labels=TARGET[:1],
        ),
        refused(
            r"labels of shape \(3,\) .*\(batch, length\)", "ForConditionalGeneration", input_ids=IDS, labels=TARGET[0]
        ),
        refused(
            "source is a batch of 2 .*labels.* of 4",
            "ForConditionalGeneration",
            input_ids=IDS,
            labels=TARGET.repeat(2, 1),
        ),
        refused("input_ids=None: .* end-of-sequence", "ForSequenceClassification", inputs_embeds=torch.zeros(2, 7, 32)),
        refused("Sequence 1 of input_ids has no eos_token_id=2", "ForSequenceClassification", input_ids=IDS),
        refused(
            r"decoder_input_ids of shape \(2, 3\) .*\(2, 7\), as input_ids",
            "ForSequenceClassification",
            input_ids=2 * ONES,
            decoder_input_ids=TARGET,
        ),
        refused(
            "labels holds 9, .*num_labels.* 0 to 1", "ForSequenceClassification", input_ids=2 * ONES, labels=SENTENCES
        ),
        refused(
            r"labels of shape \(3,\) .*\(2,\)", "ForSequenceClassification", input_ids=2 * ONES, labels=ONES[0, :3]
        ),
        refused("one of input_ids and inputs_embeds .* neither", "Encoder"),
        refused("input_ids holds 64, .*vocab_size.* 0 to 60", "Encoder", input_ids=IDS + 50),
    ],
)
def test_encoder_decoder_inputs(inputs, message, head):
    """Before either side has done any work."""
    model = tiny_model(getattr(tfm_zoo, f"TfmEncoderDecoder{head}"), position_embedding_type="learned")
    refuse(model, inputs, message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        refused("decoder_start_token_id=None: .*labels", decoder_start_token_id=None),
        refused("pad_token_id=None: .*labels", pad_token_id=None),
        refused(r"labels holds 8, .*\(decoder_vocab_size\).* 0 to 4", decoder_vocab_size=5),
    ],
)
def test_labels_of_another_target(fields, message):
    model = tiny_model(tfm_zoo.TfmEncoderDecoderForConditionalGeneration, **fields)
    refuse(model, {"input_ids": IDS, "labels": TARGET}, message)


def refuse(model, inputs: dict, message: str) -> None:
    """No module is run before the refusal, but those that only hand their inputs on to be checked."""
    computed, checking = [], {"TfmEncoderDecoderModel", "TfmEncoderStack", "TfmDecoderStack", "TfmGPTModel"}
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, args: computed.append(module) if module is not model else None)
    with pytest.raises(ValueError) as error:
        model(**inputs)
    assert re.search(message, str(error.value), flags=re.DOTALL), error.value
    assert {type(module).__name__ for module in computed} <= checking, "work was done before the refusal"


def test_too_long_a_continuation_is_refused():
    """`generate` past the learned positions names the first that is not there."""
    model = tiny_model(tfm_zoo.TfmGPTForCausalLM, use_cache=True, eos_token_id=None)
    with pytest.raises(ValueError, match=r"position_ids holds 24, .* 0 to 23"):
        model.generate(IDS, max_new_tokens=20, do_sample=False, pad_token_id=0)


def test_a_batch_that_does_not_show_its_padding():
    """A classifier of sequences asks where they end."""
    model = tiny_model(tfm_zoo.TfmGPTForSequenceClassification, pad_token_id=None)
    with pytest.raises(ValueError, match=r"2 sequences .* attention_mask nor config\.pad_token_id"):
        model(IDS)
    assert model(IDS[:1]).logits.allclose(model(IDS, attention_mask=ONES).logits[:1], atol=1e-5)
