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
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from typer.testing import CliRunner

from tfm_zoo.cli import app
from tfm_zoo.proof.encoder import Encoder
from tfm_zoo.proof.reading import Reading

from .encoders import CUT, PROMPT, save, texts, weights, write_files
from .test_vectors import nudge, verified

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
def dump(models, tmp_path) -> Callable[..., Path]:
    """A file as a data base of vectors would write it."""

    def make(vectors: np.ndarray, name: str = "dump.parquet", **columns) -> Path:
        columns = columns or {"content": texts(), "vector": [*vectors]}
        pd.DataFrame(columns).to_parquet(tmp_path / name)
        return tmp_path / name

    return make


COLUMNS = ("--text_column_name", "content", "--vector_column_name", "vector")


def recorded(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["record", *map(str, words)])
    assert done.exit_code == code, done.output
    return done.output.replace("\n", " ")


def test_any_store(models, dump, tmp_path):
    """What sentence-transformers writes is recorded as its files say, and verified later by its own name."""
    encoder = SentenceTransformer(str(models / "bert"))
    file = dump(encoder.encode(texts(), show_progress_bar=False))
    said = recorded(models / "bert", "--vectors", file, *COLUMNS)
    assert f"is recorded in {file}.proof.json; the model writes these vectors: least cosine 1.000000" in said
    assert "still fit: 64 rows" in verified(file)
    assert "still fit: 8 rows" in verified(tmp_path, "--rows", 8)
    model = shutil.copytree(models / "bert", tmp_path / "model")
    weights(nudge)(model)
    assert "weights changed: encoder.layer.1" in verified(file, "--model", model, code=1)
    rows = pd.read_parquet(file)
    rows.at[70, "vector"] = rows.at[71, "vector"]
    rows.to_parquet(file)
    assert "vectors among rows 64 to 127; the text and the vector do not fit in row 70" in verified(file, code=1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pooling": "cls"}, "with pooling 'cls' (its files say 'mean')"),
        ({"pooling": "max", "normalize": False}, "with pooling 'max' (its files say 'mean') and normalisation off"),
        ({"prompt": ""}, "with the prompt none (its files say 'query: ')"),
        ({"lower_case": True}, "with lower_case True (its files say False)"),
        ({"oddity": "no_special_tokens"}, "with the model's inputs no special tokens"),
        ({"prompt": "", "normalize": False, "max_length": 64}, "normalisation off (its files say on)"),
    ],
)
def test_settings_are_found_by_trying(models, dump, changes, said):
    file = dump(vectors_of(models / "bert", **changes))
    assert said in recorded(models / "bert", "--vectors", file, *COLUMNS)
    proof = json.loads(file.with_name("dump.parquet.proof.json").read_text())
    assert Reading.of(proof["reading"]) == replace(READING, **changes)
    assert "still fit" in verified(file)


def test_positions_of_roberta(models, dump):
    file = dump(vectors_of(models / "roberta", oddity="positions_from_zero"))
    said = recorded(models / "roberta", "--vectors", file, *COLUMNS)
    assert "with the model's inputs positions that count from 0, not from behind the padding's" in said


def test_a_model_that_does_not_write_them(models, dump, tmp_path):
    """It is refused, and nothing is written. What comes near is named."""
    other = Encoder.load(str(models / "roberta"))
    long = [" ".join(texts()[:9]), *texts()[1:]]
    file = dump(other.vectors(long, READING), content=long, vector=[*other.vectors(long, READING)])
    said = recorded(models / "bert", "--vectors", file, *COLUMNS, code=1)
    assert "bert does not write these vectors: least cosine" in said
    assert not [*tmp_path.glob("*.json")]
    save(tmp_path / "wide", hidden_size=64)
    said = recorded(tmp_path / "wide", "--vectors", file, *COLUMNS, code=1)
    assert "they have 32 numbers, not 64" in said


def test_an_array_with_texts_in_a_file(models, tmp_path):
    np.save(tmp_path / "vectors.npy", vectors_of(models / "bert").astype(np.float16))
    (tmp_path / "texts.txt").write_text("\n".join(texts()))
    said = recorded(
        models / "bert", "--vectors", tmp_path / "vectors.npy", "--texts", tmp_path / "texts.txt", "--rows", 9
    )
    assert "vectors.npy.proof.json; the model writes these vectors: least cosine" in said
    assert "still fit: 9 rows" in verified(tmp_path / "vectors.npy")
    (tmp_path / "texts.txt").write_text("\n".join(texts()[:140]))
    assert "rows are gone: row 149" in verified(tmp_path / "vectors.npy", code=1)
    said = recorded(models / "bert", "--vectors", tmp_path / "vectors.npy", "--texts", tmp_path / "texts.txt", code=1)
    assert "has no text: there are 150 vectors and fewer texts" in said


@pytest.mark.parametrize("kind", ["fixed", "large", "double", "half", "pgvector"])
def test_kinds_of_columns(models, tmp_path, kind):
    vectors = vectors_of(models / "bert")
    types = {
        "fixed": pa.list_(pa.float32(), 32),
        "large": pa.large_list(pa.float32()),
        "double": pa.list_(pa.float64()),
        "half": pa.list_(pa.float16(), 32),
    }
    rows = [*vectors.astype(np.float16 if kind == "half" else np.float32)]
    column = pa.array([str(row.tolist()) for row in vectors]) if kind == "pgvector" else pa.array(rows, types[kind])
    pq.write_table(pa.table({"text": texts(), "embedding": column}), tmp_path / "dump.parquet", row_group_size=70)
    recorded(models / "bert", "--vectors", tmp_path / "dump.parquet")
    assert "still fit: 64 rows" in verified(tmp_path / "dump.parquet")


