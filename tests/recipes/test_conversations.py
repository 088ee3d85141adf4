"""Fine-tuning on conversations: the chat template, the loss on answers alone, packing."""

import json
import random

import pytest
import torch
from datasets import Dataset, DatasetDict
from huggingface_hub import ModelCard
from transformers import GPT2Config, LlamaConfig, pipeline
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

from .conftest import history, logged

COLOURS = {"sky": "blue", "grass": "green", "coal": "black", "snow": "white"}
TEMPLATE = """{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}</s>
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
TOKENS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
MARKED = """{% for message in messages %}<{{ message['role'] }}>{% if message['role'] == 'assistant' %}{% generation %}\
{{ message['content'] }}</s>
{% endgeneration %}{% else %}{{ message['content'] }}</s>
{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""


def conversation(*things: str) -> list[dict[str, str]]:
    said = [
        ("user", f"What colour has {thing}?") if ask else ("assistant", f"It is {COLOURS[thing]}.")
        for thing in things
        for ask in (True, False)
    ]
    return [{"role": role, "content": content} for role, content in said]


@pytest.fixture(scope="module")
def tokenizer():
    texts = [message["content"] for thing in COLOURS for message in conversation(thing)]
    made = byte_level_bpe(texts, 300)
    made.chat_template = TEMPLATE
    return made


@pytest.fixture
def chat(tmp_path) -> dict:
    """Options that name conversations of one to three questions, and the template."""
    rng = random.Random(0)
    rows = [{"messages": conversation(*rng.choices([*COLOURS], k=rng.randint(1, 3)))} for _ in range(60)]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    return {"train_file": tmp_path / "chat.jsonl", "chat_template_path": tmp_path / "template.jinja"}


def test_answers_alone_are_learned(tokenizer):
    messages = conversation("sky", "snow")
    ids, answers = encode_conversation(tokenizer, messages)
    learned = tokenizer.decode([token for token, is_answer in zip(ids, answers, strict=True) if is_answer])
    assert learned == "It is blue.</s>\nIt is white.</s>\n"
    tokenizer.chat_template = MARKED
    try:
        assert encode_conversation(tokenizer, messages) == (ids, answers)
    finally:
        tokenizer.chat_template = TEMPLATE


def test_a_conversation_may_begin_with_an_answer_if_the_template_marks_answers(tokenizer, monkeypatch):
    messages = [{"role": "assistant", "content": "Ask me."}, *conversation("sky")]
    with pytest.raises(
        ValueError, match=r"conversation 'Ask me.'... begins with an answer.*: mark answers .*{% generation %}"
    ):
        encode_conversation(tokenizer, messages)
    monkeypatch.setattr(tokenizer, "chat_template", MARKED)
    ids, answers = encode_conversation(tokenizer, messages)
    learned = tokenizer.decode([token for token, is_answer in zip(ids, answers, strict=True) if is_answer])
    assert learned == "Ask me.</s>\nIt is blue.</s>\n"
    split = Dataset.from_dict({"messages": [messages]})
    data = Conversations(DatasetDict(train=split, validation=split), [], [])
    prompt = "<assistant>Ask me.</s>\n<user>What colour has sky?</s>\n<assistant>"
    assert tokenizer.decode(data.first_prompt(tokenizer, None)) == prompt


@pytest.mark.parametrize(
    "config",
    [
        GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=128),
        LlamaConfig(vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64),
    ],
    ids=["gpt2", "llama"],
)
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


@pytest.mark.slow
def test_learns_to_answer(train_lm, chat, tmp_path):
    sizes = "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64,hidden_dropout=0"
    options = {"config_overrides": sizes, "block_size": 96, "tokenizer_vocab_size": 300, "sample_length": 12}
    results = train_lm(**chat, **options, num_train_epochs=25, learning_rate=1e-2, sample_prompt="What colour has sky?")
    assert results["eval_loss"] < 0.5 < history(tmp_path / "run", "loss")[0]
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert "over the tokens of answers" in card.text and '[{"role": "user"' in card.text
    answer = pipeline("text-generation", model=str(tmp_path / "run"), trust_remote_code=True)
    reply = answer([{"role": "user", "content": "What colour has snow?"}], max_new_tokens=12, do_sample=False)
    assert reply[0]["generated_text"][-1]["content"].startswith("It is ")


