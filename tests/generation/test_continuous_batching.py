"""Continuous batching generates what `generate` does."""

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
        ids = torch.tensor([prompt])
        expected = model.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)[0, len(prompt) :]
        assert result.generated_tokens == expected.tolist()