def test_a_folder_that_was_written_without_a_proof(models, dump, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    for part, rows in enumerate((slice(0, 100), slice(100, 150))):
        columns = {"text": texts()[rows], "embedding": [*vectors_of(models / "bert")[rows]]}
        pd.DataFrame(columns).to_parquet(folder / f"{part}.parquet")
    assert "has no proof" in verified(folder, code=1)
    assert "_proof.json; the model writes" in recorded(models / "bert", "--vectors", folder, "--keep_texts")
    assert "2 parts as recorded" in verified(folder)
    shutil.copy(folder / "1.parquet", folder / "2.parquet")
    assert "parts that were not recorded: 2.parquet" in verified(folder, code=1)


def test_modules_that_only_sentence_transformers_reads(models, dump, tmp_path):
    """A dense layer over the vectors."""
    encoder = SentenceTransformer(str(models / "bert"))
    pooled = [encoder[0], encoder[1], Dense(32, 20), encoder[2]]
    encoder = SentenceTransformer(modules=pooled, prompts={"query": PROMPT}, default_prompt_name="query")
    encoder.save(str(tmp_path / "dense"))
    file = dump(encoder.encode(texts(), show_progress_bar=False))
    assert "writes these vectors: least cosine 1.000000" in recorded(tmp_path / "dense", "--vectors", file, *COLUMNS)
    assert "still fit: 64 rows" in verified(file)
    path = next((tmp_path / "dense/2_Dense").glob("*.safetensors"))
    save_file({name: 2 * value for name, value in load_file(path).items()}, path, metadata={"format": "pt"})
    said = verified(file, code=1)
    assert "vectors are others now" in said and "files changed since it was recorded: 2_Dense/" in said


def test_the_encoder_of_a_t5(dump, tmp_path):
    """As sentence-transformers reads it."""
    fields = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    save(tmp_path / "t5", "T5ForConditionalGeneration", **fields)
    encoder = SentenceTransformer(str(tmp_path / "t5"))
    file = dump(encoder.encode(texts(), show_progress_bar=False))
    assert "writes these vectors: least cosine 1.000000" in recorded(tmp_path / "t5", "--vectors", file, *COLUMNS)
    assert "still fit: 64 rows" in verified(file)
    bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    weights(lambda tensors: tensors | {bias: 2 * tensors[bias]})(tmp_path / "t5")
    said = verified(file, code=1)
    assert f"weights changed: {bias}" in said


def test_models_without_files_of_sentence_transformers(models, dump, tmp_path):
    """How texts become vectors is found out, and stays in the proof."""
    model = shutil.copytree(models / "bert", tmp_path / "plain")
    for name in ("modules", "sentence_bert_config", "config_sentence_transformers"):
        (model / f"{name}.json").unlink()
    file = dump(vectors_of(models / "bert", prompt="Document: ", max_length=70, pooling="cls"))
    said = recorded(model, "--vectors", file, *COLUMNS, "--prompt", "Document: ")
    assert "with pooling 'cls' (its files say none) and normalisation on (its files say off)" in said
    assert "still fit" in verified(file)
    write_files(model, pooling="cls", prompt="Document: ")
    assert "pooling was none and is 'cls'" in verified(file, code=1)


def test_bad_input(models, dump, tmp_path):
    bert, vectors, text = models / "bert", vectors_of(models / "bert"), ("--texts", tmp_path / "texts.txt")
    file = dump(vectors)
    odd = dump(vectors, "odd.parquet", content=[*texts()[:5], None], vector=[*vectors[:6]])
    ragged = dump(vectors, "ragged.parquet", content=texts()[:2], vector=[vectors[0], vectors[1][:5]])
    empty = dump(vectors, "empty.parquet", content=texts()[:2], vector=[vectors[0], None])
    np.save(tmp_path / "flat.npy", vectors[0])
    (tmp_path / "texts.txt").write_text("\n".join(texts()))
    (tmp_path / "x.faiss").write_text("")
    for source, options, message in (
        (file, (), "dump.parquet has no column 'embedding'; its columns are content, vector"),
        (file, (*COLUMNS[2:], "--text_column_name", "text"), "has no column 'text'"),
        (file, COLUMNS[2:], "has no texts (the columns are content, vector)"),
        ("nothing.parquet", (), "nothing.parquet: there is no such file"),
        (tmp_path / "flat.npy", text, "of shape (32,), not vectors"),
        (tmp_path / "flat.npy", (), "an array holds numbers alone"),
        (tmp_path / "x.faiss", (), "not from '.faiss'"),
        (odd, COLUMNS, "row 5 (counted from 0) is not a text: None"),
        (ragged, COLUMNS, "differ in size"),
        (empty, COLUMNS, "row 1 (counted from 0) has no vector"),
    ):
        assert message in recorded(bert, "--vectors", source, *options, code=1)
    assert "There is no folder" in recorded(tmp_path / "nothing", "--vectors", file, code=1)
    assert "need --vectors" in recorded(bert, "--prompt", "x", code=1)
    assert not [*tmp_path.glob("*.json")]


@pytest.mark.slow
def test_threads_and_batches_make_no_difference(models, dump):
    """Vectors of other batches and of two threads: the model that wrote them is recognised each time."""
    encoder, some, threads = SentenceTransformer(str(models / "bert")), texts()[:40], torch.get_num_threads()
    try:
        for batch in range(1, 9):
            torch.set_num_threads(1 + batch % 2)
            file = dump(None, content=some, vector=[*encoder.encode(some, batch_size=batch, show_progress_bar=False)])
            said = recorded(models / "bert", "--vectors", file, *COLUMNS, "--rows", 16)
            assert "the model writes these vectors: least cosine 1.000000" in said
            assert "still fit" in verified(file)
    finally:
        torch.set_num_threads(threads)
