"""A corpus becomes a folder of parts: each whole or absent, the same whoever writes them."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from accelerate import PartialState

from tfm_zoo import CorpusReader
from tfm_zoo.corpus import folder
from tfm_zoo.corpus.folder import ABOUT
from tfm_zoo.corpus.run import CorpusRun
from tfm_zoo.corpus.source import Corpus, Cursor

from ..encoders import save
from ..hub.editing import edit, write
from .conftest import contents, run


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


def test_results_beside_the_columns(reader, files, texts, tmp_path):
    """As `datasets`, pandas and Arrow read them. A file that two patterns name is read once."""
    run(reader, [*files, str(tmp_path / "1.*")], out := tmp_path / "out", keep=["place", "note", "text"])
    rows = datasets.load_dataset(str(out), split="train", cache_dir=tmp_path / "cache")
    assert rows.features["embedding"] == datasets.List(datasets.Value("float32"), length=32)
    assert rows["id"][:] == rows["place"][:] == [*range(100)] and rows["note"][:] == ["x", None] * 50
    assert rows["text"][:] == texts
    expected = np.stack([result["embedding"] for result in reader(texts)])
    np.testing.assert_allclose(np.stack(pd.read_parquet(out)["embedding"]), expected, atol=2e-6)
    about = json.loads((out / ABOUT).read_text())
    assert (about["rows"], about["model"], about["pooling"]) == (100, reader.digests[0], "mean")


def test_a_run_goes_on(reader, files, tmp_path):
    """What is missing is computed again, what is there is not, and nothing tells the folder from an undisturbed one."""
    undisturbed = run(reader, files, out := tmp_path / "out")
    assert len(undisturbed) == 6
    for name in ("part-000000.parquet", "part-000002.parquet"):
        (out / name).unlink()
    (out / ".part-000002.parquet-1.unfinished").write_bytes(b"half")
    before = (out / "part-000001.parquet").stat().st_mtime_ns
    assert run(reader, files, out) == undisturbed and (out / "part-000001.parquet").stat().st_mtime_ns == before


def test_a_model_that_was_saved_again_goes_on(encoder, reader, files, tmp_path, monkeypatch):
    """From another directory, too. What libraries write where they save a model changes no result."""
    undisturbed = run(reader, files, out := tmp_path / "out")
    shutil.copytree(encoder, tmp_path / "model")
    edit(tmp_path / "model", "config.json", use_cache=False, dtype=...)
    monkeypatch.chdir(tmp_path)
    again = CorpusReader.from_pretrained("model", pooling="mean", window=8)
    assert run(again, files, out) == undisturbed and again.digests[0] != reader.digests[0]


WRITERS = {
    "csv": lambda rows, _, path: rows.to_csv(path),
    "tsv": lambda rows, _, path: rows.to_csv(path, sep="\t"),
    "jsonl": lambda rows, _, path: rows.to_json(path),
    "txt": lambda rows, _, path: path.write_text("\n".join(rows["text"])),
    "folder": lambda _, splits, path: [part.to_parquet(path / f"{name}.parquet") for name, part in splits.items()],
    "saved": lambda _, splits, path: splits.save_to_disk(path),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_kinds_of_data(reader, texts, tmp_path, kind):
    rows, data = datasets.Dataset.from_dict({"text": texts[1:]}), tmp_path / f"data.{kind}"
    splits = datasets.DatasetDict({"train": rows.select(range(50, 99)), "test": rows.select(range(50))})
    WRITERS[kind](rows, splits, data)
    source = {"dataset_name": str(data), "split": ["test", "train"]} if data.is_dir() else {"data_files": [str(data)]}
    CorpusRun(Corpus.open(**source, keep=["text"]), reader, tmp_path / "out")()
    assert pq.read_table(tmp_path / "out")["text"].to_pylist() == texts[1:]


def test_another_run_in_the_folder(encoder, reader, files, texts, tmp_path):
    """It is refused by name, and the folder is as it was."""
    out, full, bare = tmp_path / "out", tmp_path / "full", shutil.copytree(encoder, tmp_path / "bare")
    undisturbed = run(reader, files, out)
    save(tmp_path / "other", files=False, layer_norm_eps=1e-3)
    edit(bare, "tokenizer.json", post_processor=None)
    bare, other = (CorpusReader.from_pretrained(each, pooling="mean", window=8) for each in (bare, tmp_path / "other"))
    pq.write_table(pa.table({"text": texts, "place": range(100)}), tmp_path / "more.parquet")  # from now on read, too
    for message, by, options in (
        ("rows_per_part 30, and this run has 20", reader, {"rows_per_part": 20}),
        (r"keep_columns \['place'\], and this run has \[\]", reader, {"keep": ()}),
        (f"than the model of .*: `tfm-zoo verify {out} --model {tmp_path / 'other'}` names what", other, {}),
        ("has other weights, another tokenizer or other settings than", bare, {}),
        ("rows 100, and this run has 200", reader, {}),
        ("rows_per_part must be at least 1, not 0", reader, {"rows_per_part": 0}),
    ):
        with pytest.raises(ValueError, match=message):
            run(by, files, out, **options)
        assert contents(out) == undisturbed
    write("mine.txt", "mine")(full)
    with pytest.raises(FileExistsError, match=r"holds mine\.txt: give an empty folder"):
        run(reader, files, full)
    assert [path.name for path in full.iterdir()] == ["mine.txt"]


BAD_FILES = {"a.txt": b"", "b.csv": b"text,id\na film,3\n", "none.csv": b"text\n", "broken.parquet": b"PAR1"}
BAD_FILES |= {"latin.txt": "sch\u00f6n".encode("latin-1"), "mixed.jsonl": b'{"text": "a"}\n{"text": 3}\n'}
BAD_DATA = {
    "keep_columns 'url': no such column": {"keep": ["url"]},
    "keep_columns 'id': the results have a column of this name": {"data_files": ["b.csv"], "keep": ["id"]},
    "row 1 \\(counted from 0\\) of column 'note' is not text: None": {"text_column": "note"},
    "row 1 \\(counted from 0\\) of column 'text' is not text: 3": {"data_files": ["mixed.jsonl"]},
    "data_files 'none/\\*.parquet': no such file": {"data_files": ["none/*.parquet"]},
    "but a folder: give it as dataset_name": {"data_files": ["splits"]},
    "a file: give it as data_files": {"data_files": [], "dataset_name": "a.txt"},
    "give one of the two": {"dataset_name": "generated"},
    "split and dataset_config_name are of a dataset_name": {"split": ["train"]},
    "split 'dev': no such split": {"data_files": [], "dataset_name": "splits", "split": ["dev"]},
    "several splits: give --split with one or more of train, test": {"data_files": [], "dataset_name": "splits"},
    "there is no text": {"data_files": ["a.txt"]},
    "none.csv: there is no row": {"data_files": ["none.csv"]},
    "latin.txt' has a line that is not UTF-8: b'sch": {"data_files": ["latin.txt"]},
    "broken.parquet cannot be read": {"data_files": ["broken.parquet"]},
}


@pytest.mark.parametrize("message", BAD_DATA)
def test_bad_data_is_refused_before_anything_is_written(reader, files, tmp_path, monkeypatch, message):
    monkeypatch.chdir(tmp_path)
    for name, content in BAD_FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "splits").mkdir()
    for name in ("train", "test"):
        pq.write_table(pa.table({"text": ["a"]}), f"splits/{name}.parquet")
    with pytest.raises((ValueError, OSError), match=message):
        CorpusRun(Corpus.open(**{"data_files": ["0.parquet"]} | BAD_DATA[message]), reader, tmp_path / "out")()
    assert not [*tmp_path.glob("out/*")]


def test_a_cell_is_a_text_unless_it_is_empty(tmp_path):
    (tmp_path / "a.csv").write_text('text,score\nNA,1.5\n"null, too",\n')
    (tmp_path / "b.csv").write_text("\ntext,score\n\n" + "long " * 50_000 + ",2\n")
    corpus = Corpus.open(data_files=[f"{tmp_path}/*.csv"], keep=["score"])
    table = pa.concat_tables(corpus.tables(0), promote_options="permissive")
    assert [text[:9] for text in table["text"].to_pylist()] == ["NA", "null, too", "long long"]
    assert table["score"].to_pylist() == [1.5, None, 2]
    with pytest.raises(ValueError, match="the corpus has 3 rows, and had 4 before"):  # which a run was about to read
        Cursor(corpus, [4]).read(range(4))


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
    undisturbed = run(reader, files, out := tmp_path / "out")
    (out / "part-000003.parquet").unlink()
    writer = pq.ParquetWriter
    monkeypatch.setattr(folder.pq, "ParquetWriter", lambda _, *given, **options: writer("/dev/full", *given, **options))
    with pytest.raises(OSError, match=r"out.*part-000003.*No space left"):
        run(reader, files, out)
    assert contents(out) == {name: part for name, part in undisturbed.items() if name != "part-000003.parquet"}
    monkeypatch.undo()
    assert run(reader, files, out) == undisturbed
