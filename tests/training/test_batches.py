"""The same global batches however many processes share them, from any step on."""

import pytest

from tfm_zoo.training.batches import GlobalBatchSampler, TokenBatchSampler

SIZES = (1, 2, 3, 16, 17, 31, 32, 61)


def steps(size: int, per_device: int, processes: int, accumulation: int, **options) -> list[list[list[list[int]]]]:
    """For each step, each process's micro-batches."""
    samplers = [
        GlobalBatchSampler(
            size,
            per_device,
            num_processes=processes,
            process_index=index,
            accumulation_steps=accumulation,
            **options,
        )
        for index in range(processes)
    ]
    return list(zip(*(list(sampler.steps(sampler)) for sampler in samplers), strict=True))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("division", [(8, 2, 1), (4, 2, 2), (4, 4, 1), (1, 4, 4), (2, 8, 1), (4, 1, 4)])
@pytest.mark.parametrize("grouped", [False, True])
def test_every_division_has_the_same_global_batches(size, division, grouped):
    lengths = [7 * i % 23 for i in range(size)] if grouped else None
    expected = [sorted(whole[0][0]) for whole in steps(size, 16, 1, 1, lengths=lengths)]
    divided = steps(size, *division, lengths=lengths)
    assert len(divided) == len(expected)
    for step, batch in zip(divided, expected, strict=True):
        assert sorted({index for share in step for micro in share for index in micro}) == batch
        assert len({len(share) for share in step}) == 1  # as many micro-batches for each process
        assert all(len(micro) > 0 for share in step for micro in share)
        # The mean over what is computed is the mean over the batch: examples are repeated all alike, or not at all.
        computed = [index for share in step for micro in share for index in micro]
        assert len({computed.count(index) for index in batch}) == 1


@pytest.mark.parametrize("division", [(8, 2, 1), (4, 2, 2), (2, 8, 1)])
def test_shares_fit_the_device(division):
    sizes = [len(micro) for step in steps(61, *division) for share in step for micro in share]
    assert max(sizes) == division[0]


def test_an_epoch_holds_every_example_once():
    order = [index for step in steps(61, 16, 1, 1) for index in step[0][0]]
    assert sorted(order) == list(range(61))
    assert order != sorted(order)


def test_starts_again_at_any_step():
    sampler = GlobalBatchSampler(61, 4, accumulation_steps=3, seed=5)
    sampler.set_position(epoch=2)
    whole = list(sampler.steps(sampler))
    for step in range(len(sampler)):
        sampler.set_position(epoch=2, step=step)
        assert list(sampler.steps(sampler)) == whole[step:]


def test_goes_on_with_batches_of_another_size():
    """At the same place of the same order; no example is left out, and fewer than a batch come twice."""
    order = [index for step in steps(61, 16, 1, 1) for index in step[0][0]]
    for done in range(4):
        sampler = GlobalBatchSampler(61, 6, num_processes=1)
        sampler.set_position(epoch=0, step=sampler.step_after(done, 16))
        rest = [index for (micro,) in sampler.steps(sampler) for index in micro]
        assert rest[-(61 - 16 * done) :] == order[16 * done :] and len(rest) < 61 - 16 * done + 6
    assert GlobalBatchSampler(61, 6).may_change
    assert (
        not GlobalBatchSampler(61, 6, lengths=[1] * 61).may_change and not TokenBatchSampler([(1, 1)] * 9, 9).may_change
    )


def test_epochs_and_seeds_differ():
    orders = []
    for seed in (1, 2):
        for epoch in (0, 1):
            sampler = GlobalBatchSampler(40, 8, seed=seed)
            sampler.set_position(epoch)
            orders.append(str(list(sampler)))
    assert len(set(orders)) == 4


def test_grouping_by_length_saves_padding():
    lengths = [(37 * i) % 101 for i in range(400)]

    def padded(**options) -> int:
        return sum(max(lengths[i] for i in batch) * len(batch) for batch in GlobalBatchSampler(400, 8, **options))

    assert padded(lengths=lengths) < 0.75 * padded()
    assert [len(batch) for batch in GlobalBatchSampler(400, 8, lengths=lengths)] == [8] * 50


