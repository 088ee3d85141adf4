"""Bad input of an encoder is refused before work is done, with an error that names the value."""

import re

import pytest
import torch
import transformers
from transformers import BatchEncoding

import tfm_zoo

from ..tiny import SIZES, tiny_model
from .refusals import IDS, MASK, ONES, SENTENCES, refused


def case(message: str, head: str, **values):
    """What `head` refuses beside token ids."""
    return refused(message, head, input_ids=IDS, **values)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize(
    ("inputs", "message", "head"),
    [
        refused("Exactly one of input_ids and inputs_embeds .* neither", "Model"),
        case("Exactly one of .* both", "Model", inputs_embeds=torch.zeros(2, 7, 32)),
        refused(r"input_ids of shape \(7,\) .*\(batch, length\)", "Model", input_ids=IDS[0]),
        refused("input_ids holds 64, .*vocab_size.* 0 to 60", "Model", input_ids=IDS + 50),
        refused("input_ids holds -2, .*vocab_size.* 0 to 60", "Model", input_ids=IDS - 3),
        refused(r"inputs_embeds of shape \(2, 7, 31\) .*32", "Model", inputs_embeds=torch.zeros(2, 7, 31)),
        refused(r"inputs_embeds of shape \(7, 32\) .*\(batch, length, 32\)", "Model", inputs_embeds=torch.zeros(7, 32)),
        refused("inputs of 28 tokens .*24 positions .*truncation=True", "Model", input_ids=ONES.repeat(1, 4)),
        refused("inputs of 25 tokens .*24 positions", "Model", inputs_embeds=torch.zeros(1, 25, 32)),
        case("position_ids holds 24, .*max_position_embeddings", "Model", position_ids=IDS + 10),
        case(r"position_ids of shape \(2, 6\) .*\(2, 7\)", "Model", position_ids=IDS[:, :6]),
        case("token_type_ids holds 2, .*type_vocab_size.* 0 to 1", "Model", token_type_ids=2 * ONES),
        case(r"token_type_ids of shape \(2, 6\) .*\(2, 7\)", "Model", token_type_ids=ONES[:, :6]),
        *[
            case(rf"attention_mask of shape {re.escape(str(shape))} .*\(2, 7\)", "Model", attention_mask=mask)
            for shape in [(2, 6), (2, 7, 7), (2, 1, 7, 6), (2, 3, 7, 7), (3, 1, 7, 7)]
            for mask in [torch.ones(shape)]
        ],
        *(
            refused(f"^{name} is a .*, and should be a tensor", head, **{"input_ids": IDS} | {name: value})
            for head, name, value in (
                ("Model", "input_ids", IDS.tolist()),
                ("Model", "input_ids", BatchEncoding({"input_ids": IDS})),
                ("Model", "input_ids", "a text"),
                ("Model", "attention_mask", ONES.tolist()),
                ("Model", "attention_mask", ONES.numpy()),
                ("Model", "attention_mask", {"full_attention": None}),
                ("Model", "position_ids", IDS.tolist()),
                ("ForMaskedLM", "labels", IDS.tolist()),
                ("ForSequenceClassification", "labels", [0, 1]),
                ("ForQuestionAnswering", "start_positions", [0, 1]),
            )
        ),
        case("labels holds 64, .*vocab_size.* 0 to 60", "ForMaskedLM", labels=IDS + 50),
        case("labels holds -1, .*vocab_size.* 0 to 60", "ForMaskedLM", labels=-ONES),
        case(r"labels of shape \(2, 6\) .*\(2, 7\)", "ForMaskedLM", labels=IDS[:, :6]),
        case(r"labels of shape \(2, 7, 3\) .*\(2, 7\)", "ForMaskedLM", labels=ONES[..., None] + ONES[0, :3]),
        case(r"labels of shape \(2, 6\) .*\(2, 7\)", "ForPreTraining", labels=IDS[:, :6]),
        case("next_sentence_label holds 9, .*0 to 1", "ForPreTraining", next_sentence_label=SENTENCES),
        case("labels holds 9, .*0 to 1", "ForNextSentencePrediction", labels=SENTENCES),
        case("labels holds 9, .*num_labels.* 0 to 1", "ForSequenceClassification", labels=SENTENCES),
        case(r"labels of shape \(3,\) .*\(2,\)", "ForSequenceClassification", labels=ONES[0, :3]),
        case(r"labels of shape \(\) .*\(2,\)", "ForSequenceClassification", labels=ONES[0, 0]),
        case(r"\(2, 2\) .*multi_label_classi", "ForSequenceClassification", labels=ONES[:, :2]),
        case("labels holds 14, .*num_labels.* 0 to 1", "ForTokenClassification", labels=IDS),
        case(r"labels of shape \(2, 6\) .*\(2, 7\)", "ForTokenClassification", labels=ONES[:, :6]),
        refused("Exactly one of input_ids and inputs_embeds .* neither", "ForMultipleChoice"),
        case(r"input_ids of shape \(2, 7\) .*\(batch, choices, length\)", "ForMultipleChoice"),
        refused("labels holds 2, .*choices.* 0 to 1", "ForMultipleChoice", input_ids=IDS[None], labels=SENTENCES[:1]),
        refused("one of .* neither", "ForQuestionAnswering", start_positions=ONES[0, :1], end_positions=ONES[0, :1]),
    ],
)
def test_inputs(inputs, message, head, padded):
    ids = inputs.get("input_ids")
    if padded and getattr(ids, "shape", None) == MASK.shape:
        inputs = {"attention_mask": MASK} | inputs
    model = tiny_model(getattr(tfm_zoo, f"TfmBert{head}"))
    with pytest.raises(ValueError) as error:
        model(**inputs)
    assert re.search(message, str(error.value))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (2 * ONES[:, :3], "labels holds 2, .* multi_label_classification: ids go from 0 to 1"),
        (-100 * ONES[:, :3], "labels holds -100"),
        (ONES[:, 0], r"labels of shape \(2,\) should be of shape \(2, 3\), as \(batch, num_labels\)"),
    ],
)
def test_marks_of_several_labels(labels, message):
    head = tfm_zoo.TfmBertForSequenceClassification
    with pytest.raises(ValueError, match=message):
        tiny_model(head, num_labels=3, problem_type="multi_label_classification")(IDS, labels=labels)


