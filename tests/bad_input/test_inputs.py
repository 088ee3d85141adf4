"""Bad inputs of a model are refused before work is done, with an error that names the value and what would be right."""

import re

import pytest
import torch
import transformers
from transformers import BatchEncoding
from transformers.modeling_outputs import BaseModelOutput

import tfm_zoo

from ..tiny import tiny_model

IDS = torch.arange(1, 15).view(2, 7)
ONES = torch.ones_like(IDS)
LONG = ONES.repeat(1, 4)
MASK = (torch.arange(7) < torch.tensor([[7], [4]])).long()
SENTENCES = IDS[:, 1]  # 2 and 9, where there are two classes
TARGET = torch.arange(3, 9).view(2, 3)
#: what hands its inputs on to be checked
CHECKING = {"TfmBertModel", "TfmEncoderDecoderModel", "TfmEncoderStack", "TfmDecoderStack", "TfmGPTModel"}


def states(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def no_tensors(**values) -> list[tuple[dict, str]]:
    return [({name: value}, f"^{name} is a .*, and should be a tensor") for name, value in values.items()]


def masks(wanted: str, *wrong: tuple[int, ...], **others) -> list[tuple[dict, str]]:
    """A mask of each of these shapes, and what is said of it."""
    return [({"attention_mask": torch.ones(each)} | others, re.escape(str(each)) + f".*{wanted}") for each in wrong]


def cache_of(seen: int = 5, **fields) -> transformers.Cache:
    """The cache of a model that has read two texts of so many tokens."""
    model = tiny_model(tfm_zoo.TfmGPTModel, use_cache=True, **fields)
    with torch.no_grad():
        return model(torch.ones(2, seen, dtype=torch.long)).past_key_values


def both_caches(rows: int = 2, source: int = 7, **fields) -> transformers.Cache:
    """The cache of a model that has read two tokens of each target."""
    model = tiny_model(tfm_zoo.TfmEncoderDecoderModel, use_cache=True, **fields)
    source, target = (torch.ones(rows, length, dtype=torch.long) for length in (source, 2))
    with torch.no_grad():
        return model(source, decoder_input_ids=target).past_key_values


NO_IDS, NO_TARGET = {"input_ids": None}, {"decoder_input_ids": None}
ENCODED = NO_IDS | {"encoder_outputs": (states(2, 7, 32),)}
ENDED = NO_TARGET | {"input_ids": 2 * ONES}  # sources that end
#: of the models of all families
EVERYWHERE = [
    (NO_IDS, "one of input_ids and inputs_embeds .* neither"),
    ({"inputs_embeds": states(2, 7, 32)}, "one of input_ids and inputs_embeds .* both"),
    ({"input_ids": IDS[0]}, r"^input_ids of shape \(7,\) .*\(batch, length\)"),
    ({"input_ids": IDS.float()}, "^input_ids of type torch.float32 should be integers"),
    ({"input_ids": IDS + 50}, r"^input_ids holds 64, .*\(vocab_size\).* 0 to 60"),
    ({"input_ids": IDS - 3}, "^input_ids holds -2, .*vocab_size.* 0 to 60"),
    (NO_IDS | {"inputs_embeds": states(2, 7, 31)}, r"inputs_embeds of shape \(2, 7, 31\) .*32"),
    ({"input_ids": LONG}, "^inputs of 28 tokens .*24 positions .*truncation=True"),
    ({"position_ids": IDS + 10}, "^position_ids holds 24, .*max_position_embeddings"),
    ({"position_ids": IDS[:, :6]}, r"^position_ids of shape \(2, 6\) .*\(2, 7\)"),
    *no_tensors(input_ids=IDS.tolist(), attention_mask=ONES.tolist(), position_ids=IDS.tolist()),
]
#: labels of words, of tokens and of sequences
OF_WORDS = [
    *no_tensors(labels=IDS.tolist()),
    ({"labels": IDS + 50}, "labels holds 64, .*vocab_size.* 0 to 60"),
    ({"labels": IDS[:, :6]}, r"labels of shape \(2, 6\) .*\(2, 7\)"),
    ({"labels": IDS[..., None]}, r"labels of shape \(2, 7, 1\) .*\(2, 7\)"),
]
OF_TOKENS = [({"labels": IDS}, "labels holds 14, .*num_labels.* 0 to 1")]
OF_SEQUENCES = [
    *no_tensors(labels=[0, 1]),
    ({"labels": SENTENCES}, "labels holds 9, .*num_labels.* 0 to 1"),
    ({"labels": ONES[0, :3]}, r"labels of shape \(3,\) .*\(2,\)"),
]
#: of the class `Tfm` + name, beside ids (of both sides), which `None` leaves out
CASES = {
    "BertModel": [
        *EVERYWHERE,
        ({"token_type_ids": 2 * ONES}, "token_type_ids holds 2, .*type_vocab_size.* 0 to 1"),
        ({"token_type_ids": ONES[:, :6]}, r"token_type_ids of shape \(2, 6\) .*\(2, 7\)"),
        *masks(r"\(2, 7\)", (2, 6), (2, 7, 7), (2, 1, 7, 6), (2, 3, 7, 7), (3, 1, 7, 7)),
        *no_tensors(input_ids=BatchEncoding({"input_ids": IDS}), attention_mask=ONES.numpy()),
        # PEFT's prefix tuning passes one, and the mask that goes with it.
        ({"attention_mask": torch.ones(2, 11), "past_key_values": transformers.DynamicCache()}, "encoder has no cache"),
    ],
    "BertForMaskedLM": OF_WORDS,
    "BertForPreTraining": [({"next_sentence_label": SENTENCES}, "next_sentence_label holds 9, .*0 to 1")],
    "BertForSequenceClassification": [*OF_SEQUENCES, ({"labels": ONES[:, :2]}, r"\(2, 2\) .*multi_label_classi")],
    "BertForTokenClassification": OF_TOKENS,
    "BertForMultipleChoice": [
        ({}, r"input_ids of shape \(2, 7\) .*\(batch, choices, length\)"),
        ({"input_ids": IDS[None], "labels": SENTENCES[:1]}, "labels holds 2, .*choices.* 0 to 1"),
    ],
    "BertForQuestionAnswering": no_tensors(start_positions=[0, 1]),
    "GPTModel": [
        *EVERYWHERE,
        ({"past_key_values": cache_of(20)}, "^inputs of 27 tokens .*24 positions"),
        ({"past_key_values": ((ONES, ONES),)}, "past_key_values is a tuple.* Cache"),
        ({"past_key_values": cache_of(head_dim=6)}, r"another model.*head_dim\).*\(2, 4, 6\)"),
        ({"past_key_values": cache_of(num_hidden_layers=3)}, r"cache of another model.*\(3, 4, 8\).*\(2, 4, 8\)"),
        *masks(r"5 positions .*\(2, 12\)", (2, 7), (2, 13), (2, 1, 7, 7), (2, 1, 7, 11), past_key_values=cache_of()),
        ({"attention_mask": {"sliding_attention": None}}, "no mask for layers of full_attention"),
    ],
    "GPTForCausalLM": [*OF_WORDS, ({"labels": IDS, "shift_labels": IDS + 50}, "^shift_labels holds 64, .* 0 to 60")],
    "GPTForQuestionAnswering": [
        ({"start_positions": ONES[0, :1], "end_positions": ONES[0, :2]}, r"start_positions of shape \(1,\) .*\(2,\)")
    ],
    "EncoderDecoderModel": [
        *EVERYWHERE,
        ({"decoder_inputs_embeds": states(2, 3, 32)}, "one of decoder_input_ids and .* both"),
        (NO_IDS | NO_TARGET | {"inputs_embeds": states(2, 7, 32)}, "Neither decoder_input_ids nor .* labels"),
        ({"input_ids": IDS[0]} | NO_TARGET, r"^input_ids of shape \(7,\) .*\(batch, length\)"),
        ({"decoder_input_ids": TARGET[0]}, r"decoder_input_ids of shape \(3,\) .*\(batch, length\)"),
        ({"decoder_input_ids": TARGET[:, :0]}, "hold no token"),
        ({"decoder_input_ids": TARGET + 55}, r"decoder_input_ids holds 63, .*\(decoder_vocab_size\).* 0 to 60"),
        ({"decoder_input_ids": LONG}, "^decoder_inputs of 28 tokens .*24 positions"),
        *no_tensors(decoder_input_ids=[[1, 2]], decoder_attention_mask=[[1] * 5] * 2),
        ({"decoder_input_ids": TARGET.repeat(2, 1)}, "source is a batch of 2 .*target.* of 4"),
        *masks(r"\(2, 7\)", (2, 6), (2, 1, 7, 7)),
        (ENCODED | {"attention_mask": [[1] * 7] * 2}, "^attention_mask is a list"),
        (ENCODED | {"attention_mask": ONES[:, :6]}, r"attention_mask of shape \(2, 6\) .*\(2, 7\)"),
        (ENCODED | {"encoder_outputs": BaseModelOutput(states(2, 7, 31))}, r"state of shape \(2, 7, 31\) .*32"),
        (ENCODED | {"encoder_outputs": (states(7, 32),)}, r"last hidden state of shape \(7, 32\) .*32"),
        (ENCODED | {"encoder_outputs": (states(3, 7, 32),)}, "source is a batch of 3 .*target.* of 2"),
        (ENCODED | {"encoder_outputs": states(2, 7, 32)}, "encoder_outputs is a Tensor.* tuple"),
        (ENCODED | {"encoder_outputs": {}}, "encoder_hidden_states=None"),
        ({"past_key_values": ((ONES, ONES),)}, "past_key_values is a tuple.* Cache"),
        ({"past_key_values": both_caches(decoder_layers=2)}, r"another model.*\(2, 4, 8\).*\(3, 4, 8\)"),
        ({"past_key_values": both_caches(rows=3)}, "holds 3 sequences, and the inputs are 2"),
        ({"past_key_values": both_caches(source=5)}, "source of 5 positions, and this one has 7"),
    ],
    "EncoderDecoderForConditionalGeneration": [
        (NO_TARGET | {"labels": IDS.tolist()}, "^labels is a list"),
        (NO_TARGET | {"labels": TARGET + 55}, r"labels holds 63, .*\(decoder_vocab_size\).* 0 to 60"),
        ({"labels": TARGET[:, :2]}, r"labels of shape \(2, 2\) .*\(2, 3\), as the decoder's"),
        (NO_TARGET | {"labels": TARGET[0]}, r"labels of shape \(3,\) .*\(batch, length\)"),
        (NO_TARGET | {"labels": TARGET.repeat(2, 1)}, "source is a batch of 2 .*labels.* of 4"),
    ],
    "EncoderDecoderForSequenceClassification": [
        (NO_TARGET | {"input_ids": IDS.tolist()}, "^input_ids is a list"),
        (NO_TARGET | {"input_ids": IDS[0]}, r"input_ids of shape \(7,\) should be of shape \(batch, length\)"),
        (NO_TARGET | NO_IDS | {"inputs_embeds": states(2, 7, 32)}, "input_ids=None: the classifier.* end-of-sequence"),
        (NO_TARGET, "Sequence 1 of input_ids has no eos_token_id=2"),
        (ENDED | {"decoder_input_ids": TARGET}, r"decoder_input_ids of shape \(2, 3\) .*\(2, 7\), as input_ids"),
        (ENDED | {"labels": SENTENCES}, "labels holds 9, .*num_labels.* 0 to 1"),
    ],
    "EncoderDecoderEncoder": [({"input_ids": IDS + 50}, "input_ids holds 64, .*vocab_size.* 0 to 60")],
}


SEVERAL = {"num_labels": 3, "problem_type": "multi_label_classification"}
TRANSLATOR, OF_LABELS = "EncoderDecoderForConditionalGeneration", NO_TARGET | {"labels": TARGET}
#: of other configurations: class, fields, inputs and what is said of them
OTHERS = [
    ("BertForSequenceClassification", SEVERAL, {"labels": 2 * ONES[:, :3]}, "labels holds 2, .*_label_.* from 0 to 1"),
    ("BertForSequenceClassification", SEVERAL, {"labels": ONES[:, 0]}, r"of shape \(2,\) .*\(batch, num_labels\)"),
    ("BertForSequenceClassification", {}, {"labels": ONES[:, 0].float()}, r"\(2, 2\).* integer .*'regression'"),
    ("BertModel", {"position_embedding_type": "sinusoidal"}, {"position_ids": IDS * 0 - 3}, r"holds -3, .* from 0\.$"),
    ("BertModel", {"classifier_pooling": "mean"}, {"attention_mask": torch.ones(2, 1, 7, 7)}, "'mean' needs to know"),
    ("EncoderDecoderModel", {"official": {"model_type": "t5"}}, NO_TARGET, "The encoder needs no target"),
    (TRANSLATOR, {"decoder_start_token_id": None}, OF_LABELS, "decoder_start_token_id=None: .*labels"),
    (TRANSLATOR, {"pad_token_id": None}, OF_LABELS, "pad_token_id=None: .*labels"),
    (TRANSLATOR, {"decoder_vocab_size": 5}, OF_LABELS, r"labels holds 8, .*\(decoder_vocab_size\).* 0 to 4"),
    # A classifier of sequences asks where they end.
    ("GPTForSequenceClassification", {"pad_token_id": None}, {}, r"attention_mask nor config\.pad_token_id .* 2 seq"),
]
ALL = [(head, {}, *case) for head, cases in CASES.items() for case in cases] + OTHERS


@pytest.mark.parametrize(
    ("head", "fields", "inputs", "message"),
    [pytest.param(*case, id=f"{case[0]}-{'-'.join(case[2])}-{case[3][:30]}") for case in ALL],
)
def test_inputs(head, fields, inputs, message):
    """No module is run before the refusal, but those that only hand their inputs on to be checked."""
    has_target = head.startswith("EncoderDecoder") and head != "EncoderDecoderEncoder"
    fields = ({"position_embedding_type": "learned"} if head.startswith("EncoderDecoder") else {}) | fields
    model, computed = tiny_model(getattr(tfm_zoo, f"Tfm{head}"), **fields), []
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, args: computed.append(module) if module is not model else None)
    inputs = {"input_ids": IDS} | ({"decoder_input_ids": TARGET} if has_target else {}) | inputs
    inputs = {name: value for name, value in inputs.items() if value is not None}
    may_be_padded = head.startswith("Bert") and getattr(inputs.get("input_ids"), "shape", None) == MASK.shape
    for more in ({}, {"attention_mask": MASK}) if may_be_padded else ({},):
        with pytest.raises(ValueError) as error:
            model(**more | inputs)
        assert re.search(message, str(error.value), flags=re.DOTALL), error.value
        assert {type(module).__name__ for module in computed} <= CHECKING, "work was done before the refusal"
    with pytest.raises(TypeError, match="positional arguments"):
        model(*[IDS] * 50)