# Sources and targets of like lengths, as in translation; and some that are not.
LENGTHS = [(1 + 7 * i % 23, 1 + (7 * i % 23 + i % 3) % 29) for i in range(150)] + [(30, 2), (2, 30)]
BUDGET = 480
DIVISIONS = [(240, 2, 1), (120, 2, 2), (120, 4, 1), (60, 2, 4), (60, 8, 1), (120, 1, 4)]


def token_steps(tokens: int, processes: int, accumulation: int, epoch: int = 0, **options) -> list:
    """For each step, each process's micro-batches."""
    shares = []
    for index in range(processes):
        division = {"num_processes": processes, "process_index": index, "accumulation_steps": accumulation}
        sampler = TokenBatchSampler(LENGTHS, tokens, **division, **options)
        sampler.set_position(epoch)
        shares.append(list(sampler.steps(sampler)))
    return list(zip(*shares, strict=True))


def padded(batch: list[int]) -> int:
    return len(batch) * sum(max(LENGTHS[i][column] for i in batch) for column in (0, 1))


@pytest.mark.parametrize("division", DIVISIONS)
def test_every_division_has_the_same_global_batches_of_tokens(division):
    expected = [sorted(whole[0][0]) for whole in token_steps(BUDGET, 1, 1, seed=3, epoch=2)]
    divided = token_steps(*division, seed=3, epoch=2)
    assert len(divided) == len(expected)
    for step, batch in zip(divided, expected, strict=True):
        computed = [index for share in step for micro in share for index in micro]
        assert sorted(set(computed)) == batch
        assert len({len(share) for share in step}) == 1  # as many micro-batches for each process
        assert all(len(micro) > 0 for share in step for micro in share)
        assert len({computed.count(index) for index in batch}) == 1
        assert all(padded(micro) <= division[0] for share in step for micro in share)


def test_batches_of_tokens_are_full_and_hold_similar_lengths():
    batches = [whole[0][0] for whole in token_steps(BUDGET, 1, 1)]
    assert max(map(padded, batches)) <= BUDGET
    assert sum(map(padded, batches)) > 0.7 * BUDGET * len(batches)
    real = sum(map(sum, LENGTHS))
    assert sum(map(padded, batches)) < 1.3 * real
    assert sum(len(batch) % 8 != 0 for batch in batches if len(batch) > 8) <= 1  # the last before they were shuffled
    assert sorted(index for batch in batches for index in batch) == list(range(len(LENGTHS)))


def test_epochs_of_tokens_differ_in_order_and_in_company_and_not_in_number():
    epochs = [[whole[0][0] for whole in token_steps(BUDGET, 1, 1, epoch=epoch, seed=1)] for epoch in (0, 1)]
    assert sorted(map(len, epochs[0])) == sorted(map(len, epochs[1]))
    assert epochs[0] != epochs[1]
    assert {frozenset(batch) for batch in epochs[0]} != {frozenset(batch) for batch in epochs[1]}
    assert [whole[0][0] for whole in token_steps(BUDGET, 1, 1, epoch=0, seed=2)] != epochs[0]


def test_tokens_start_again_at_any_step():
    sampler = TokenBatchSampler(LENGTHS, 120, accumulation_steps=3, seed=5)
    sampler.set_position(epoch=2)
    whole = list(sampler.steps(sampler))
    assert len(whole) == len(sampler)
    for step in range(len(sampler)):
        sampler.set_position(epoch=2, step=step)
        assert list(sampler.steps(sampler)) == whole[step:]
        assert sampler.examples(step) == sum(map(len, whole[step]))


def test_an_example_that_fits_no_device_is_refused():
    with pytest.raises(ValueError, match="per_device_train_batch_tokens 40: too few for an example of 45 tokens"):
        TokenBatchSampler([(3, 4), (40, 5)], 40, num_processes=2)
