"""Fine-tuning on conversations: answers alone are learned, by the chat template, and packed ones see only their own."""

import json
import random

import pytest
import torch
from datasets import Dataset, DatasetDict
from transformers import GPT2Config, LlamaConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

import tfm_zoo
from tfm_zoo.models.losses import IGNORED
from tfm_zoo.training.conversations import (
    Conversations,
    EncodedConversations,
    PackedConversations,
    best_fit,
    encode_conversation,
)
from tfm_zoo.training.tasks.language_modeling import LanguageModelingOptions, load_corpus
from tfm_zoo.training.tokenizers import byte_level_bpe

from .conftest import CALL, COLOURS, TEMPLATE, conversation, said, write

MARKED = """{% for message in messages %}<{{ message['role'] }}>{% if message['role'] == 'assistant' %}{% generation %}\
{{ message['content'] }}</s>
{% endgeneration %}{% else %}{{ message['content'] }}</s>
{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
TINY = {"vocab_size": 300, "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
GPT2 = GPT2Config(n_positions=128, **TINY)
LLAMA = LlamaConfig(intermediate_size=64, bos_token_id=0, eos_token_id=0, pad_token_id=0, **TINY)


@pytest.fixture(scope="module")
def shared_tokenizer():
    return byte_level_bpe([message["content"] for thing in COLOURS for message in conversation(thing)], 300)


@pytest.fixture
def tokenizer(shared_tokenizer, monkeypatch):
    monkeypatch.setattr(shared_tokenizer, "chat_template", TEMPLATE)
    return shared_tokenizer


def learned(tokenizer, messages: list[dict]) -> str:
    ids, answers = encode_conversation(tokenizer, messages)
    return tokenizer.decode([token for token, is_answer in zip(ids, answers, strict=True) if is_answer])


def test_answers_alone_are_learned(tokenizer):
    """A conversation may begin with one if the template marks answers."""
    messages = conversation("sky", "snow")
    first = [{"role": "assistant", "content": "Ask me."}, *messages[:2]]
    ids = encode_conversation(tokenizer, messages)
    assert learned(tokenizer, messages) == "It is blue.</s>\nIt is white.</s>\n"
    with pytest.raises(ValueError, match=r"'Ask me.'... begins with an answer.*: mark answers .*{% generation %}"):
        learned(tokenizer, first)
    tokenizer.chat_template = MARKED
    assert encode_conversation(tokenizer, messages) == ids
    assert learned(tokenizer, first) == "Ask me.</s>\nIt is blue.</s>\n"
    split = Dataset.from_dict({"messages": [first]})
    data = Conversations(DatasetDict(train=split, validation=split), [], [])
    prompt = "<assistant>Ask me.</s>\n<user>What colour has sky?</s>\n<assistant>"
    assert tokenizer.decode(data.first_prompt(tokenizer, None)) == prompt


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_packed_conversations_do_not_see_each_other(tokenizer, config):
    torch.manual_seed(0)
    official = AutoModelForCausalLM.from_config(config).eval()
    zoo = tfm_zoo.from_official(official).eval()
    pairs = [encode_conversation(tokenizer, conversation(*things)) for things in (["sky"], ["coal", "sky"], ["grass"])]
    encoded = EncodedConversations(
        torch.cat([torch.tensor(ids) for ids, _ in pairs]),
        torch.cat([torch.tensor(answers) for _, answers in pairs]),
        torch.tensor([len(ids) for ids, _ in pairs]),
    )
    packed = PackedConversations(encoded, block_size=192)
    assert len(packed) == 1
    alone = 0
    for ids, answers in pairs:
        row = torch.tensor([ids])
        labels = row.masked_fill(~torch.tensor([answers]), IGNORED)
        alone += official(input_ids=row, labels=labels, num_items_in_batch=1).loss
    batch = {name: row[None] for name, row in packed[0].items()}
    for model in (official, zoo):
        loss = model(**batch, use_cache=False, num_items_in_batch=1).loss
        torch.testing.assert_close(loss, alone, rtol=1e-5, atol=1e-4)


def test_blocks_hold_every_conversation_once():
    rng = random.Random(0)
    lengths = [rng.randint(1, 20) for _ in range(200)]
    bins = best_fit(lengths, 20)
    assert sorted(index for each in bins for index in each) == list(range(200))
    assert max(sum(lengths[index] for index in each) for each in bins) <= 20
    assert len(bins) <= 1 + 11 / 9 * sum(lengths) / 20
    assert best_fit([3, 20, 17], 20) == [[0, 2], [1]]
    assert best_fit([2, 3, 18, 17], 20) == [[0, 2], [1, 3]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")  # TRL sets it
def test_trl_trains_the_zoo_as_it_trains_native_models(tokenizer, tmp_path):
    rng = random.Random(0)
    rows = [{"messages": conversation(*rng.choices([*COLOURS], k=rng.randint(1, 3)))} for _ in range(32)]
    tokenizer.chat_template = MARKED
    torch.manual_seed(0)
    official = AutoModelForCausalLM.from_config(LLAMA)
    options = {"max_steps": 3, "logging_steps": 1, "learning_rate": 1e-3, "per_device_train_batch_size": 4}
    options |= {"assistant_only_loss": True, "gradient_checkpointing": False, "bf16": False, "use_cpu": True}
    arguments = SFTConfig(tmp_path, max_length=64, report_to=[], save_strategy="no", **options)
    histories = []
    for model in (tfm_zoo.from_official(official), official):
        dataset = Dataset.from_list(rows)
        trainer = SFTTrainer(model=model, args=arguments, train_dataset=dataset, processing_class=tokenizer)
        trainer.train()
        histories.append([[entry[key] for key in ("loss", "grad_norm")] for entry in trainer.state.log_history[:-1]])
    assert len(histories[0]) == 3
    for ours, theirs in zip(*histories, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)


TOOLS = [{"type": "function", "function": {"name": name, "parameters": {name: "int"}}} for name in "fg"]
WITH_TOOLS = """{{ tools | tojson }}{% for message in messages %}<{{ message.role }}>\
{{ message.content or message.tool_calls | tojson }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
CALLED = f"{json.dumps(TOOLS[:1])}<user>hi<assistant>{json.dumps([CALL])}"
PLAIN = "<user>hi</s>\n<assistant>yo</s>\n"


@pytest.mark.parametrize(
    ("row", "template", "meant"),
    [
        ([{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}], TEMPLATE, PLAIN),
        (said([{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]), TEMPLATE, PLAIN),
        (json.dumps(said("hi")), TEMPLATE, PLAIN),
        ([{"role": "critic", "content": "no"}, *said("hi")], TEMPLATE, f"<critic>no</s>\n{PLAIN}"),
        (said("hi", None, tool_calls=[CALL]), WITH_TOOLS, CALLED),
    ],
    ids=["from and value", "parts", "JSON", "another role", "tools"],
)
def test_rows_are_learnt_as_they_are_meant(tokenizer, tmp_path, caplog, row, template, meant):
    """Tools that a template does not read are told."""
    rows = [{"messages": json.dumps(said("hi")) if isinstance(row, str) else said("hi"), "tools": TOOLS[1:]}] * 20
    chat = str(write(tmp_path / "chat.jsonl", [*rows, {"messages": row, "tools": TOOLS[:1]}]))
    (tmp_path / "chat.jinja").write_text(template, "utf-8-sig")
    tokenizer.chat_template = None
    paths = {"train_file": chat, "validation_file": chat, "chat_template_path": str(tmp_path / "chat.jinja")}
    args = LanguageModelingOptions(**paths)
    corpus = load_corpus(args)
    ids = corpus.encode(tokenizer, args)["train"]
    assert tokenizer.decode(ids.ids[-ids.lengths[-1] :]) == meant and {*corpus.texts()} >= {"hi"}
    assert ("The chat template does not read tools" in caplog.text) == (template is TEMPLATE)
