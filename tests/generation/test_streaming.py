"""Text is streamed as it is made, and continuous batching says what `generate` says."""

from threading import Thread

import pytest
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, TextIteratorStreamer, TextStreamer

from ..tiny import tiny_decoder
from ..words import SENTENCES, make_tokenizer


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_streamed_text(sampled, capsys):
    tokenizer = make_tokenizer()
    model = tiny_decoder(vocab_size=len(tokenizer), max_position_embeddings=48, initializer_range=0.4, bos_token_id=2)
    inputs = tokenizer(SENTENCES[0], return_tensors="pt", add_special_tokens=False)
    inputs |= {"max_new_tokens": 12, "do_sample": sampled, "pad_token_id": 0, "repetition_penalty": 1.5}
    torch.manual_seed(3)
    wanted = tokenizer.decode(model.generate(**inputs)[0])
    assert len(set(wanted.split())) > 6

    torch.manual_seed(3)
    model.generate(**inputs, streamer=TextStreamer(tokenizer))
    assert capsys.readouterr().out.strip() == wanted

    streamer = TextIteratorStreamer(tokenizer, timeout=300)
    torch.manual_seed(3)
    thread = Thread(target=model.generate, kwargs={**inputs, "streamer": streamer})
    thread.start()
    pieces = [piece for piece in streamer if piece]
    thread.join()
    assert len(pieces) > 6
    assert "".join(pieces) == wanted


def test_continuous_batching_gives_what_generate_does():
    model = tiny_decoder()
    prompts = [[5, 6, 7, 8], [9, 10]]
    options = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=0)
    sizes = ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=64)
    batched = model.generate_batch(prompts, generation_config=options, continuous_batching_config=sizes)
    for prompt, result in zip(prompts, batched.values(), strict=True):
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=4, do_sample=False, pad_token_id=0)
        assert result.generated_tokens == expected[0, len(prompt) :].tolist()
