"""Streams of texts give the same batches to any number of processes and workers, and from any step on."""

import json
from dataclasses import replace
from itertools import chain, islice

import pytest
from datasets import Dataset, load_dataset
from torch.utils.data import DataLoader

from tfm_zoo.data import byte_ranges
from tfm_zoo.training.batches import Division
from tfm_zoo.training.streaming import streams
from tfm_zoo.training.streaming import texts as text_sources
from tfm_zoo.training.streaming.documents import load_documents
from tfm_zoo.training.streaming.streams import Stream, StreamBatches
from tfm_zoo.training.streaming.texts import TextSource
from tfm_zoo.training.tasks.pretraining import PretrainingOptions

from .conftest import TEXTS

PATTERNS = {"text": "*.txt", "json": "*.jsonl", "parquet": "*.parquet"}
FEW_CHUNKS = {"seed": 3, "chunk_size": 16}
MANY_READERS = {"seed": 3, "chunk_size": 40, "readers": 8}
IN_MEMORY = TextSource(Dataset.from_dict({"text": TEXTS}))


def streamed(files: str, kind: str = "json", **fields) -> TextSource:
    return TextSource(load_dataset(kind, data_files=files, split="train", streaming=True), **fields)


@pytest.fixture(params=["memory", *PATTERNS])
def source(request, shards) -> TextSource:
    kind = request.param
    return IN_MEMORY if kind == "memory" else streamed(str(shards / PATTERNS[kind]), kind)


def pieces(texts, rng):
    """Each text as two examples, or one, with a number that is drawn."""
    return [
        {"text": text.replace("\n", " ", 1), "half": half, "drawn": int(rng.integers(10**9))}
        for text in texts
        for half in range(1 + len(text) % 2)
    ]


def as_they_are(texts, rng):
    return texts


def together(texts, rng):
    """All texts that are read together as one example."""
    return [texts]


def batches(stream: Stream, workers: int = 0, per_device: int = 8, **division) -> tuple[StreamBatches, DataLoader]:
    sampler = StreamBatches(stream, Division(per_device, **division), collate=tuple, max_steps=1000)
    return sampler, DataLoader(sampler, batch_size=None, collate_fn=tuple, num_workers=workers)


def examples(stream: Stream, count: int, processes: int = 1, states: list | None = None, **division) -> list:
    """The examples of the first global batches, of which the processes take theirs in turn. `states` are what a run
    goes on from, and become what the next goes on from."""
    shares, reached = [], []
    for index in range(processes):
        sampler, loader = batches(stream, num_processes=processes, process_index=index, **division)
        if states:  # what the processes write together, as it is read again
            starts = [start for state in states for start in state["starts"]]
            sampler.load_state_dict(json.loads(json.dumps(states[0] | {"starts": starts})))
        micro_batches = flat(islice(sampler.steps(loader), count))
        assert all(len(batch) == sampler.division.per_device for batch in micro_batches)
        shares.append(flat(micro_batches))
        reached.append(sampler.state_dict())
    if states is not None:
        states[:] = reached
    return flat(zip(*shares, strict=True))


def flat(parts) -> list:
    return [*chain.from_iterable(parts)]


def words(texts: list[str]) -> list[str]:
    return sorted(text.replace("\n", " ", 1).strip() for text in texts)


def test_a_pass_holds_every_text_once_and_neither_passes_nor_seeds_are_alike(source):
    stream = Stream(source, as_they_are, seed=0, chunk_size=16)
    taken = examples(stream, 25)
    assert [words(taken[:100]), words(taken[100:])] == [words(TEXTS)] * 2
    assert taken[:100] != taken[100:] and taken[:100] == list(stream.first_pass())
    assert taken[:100] != list(replace(stream, seed=1).first_pass())


#: where a run of two processes is stopped, and how it goes on: (examples per device, processes, accumulated)
DIVISIONS = {0: (2, 2, 2), 1: (1, 4, 2), 7: (8, 1, 1), 12: (4, 3, 1), 35: (2, 1, 4)}


