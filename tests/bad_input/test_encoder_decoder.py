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


@pytest.mark.parametrize(
    ("inputs", "message", "head"),
    [
        refused("one of input_ids and inputs_embeds .* neither", "Model", decoder_input_ids=TARGET),
        refused("one of input_ids and .* both", "Model", **BOTH, inputs_embeds=torch.zeros(2, 7, 32)),
        refused("one of decoder_input_ids and .* both", "Model", **BOTH, decoder_inputs_embeds=torch.zeros(2, 3, 32)),
        refused("Neither decoder_input_ids nor .* labels", "Model", inputs_embeds=torch.zeros(2, 7, 32)),
        refused(r"input_ids of shape \(7,\) .*\(batch, length\)", "Model", input_ids=IDS[0], decoder_input_ids=TARGET),
        refused(r"^input_ids of shape \(7,\) .*\(batch, length\)", "Model", input_ids=IDS[0]),
        refused(
            r"decoder_input_ids of shape \(3,\) .*\(batch, length\)",
            "Model",
            input_ids=IDS,
            decoder_input_ids=TARGET[0],
        ),
        refused(
            "input_ids=None: the classifier",
            "ForSequenceClassification",
            inputs_embeds=torch.zeros(2, 3, 32),
            decoder_input_ids=TARGET,
        ),
        refused("hold no token", "Model", input_ids=IDS[:, :0], decoder_input_ids=TARGET),
        refused(r"^position_ids of shape \(3, 2\) .*\(2, 7\)", "Model", **BOTH, position_ids=TARGET.view(3, 2)),
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
        refused("^inputs of 28 tokens .*24 positions .*truncation", "Model", input_ids=LONG, decoder_input_ids=TARGET),
        refused("^decoder_inputs of 28 tokens .*24 positions", "Model", input_ids=IDS, decoder_input_ids=LONG),
        *(
            refused(
                f"^{name} is a list, and should be a tensor",
                "Model",
                **{"input_ids": IDS, "decoder_input_ids": TARGET} | {name: value},
            )
            for name, value in {
                **{"input_ids": [[1, 2]], "attention_mask": [[1] * 7] * 2},
                **{"decoder_input_ids": [[1, 2]], "decoder_attention_mask": [[1] * 5] * 2},
            }.items()
        ),
        refused("^labels is a list", "ForConditionalGeneration", input_ids=IDS, labels=IDS.tolist()),
        refused("^input_ids is a list", "ForSequenceClassification", input_ids=IDS.tolist()),
        refused(
            "^attention_mask is a list",
            "Model",
            encoder_outputs=(torch.zeros(2, 7, 32),),
            attention_mask=[[1] * 7] * 2,
            decoder_input_ids=TARGET,
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
            r"decoder_inputs_embeds of shape \(2, 3, 32\) .*\(2, 7\), as input_ids",
            "ForSequenceClassification",
            input_ids=2 * ONES,
            decoder_inputs_embeds=torch.zeros(2, 3, 32),
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
