"""Vectors prove themselves: each fault is caught and named, and nothing is said where nothing has changed."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

from tfm_zoo import CorpusReader, from_official, pack_weights
from tfm_zoo.corpus.run import CorpusRun
from tfm_zoo.corpus.source import Corpus
from tfm_zoo.proof import verify_vectors
from tfm_zoo.proof.proof_file import IN_FOLDER, unpacked

from ..command import tfm_zoo
from ..encoders import make, save, texts, tokenizer, write, write_files
from ..hub.editing import CONFIG, edit, replace, tensors

PARTS = [f"part-{part:06}.parquet" for part in range(4)]


def embed(model: Path, files: Path, out: Path, keep=("text",), keep_texts: bool = False, **options) -> Path:
    reader = CorpusReader.from_pretrained(str(model), **options)
    CorpusRun(Corpus.open(data_files=[str(files)], keep=keep), reader, out, 40, keep_texts)()
    return out


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Texts, models by name, and beside each its store of four parts; `others`, a store of other texts."""
    root = tmp_path_factory.mktemp("vectors")
    pd.DataFrame({"text": texts()}).to_parquet(root / "texts.parquet")
    pd.DataFrame({"text": texts()[::-1]}).to_parquet(root / "others.parquet")
    for name in ("Bert", "Roberta", "MPNet"):
        save(root / name.lower(), f"{name}Model")
        embed(root / name.lower(), root / "texts.parquet", root / f"{name.lower()}-vectors")
    embed(root / "bert", root / "others.parquet", root / "others")
    return root


@pytest.fixture
def copied(root, tmp_path) -> Callable[[str], tuple[Path, Path]]:
    """Copies of a model and of its store."""
    pairs = {"": "model", "-vectors": "vectors"}
    return lambda name: tuple(shutil.copytree(root / f"{name}{end}", tmp_path / to) for end, to in pairs.items())


verified = partial(tfm_zoo, "verify")


def nudge(tensors: dict) -> dict:
    tensors["encoder.layer.1.output.dense.weight"][3, 5] += 1e-3
    return tensors


def in_bfloat16(tensors: dict) -> dict:
    return {name: tensor.bfloat16() for name, tensor in tensors.items()}


def turn(part: Path) -> None:
    pd.read_parquet(part)[::-1].to_parquet(part)


def swap(at: SimpleNamespace) -> None:
    for old, new in ((PARTS[0], "aside"), (PARTS[1], PARTS[0]), ("aside", PARTS[1])):
        shutil.move(at.store / old, at.store / new)


def edit_row(at: SimpleNamespace, column: str, row: int = 7) -> None:
    rows = pd.read_parquet(at.store / PARTS[2])
    rows.at[row, column] = -rows.at[row, column] if column == "embedding" else "Something else"
    rows.to_parquet(at.store / PARTS[2])


def grow(at: SimpleNamespace) -> None:
    edit_row(at, "embedding")
    rows = pd.read_parquet(at.store / PARTS[2])
    pd.concat([rows, rows[:5]]).to_parquet(at.store / PARTS[2])


def count_from_zero(at: SimpleNamespace) -> None:
    positions = staticmethod(lambda input_ids, *_, **__: torch.arange(input_ids.shape[1]).expand_as(input_ids))
    at.patches.setattr(RobertaEmbeddings, "create_position_ids_from_input_ids", positions)


def lose_bias(at: SimpleNamespace) -> None:
    def bias(self, x, position_ids=None, num_buckets=32):
        return torch.zeros(x.shape[0], self.config.num_attention_heads, x.shape[1], x.shape[1])

    at.patches.setattr(MPNetEncoder, "compute_position_bias", bias)


def another_release(at: SimpleNamespace) -> None:
    lose_bias(at)
    edit(at.store, IN_FOLDER, torch="1.0")