def test_zoo_and_native_model_take_the_same_steps(train_lm, chat, tmp_path):
    gpt2 = "n_embd=32,n_layer=2,n_head=2,embd_pdrop=0,attn_pdrop=0,resid_pdrop=0"
    options = {**chat, "model_type": "gpt2", "config_overrides": gpt2, "tokenizer_vocab_size": 300, "block_size": 128}
    options |= {"max_train_steps": 3, "sample_length": 4}
    zoo, native = (
        train_lm.trained(output_dir=tmp_path / name, model_class=name, **options) for name in ("zoo", "native")
    )
    for key in ("loss", "eval_loss"):
        assert logged(zoo, key) == pytest.approx(logged(native, key), abs=1e-4), key


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")  # TRL sets it
def test_trl_trains_the_zoo_as_it_trains_native_models(tokenizer, tmp_path, monkeypatch):
    rng = random.Random(0)
    rows = [{"messages": conversation(*rng.choices([*COLOURS], k=rng.randint(1, 3)))} for _ in range(32)]
    monkeypatch.setattr(tokenizer, "chat_template", MARKED)
    config = LlamaConfig(vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, **TOKENS)
    torch.manual_seed(0)
    official = AutoModelForCausalLM.from_config(config)
    histories = []
    for model in (tfm_zoo.from_official(official), official):
        options = {"max_steps": 3, "logging_steps": 1, "learning_rate": 1e-3, "per_device_train_batch_size": 4}
        options |= {"assistant_only_loss": True, "gradient_checkpointing": False, "bf16": False, "use_cpu": True}
        arguments = SFTConfig(tmp_path, max_length=64, report_to=[], save_strategy="no", **options)
        dataset = Dataset.from_list(rows)
        trainer = SFTTrainer(model=model, args=arguments, train_dataset=dataset, processing_class=tokenizer)
        trainer.train()
        histories.append([[entry[key] for key in ("loss", "grad_norm")] for entry in trainer.state.log_history[:-1]])
    assert len(histories[0]) == 3
    for ours, theirs in zip(*histories, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)


CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {name: "int"}}} for name in "fg"]
WITH_TOOLS = """{{ tools | tojson }}{% for message in messages %}<{{ message.role }}>\
{{ message.content or message.tool_calls | tojson }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
PLAIN = "<user>hi</s>\n<assistant>yo</s>\n"


def said(user: object, assistant: object = "yo", **others) -> list[dict]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant, **others}]


@pytest.mark.parametrize(
    ("row", "template", "written"),
    [
        ([{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}], TEMPLATE, PLAIN),
        (said([{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]), TEMPLATE, PLAIN),
        (json.dumps(said("hi")), TEMPLATE, PLAIN),
        ([{"role": "critic", "content": "no"}, *said("hi")], TEMPLATE, f"<critic>no</s>\n{PLAIN}"),
        (
            said("hi", None, tool_calls=[CALL]),
            WITH_TOOLS,
            f"{json.dumps(TOOLS[:1])}<user>hi<assistant>{json.dumps([CALL])}",
        ),
        (None, TEMPLATE, "line 21 of chat.jsonl, column 'messages': a conversation is a list of messages, not null"),
        ("hello", TEMPLATE, 'line 21 of chat.jsonl, .*: a row holds the text "hello", which is not JSON'),
        (said(None), TEMPLATE, "line 21 .*: the content of message 1 .user. is null, not text"),
        (said([{"type": "image", "url": "x"}]), TEMPLATE, 'line 21 .*: message 1 has a part "image", and only texts'),
        ([{"content": "hi"}], TEMPLATE, "line 21 .*: message 1 has no role, but content"),
        (said("hi", None, tool_calls=[CALL]), TEMPLATE, "'hi'... has tool_calls, which the chat template does not"),
        (said("hi"), "{{ raise_exception('no') }}", "the chat template refuses the conversation .*: no"),
    ],
)
def test_rows_are_checked_before_they_are_encoded(tokenizer, tmp_path, monkeypatch, caplog, row, template, written):
    """Of 21 rows the last is odd. It is learnt as it is meant, or refused by its line."""
    rows = [{"messages": json.dumps(said("hi")) if isinstance(row, str) else said("hi"), "tools": TOOLS[1:]}] * 20
    lines = [json.dumps(each) for each in (*rows, {"messages": row, "tools": TOOLS[:1]})]
    (tmp_path / "chat.jsonl").write_text("\n".join(lines))
    (tmp_path / "chat.jinja").write_text(template, "utf-8-sig")
    monkeypatch.setattr(tokenizer, "chat_template", None)
    files = {"train_file": str(tmp_path / "chat.jsonl"), "chat_template_path": str(tmp_path / "chat.jinja")}
    args = LanguageModelingOptions(validation_file=files["train_file"], **files)
    if "line 21" in written or "the chat template" in written:
        with pytest.raises(ValueError, match=written):
            load_corpus(args).encode(tokenizer, args)
        return
    corpus = load_corpus(args)
    ids = corpus.encode(tokenizer, args)["train"]
    assert tokenizer.decode(ids.ids[-ids.lengths[-1] :]) == written and {*corpus.texts()} >= {"hi"}
    assert ("The chat template does not read tools" in caplog.text) == (template is TEMPLATE)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            [conversation("sky")] * 20,
            {"chat_template_path": None},
            "no chat template, .* give a chat_template_path",
        ),
        ([conversation("sky")[:1]] * 20, {}, "What colour has sky.* has no answer"),
        ([conversation("sky")] * 2, {}, "10% of 2 conversations leave none"),
        ([conversation("sky")] * 20, {"streaming": True, "max_train_steps": 1}, "do not stream it"),
        (
            [conversation("sky")] * 20,
            {"block_size": 8, "sample_length": 0},
            "has an answer within its first 8 tokens",
        ),
        ([conversation("sky")] * 20, {"messages_column_name": "chats"}, "messages_column_name 'chats': no such column"),
    ],
    ids=["template", "answer", "few", "stream", "long", "column"],
)
def test_bad_input_is_refused(train_lm, chat, rows, options, message):
    chat["train_file"].write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    with pytest.raises(ValueError, match=message):
        train_lm(**chat | options)
