"""Bad input of a decoder is refused before work is done, with an error that names the value."""

import re

import pytest
import torch
import transformers

import tfm_zoo

from ..tiny import tiny_model
from .refusals import IDS, ONES, SENTENCES, assert_refused, refused

LEFT_PADDED = torch.nn.functional.pad(IDS, (15, 0))


def cache_of(seen: int = 5, **fields) -> transformers.Cache:
    """The cache of a model that has read two texts of so many tokens."""
    model = tiny_model(tfm_zoo.TfmGPTModel, use_cache=True, **fields)
    with torch.no_grad():
        return model(torch.ones(2, seen, dtype=torch.long)).past_key_values


def case(message: str, head: str, **values):
    """What `head` refuses beside token ids."""
    return refused(message, head, input_ids=IDS, **values)


@pytest.mark.parametrize(
    ("inputs", "message", "head"),
    [
        refused("one of .* neither", "Model"),
        case("one of .* both", "ForCausalLM", inputs_embeds=torch.zeros(2, 7, 32)),
        refused(r"input_ids of shape \(7,\) .*\(batch, length\)", "Model", input_ids=IDS[0]),
        refused(r"inputs_embeds of shape \(2, 7, 31\) .*32", "Model", inputs_embeds=torch.zeros(2, 7, 31)),
        refused(r"input_ids of type torch.float32 should be integers", "Model", input_ids=IDS.float()),
        refused("input_ids holds 64, .*vocab_size.* 0 to 60", "ForCausalLM", input_ids=IDS + 50),
        refused("input_ids holds -1, .*vocab_size.* 0 to 60", "Model", input_ids=-ONES),
        refused("^inputs of 28 tokens .*24 positions .*truncation=True", "Model", input_ids=ONES.repeat(1, 4)),
        case("position_ids holds 24, .*max_position_emb", "ForCausalLM", position_ids=IDS + 10),
        case("^inputs of 27 tokens .*24 positions", "Model", past_key_values=cache_of(20)),
        case(r"position_ids of shape \(2, 6\) .*\(2, 7\)", "Model", position_ids=IDS[:, :6]),
        case("past_key_values is a tuple.* Cache", "Model", past_key_values=((ONES, ONES),)),
        *[
            case(
                r"cache of another model.*\(layers, key-value heads, head_dim\).*\(2, 4, 8\)",
                "ForCausalLM",
                past_key_values=cache_of(**fields),
            )
            for fields in (
                {"num_hidden_layers": 3},
                {"num_key_value_heads": 3, "num_attention_heads": 3, "head_dim": 8},
            )
        ],
        case(r"cache of another model.*\(2, 4, 6\)", "Model", past_key_values=cache_of(head_dim=6)),
        *[
            case(
                rf"attention_mask of shape {re.escape(str(shape))} .*5 positions in the cache.*\(2, 12\)",
                "ForCausalLM",
                past_key_values=cache_of(),
                attention_mask=torch.ones(shape),
            )
            for shape in [(2, 7), (2, 11), (2, 13), (3, 12), (2, 3, 7, 12), (2, 1, 7, 7)]
        ],
        case("no mask for layers of full_attention", "Model", attention_mask={"sliding_attention": None}),
        case("labels holds 64, .*vocab_size.* 0 to 60", "ForCausalLM", labels=IDS + 50),
        case("labels holds -1, .*vocab_size.* 0 to 60", "ForCausalLM", labels=-ONES),
        case("^shift_labels holds 64, .* 0 to 60", "ForCausalLM", shift_labels=IDS + 50),
        case("^shift_labels holds 64", "ForCausalLM", labels=IDS, shift_labels=IDS + 50),
        case(r"labels of shape \(2, 6\) .*\(2, 7\)", "ForCausalLM", labels=IDS[:, :6]),
        case(r"labels of shape \(7,\) .*\(2, 7\)", "ForCausalLM", labels=IDS[0]),
        case("labels holds 9, .*num_labels.* 0 to 1", "ForSequenceClassification", labels=SENTENCES),
        case(r"labels of shape \(3,\) .*\(2,\)", "ForSequenceClassification", labels=ONES[0, :3]),
        case("labels holds 14, .*num_labels.* 0 to 1", "ForTokenClassification", labels=IDS),
        case(r"labels of shape \(2, 6\) .*\(2, 7\)", "ForTokenClassification", labels=ONES[:, :6]),
        case(
            r"start_positions of shape \(1,\) .*\(2,\)",
            "ForQuestionAnswering",
            start_positions=ONES[0, :1],
            end_positions=ONES[0, :2],
        ),
    ],
)
def test_decoder_inputs(inputs, message, head):
    model = tiny_model(getattr(tfm_zoo, f"TfmGPT{head}"))
    assert_refused(model, inputs, message)


@pytest.mark.parametrize(
    ("head", "kwargs"),
    [
        ("TfmGPTForCausalLM", {"input_ids": IDS, "max_new_tokens": 18}),
        ("TfmGPTForCausalLM", {"input_ids": IDS, "max_length": 25, "num_beams": 2}),
        ("TfmGPTForCausalLM", {"inputs_embeds": torch.zeros(2, 7, 32), "max_new_tokens": 18}),
        ("TfmGPTForCausalLM", {"input_ids": LEFT_PADDED, "attention_mask": LEFT_PADDED != 0, "max_new_tokens": 18}),
        ("TfmEncoderDecoderForConditionalGeneration", {"input_ids": IDS, "max_new_tokens": 24}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_generation_beyond_the_positions_is_refused_before_its_first_step(head, kwargs):
    """24 positions are for 25 tokens, of which the last is not read."""
    fields = {"position_embedding_type": "learned", "use_cache": True, "eos_token_id": None}
    model, steps = tiny_model(getattr(tfm_zoo, head), **fields), []
    model.lm_head.register_forward_hook(lambda *args: steps.append(args))
    options = {"do_sample": False, "pad_token_id": 0}
    assert model.generate(**kwargs, **options).shape[1] in (18, 25, 40) and steps
    steps.clear()
    longer = {name: value + name.startswith("max") for name, value in kwargs.items() if name.startswith("max")}
    with pytest.raises(ValueError, match=r"would be 26,.* has 24 positions .*at least 1 fewer"):
        model.generate(**kwargs | longer, **options)
    assert not steps
    model = tiny_model(getattr(tfm_zoo, head), **fields | {"position_embedding_type": "none"})
    model.generate(**kwargs | longer, **options)


def test_a_batch_that_does_not_show_its_padding():
    """A classifier of sequences asks where they end."""
    model = tiny_model(tfm_zoo.TfmGPTForSequenceClassification, pad_token_id=None)
    with pytest.raises(ValueError, match=r"attention_mask nor config\.pad_token_id .* 2 sequences"):
        model(IDS)
    assert model(IDS[:1]).logits.allclose(model(IDS, attention_mask=ONES).logits[:1], atol=1e-5)
