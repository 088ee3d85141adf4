"""Decoding that guesses ahead says what greedy decoding says; text is streamed as it is made."""

from threading import Thread

import pytest
import torch
from transformers import TextIteratorStreamer, TextStreamer

from tfm_zoo import TfmGPTConfig, TfmGPTForCausalLM

from ..words import SENTENCES, make_tokenizer
from .models import IN_EVERY_WAY, assert_varied, generate, pair, prompts

EVERY_ARCHITECTURE = pytest.mark.parametrize("architecture", IN_EVERY_WAY)


def one_prompt() -> dict[str, torch.LongTensor]:
    """The longest, with some of it said twice, for a lookup to find."""
    ids = prompts()["input_ids"][:1]
    ids = torch.cat((ids, ids[:, :3]), dim=1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
@EVERY_ARCHITECTURE
def test_prompt_lookup(architecture, sampled):
    model, official = pair(architecture)
    options = {"do_sample": sampled, "top_k": 0, "eos_token_id": None}
    ours = generate(model, one_prompt(), prompt_lookup_num_tokens=3, **options)
    if architecture != "openai-gpt":  # whose official class has no cache, which assistance needs
        theirs = generate(official, one_prompt(), prompt_lookup_num_tokens=3, **options)
        assert ours.sequences.equal(theirs.sequences)
    if not sampled:
        assert ours.sequences.equal(generate(model, one_prompt(), **options).sequences)


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
@EVERY_ARCHITECTURE
def test_assistant(architecture, sampled):
    """A model of the same kind guesses, the zoo's the zoo's and the official the official's."""
    (model, official), (helper, official_helper) = pair(architecture), pair(architecture, seed=0 if sampled else 1)
    options = {"do_sample": sampled, "top_k": 0, "eos_token_id": None}
    ours = generate(model, one_prompt(), assistant_model=helper, **options)
    if architecture != "openai-gpt":
        theirs = generate(official, one_prompt(), assistant_model=official_helper, **options)
        assert ours.sequences.equal(theirs.sequences)
    if not sampled:
        assert ours.sequences.equal(generate(model, one_prompt(), **options).sequences)
    assert_varied(ours.sequences, one_prompt()["input_ids"].shape[1], least=3)


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_streamed_text(sampled, capsys):
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = TfmGPTConfig(**sizes, max_position_embeddings=48, initializer_range=0.4, bos_token_id=2, eos_token_id=None)
    model = TfmGPTForCausalLM(config).eval()
    inputs = tokenizer(SENTENCES[0], return_tensors="pt", add_special_tokens=False)
    options = {"max_new_tokens": 12, "do_sample": sampled, "pad_token_id": 0}
    torch.manual_seed(3)
    wanted = tokenizer.decode(model.generate(**inputs, **options)[0])
    assert len(set(wanted.split())) > 6

    torch.manual_seed(3)
    model.generate(**inputs, **options, streamer=TextStreamer(tokenizer))
    assert capsys.readouterr().out.strip() == wanted

    streamer = TextIteratorStreamer(tokenizer, timeout=300)
    torch.manual_seed(3)
    thread = Thread(target=model.generate, kwargs={**inputs, **options, "streamer": streamer})
    thread.start()
    pieces = [piece for piece in streamer if piece]
    thread.join()
    assert len(pieces) > 6
    assert "".join(pieces) == wanted
