"""Streams of texts: the same batches on any number of processes, and from any step on."""

import json
import os
from dataclasses import replace
from itertools import islice, takewhile

import pytest
from datasets import Dataset, DatasetDict, IterableDataset, load_dataset
from torch.utils.data import DataLoader

from tfm_zoo import byte_ranges
from tfm_zoo.training.data import load_file
from tfm_zoo.training.streaming import streams
from tfm_zoo.training.streaming import texts as text_sources
from tfm_zoo.training.streaming.documents import load_documents
from tfm_zoo.training.streaming.streams import Stream, StreamBatches
from tfm_zoo.training.streaming.texts import Place, StreamOptions, TextSource
from tfm_zoo.training.tasks.pretraining import PretrainingOptions

TEXTS = [f"text {i} " + "word " * (i % 7) for i in range(100)]
KINDS = ["memory", "text", "json", "parquet"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The texts in three files of each kind: a line a document in text files, with an empty line behind each."""
    folder = tmp_path_factory.mktemp("shards")
    for shard, (begin, end) in enumerate([(0, 50), (50, 85), (85, 100)]):
        texts = TEXTS[begin:end]
        (folder / f"{shard}.txt").write_text("".join(text.replace(" ", "\n", 1) + "\n\n" for text in texts))
        (folder / f"{shard}.jsonl").write_text("".join(json.dumps({"n": 1, "text": text}) + "\n" for text in texts))
        Dataset.from_dict({"text": texts}).to_parquet(folder / f"{shard}.parquet")
    return folder


@pytest.fixture(params=KINDS)
def source(request, shards) -> TextSource:
    kind = request.param
    if kind == "memory":
        return TextSource(Dataset.from_dict({"text": TEXTS}))
    files = str(shards / {"text": "*.txt", "json": "*.jsonl", "parquet": "*.parquet"}[kind])
    rows = load_dataset(kind, data_files=files, split="train", streaming=True)
    return TextSource(rows)


def pieces(texts, rng):
    """Each text as two examples, or one, with a number that is drawn."""
    return [
        {"text": text.replace("\n", " ", 1), "half": half, "drawn": int(rng.integers(10**9))}
        for text in texts
        for half in range(1 + len(text) % 2)
    ]


def batches(stream: Stream, workers: int = 0, **division) -> tuple[StreamBatches, DataLoader]:
    options = {"collate": tuple, "max_steps": 1000}
    sampler = StreamBatches(stream, division.pop("per_device", 8), **options, **division)
    loader = DataLoader(sampler, batch_size=None, collate_fn=tuple, num_workers=workers)
    return sampler, loader


def steps(stream: Stream, count: int, **division) -> list:
    sampler, loader = batches(stream, **division)
    return list(islice(sampler.steps(loader), count))


def test_a_pass_holds_every_text_once_and_no_two_are_alike(source):
    stream = Stream(source, lambda texts, rng: list(texts), seed=0, chunk_size=16)
    chunks = islice(stream.chunks(Place()), 14)
    taken = [(place, stream.examples(0, place, texts)) for place, texts in chunks]
    passes = [[text for place, made in taken if place.epoch == epoch for text in made] for epoch in (0, 1)]
    assert [place.chunk for place, _ in taken] == [*range(7)] * 2
    for texts in passes:
        assert sorted(text.replace("\n", " ", 1).strip() for text in texts) == sorted(text.strip() for text in TEXTS)
    assert passes[0] != passes[1]
    assert list(stream.first_pass()) == passes[0]


def test_the_same_batches_on_one_process_and_on_two(source):
    stream = Stream(source, pieces, seed=3, chunk_size=16)
    whole = steps(stream, 30, per_device=8)
    for per_device, processes, accumulated in [(2, 2, 2), (2, 1, 4), (1, 4, 2)]:
        division = {"per_device": per_device, "num_processes": processes, "accumulation_steps": accumulated}
        shares = [steps(stream, 30, process_index=index, **division) for index in range(processes)]
        for (batch,), *divided in zip(whole, *shares, strict=True):
            assert len(batch) == 8
            assert all(len(micro) == per_device for share in divided for micro in share)
            found = [example for share in divided for micro in share for example in micro]
            assert sorted(map(str, found)) == sorted(map(str, batch))


def test_goes_on_from_any_step(source):
    """Between chunks and within them, over shards and passes; the state survives being written as JSON."""
    stream = Stream(source, pieces, seed=3, chunk_size=16)
    whole = steps(stream, 45)
    assert len({example["drawn"] for (batch,) in whole for example in batch}) == 45 * 8
    for done in (0, 1, 7, 20, 35):
        sampler, loader = batches(stream)
        for _ in islice(sampler.steps(loader), done):
            pass
        state = json.loads(json.dumps(sampler.state_dict()))
        again, its_loader = batches(Stream(source, pieces, seed=3, chunk_size=16))
        again.load_state_dict(state)
        assert list(islice(again.steps(its_loader), 45 - done)) == whole[done:]
        assert list(islice(sampler.steps(loader), 1)) == whole[done : done + 1]


def test_rows_that_are_held_out_are_not_read_wherever_one_begins(shards):
    rows = load_dataset("json", data_files=str(shards / "*.jsonl"), split="train", streaming=True)
    stream = Stream(TextSource(rows, held_out=20), lambda texts, rng: texts, seed=1, chunk_size=7)
    chunks = list(islice(stream.chunks(Place()), 25))
    one_pass = [text for place, texts in chunks for text in texts if place.epoch == 0]
    assert sorted(one_pass) == sorted(TEXTS[20:])
    for index, (place, _) in enumerate(chunks):
        rest = islice(stream.chunks(place), len(chunks) - index)
        assert [texts for _, texts in rest] == [texts for _, texts in chunks[index:]]


def test_epochs_of_known_length_end_and_go_on():
    stream = Stream(TextSource(Dataset.from_dict({"text": TEXTS})), pieces, seed=3, chunk_size=16)
    whole = steps(stream, 40)
    stream.size = sum(1 for _ in stream.first_pass())
    sampler, loader = batches(stream)
    assert len(sampler) == -(-stream.size // 8)
    found = []
    for epoch in range(2):
        sampler.set_position(epoch)
        found += sampler.steps(loader)
    assert found == whole[: 2 * len(sampler)]
    sampler.set_position(2, len(sampler) - 1)
    assert len(list(sampler.steps(loader))) == 1


@pytest.mark.slow
def test_workers_make_the_same_batches(source):
    stream = Stream(source, pieces, seed=3, chunk_size=16)
    assert steps(stream, 30, workers=2) == steps(stream, 30)


DEALT = {"seed": 3, "chunk_size": 40, "readers": 8}


def in_order(shares: list[list], step: int) -> list:
    """The global batch, joined from the shares of the processes, which take its examples in turn."""
    shares = [[example for micro in share[step] for example in micro] for share in shares]
    return [example for row in zip(*shares, strict=True) for example in row]


def test_readers_read_every_text_once(source):
    stream = Stream(source, lambda texts, rng: texts, **DEALT)
    for texts in (list(stream.first_pass()), [text for i in range(8) for text in stream.first_pass([i])]):
        assert sorted(text.replace("\n", " ", 1).strip() for text in texts) == sorted(text.strip() for text in TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "division"),
    [*zip(KINDS, [(2, 2), (4, 4), (2, 4, 2), (3, 3)], strict=True)],
    indirect=["source"],
    ids=str,
)
def test_readers_give_the_same_batches_to_any_number_of_processes_and_workers(source, division):
    per_device, processes, accumulated = (*division, 1)[:3]
    size = per_device * processes * accumulated
    stream = Stream(source, pieces, **DEALT)
    whole = [list(batch) for (batch,) in steps(stream, 24, per_device=size)]
    assert whole != [
        list(batch) for (batch,) in steps(Stream(source, pieces, seed=3, chunk_size=5), 24, per_device=size)
    ]
    division = {"per_device": per_device, "num_processes": processes, "accumulation_steps": accumulated}
    for workers in (0, 2) if processes == 2 else (0,):
        shares = [steps(stream, 24, process_index=i, workers=workers, **division) for i in range(processes)]
        assert [in_order(shares, step) for step in range(24)] == whole
        assert all(len(micro) == per_device for share in shares for step in share for micro in step)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
def test_workers_of_any_number_divide_the_readers(source):
    stream = Stream(source, pieces, **DEALT)
    assert steps(stream, 24, workers=3) == steps(stream, 24)
    assert steps(Stream(source, pieces, 3, readers=2), 24, workers=3) == steps(Stream(source, pieces, 3, readers=2), 24)


@pytest.mark.parametrize(("files", "processes"), [(1, 2), (12, 4)])
def test_a_process_makes_examples_of_its_share_alone(tmp_path, processes, files):
    for i in range(files):
        rows = ({"text": f"{i} {j} " + "word " * (j % 9)} for j in range(3000 // files))
        (tmp_path / f"{i}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = load_dataset("json", data_files=str(tmp_path / "*.jsonl"), split="train", streaming=True)
    characters = []

    def counted(texts, rng):
        characters[-1] += sum(map(len, texts))
        return texts

    stream = Stream(TextSource(rows), counted, seed=0, chunk_size=320, readers=16)
    for division in [
        {"per_device": 16},
        *({"per_device": 16 // processes, "process_index": i} for i in range(processes)),
    ]:
        characters.append(0)
        many = processes if "process_index" in division else 1
        steps(stream, 150, num_processes=many, **division)
    whole, *shares = characters
    assert max(shares) < 1.1 * whole / processes and sum(shares) == whole


def test_goes_on_with_another_number_of_processes(source):
    """From the one state of two processes, one process continues, or three; the size of a batch may change."""
    stream = Stream(source, pieces, **DEALT)
    whole = [example for (batch,) in steps(stream, 30, per_device=8) for example in batch]
    for done in (0, 1, 12):
        samplers = [batches(stream, per_device=4, num_processes=2, process_index=i) for i in range(2)]
        for sampler, loader in samplers:
            for _ in islice(sampler.steps(loader), done):
                pass
        starts = [start for sampler, _ in samplers for start in sampler.state_dict()["starts"]]
        state = json.loads(json.dumps(samplers[0][0].state_dict() | {"starts": starts}))
        for per_device, processes in [(8, 1), (4, 3)]:
            shares = []
            for i in range(processes):
                sampler, loader = batches(stream, per_device=per_device, num_processes=processes, process_index=i)
                sampler.load_state_dict(state)
                shares.append(list(islice(sampler.steps(loader), 6)))
            found = [example for step in range(6) for example in in_order(shares, step)]
            expected = whole[8 * done :][: len(found)]
            assert sorted(map(str, found)) == sorted(map(str, expected))
    with pytest.raises(ValueError, match="the checkpoint's stream had 8 readers, and this one has 1"):
        batches(replace(stream, readers=1))[0].load_state_dict(state)
    with pytest.raises(ValueError, match=r"had one reader, as in version 0\.1, and this one has 8"):
        batches(stream)[0].load_state_dict({"place": {"epoch": 1}, "used": 3})


def test_a_stream_has_as_many_readers_as_its_texts_suffice_for(shards):
    def readers(texts: list[str], chunk_size: int) -> int:
        return Stream(TextSource(Dataset.from_dict({"text": texts})), pieces, 0, chunk_size).dealt().readers

    assert readers(["a text"] * 5000, 2000) == 64
    assert readers(["a text"] * 1000, 2000) == 16  # of chunks of 32 documents there are 31
    assert readers(["a text"] * 100, 2000) == 2
    assert readers(["a text"] * 1000, 16) == readers(["a text"], 2000) == 1
    assert readers(["long " * 100_000] * 7, 2000) == 2  # two in each chunk
    rows = load_dataset("json", data_files=str(shards / "*.jsonl"), split="train", streaming=True)
    assert Stream(TextSource(rows), pieces, 0).dealt().readers == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "json", "parquet"])
def test_readers_share_a_large_file(tmp_path, monkeypatch, kind):
    """By ranges of bytes, or groups of rows. A document is cut only if it is longer than where its end is searched."""
    path = tmp_path / f"large.{ {'text': 'txt', 'json': 'jsonl'}.get(kind, kind) }"
    texts = [f"{i} first \u00e9\n{i} second" + " word" * (i % 23) for i in range(300)]
    texts[7] = "\n".join(f"7 line {j}" for j in range(400))
    if kind == "text":
        path.write_bytes("\r\n\r\n".join(text.replace("\n", "\r\n") for text in texts).encode())
    elif kind == "json":
        path.write_text(
            "".join(json.dumps({"text": text, "n": 1} if i else {"text": text}) + "\n" for i, text in enumerate(texts))
        )
    else:
        Dataset.from_dict({"text": texts}).to_parquet(path, batch_size=4)
    monkeypatch.setattr("tfm_zoo.training.data.SHARD", 300)
    for name, size in {"SHARD": 300, "LONGEST": 5000}.items():
        monkeypatch.setattr(byte_ranges, name, size)
    source = load_documents(PretrainingOptions(train_file=str(path), streaming=True, max_eval_samples=1)).train
    assert source.rows.num_shards > 16 and source.most_lanes(16) == 16
    stream = Stream(source, lambda texts, rng: texts, seed=0, chunk_size=64, readers=16)
    read = list(stream.first_pass())
    assert sorted(read) == sorted(texts[1:]) and len(stream.texts(dict.fromkeys(range(16), Place()))) == 16
    assert steps(stream, 20, workers=2) == steps(stream, 20)
    assert max(len(list(stream.first_pass([reader]))) for reader in range(16)) < 60
    if kind == "text":
        monkeypatch.setattr(byte_ranges, "LONGEST", 100)
        cut = list(stream.first_pass())
        assert len(cut) > len(texts) and sorted("\n".join(cut).split()) == sorted(" ".join(texts[1:]).split())


def test_lines_of_a_large_file_that_are_no_rows_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tfm_zoo.training.data.SHARD", 10)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a text"}) + "\n[1, 2]\n")
    with pytest.raises(ValueError, match=r"a\.jsonl' has a line that is no JSON object: b'\[1, 2\]"):
        load(train_file=str(tmp_path / "a.jsonl"), streaming=True)


def test_large_files_may_be_empty_or_begin_with_empty_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("tfm_zoo.training.data.SHARD", 10)
    for name, lines in (("a", ""), ("b", '\n\n{"text": "a text"}\n'), ("c", '{"text": "another text"}\n')):
        (tmp_path / f"{name}.jsonl").write_text(lines)
    rows = load_file(StreamOptions(streaming=True), "train", str(tmp_path / "*.jsonl"))
    assert [row["text"] for row in rows] == ["a text", "another text"]
    for name in "bc":
        (tmp_path / f"{name}.jsonl").write_text("\n" * 20)
    with pytest.raises(ValueError, match=r"there is no row in .*a\.jsonl, .*b\.jsonl"):
        load_file(StreamOptions(streaming=True), "train", str(tmp_path / "*.jsonl"))


def test_seeds_differ(source):
    one, two = (steps(Stream(source, pieces, seed=seed, chunk_size=16), 3) for seed in (1, 2))
    assert one != two


@pytest.mark.parametrize("kind", ["json", "text"])
def test_long_texts_are_read_in_pieces_that_never_share_a_block(tmp_path, monkeypatch, kind):
    """Memory is bounded however long a document is; and a run continues in the middle of one."""
    for module in (streams, text_sources):
        monkeypatch.setattr(module, "CHARACTERS", 100)
    words = [f"{i:04d}" for i in range(300)]
    long = {"json": " ", "text": "\n"}[kind].join(words)
    path = tmp_path / f"long.{kind}"
    documents = ["before", long, "after", "", long[:120]]
    if kind == "json":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    else:
        path.write_text("\n\n".join(documents))
    source = TextSource(load_dataset(kind, data_files=str(path), split="train", streaming=True))
    stream = Stream(source, lambda texts, rng: texts, seed=0, chunk_size=50)
    chunks = [(place, texts) for place, texts in islice(stream.chunks(Place()), 40) if place.epoch == 0]
    assert max(sum(map(len, texts)) for _, texts in chunks) < 300
    texts = [text for _, texts in chunks for text in texts]
    assert " ".join(texts).split() == " ".join(documents).split()
    for place, texts in chunks:
        assert sum("0" in text for text in texts) <= 1
        state = json.loads(json.dumps(vars(place)))
        rest = takewhile(lambda found: found[0].epoch == 0, stream.chunks(Place(**state)))
        assert [texts for _, texts in rest] == [texts for _, texts in chunks[place.chunk :]]


def test_a_source_without_text_is_refused():
    stream = Stream(TextSource(Dataset.from_dict({"text": ["", " "]})), pieces, seed=0)
    with pytest.raises(ValueError, match="there is no text to train on"):
        steps(stream, 1)
    with pytest.raises(ValueError, match="needs max_train_steps"):
        StreamBatches(stream, 8)


def source_texts(source: TextSource) -> list[str]:
    return list(Stream(source, lambda texts, rng: texts, seed=0).first_pass())


def load(**options):
    documents = load_documents(PretrainingOptions(**options, seed=0))
    read = {}
    for role in ("train", "validation"):
        read[role] = sorted(text.replace("\n", " ", 1) for text in source_texts(getattr(documents, role)))
    return documents, read


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet", "folder"])
def test_documents_are_divided(shards, tmp_path, streaming, kind):
    options = {"train_file": str(shards / f"*.{kind}")}
    if kind == "folder":
        for file in shards.glob("*.jsonl"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        options = {"dataset_name": str(tmp_path)}
    documents, read = load(streaming=streaming, max_eval_samples=7, **options)
    assert len(read["validation"]) == 7
    assert isinstance(documents.train.rows, IterableDataset) == streaming and "validation" not in documents.own_splits
    if streaming:  # the first of the first shard
        assert read["validation"] == sorted(TEXTS[:7])
        assert read["train"] == sorted(TEXTS[7:])
        assert "characters (7 documents) were taken" in documents.notes[0]
    else:  # picked by the seed; those beyond max_eval_samples are not used
        assert len(read["train"]) == 90 and not set(read["train"]) & set(read["validation"])
    assert documents.split("One. Two\nThree") == (["One. Two", "Three"] if kind == "txt" else ["One.", "Two", "Three"])


@pytest.mark.parametrize("streaming", [False, True])
def test_documents_with_a_validation_split(shards, streaming):
    files = {"train_file": str(shards / "0.txt"), "validation_file": str(shards / "2.txt")}
    documents, read = load(streaming=streaming, **files)
    assert read == {"train": sorted(TEXTS[:50]), "validation": sorted(TEXTS[85:])}
    assert "validation" in documents.own_splits and not documents.notes


@pytest.fixture
def unbroken(tmp_path):
    """Four files without an empty line at their end: a pattern that they fit, and their documents."""
    texts = [[f"{i} one\n{i} two", f"{i} three\n{i} four"] for i in range(4)]
    for i, (first, second) in enumerate(texts):
        (tmp_path / f"{i}.txt").write_text(f"{first}\n\n{second}\n")
    return str(tmp_path / "*.txt"), [text for part in texts for text in part]


@pytest.mark.parametrize("streaming", [False, True])
def test_the_end_of_a_file_is_that_of_a_document(unbroken, streaming):
    files, texts = unbroken
    documents = load_documents(PretrainingOptions(train_file=files, validation_file=files, streaming=streaming, seed=0))
    for source in (documents.train, documents.validation):
        assert sorted(source_texts(source)) == texts
    documents = load_documents(PretrainingOptions(train_file=files, streaming=streaming, max_eval_samples=1, seed=0))
    divided = [*source_texts(documents.train), *source_texts(documents.validation)]
    assert sorted(divided) == texts


def test_a_document_in_memory_is_whole(tmp_path, monkeypatch):
    """Its parts would be shuffled, and meet in a chunk as if they were different documents."""
    for module in (streams, text_sources):
        monkeypatch.setattr(module, "CHARACTERS", 100)
    long = "\n".join(f"{i:04d}" for i in range(90))
    path = tmp_path / "long.txt"
    path.write_text("\n\n".join(["before", long, "after"]))
    documents = load_documents(PretrainingOptions(train_file=str(path), validation_file=str(path), seed=0))
    assert sorted(documents.train.rows["text"]) == [long, "after", "before"]


@pytest.mark.parametrize("own", [False, True])
def test_what_is_held_out_of_a_stream_has_an_end(tmp_path, monkeypatch, own):
    """In characters too: a file without an empty line is one document."""
    monkeypatch.setattr("tfm_zoo.training.streaming.documents.CHARACTERS", 50)
    path = tmp_path / "unbroken.txt"
    path.write_text("".join(f"line {i:02d} of many\n" for i in range(40)))
    files = {"train_file": str(path)} | ({"validation_file": str(path)} if own else {})
    documents = load_documents(PretrainingOptions(streaming=True, max_eval_samples=3, **files, seed=0))
    (held_out,) = documents.validation.rows["text"]
    assert held_out.split("\n") == [f"line {i:02d} of many" for i in range(4)]
    assert "the first 63 characters (1 document) were" in documents.notes[0]
    (rest,) = source_texts(documents.train)
    assert len(rest.split("\n")) == (40 if own else 36)


@pytest.mark.parametrize("kind", ["folder", "saved", "built-in"])
def test_any_data_set_is_streamed(tmp_path, kind):
    name = "generated" if kind == "built-in" else str(tmp_path / "data")
    rows = Dataset.from_dict({"text": TEXTS})
    if kind == "saved":
        DatasetDict(train=rows).save_to_disk(name)
    elif kind == "folder":
        (tmp_path / "data").mkdir()
        rows.to_json(tmp_path / "data" / "train.jsonl")
    documents, read = load(dataset_name=name, streaming=True, max_eval_samples=7)
    assert (
        isinstance(documents.train.rows, IterableDataset) and len(read["validation"]) == 7 and len(read["train"]) > 90
    )


def test_a_row_of_a_stream_without_a_value_is_an_empty_text(tmp_path):
    rows = [{"text": None if i % 3 else f"text {i}"} for i in range(12)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, read = load(train_file=str(tmp_path / "a.jsonl"), streaming=True, max_eval_samples=1)
    assert read == {"validation": ["text 0"], "train": ["text 3", "text 6", "text 9"]}


@pytest.mark.parametrize("streaming", [False, True])
def test_any_split_can_be_trained_on(tmp_path, streaming):
    for split in ("train", "unsupervised", "test"):
        Dataset.from_dict({"text": [f"{split} {i}" for i in range(30)]}).to_parquet(tmp_path / f"{split}.parquet")
    readme = ["configs:", "- config_name: default", "  data_files:"]
    readme += [f"  - {{split: {split}, path: {split}.parquet}}" for split in ("train", "unsupervised", "test")]
    (tmp_path / "README.md").write_text("\n".join(["---", *readme, "---", ""]))
    options = {"dataset_name": str(tmp_path), "streaming": streaming, "max_eval_samples": 3}
    _, read = load(train_split_name="unsupervised", **options)
    assert all(text.startswith("unsupervised") for texts in read.values() for text in texts)
    with pytest.raises(ValueError, match=r"train_split_name 'other': no such split among \['train'"):
        load(train_split_name="other", **options)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.jsonl", '{"a": "x", "b": 1}\n', {}, r"give text_column_name: none .* \['a', 'b'\]"),
        ("b.jsonl", '{"a": "x", "b": 1}\n', {"text_column_name": "c"}, "text_column_name 'c': no such column"),
        ("c.jsonl", '{"a": "x", "b": 1}\n', {"text_column_name": "b"}, "text_column_name 'b'"),
        ("c.txt", "", {}, "there is no text in the train split: train_file '.*c.txt' is empty"),
        ("d.py", "", {}, "expected one of .txt, .csv, .tsv, .json, .jsonl, .parquet, not '.py'"),
        (None, "", {}, "train_file 'nowhere': no such file"),
    ],
)
def test_bad_documents_are_refused(tmp_path, streaming, name, content, options, message):
    if name:
        (tmp_path / name).write_text(content)
    file = str(tmp_path / name) if name else "nowhere"
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load(train_file=file, streaming=streaming, **options)


def test_a_pattern_that_fits_files_of_several_kinds_is_refused(shards):
    with pytest.raises(ValueError, match=r"fits files of several kinds: \.jsonl, \.parquet, \.txt"):
        load(train_file=str(shards / "*"))


@pytest.mark.parametrize(
    ("options", "steps", "message"),
    [
        ({"max_train_samples": 3}, {"max_train_steps": 2}, "max_train_samples is for texts in memory"),
        ({}, {}, "streaming needs max_train_steps"),
        ({}, {"max_train_steps": 2, "gradual_unfreezing": "epoch"}, "gradual_unfreezing 'epoch': a stream has no"),
        ({}, {"max_train_steps": 2, "checkpointing_steps": "epoch"}, "checkpointing_steps 'epoch': a stream has no"),
    ],
)
def test_what_needs_the_length_of_a_stream_is_refused(shards, options, steps, message):
    arguments = PretrainingOptions(train_file=str(shards / "*.txt"), streaming=True, **options, **steps)
    with pytest.raises(ValueError, match=message):
        arguments.resolved()
    replace(arguments, streaming=False).resolved()


def test_a_stream_that_only_validates_is_refused(shards):
    with pytest.raises(ValueError, match=r"nothing is left to train on: .* or do not stream it"):
        load(train_file=str(shards / "2.jsonl"), streaming=True)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no system call says which cores may be used")
def test_workers_by_the_cores_that_may_be_used(monkeypatch):
    """Not by all of the machine."""
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 7})
    assert streams.default_workers() == 2
