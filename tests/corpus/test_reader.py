"""`CorpusReader` gives what sentence-transformers and transformers' pipelines give, in the order of the texts."""

from itertools import count, islice

import numpy as np
import pytest
from transformers import pipeline

from tfm_zoo import CorpusReader

from ..encoders import save

POOLINGS = ["mean", "cls", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean", ("cls", "mean")]


def vectors(reader: CorpusReader, texts: list[str]) -> np.ndarray:
    return np.stack([result["embedding"] for result in reader(texts)])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("pooling", POOLINGS, ids=str)
def test_vectors_are_those_of_sentence_transformers(encoder, texts, tmp_path, pooling):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    prompts = {"prompts": {"query": "find: ", "document": "b2 "}, "default_prompt_name": "document", "truncate_dim": 20}
    body = Transformer(str(encoder), max_seq_length=16)
    modules = [body, Pooling(body.get_word_embedding_dimension(), pooling_mode=pooling)]
    modules += [Normalize()] if pooling in ("mean", ("cls", "mean")) else []
    model = SentenceTransformer(modules=modules, device="cpu", **prompts)
    model.save(str(tmp_path), create_model_card=False)
    for name in (None, "query"):
        found = vectors(CorpusReader.from_pretrained(tmp_path, prompt_name=name), texts)
        assert found.shape == (100, 20) and found.dtype == np.float32
        np.testing.assert_allclose(found, model.encode(texts, prompt_name=name), atol=2e-6)


def test_results_do_not_depend_on_batches_and_windows(encoder, texts):
    whole = vectors(CorpusReader.from_pretrained(encoder, pooling="mean"), texts)
    for options in ({"tokens_per_batch": 1}, {"window": 7, "tokens_per_batch": 90}, {"pack": "float32"}):
        reader = CorpusReader.from_pretrained(encoder, pooling="mean", **options)
        np.testing.assert_allclose(vectors(reader, texts), whole, atol=2e-6)
    chosen = CorpusReader.from_pretrained(encoder, pooling="mean", pack=True)
    named = CorpusReader.from_pretrained(encoder, pooling="mean", pack=chosen.settings["pack"])
    np.testing.assert_array_equal(vectors(chosen, texts), vectors(named, texts))
    shortened = CorpusReader.from_pretrained(encoder, pooling="mean", max_length=5, embedding_dtype="float16")
    assert vectors(shortened, texts).dtype == np.float16
    assert max(map(len, shortened.tokenizer(texts, truncation=True, max_length=5)["input_ids"])) == 5
    assert shortened.tokens < 5 * len(texts)
    assert CorpusReader.from_pretrained(encoder, pooling="mean", compile=True).loaded["compile"]
    rounded = CorpusReader.from_pretrained(encoder, pooling="mean", dtype="bfloat16")
    assert 0 < abs(vectors(rounded, texts) - whole).max() < 0.1


def test_texts_are_read_as_they_are_asked_for(encoder):
    """Of a stream without end no more than a window is read."""
    numbers = count()
    results = CorpusReader.from_pretrained(encoder, pooling="cls", window=4)(map(str, numbers))
    assert len([*islice(results, 6)]) == 6 and next(numbers) == 8


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", "regression", None])
def test_labels_are_those_of_the_pipeline(texts, tmp_path, problem):
    labels = 3 if problem else 1
    save(tmp_path, "BertForSequenceClassification", files=False, num_labels=labels, problem_type=problem)
    classify = pipeline("text-classification", str(tmp_path), top_k=None, device="cpu")
    for text, result in zip(texts[:20], CorpusReader.from_pretrained(tmp_path)(texts[:20]), strict=True):
        expected = {found["label"]: found["score"] for found in classify([text], truncation=True)[0]}
        numbers = result["values" if problem == "regression" else "probabilities"]
        assert numbers == pytest.approx([expected[f"LABEL_{i}"] for i in range(labels)], abs=1e-5)
        if problem == "single_label_classification":
            assert result["label"] == max(expected, key=expected.get)
        elif problem != "regression":
            assert result["labels"] == [f"LABEL_{i}" for i in range(labels) if expected[f"LABEL_{i}"] > 0.5]


def test_tags_are_those_of_the_pipeline(texts, tmp_path):
    save(tmp_path, "BertForTokenClassification", files=False, id2label={0: "O", 1: "B-film", 2: "I-film"})
    tag = pipeline("token-classification", str(tmp_path), aggregation_strategy="first", device="cpu")
    short = [text for text in texts if len(text) < 50]
    results = [*CorpusReader.from_pretrained(tmp_path)(short)]
    assert sum(len(result["tags"]) for result in results) > 10
    for text, result in zip(short, results, strict=True):
        expected = tag(text) if text else []
        assert [{**found, "score": 0} for found in result["tags"]] == [{**found, "score": 0} for found in expected]
        scores = [[found["score"] for found in tags] for tags in (result["tags"], expected)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)


#: what is said, of options, or of another model than the encoder
BAD = {
    "give one of mean, cls, last": {"pooling": "median"},
    "and the model has neither a head nor files": {},
    "no such prompt; the model has no prompts": {"pooling": "cls", "prompt_name": "query"},
    "the model reads 1 to 80 tokens": {"pooling": "cls", "max_length": 81},
    "computes in float32, bfloat16 or float16. To pack .* --pack int8": {"pooling": "cls", "dtype": "int8"},
    "embedding_dtype 'bfloat16'": {"pooling": "cls", "embedding_dtype": "bfloat16"},
    "tokens_per_batch must be at least 1, not 0": {"pooling": "cls", "tokens_per_batch": 0},
    "pooling 'mean': .* gives labels, and no vectors": {"model": "BertForSequenceClassification", "pooling": "mean"},
    "no calibrate: load a folder that .tfm-zoo convert": {"pooling": "cls", "pack": "int8", "calibrate": ["a text"]},
    "'batch_size': a reader takes .*, tokens_per_batch,": {"pooling": "cls", "batch_size": 2},
    "neither labels, tags nor vectors": {"model": "BertForQuestionAnswering"},
    "names Dense, which is not read": {"model": "BertModel"},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_options(encoder, message, tmp_path):
    options = {**BAD[message]}
    if name := options.pop("model", None):
        save(encoder := tmp_path, name, files=False)
    if "Dense" in message:
        (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense", "path": ""}]')
    with pytest.raises(ValueError, match=message):
        CorpusReader.from_pretrained(encoder, **options)


def test_bad_texts(encoder):
    reader = CorpusReader.from_pretrained(encoder, pooling="cls", window=2)
    with pytest.raises(ValueError, match=r"text 3 \(counted from 0\) is not text: None"):
        [*reader(["a", "b", "c", None])]
    for texts in ("abc", {"text": "a"}, 3):
        with pytest.raises(ValueError, match=f"a list or another iterable of texts, not the {type(texts).__name__} "):
            reader(texts)
    reader.tokenizer.backend_tokenizer.post_processor = None
    with pytest.raises(ValueError, match=r"text 1 \(counted from 0\) has no token: ''"):
        [*reader(["a", ""])]
