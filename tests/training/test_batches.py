"""Global batches are the same however many processes share them, from any step on."""

import pytest

from tfm_zoo.training.batches import Division, GlobalBatchSampler
from tfm_zoo.training.tasks.text_to_text import TokenBatchSampler

# Sources and targets of like lengths, as in translation; and some that are not.
LENGTHS = [(1 + 7 * i % 23, 1 + (7 * i % 23 + i % 3) % 29) for i in range(150)] + [(30, 2), (2, 30)]
BUDGET = 480


def examples(division: Division, size: int = len(LENGTHS), grouped: bool = False, seed: int = 0) -> GlobalBatchSampler:
    return GlobalBatchSampler(size, division, seed, [7 * i % 23 for i in range(size)] if grouped else None)


def tokens(division: Division, seed: int = 0) -> TokenBatchSampler:
    return TokenBatchSampler(LENGTHS, division, seed)


def steps(make, per_device: int, processes: int = 1, accumulation: int = 1, epoch: int = 2, **options) -> list:
    """For each step, each process's micro-batches."""
    shares = []
    for index in range(processes):
        sampler = make(Division(per_device, accumulation, processes, index), **options)
        sampler.set_position(epoch)
        shares.append(list(sampler.steps(sampler)))
    return list(zip(*shares, strict=True))


def whole(make, per_device: int, **options) -> list[list[int]]:
    """The global batches of one process."""
    return [batch for ((batch,),) in steps(make, per_device, **options)]


def padded(batch: list[int]) -> int:
    return len(batch) * sum(max(LENGTHS[i][column] for i in batch) for column in (0, 1))


CASES = [(examples, {"size": size, "grouped": size % 2 == 0}, 1) for size in (1, 3, 16, 17, 31, 61, 62)]


@pytest.mark.parametrize(("make", "options", "scale"), [*CASES, (tokens, {"seed": 3}, BUDGET // 16)])
def test_every_division_has_the_same_global_batches(make, options, scale):
    expected = [sorted(batch) for batch in whole(make, 16 * scale, **options)]
    for per_device, *division in [(8, 2, 1), (4, 2, 2), (4, 4, 1), (2, 2, 4), (2, 8, 1), (4, 1, 4)]:
        for step, batch in zip(steps(make, per_device * scale, *division, **options), expected, strict=True):
            assert len({len(share) for share in step}) == 1  # as many micro-batches for each process
            micro_batches = [micro for share in step for micro in share]
            assert all(len(micro) > 0 for micro in micro_batches)
            # The mean over what is computed is that over the batch: examples are repeated all alike, or not at all.
            computed = [index for micro in micro_batches for index in micro]
            assert sorted(set(computed)) == batch and len({computed.count(index) for index in batch}) == 1
            if make is tokens:
                assert all(padded(micro) <= per_device * scale for micro in micro_batches)
            elif len(batch) == 16:
                assert max(map(len, micro_batches)) == per_device


@pytest.mark.parametrize(("make", "size"), [(examples, 16), (tokens, BUDGET)])
def test_epochs_and_seeds_differ_and_each_holds_every_example_once_from_any_step_on(make, size):
    found = [whole(make, size, seed=seed, epoch=epoch) for seed in (1, 2) for epoch in (0, 1)]
    for batches in found:
        order = [index for batch in batches for index in batch]
        assert sorted(order) == list(range(len(LENGTHS))) != order
        assert sorted(map(len, batches)) == sorted(map(len, found[0]))
    assert len({frozenset(map(frozenset, batches)) for batches in found}) == 4  # other company, too

    sampler = make(Division(size // 4, accumulation_steps=3), seed=5)
    sampler.set_position(epoch=2)
    every = list(sampler.steps(sampler))
    assert len(every) == sampler.steps_per_epoch
    for step in range(len(every)):
        sampler.set_position(epoch=2, step=step)
        assert list(sampler.steps(sampler)) == every[step:] and sampler.examples_in(step) == sum(map(len, every[step]))


def test_batches_hold_similar_lengths_and_those_of_tokens_are_full():
    lengths = [(37 * i) % 101 for i in range(400)]
    grouped, plain = (GlobalBatchSampler(400, Division(8), lengths=each) for each in (lengths, None))
    sizes = [sum(max(lengths[i] for i in batch) * len(batch) for batch in each) for each in (grouped, plain)]
    assert sizes[0] < 0.75 * sizes[1]
    batches = whole(tokens, BUDGET)
    sizes = list(map(padded, batches))
    assert max(sizes) <= BUDGET and sum(sizes) > 0.7 * BUDGET * len(batches)
    assert sum(sizes) < 1.3 * sum(map(sum, LENGTHS))
    with pytest.raises(ValueError, match="tokens 40: too few for an example of 45 "):
        TokenBatchSampler([(3, 4), (40, 5)], Division(40, num_processes=2))