def test_a_model_of_another_type(tmp_path):
    config = transformers.BertConfig(num_hidden_layers=1)
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"type 'bert' is not one of 'tfm_bert'.*tfm_zoo\.from_official"):
        tfm_zoo.TfmBertModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="made from a TfmBertConfig, not from a BertConfig of type 'bert'"):
        tfm_zoo.TfmBertModel(config)


LEFT_PADDED = torch.nn.functional.pad(IDS, (15, 0))
BEYOND = [
    ("TfmGPTForCausalLM", {"max_new_tokens": 18}),
    ("TfmGPTForCausalLM", {"input_ids": None, "inputs_embeds": states(2, 7, 32), "max_new_tokens": 18}),
    ("TfmGPTForCausalLM", {"input_ids": LEFT_PADDED, "attention_mask": LEFT_PADDED != 0, "max_new_tokens": 18}),
    ("TfmEncoderDecoderForConditionalGeneration", {"max_new_tokens": 24, "position_ids": (IDS - 9).clamp(min=0)}),
]


@pytest.mark.parametrize(("head", "options"), BEYOND)
def test_generation_beyond_the_positions_is_refused_before_its_first_step(head, options):
    """24 positions are for 25 tokens, of which the last is not read."""
    fields = {"position_embedding_type": "learned", "use_cache": True, "eos_token_id": None}
    model, steps = tiny_model(getattr(tfm_zoo, head), **fields), []
    model.lm_head.register_forward_hook(lambda *args: steps.append(args))
    options = {"input_ids": IDS, "do_sample": False, "pad_token_id": 0} | options
    options = {name: value for name, value in options.items() if value is not None}
    assert model.generate(**options).shape[1] in (18, 25, 40) and steps
    steps.clear()
    longer = options | {name: value + 1 for name, value in options.items() if name.startswith("max")}
    with pytest.raises(ValueError, match=r"would be 26,.* has 24 positions .*at least 1 fewer"):
        model.generate(**longer)
    assert not steps
    tiny_model(getattr(tfm_zoo, head), **fields | {"position_embedding_type": "none"}).generate(**longer)
