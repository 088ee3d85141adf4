"""A corpus becomes a folder of parts: each whole or absent, the same whoever writes them."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from accelerate import PartialState

from tfm_zoo import CorpusReader
from tfm_zoo.corpus import folder
from tfm_zoo.corpus.folder import ABOUT, LOCK
from tfm_zoo.corpus.run import CorpusRun
from tfm_zoo.corpus.source import Corpus

from ..encoders import save


@pytest.fixture(scope="module")
def reader(encoder) -> CorpusReader:
    return CorpusReader.from_pretrained(str(encoder), pooling="mean", window=8)


@pytest.fixture
def files(texts, tmp_path) -> list[str]:
    """The texts with their places, in two files of small groups of rows."""
    table = pa.table({"text": texts, "place": range(100), "note": ["x", None] * 50})
    pq.write_table(table[:70], tmp_path / "0.parquet", row_group_size=9)
    pq.write_table(table[70:], tmp_path / "1.parquet", row_group_size=50)
    return [str(tmp_path / "*.parquet")]


def run(reader, files, out, keep=("place",), rows_per_part=30) -> dict[str, bytes]:
    CorpusRun(Corpus.open(data_files=files, keep=keep), reader, out, rows_per_part)()
    return contents(out)


def contents(out) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name != LOCK}


def test_results_beside_the_columns(reader, files, texts, tmp_path):
    """As `datasets`, pandas and Arrow read them. A file that two patterns name is read once."""
    out = tmp_path / "out"
    run(reader, [*files, str(tmp_path / "1.*")], out, keep=["place", "note", "text"])
    rows = datasets.load_dataset(str(out), split="train", cache_dir=tmp_path / "cache")
    assert rows.features["embedding"] == datasets.List(datasets.Value("float32"), length=32)
    assert rows["id"][:] == rows["place"][:] == [*range(100)] and rows["note"][:] == ["x", None] * 50
    assert rows["text"][:] == texts
    expected = np.stack([result["embedding"] for result in reader(texts)])
    np.testing.assert_allclose(np.stack(pd.read_parquet(out)["embedding"]), expected, atol=2e-6)
    assert pq.read_schema(out / "part-000003.parquet").field("embedding").type == pa.list_(pa.float32(), 32)
    about = json.loads((out / ABOUT).read_text())
    assert (about["rows"], about["model"], about["pooling"]) == (100, reader.digest, "mean")


def test_a_run_goes_on(reader, files, tmp_path):
    """What is missing is computed again, what is there is not, and nothing tells the folder from an undisturbed one."""
    out = tmp_path / "out"
    undisturbed = run(reader, files, out)
    assert len(undisturbed) == 6
    for name in ("part-000000.parquet", "part-000002.parquet"):
        (out / name).unlink()
    (out / ".part-000002.parquet-1.unfinished").write_bytes(b"half")
    before = (out / "part-000001.parquet").stat().st_mtime_ns
    assert run(reader, files, out) == undisturbed
    assert (out / "part-000001.parquet").stat().st_mtime_ns == before


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "json", "txt", "folder", "saved"])
def test_kinds_of_data(reader, texts, tmp_path, kind):
    texts = [text for text in texts if text]
    rows, data = datasets.Dataset.from_dict({"text": texts}), tmp_path / f"data.{kind}"
    parts = datasets.DatasetDict({"train": rows.select(range(50, 99)), "test": rows.select(range(50))})
    source = {"data_files": [str(data)]}
    match kind:
        case "csv" | "tsv":
            rows.to_csv(data, sep="," if kind == "csv" else "\t")
        case "json" | "jsonl":
            rows.to_json(data)
        case "txt":
            data.write_text("\n".join(texts))
        case _:
            source = {"dataset_name": str(data), "split": ["test", "train"]}
            if kind == "saved":
                parts.save_to_disk(data)
            for name in parts if kind == "folder" else ():
                parts[name].to_parquet(data / f"{name}.parquet")
    CorpusRun(Corpus.open(**source, keep=["text"]), reader, tmp_path / "out")()
    assert pq.read_table(tmp_path / "out")["text"].to_pylist() == texts


def test_another_run_in_the_folder(reader, encoder, files, texts, tmp_path):
    """It is refused by name, and the folder is as it was."""
    out, full = tmp_path / "out", tmp_path / "full"
    run(reader, files, out)
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    save(tmp_path / "other", files=False, layer_norm_eps=1e-3)
    others = [(encoder, "cls"), (tmp_path / "other", "mean")]
    cls, other = (CorpusReader.from_pretrained(path, pooling=pooling, window=8) for path, pooling in others)
    for message, by, place, options in (
        ("rows_per_part 30, and this run has 20", reader, out, {"rows_per_part": 20}),
        (r"keep_columns \['place'\], and this run has \[\]", reader, out, {"keep": ()}),
        ("pooling 'mean', and this run has 'cls'", cls, out, {}),
        (f"model '{reader.digest}', and this run has '{other.digest}'", other, out, {}),
        ("holds mine.txt: give an empty folder", reader, full, {}),
        ("rows 100, and this run has 101", reader, out, {}),
    ):
        if message.startswith("rows 100"):
            changed = pa.table({"text": [*texts[:30], "else"], "place": range(31), "note": ["x"] * 31})
            pq.write_table(changed, tmp_path / "1.parquet")
        before = contents(place)
        with pytest.raises((ValueError, FileExistsError), match=message):
            run(by, files, place, **options)
        assert contents(place) == before


BAD_FILES = {
    "a.txt": b"",
    "b.csv": b"text,id\n",
    "c.pdf": b"x",
    "latin.txt": "sch\u00f6n".encode("latin-1"),
    "latin.csv": "text\nsch\u00f6n".encode("latin-1"),
    "comma.csv": b"text,id\na film, warm,3\n",
    "broken.parquet": b"PAR1",
}
BAD_DATA = {
    "keep_columns 'url': no such column; the columns are \\['text', 'place', 'note'\\]": {"keep": ["url"]},
    "keep_columns 'id': no such column": {"keep": ["id"]},
    "keep_columns 'id': the results have a column of this name": {"data_files": ["ids.parquet"], "keep": ["id"]},
    "text_column_name 'body': no such column": {"text_column": "body"},
    "row 1 \\(counted from 0\\) of column 'note' is not text: None": {"text_column": "note"},
    "row 0 \\(counted from 0\\) of column 'place' is not text: 0": {"text_column": "place"},
    "data_files 'none/\\*.parquet': no such file": {"data_files": ["none/*.parquet"]},
    "but a folder: give it as dataset_name": {"data_files": ["splits"]},
    "a file: give it as data_files": {"data_files": [], "dataset_name": "a.txt"},
    "give one of the two": {"dataset_name": "generated"},
    "split and dataset_config_name are of a dataset_name": {"split": ["train"]},
    "split 'dev': no such split": {"data_files": [], "dataset_name": "splits", "split": ["dev"]},
    "several splits: give --split with one or more of train, test": {"data_files": [], "dataset_name": "splits"},
    "there is no text": {"data_files": ["a.txt"]},
    "several kinds: .csv, .parquet": {"data_files": ["b.csv", "0.parquet"]},
    "expected one of .txt, .csv": {"data_files": ["c.pdf"]},
    "b.csv: there is no row": {"data_files": ["b.csv"]},
    "the files are empty": {"data_files": ["none.parquet"]},
    "latin.txt' has a line that is not UTF-8: b'sch": {"data_files": ["latin.txt"]},
    "latin.csv' cannot be read: 'utf-8'": {"data_files": ["latin.csv"]},
    "comma.csv' cannot be read: .*its first row has 3 cells, and its header 2": {"data_files": ["comma.csv"]},
    "broken.parquet cannot be read": {"data_files": ["broken.parquet"]},
}


@pytest.mark.parametrize("message", BAD_DATA)
def test_bad_data_is_refused_before_anything_is_written(reader, files, tmp_path, monkeypatch, message):
    monkeypatch.chdir(tmp_path)
    for name, content in BAD_FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "splits").mkdir()
    tables = {"splits/train": {"text": ["a"]}, "splits/test": {"text": ["a"]}, "ids": {"text": ["a"], "id": [1]}}
    for name, columns in (tables | {"none": {"text": pa.array([], pa.string())}}).items():
        pq.write_table(pa.table(columns), f"{name}.parquet")
    data_files = ["0.parquet", "1.parquet"]
    with pytest.raises((ValueError, OSError), match=message):
        CorpusRun(Corpus.open(**{"data_files": data_files} | BAD_DATA[message]), reader, tmp_path / "out")()
    assert not [*tmp_path.glob("out/*")]


def test_a_cell_is_a_text_unless_it_is_empty(tmp_path):
    (tmp_path / "a.csv").write_text('text,score\nNA,1.5\n"null, too",\n')
    (tmp_path / "b.csv").write_text("\ntext,score\n\n" + "long " * 50_000 + ",2\n")
    corpus = Corpus.open(data_files=[f"{tmp_path}/*.csv"], keep=["score"])
    table = pa.concat_tables(corpus.tables(0), promote_options="permissive")
    assert [text[:9] for text in table["text"].to_pylist()] == ["NA", "null, too", "long long"]
    assert table["score"].to_pylist() == [1.5, None, 2]


@pytest.mark.parametrize(("third", "bad"), [('{"note": 3}', (2, "None")), ('{"text": 3}', (2, "3")), ("", None)])
def test_lines_of_json(tmp_path, third, bad):
    """Whose columns may have another type in each line."""
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "note": null}}\n{{"text": "b", "note": 1.5}}\n{third}\n')
    shard = Corpus.open(data_files=[f"{tmp_path}/a.jsonl"], keep=["note"]).survey(0)
    assert (shard.rows, shard.bad) == ((0, bad) if bad else (2, None))


def test_two_runs_in_a_folder(reader, files, tmp_path):
    """The second is refused, whatever the first has come to, and the first goes on."""
    first = CorpusRun(Corpus.open(data_files=files), reader, tmp_path / "out", rows_per_part=50)
    with ThreadPoolExecutor() as others, first.started(PartialState(cpu=True)) as left:
        for _ in range(2):
            with pytest.raises(FileExistsError, match=r"out: process \d+ of .* writes there now"):
                others.submit(run, reader, files, tmp_path / "out").result()
            first.write(left.pop())
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == [*range(100)]


def test_the_disk_is_full(reader, files, tmp_path, monkeypatch):
    """The parts that are there stay; the same command goes on once there is room."""
    out = tmp_path / "out"
    monkeypatch.setattr(folder.os, "fsync", MagicMock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(OSError, match=f"out/{ABOUT} is not written.*No space left"):
        run(reader, files, out)
    assert not out.exists()
    monkeypatch.undo()
    undisturbed = run(reader, files, out)
    (out / "part-000003.parquet").unlink()
    writer = pq.ParquetWriter
    monkeypatch.setattr(
        folder.pq, "ParquetWriter", lambda path, *args, **options: writer("/dev/full", *args, **options)
    )
    with pytest.raises(OSError, match=r"out.*part-000003.*No space left"):
        run(reader, files, out)
    assert contents(out) == {name: part for name, part in undisturbed.items() if name != "part-000003.parquet"}
    monkeypatch.undo()
    assert run(reader, files, out) == undisturbed