CHANGED = "part part-000002.parquet was changed: vectors among rows 80 to 119; "
CHANGED += "the text and the vector do not fit in row 87 (cosine -1.000, difference 2.0e+00)"
OTHER_TEXT = "the text is not the one that was embedded in row 87. All else is as it was recorded: 63 rows"
GONE = "proves the store as it is now; text and vector fit in part-000000.parquet: 9 of its changed rows embedded a"
UNUSED = replace("tokenizer.json", '"##?"', '"##^"')
#: fault -> what makes it, what `verify` says, and the model, if it is not a BERT
FAULTS = {
    "another release of the model": (lambda at: save(at.model, seed=1), "another release of it: 39 of 39 tensors"),
    "one weight off by 1e-3": (lambda at: tensors(nudge)(at.model), "weights changed: encoder.layer.1.output.dense.w"),
    "a lower-casing tokenizer": (lambda at: tokenizer(True).save_pretrained(at.model), "of the texts in rows 0, 4"),
    "a token that no row has": (lambda at: UNUSED(at.model), "has another vocabulary or other rules than before"),
    "truncation": (lambda at: write_files(at.model, cut=20), "truncation was 40 tokens and is 20 tokens"),
    "another pooling": (lambda at: write_files(at.model, pooling="cls"), "pooling was 'mean' and is 'cls'"),
    "no normalisation": (lambda at: write_files(at.model, normalize=False), "normalisation was on and is off"),
    "modules.json is gone": (lambda at: (at.model / "modules.json").unlink(), "says how a text becomes a vector"),
    "a pooling is gone": (lambda at: (at.model / "1_Pooling/config.json").unlink(), "lacks 1_Pooling/config.json"),
    "a prompt dropped": (lambda at: write_files(at.model, prompt=""), "the prompt was 'query: ' and is none"),
    "RoBERTa positions from 0": (count_from_zero, "that differs is embeddings.position_embeddings (Emb", "roberta"),
    "another attention bias": (lose_bias, "the first part that differs is encoder.layer.0.attention", "mpnet"),
    "another release of a library": (another_release, "the libraries: torch 1.0 then, ", "mpnet"),
    "an epsilon in config.json": (lambda at: edit(at.model, CONFIG, layer_norm_eps=0.1), "layer_norm_eps was 1e-12 an"),
    "a part exchanged": (lambda at: shutil.copy(at.root / "others" / PARTS[1], at.store), f"{PARTS[1]} was exchanged"),
    "two parts swapped": (swap, f"parts {PARTS[0]} and {PARTS[1]} are swapped"),
    "a vector edited": (partial(edit_row, column="embedding"), CHANGED),
    "a part has grown": (grow, f"--vectors ...` proves the store as it is now; {CHANGED}"),
    "a text edited": (partial(edit_row, column="text"), OTHER_TEXT),
    "rows in another order": (lambda at: turn(at.store / PARTS[1]), f"{PARTS[1]} holds its vectors in another order: "),
    "weights cut short": (lambda at: os.truncate(at.model / "model.safetensors", 9999), "/model cannot be read: "),
    "weights in bfloat16": (lambda at: tensors(in_bfloat16)(at.model), "weights are bfloat16 now and were float32: 39"),
    "a part is gone": (lambda at: (at.store / PARTS[0]).unlink(), f"parts missing: {PARTS[0]}. All else is as it was"),
    "a part has another name": (lambda at: (at.store / PARTS[0]).rename(at.store / "z.parquet"), "and with them anot"),
    "rows are gone": (lambda at: pd.read_parquet(at.store / PARTS[0])[:9].to_parquet(at.store / PARTS[0]), GONE),
    "a part cut short": (lambda at: os.truncate(at.store / PARTS[0], 500), f"{PARTS[0]} cannot be read"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named(fault, copied, root, monkeypatch):
    change, said, *name = FAULTS[fault]
    model, store = copied(*(name or ["bert"]))
    change(SimpleNamespace(model=model, store=store, root=root, patches=monkeypatch))
    output = verified(store, "--model", model, code=1)
    assert said in output and "still fit" not in output, output
    assert "config.json: " not in output or "first part that differs" not in output
    assert output.count(f"{store}: ") <= 3  # that it is read, whose code it is, what differs


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet"])
def test_nothing_is_said_where_nothing_has_changed(root, name, monkeypatch):
    """In other batches; however few seconds are spent on files."""
    store = root / f"{name}-vectors"
    monkeypatch.setattr("tfm_zoo.proof.encoder.BATCH", 5)
    output = verified(store, "--rows", 64)
    assert "still fit: 64 rows embedded again (least cosine 1.000000" in output and "4 parts as recorded" in output
    assert "warning" not in output
    answer = json.loads((said := verified(store, "--json"))[said.index("{") :])
    assert answer["ok"] and answer["figures"]["rows"] == 64 and answer["figures"]["difference"] < 1e-5
    monkeypatch.setattr("tfm_zoo.proof.store_parts.SECONDS", 0)
    for said in (verified(store), str(verify_vectors(store))):
        assert "1 of 4 pieces of 64 MB were read in 0 s (--whole reads all)" in said
    assert "warning" not in verified(store, "--whole")


def test_a_model_that_was_saved_again(copied):
    """Files may be others, as long as they say the same. Nothing differs, and a warning names them, and the class."""
    model, store = copied("bert")
    tfm_zoo("record", model)
    transformers.AutoModel.from_pretrained(model).save_pretrained(model)
    transformers.AutoTokenizer.from_pretrained(model).save_pretrained(model)
    path = model / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4))
    edit(model, CONFIG, dtype=...)
    tensors(lambda tensors: tensors | {"embeddings.position_ids": torch.arange(64)[None]})(model)
    output = verified(store, "--model", model)
    anew = "(warning: files were written anew, and sentence-transformers reads the same: tok"
    assert "still fit" in output and anew in output and anew in verified(model)
    cut = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
    edit(model, "tokenizer.json", truncation=cut)  # which transformers does not read
    assert anew.replace("written anew", "changed").replace(": tok", " (other programs may not): tok") in verified(model)
    for file, change, said in (
        ("config_sentence_transformers.json", {"prompts": {"query": "query: ", "doc": "more: "}}, "prompts.doc was N"),
        ("tokenizer_config.json", {"padding_side": "left"}, "the tokenizer's padding_side was 'right' and is 'left'"),
    ):
        before = (model / file).read_text()
        edit(model, file, **change)
        assert said in verified(store, "--model", model, code=1) and said in verified(model, code=1)
        (model / file).write_text(before)
    from_official(make()).save_pretrained(model)
    assert "(warning: it is a TfmBertModel, and was recorded as a BertModel: " in verified(store, "--model", model)
    edit(store, IN_FOLDER, source=str(model))
    assert "computed in float32 and padded at the right, are the same (least" in verified(store, code=1)