@pytest.mark.parametrize("readers", [FEW_CHUNKS, MANY_READERS], ids=["one reader", "eight"])
def test_the_same_examples_on_any_number_of_processes_and_from_any_step_on(source, readers):
    """Between chunks and within them, over files and passes; the size of a batch may change, too."""
    stream = Stream(source, pieces, **readers)
    whole = examples(stream, 60)
    for done, (per_device, processes, accumulated) in DIVISIONS.items():
        states: list[dict] = []
        assert examples(stream, done, 2, states, per_device=4) == whole[: 8 * done]
        found = examples(stream, 15, processes, states, per_device=per_device, accumulation_steps=accumulated)
        assert found == whole[8 * done :][: len(found)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize("source", ["json"], indirect=True)
def test_workers_make_the_same_examples(source):
    stream = Stream(source, pieces, **MANY_READERS)
    assert examples(stream, 24, workers=3) == examples(stream, 24, 2, per_device=4, workers=2) == examples(stream, 24)


def goes_on_anywhere(stream: Stream, count: int, more: int) -> None:
    """From each of the first steps on the next are those of a stream that was never stopped."""
    whole = examples(stream, count + more, per_device=1)
    for done in range(count):
        states: list[dict] = []
        examples(stream, done, states=states, per_device=1)
        assert examples(stream, more, states=states, per_device=1) == whole[done : done + more]


def test_rows_that_are_held_out_are_not_read_wherever_one_begins(shards):
    stream = Stream(streamed(str(shards / "*.jsonl"), held_out=20), together, seed=1, chunk_size=7)
    assert sorted(flat(stream.first_pass())) == sorted(TEXTS[20:])
    assert {len(texts) for texts in stream.first_pass()} == {7, 3}
    goes_on_anywhere(stream, 25, 13)


@pytest.mark.parametrize("kind", ["json", "text"])
def test_long_texts_are_read_in_pieces_that_never_share_a_block(tmp_path, monkeypatch, kind):
    """Memory is bounded however long a document is; and a run continues in the middle of one."""
    for module in (streams, text_sources):
        monkeypatch.setattr(module, "CHARACTERS", 100)
    long = {"json": " ", "text": "\n"}[kind].join(f"{i:04d}" for i in range(300))
    path, documents = tmp_path / f"long.{kind}", ["before", long, "after", "", long[:120]]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    path.write_text(lines if kind == "json" else "\n\n".join(documents))
    stream = Stream(streamed(str(path), kind), together, seed=0, chunk_size=50)
    chunks = list(stream.first_pass())
    assert max(sum(map(len, texts)) for texts in chunks) < 300
    assert all(sum("0" in text for text in texts) <= 1 for texts in chunks)
    assert " ".join(flat(chunks)).split() == " ".join(documents).split()
    goes_on_anywhere(stream, len(chunks), 3)


def test_epochs_of_known_length_end_and_the_next_goes_on_there():
    stream = Stream(IN_MEMORY, pieces, **FEW_CHUNKS)
    sampler, loader = batches(replace(stream, size=sum(1 for _ in stream.first_pass())))
    found = []
    for epoch in range(2):
        sampler.set_position(epoch)
        found += sampler.steps(loader)
    assert flat(flat(found)) == examples(stream, 2 * -(-sampler.size // 8))


def test_what_a_stream_cannot_do_is_refused():
    """Texts that give no example are not read for ever, either."""
    with pytest.raises(ValueError, match="a hundred passes over the texts, up to number 101, gave no example"):
        examples(Stream(IN_MEMORY, lambda texts, rng: [], **FEW_CHUNKS), 1)
    stream = Stream(IN_MEMORY, pieces, **MANY_READERS)
    state = batches(stream)[0].state_dict()
    with pytest.raises(ValueError, match="the checkpoint's stream had 8 readers, and this one has 1"):
        batches(replace(stream, readers=1))[0].load_state_dict(state)


@pytest.mark.parametrize("kind", PATTERNS)
def test_readers_share_a_large_file(tmp_path, monkeypatch, kind):
    """By ranges of bytes, or groups of rows. A document is cut only if it is longer than where its end is searched."""
    path = tmp_path / PATTERNS[kind].replace("*", "large")
    texts = [f"{i} first \u00e9\n{i} second" + " word" * (i % 23) for i in range(300)]
    texts[7] = "\n".join(f"7 line {j}" for j in range(400))
    if kind == "text":
        path.write_bytes("\r\n\r\n".join(text.replace("\n", "\r\n") for text in texts).encode())
    elif kind == "json":
        path.write_text("\n\n" + "".join(json.dumps({"text": text}) + "\n" for text in texts))
    else:
        Dataset.from_dict({"text": texts}).to_parquet(path, batch_size=4)
    monkeypatch.setattr("tfm_zoo.data.splits.SHARD", 300)
    for name, size in {"SHARD": 300, "LONGEST": 5000}.items():
        monkeypatch.setattr(byte_ranges, name, size)
    source = load_documents(PretrainingOptions(train_file=str(path), streaming=True, max_eval_samples=1)).train
    stream = Stream(source, as_they_are, seed=0, chunk_size=64, readers=16)
    shares = [list(stream.first_pass([reader])) for reader in range(16)]
    assert sorted(flat(shares)) == sorted(texts[1:]) and max(map(len, shares)) < 60
    if kind == "text":
        monkeypatch.setattr(byte_ranges, "LONGEST", 100)
        cut = list(stream.first_pass())
        assert len(cut) > len(texts) and sorted("\n".join(cut).split()) == sorted(" ".join(texts[1:]).split())
    elif kind == "json":
        path.write_text(path.read_text() + "[1, 2]\n")
        with pytest.raises(ValueError, match=r"large\.jsonl' has a line that is not a JSON object: b'\[1, 2\]"):
            list(stream.first_pass())
