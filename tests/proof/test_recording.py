"""Vectors that something else wrote: whether a model writes them, how, and whether it still does."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

from tfm_zoo.proof.comparisons import changes, typed
from tfm_zoo.proof.encoder import Encoder
from tfm_zoo.proof.proof_file import canary_rows
from tfm_zoo.proof.reading import Reading

from ..command import tfm_zoo
from ..encoders import CUT, PROMPT, save, texts, write_files
from ..hub.editing import edit, tensors
from .test_vectors import verified

READING = Reading(prompt=PROMPT, max_length=CUT, pooling="mean", normalize=True)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("models")
    save(root / "bert")
    save(root / "roberta", "RobertaModel")
    return root


def vectors_of(model: Path, **changes) -> np.ndarray:
    return Encoder.load(str(model)).vectors(texts(), replace(READING, **changes))


@pytest.fixture
def dump(tmp_path) -> Callable[..., Path]:
    """A file as a data base of vectors would write it."""

    def make(vectors: np.ndarray, name: str = "dump.parquet", **columns) -> Path:
        pd.DataFrame(columns or {"text": texts(), "embedding": [*vectors]}).to_parquet(tmp_path / name)
        return tmp_path / name

    return make


def recorded(model: Path, vectors: Path, *words: object, code: int = 0) -> str:
    return tfm_zoo("record", model, "--vectors", vectors, *words, code=code)


def encoded(model: Path) -> np.ndarray:
    return SentenceTransformer(str(model)).encode(texts(), show_progress_bar=False)


def test_any_store(models, dump, tmp_path, monkeypatch):
    """What sentence-transformers writes is recorded as its files say, and verified later by its own name."""
    file = dump(None, content=texts(), vector=[*encoded(models / "bert")])
    monkeypatch.chdir(models)
    said = recorded("bert", file, "--text_column_name", "content", "--vector_column_name", "vector")
    monkeypatch.chdir(tmp_path)
    assert f"is recorded in {file}.proof.json; the model writes these vectors: 64 of 150 rows emb" in said
    assert "still fit: 64 rows" in verified(file, "--strict")
    assert f"holds the texts, so that {file} was not read" in verified(file, "--texts", file, code=1)
    assert "--texts: there is no file nowhere" in verified(file, "--texts", "nowhere", code=1)
    assert "still fit: 8 rows" in verified(tmp_path, "--rows", 8)
    shutil.copy(file, tmp_path / "other.parquet")
    said = verified(tmp_path, "--rows", 900)
    assert "the proof holds 64 rows, fewer than the 900 that" in said and "also holds other.parquet" in said
    rows = pd.read_parquet(file)
    rows.at[70, "vector"] = rows.at[71, "vector"]
    rows.to_parquet(file)
    assert "vectors among rows 64 to 127; the text and the vector do not fit in row 70" in verified(file, code=1)
    near = np.round(vectors_of(models / "bert"), 2)  # as packed weights write them: taken, and said
    near[[*{*range(150)} - {*canary_rows(150, len(near[0]), 64)}]] += 0.005  # other rows are further off by chance
    file = dump(near)
    said = recorded(models / "bert", file) + verified(file)
    assert "near these: 64 of 150 rows" in said and "(warning: they were only near when" in said
    pd.read_parquet(file)[::-1].to_parquet(file)
    assert "text and vector fit in dump.parquet: 150 of" in verified(file, code=1)
    dump(near)
    edit(tmp_path, "dump.parquet.proof.json", computed={"dtype": "float32", "pack": "int8"})
    assert "near these" in recorded(models / "bert", file) and "warning" not in verified(file)
    for now in (151, 120):  # of another type, too
        dump(None, text=[*texts(), texts()[0]][:now], embedding=[*np.float64([*near, near[0]])[:now]])
        assert "as it is now; part dump.parquet holds float64 now, and held float32; text and" in verified(file, code=1)


TRIED = [
    ({"oddity": "positions_from_zero"}, "inputs positions that count from 0, not from behind the padding's"),
    ({"pooling": "max", "normalize": False}, "with pooling 'max' (its files say 'mean') and normalisation off"),
    ({"prompt": "", "max_length": 64}, "with the prompt none (its files say 'query: ')"),
    ({"lower_case": True}, "with lower_case True (its files say False)"),
    ({"oddity": "no_special_tokens"}, "with the model's inputs no special tokens"),
]


@pytest.mark.parametrize(("changes", "said"), TRIED)
def test_settings_are_found_by_trying(models, dump, changes, said):
    model = models / ("roberta" if "from 0" in said else "bert")
    file = dump(vectors_of(model, **changes))
    assert said in (output := recorded(model, file)) and "(warning: the vectors were made with " in output
    proof = json.loads(file.with_name("dump.parquet.proof.json").read_text())
    assert Reading.of(proof["reading"]) == replace(READING, **changes)
    said = verified(file, "--strict", code=1)
    assert "still fit" in verified(file) and "(warning: the vectors w" in said and "because of --strict" in said
    assert '"ok": false' in verified(file, "--strict", "--json", code=1)


def test_a_model_that_does_not_write_them(models, dump, tmp_path):
    """It is refused, and nothing is written. What comes near is named."""
    long = [" ".join(texts()[:9]), *texts()[1:]]
    file = dump(None, text=long, embedding=[*Encoder.load(str(models / "roberta")).vectors(long, READING)])
    assert "bert does not write these vectors: least cosine" in recorded(models / "bert", file, code=1)
    assert not [*tmp_path.glob("*.json")]
    save(tmp_path / "wide", hidden_size=64)
    assert "they have 32 numbers, not 64" in recorded(tmp_path / "wide", file, code=1)
    longer = vectors_of(models / "bert")
    half = dump(np.concatenate([longer[:75], longer[:74:-1]]))
    said = recorded(models / "bert", half, code=1)
    assert "0.99, row 75 is the first. Do their texts" in said and "(--prompt)" not in said
    said = recorded(models / "bert", dump(vectors_of(models / "bert", max_length=25)), "--max_length", 25)
    assert "the model writes these vectors: " in said and "still fit" in verified(half)
    short = dump(vectors_of(models / "bert", size=9, normalize_shortened=True))
    assert "shortened vectors on" in recorded(models / "bert", short) and "still fit" in verified(short)
    save(tmp_path / "plain", files=False)
    whole = vectors_of(tmp_path / "plain", prompt="", max_length=64, pooling="max").astype(np.float16)
    assert "shortened" not in recorded(tmp_path / "plain", dump(whole))
    prompted = dump(vectors_of(models / "bert", prompt="of a book: "))
    assert "Or was a prompt put before all texts (--prompt)?" in recorded(models / "bert", prompted, code=1)
    longer[1::2] *= 3
    assert "one points the same way, and is 3 times as long" in recorded(models / "bert", dump(longer), code=1)
    longer[::2] *= 3
    assert "all point the same way, and are 3 times as long" in recorded(models / "bert", dump(longer), code=1)


def test_an_array_with_texts_in_a_file(models, tmp_path):
    vectors, file = tmp_path / "vectors.npy", tmp_path / "texts.txt"
    np.save(vectors, vectors_of(models / "bert").astype(np.float16))
    file.write_text("\n".join(texts()))
    said = recorded(models / "bert", vectors, "--texts", file, "--rows", 9)
    assert "vectors.npy.proof.json; the model writes these vectors: 9 of 150 rows emb" in said
    copy = shutil.copytree(tmp_path, tmp_path.with_name("copy"))  # the texts there are read, not those here
    (copy / "texts.txt").write_text("\n".join(["Other" if n == 5 else text for n, text in enumerate(texts())]))
    assert "among the texts of 141 other rows are some that were no" in verified(copy / "vectors.npy", code=1)
    file.rename(moved := tmp_path / "moved.txt")
    assert "has its texts in /" in (said := verified(vectors, code=1)) and "(--texts)" in said
    assert "1 part as recorded, all 150 texts as recorded" in verified(vectors, "--texts", moved)
    for rows in (texts()[:140], [*texts(), "one more"]):
        file.write_text("\n".join(rows))
        said = verified(vectors, "--rows", 9, code=int(len(rows) < 150))
        assert f"150 texts were recorded, and there are {len(rows)} now" in said
        said = recorded(models / "bert", vectors, "--texts", file, code=1)
        assert f"vectors.npy has 150 vectors, and there are {len(rows)} texts" in said
    file.write_text("\n".join(texts()[1:] + texts()[:1]))
    assert "the texts are the same, in another order: the text of row 0 is in row 149" in verified(vectors, code=1)
    assert "the text in row 0 is in row 1." in recorded(models / "bert", vectors, "--texts", file, code=1)
    np.save(vectors, np.load(vectors).astype(np.float32))
    assert "vectors.npy holds float32 now, and held float16" in verified(vectors, "--texts", file, code=1)
    np.save(vectors, np.where(np.arange(150)[:, None] == 149, np.nan, vectors_of(models / "bert")))
    file.write_text("\n".join(texts()))
    assert "row 149 holds no numbers (NaN)" in recorded(models / "bert", vectors, "--texts", file, code=1)


HALF = pa.list_(pa.float16(), 32)
TYPES = {"large": pa.large_list(pa.float32()), "double": pa.list_(pa.float64()), "half": HALF, "pgvector": pa.string()}


@pytest.mark.parametrize("kind", TYPES)
def test_kinds_of_columns(models, tmp_path, kind):
    rows = [*vectors_of(models / "bert").astype(np.float16 if kind == "half" else np.float32)]
    column = pa.array([str(row.tolist()) for row in rows] if kind == "pgvector" else rows, TYPES[kind])
    pq.write_table(pa.table({"text": texts(), "embedding": column}), tmp_path / "dump.parquet", row_group_size=70)
    recorded(models / "bert", tmp_path / "dump.parquet")
    assert "still fit: 64 rows" in verified(tmp_path / "dump.parquet")


def test_a_folder_that_was_written_without_a_proof(models, dump, tmp_path):
    (folder := tmp_path / "store").mkdir()
    vectors = vectors_of(models / "bert")
    for part, rows in enumerate((slice(0, 100), slice(100, 150))):
        dump(None, f"store/{part}.parquet", text=texts()[rows], embedding=[*vectors[rows]])
    assert "has no proof" in verified(folder, code=1)
    assert "_proof.json; the model writes" in recorded(models / "bert", folder, "--keep_texts")
    assert "2 parts as recorded" in (said := verified(folder)) and "not compared" not in said
    shutil.copy(folder / "1.parquet", folder / "2.parquet")
    assert "as it is now. All else is as it was recorded: 64 rows" in verified(folder, code=1)


def test_modules_that_sentence_transformers_alone_reads(models, dump, tmp_path):
    """A dense layer over the vectors."""
    first, pooling, norm = SentenceTransformer(str(models / "bert"))
    prompts = {"prompts": {"query": PROMPT}, "default_prompt_name": "query"}
    SentenceTransformer(modules=[first, pooling, Dense(32, 20), norm], **prompts).save(str(tmp_path / "model"))
    file = dump(encoded(tmp_path / "model"))
    said = recorded(tmp_path / "model", file)
    assert "rows embedded again (least cosine 1.000000" in said and "still fit: 64 rows" in verified(file)
    tensors(lambda tensors: {name: 2 * each for name, each in tensors.items()})(tmp_path / "model/2_Dense")
    assert "vectors are others" in verified(file, code=1)


def test_an_encoder_with_a_decoder(dump, tmp_path):
    """Its encoder is read, as sentence-transformers does."""
    fields = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    save(tmp_path / "model", "T5ForConditionalGeneration", **fields)
    file = dump(encoded(tmp_path / "model"))
    assert "rows embedded again (least cosine 1.000000" in recorded(tmp_path / "model", file)
    assert "still fit: 64 rows" in verified(file)
    bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    tensors(lambda tensors: tensors | {bias: 2 * tensors[bias]})(tmp_path / "model")
    assert f"weights changed: {bias}" in verified(file, code=1)


def test_models_without_files_of_sentence_transformers(models, dump, tmp_path):
    """How texts become vectors is found out, and stays in the proof."""
    model = shutil.copytree(models / "bert", tmp_path / "plain")
    for name in ("modules", "sentence_bert_config", "config_sentence_transformers"):
        (model / f"{name}.json").unlink()
    file = dump(vectors_of(models / "bert", prompt="Document: ", max_length=70, pooling="cls"))
    said = recorded(model, file, "--prompt", "Document: ")
    assert "with pooling 'cls' (its files say none) and normalisation on (its files say off)" in said
    assert "still fit" in verified(file)
    write_files(model, pooling="cls", prompt="Document: ")
    assert "pooling was none and is 'cls'" in verified(file, code=1)


def test_bad_input(models, dump, tmp_path):
    vectors, some = vectors_of(models / "bert"), texts()[:2]
    file, flat, file_of_texts = dump(vectors), tmp_path / "flat.npy", tmp_path / "texts.txt"
    np.save(flat, vectors[0])
    file_of_texts.write_text("\n".join(texts()))
    (tmp_path / "x.faiss").write_text("")
    pd.DataFrame({"text": [None, *texts()[1:]]}).to_csv(gap := tmp_path / "gap.csv")
    for message, source, *words in (
        ("has no column 'content'", file, "--text_column_name", "content"),
        ("has no texts (the columns are embedding)", dump(None, "b.parquet", embedding=[*vectors])),
        ("nothing.parquet: there is no such file", "nothing.parquet"),
        ("of shape (32,): vectors are read from", flat, "--texts", file_of_texts),
        *((f"{kind} alone", flat, *to) for kind, to in (("numbers", ()), ("vectors", ("--text_column_name", "a")))),
        ("not from '.faiss'", tmp_path / "x.faiss"),
        ("row 0 (counted from 0) of the texts is not a text: None", file, "--texts", gap),
        ("is not a text: None", dump(None, "c.parquet", text=[some[0], None], embedding=[*vectors[:2]])),
        ("differ in size", dump(None, "d.parquet", text=some, embedding=[vectors[0], vectors[1][:5]])),
        ("row 1 (counted from 0) has no vector", dump(None, "e.parquet", text=some, embedding=[vectors[0], None])),
    ):
        assert message in recorded(models / "bert", source, *words, code=1)
    assert "--create-pr is for the manifest of a model" in recorded(models / "bert", file, "--create-pr", code=1)
    assert "need --vectors" in tfm_zoo("record", models / "bert", "--prompt", "x", code=1)


def test_settings_compare_as_they_are_loaded(models):
    """An encoder that was taken out of a classifier keeps its labels: numbers as keys once loaded, text in JSON."""
    then, now = {"id2label": {"0": "bad"}}, {"id2label": {0: "bad"}}
    assert changes(then, {}, (now, now)) == [] and changes(then, {"id2label": {"0": "good"}}, (now, now))
    assert typed({"torch_dtype": "float32"}, {}, models / "bert") == ({"dtype": "float32"},) * 2
    assert typed({}, {"dtype": "float16"}, models / "bert") == ({}, {"dtype": "float16"})