def test_what_a_proof_holds(root):
    """Manifest, digests and vectors; no text, and no more than it needs."""
    text = (root / "bert-vectors" / IN_FOLDER).read_text()
    proof = json.loads(text)
    assert [*proof["parts"]] == PARTS and len(proof["canaries"]["rows"]) == 64
    assert {"tokenizer.json", "1_Pooling/config.json"} <= proof["model"]["files"].keys()
    rows = pd.read_parquet(root / "bert-vectors")["embedding"].iloc[proof["canaries"]["rows"]]
    assert np.array_equal(unpacked(proof["canaries"]), np.stack([*rows]))
    assert not any(one in text for one in texts() if len(one) > 30)
    assert not [path for path in (root / "bert-vectors").iterdir() if path.name.endswith(".notes")]


@pytest.mark.parametrize("keep_texts", [False, True])
def test_texts_that_the_store_does_not_hold(root, tmp_path, keep_texts, monkeypatch):
    """They are read again, unless the user has agreed that the proof keeps them."""
    shutil.copy(root / "texts.parquet", tmp_path / "texts.parquet")
    monkeypatch.chdir(tmp_path)
    embed(root / "bert", Path("texts.parquet"), tmp_path / "out", keep=(), keep_texts=keep_texts)
    monkeypatch.chdir(root)
    assert (", all 150 texts as recorded" in verified(tmp_path / "out")) != keep_texts
    monkeypatch.setattr("tfm_zoo.corpus.source.SMALL", 0)
    assert "; the texts of other rows were not compared" in verified(tmp_path / "out")
    if not keep_texts:
        for number, half in enumerate((texts()[:70], texts()[70:])):
            pd.DataFrame({"text": half}).to_parquet(tmp_path / f"moved-{number}.parquet")
        assert "still fit: 64 rows" in verified(tmp_path / "out", "--texts", tmp_path / "moved-*.parquet")
    pd.DataFrame({"text": [texts()[0], "Other", *texts()[2:]]}).to_parquet(tmp_path / "texts.parquet")
    other = "; the texts of other rows were not" if keep_texts else "among the texts of 86 other rows are some that w"
    assert other in verified(tmp_path / "out", "--whole", code=int(not keep_texts))
    pd.DataFrame({"text": ["Other", *texts()[1:]]}).to_parquet(tmp_path / "texts.parquet")
    if keep_texts:
        assert "still fit" in verified(tmp_path / "out")
        edit_row(SimpleNamespace(store=tmp_path / "out"), "embedding", row=8)
        assert "fit in 17 of the 40 changed rows of part-000002.parquet, whose t" in verified(tmp_path / "out", code=1)
        out = embed(root / "bert", root / "texts.parquet", tmp_path / "whole", keep_texts=True)
        edit(out, IN_FOLDER, texts={"kept": "here"})  # as earlier versions wrote it; the store holds all texts
        assert "not compared" not in verified(out)
        edit_row(SimpleNamespace(store=out), "text")
        assert "the text and the vector do not fit in row 87" in verified(out, code=1)
        return
    assert "the text is not the one that was embedded in row 0" in verified(tmp_path / "out", code=1)