def test_resized_vocabulary_takes_new_ids():
    model = tiny_model(tfm_zoo.TfmBertForMaskedLM)
    model.resize_token_embeddings(SIZES["vocab_size"] + 4)
    assert model(IDS + 50, labels=IDS + 50).logits.shape[-1] == SIZES["vocab_size"] + 4
    with pytest.raises(ValueError, match="0 to 64"):
        model(IDS + 51)


def test_a_model_of_another_type(tmp_path):
    config = transformers.BertConfig(num_hidden_layers=1)
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"type 'bert' is not one of 'tfm_bert'.*tfm_zoo\.from_official"):
        tfm_zoo.TfmBertModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="made from a TfmBertConfig, not from a BertConfig of type 'bert'"):
        tfm_zoo.TfmBertModel(config)


def test_a_position_before_the_first():
    model = tiny_model(tfm_zoo.TfmBertModel, position_embedding_type="sinusoidal")
    with pytest.raises(ValueError, match=r"position_ids holds -3, .*: ids go from 0\.$"):
        model(IDS, position_ids=IDS * 0 - 3)


def test_a_cache():
    """PEFT's prefix tuning passes one, and the mask that goes with it."""
    mask = torch.ones(2, 11)
    with pytest.raises(ValueError, match="past_key_values: an encoder has no cache"):
        tiny_model(tfm_zoo.TfmBertModel)(IDS, mask, past_key_values=transformers.DynamicCache())
