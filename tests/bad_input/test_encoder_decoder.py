"""Bad input of an encoder-decoder is refused before work is done, with an error that names the value."""

import re

import pytest
import torch
import transformers
from transformers.modeling_outputs import BaseModelOutput

import tfm_zoo

from ..tiny import tiny_model
from .refusals import IDS, ONES, SENTENCES, assert_refused, refused

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


def case(message: str, head: str = "Model", **changes):
    """What `head` refuses of a source and a target; `None` leaves one out."""
    values = {name: value for name, value in (BOTH | changes).items() if value is not None}
    return refused(message, head, **values)


def labelled(message: str, labels, **changes):
    return case(message, "ForConditionalGeneration", **{"decoder_input_ids": None} | changes, labels=labels)


def classified(message: str, **changes):
    """Of sources that end."""
    return case(message, "ForSequenceClassification", **{"input_ids": 2 * ONES, "decoder_input_ids": None} | changes)


def read(message: str, outputs, **changes):
    """Of a source that has been encoded."""
    return case(message, encoder_outputs=outputs, **{"input_ids": None} | changes)


def embedded(*shape: int) -> dict:
    return {"input_ids": None, "inputs_embeds": torch.zeros(shape)}


def target_embedded(*shape: int) -> dict:
    return {"decoder_input_ids": None, "decoder_inputs_embeds": torch.zeros(shape)}


@pytest.mark.parametrize(
    ("inputs", "message", "head"),
    [
        case("one of input_ids and inputs_embeds .* neither", input_ids=None),
        case("one of input_ids and .* both", inputs_embeds=torch.zeros(2, 7, 32)),
        case("one of decoder_input_ids and .* both", decoder_inputs_embeds=torch.zeros(2, 3, 32)),
        case("Neither decoder_input_ids nor .* labels", **embedded(2, 7, 32), decoder_input_ids=None),
        case(r"^input_ids of shape \(7,\) .*\(batch, length\)", input_ids=IDS[0]),
        case(r"^input_ids of shape \(7,\) .*\(batch, length\)", input_ids=IDS[0], decoder_input_ids=None),
        case(r"decoder_input_ids of shape \(3,\) .*\(batch, length\)", decoder_input_ids=TARGET[0]),
        case("input_ids=None: the classifier", "ForSequenceClassification", **embedded(2, 3, 32)),
        case("hold no token", input_ids=IDS[:, :0]),
        case("hold no token", decoder_input_ids=TARGET[:, :0]),
        case(r"^position_ids of shape \(3, 2\) .*\(2, 7\)", position_ids=TARGET.view(3, 2)),
        case(r"inputs_embeds of shape \(2, 7, 31\) .*32", **embedded(2, 7, 31)),
        case(r"decoder_inputs_embeds of shape \(2, 3, 31\) .*32", **target_embedded(2, 3, 31)),
        case(r"^input_ids holds 64, .*\(vocab_size\).* 0 to 60", input_ids=IDS + 50),
        case(r"decoder_input_ids holds 63, .*\(decoder_vocab_size\).* 0 to 60", decoder_input_ids=TARGET + 55),
        case("decoder_input_ids holds -8, .* 0 to 60", "ForConditionalGeneration", decoder_input_ids=-TARGET),
        case("^inputs of 28 tokens .*24 positions .*truncation", input_ids=LONG),
        case("^decoder_inputs of 28 tokens .*24 positions", decoder_input_ids=LONG),
        case("^input_ids is a list, and should be a tensor", input_ids=[[1, 2]]),
        case("^attention_mask is a list, and should be a tensor", attention_mask=[[1] * 7] * 2),
        case("^decoder_input_ids is a list, and should be a tensor", decoder_input_ids=[[1, 2]]),
        case("^decoder_attention_mask is a list, and should be a tensor", decoder_attention_mask=[[1] * 5] * 2),
        labelled("^labels is a list", IDS.tolist()),
        classified("^input_ids is a list", input_ids=IDS.tolist()),
        read("^attention_mask is a list", (torch.zeros(2, 7, 32),), attention_mask=[[1] * 7] * 2),
        case("source is a batch of 2 .*target.* of 4", decoder_input_ids=TARGET.repeat(2, 1)),
        *[
            case(rf"^attention_mask of shape {re.escape(str(shape))} .*\(2, 7\)", attention_mask=torch.ones(shape))
            for shape in [(2, 6), (2, 3), (2, 7, 7), (2, 1, 7, 7), (3, 7)]
        ],
        read(r"attention_mask of shape \(2, 6\) .*\(2, 7\)", encoded(2, 7, 32), attention_mask=ONES[:, :6]),
        case(r"decoder_attention_mask of shape \(2, 4\) .*\(2, 3\)", decoder_attention_mask=ONES[:, :4]),
        read(r"last hidden state of shape \(2, 7, 31\) .*32", encoded(2, 7, 31)),
        read(r"last hidden state of shape \(7, 32\) .*32", (torch.zeros(7, 32),)),
        read("source is a batch of 3 .*target.* of 2", encoded(3, 7, 32)),
        read("encoder_outputs is a Tensor.* tuple", torch.zeros(2, 7, 32)),
        read("encoder_hidden_states=None", {}),
        case("past_key_values is a tuple.* Cache", past_key_values=((ONES, ONES),)),
        case(r"another model.*\(2, 4, 8\).*\(3, 4, 8\)", past_key_values=both_caches(decoder_layers=2)),
        case(r"another model.*\(3, 4, 6\).*\(3, 4, 8\)", past_key_values=both_caches(head_dim=6)),
        case("holds 3 sequences, and the inputs are 2", past_key_values=both_caches(rows=3)),
        case("source of 5 positions, and this one has 7", past_key_values=both_caches(source=5)),
        labelled(r"labels holds 63, .*\(decoder_vocab_size\).* 0 to 60", TARGET + 55),
        labelled("labels holds -8, .* 0 to 60", -TARGET),
        labelled(r"labels of shape \(2, 2\) .*\(2, 3\), as the decoder's", TARGET[:, :2], **BOTH),
        labelled(r"labels of shape \(1, 3\) .*\(2, 3\), as the decoder's", TARGET[:1], **BOTH),
        labelled(r"labels of shape \(3,\) .*\(batch, length\)", TARGET[0]),
        labelled("source is a batch of 2 .*labels.* of 4", TARGET.repeat(2, 1)),
        classified("input_ids=None: .* end-of-sequence", **embedded(2, 7, 32)),
        classified("Sequence 1 of input_ids has no eos_token_id=2", input_ids=IDS),
        classified(r"decoder_input_ids of shape \(2, 3\) .*\(2, 7\), as input_ids", decoder_input_ids=TARGET),
        classified(
            r"decoder_inputs_embeds of shape \(2, 3, 32\) .*\(2, 7\), as input_ids", **target_embedded(2, 3, 32)
        ),
        classified("labels holds 9, .*num_labels.* 0 to 1", labels=SENTENCES),
        classified(r"labels of shape \(3,\) .*\(2,\)", labels=ONES[0, :3]),
        refused("one of input_ids and inputs_embeds .* neither", "Encoder"),
        refused("input_ids holds 64, .*vocab_size.* 0 to 60", "Encoder", input_ids=IDS + 50),
    ],
)
def test_encoder_decoder_inputs(inputs, message, head):
    """Before either side has done any work."""
    model = tiny_model(getattr(tfm_zoo, f"TfmEncoderDecoder{head}"), position_embedding_type="learned")
    assert_refused(model, inputs, message)


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
    assert_refused(model, {"input_ids": IDS, "labels": TARGET}, message)
