"""Continuous batching says what `generate` says."""

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from ..tiny import tiny_decoder


def test_continuous_batching_gives_what_generate_does():
    model = tiny_decoder()
    prompts = [[5, 6, 7, 8], [9, 10]]
    options = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=0)
    sizes = ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=64)
    batched = model.generate_batch(prompts, generation_config=options, continuous_batching_config=sizes)
    for prompt, result in zip(prompts, batched.values(), strict=True):
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=4, do_sample=False, pad_token_id=0)
        assert result.generated_tokens == expected[0, len(prompt) :].tolist()