TYPES = {"dtype": "bfloat16", "embedding_dtype": "float16", "pack": "int8", "pooling": "cls+mean"}


@pytest.mark.parametrize(("option", "value"), TYPES.items())
def test_other_types(root, tmp_path, option, value):
    """Bounds are those of the type that the vectors were made and stored in."""
    out = embed(root / "bert", root / "texts.parquet", tmp_path / "out", **{option: value})
    assert "still fit" in verified(out)
    model = shutil.copytree(root / "bert", tmp_path / "model")
    tensors(nudge)(model)
    assert "weights changed: encoder.layer.1" in verified(out, "--model", model, code=1)


def test_models_of_the_zoo(root, tmp_path):
    """Loaded by the zoo's classes, in eight bits too; changed code of a checkpoint does not run."""
    model = from_official(make("BertModel"))
    for name in ("whole", "rounded"):
        if name == "rounded":
            pack_weights(model, "int8")
        model.save_pretrained(tmp_path / name)
        tokenizer().save_pretrained(tmp_path / name)
        write_files(tmp_path / name)
        assert "still fit" in verified(embed(tmp_path / name, root / "texts.parquet", tmp_path / f"{name}-vectors"))
    path = tmp_path / "whole/layers.py"
    path.write_text(path.read_text() + "raise SystemExit('it ran')")
    said = verified(tmp_path / "whole-vectors", code=1)
    assert "layers.py has been changed; it was not run, since that needs --trust-remote-code and --run-changed" in said
    assert "needs --run-changed" in verified(tmp_path / "whole-vectors", "--trust-remote-code", code=1)


def test_a_run_that_goes_on_has_the_same_proof(root, tmp_path):
    """Parts that are computed again are noted again; those without notes are read; those of another model refused."""
    store = shutil.copytree(root / "bert-vectors", tmp_path / "out")
    before = json.loads((store / IN_FOLDER).read_text())
    (store / PARTS[1]).unlink()
    embed(root / "bert", root / "texts.parquet", store)
    assert json.loads((store / IN_FOLDER).read_text()) == before
    for name in (IN_FOLDER, PARTS[0]):
        (store / name).unlink()
    for words in (["verify", store], ["record", root / "bert", "--vectors", store]):
        assert f"{store} is unfinished, with " in tfm_zoo(*words, code=1)
    embed(root / "bert", root / "texts.parquet", store)
    assert json.loads((store / IN_FOLDER).read_text()) == before
    (store / IN_FOLDER).unlink()
    pq.write_table(pq.read_table(store / PARTS[0])[::-1], store / PARTS[0])
    with pytest.raises(ValueError, match=r"has vectors that .* does not give: .* row 0 is the first"):
        embed(root / "bert", root / "texts.parquet", store)


def test_bad_input(root, copied, tmp_path):
    model, store = copied("bert")
    proof, refused = json.loads((store / IN_FOLDER).read_text()), partial(verified, code=1)
    assert "rows must be at least 1, not 0" in refused(store, "--rows", 0)
    assert f"{store} is not a folder of a model" in refused(model, "--against", store)
    assert f"There is no '{tmp_path}/vectorz.npy'; did you mean" in refused(tmp_path / "vectorz.npy")
    assert "--rows is for vectors, and this is a model" in refused(model, "--rows", 5)
    assert "--code-only is for models, and this is a store" in refused(store, "--code-only")
    assert "is the proof of vectors, and" in refused(model, "--manifest", store / IN_FOLDER)
    write(tmp_path / "model.json", proof["model"])
    assert "is the manifest of a model" in refused(store, "--manifest", tmp_path / "model.json")
    save(tmp_path / "wide", hidden_size=64)
    assert "another model, or another release" in refused(store, "--model", tmp_path / "wide")
    write(store / IN_FOLDER, proof | {"source": str(tmp_path / "nowhere")})
    assert f"give the model that should write {store} with --model" in refused(store)
    write(store / IN_FOLDER, proof | {"agreement": {"cosine": 0.3, "difference": 1.4}})
    assert "they did not fit when they were recorded: the least cosine was 0.300000" in refused(store)
    write(store / IN_FOLDER, {name: proof[name] for name in proof if name != "canaries"})
    assert "is not a proof of vectors, or has the format of another version: look at canaries" in refused(store)
    (store / IN_FOLDER).unlink()
    assert f"`tfm-zoo record MODEL --vectors {store}` writes it" in refused(store)
    save(tmp_path / "classifier", "BertForSequenceClassification", files=False)
    labels = embed(tmp_path / "classifier", root / "texts.parquet", tmp_path / "labels")
    assert "holds labels of texts: only vectors have a proof" in refused(labels)
