"""Pipelines and Sentence Transformers take zoo models as they take native ones."""

import json
import numbers
from pathlib import Path

import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import CONFIG_MAPPING, pipeline
from transformers.pipelines import get_supported_tasks
from typer.testing import CliRunner

import tfm_zoo
from tfm_zoo.cli import app
from tfm_zoo.plugin.families import FAMILIES

from ..official_models import BY_NAME, build_tiny
from ..tiny import tiny_model
from ..words import SENTENCES, make_tokenizer

QUESTION = "who saw a film"
#: what makes of the family a BART, which knows the ends of sentences by the tokenizer's
LIKE_BART = {
    "position_embedding_type": "learned",
    "position_offset": 2,
    "embedding_norm": True,
    "scale_embedding": False,
    "eos_token_id": 3,
    "decoder_start_token_id": 3,
}
TASKS = {
    "text-classification": ("TfmBertForSequenceClassification", SENTENCES, {"top_k": None}),
    "token-classification": ("TfmBertForTokenClassification", SENTENCES, {"aggregation_strategy": "simple"}),
    "fill-mask": ("TfmBertForMaskedLM", ["the film was [MASK]", "[MASK] story was dull and long"], {}),
    "feature-extraction": ("TfmBertModel", SENTENCES, {}),
    "question-answering": (
        "TfmBertForQuestionAnswering",
        [{"question": QUESTION, "context": sentence} for sentence in SENTENCES],
        {"top_k": 2},
    ),
}


def assert_close(ours, theirs) -> None:
    """Fractions to rounding, all else exactly, wherever they are in the answer."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_close(one, other)
    elif isinstance(theirs, numbers.Real) and not isinstance(theirs, numbers.Integral):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    else:
        assert ours == theirs


@pytest.mark.parametrize("task", TASKS)
def test_pipeline(task, tmp_path):
    if task not in get_supported_tasks():
        pytest.skip(f"this version of transformers has no pipeline {task!r}: see test_answers")
    head, inputs, options = TASKS[task]
    tokenizer = make_tokenizer()
    model = tiny_model(getattr(tfm_zoo, head), vocab_size=len(tokenizer))
    for folder, saved in ((tmp_path / "zoo", model), (tmp_path / "native", tfm_zoo.to_official(model))):
        saved.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    # Features are returned at padding too, where the zoo has none: one sentence at a time.
    batch_size = 1 if task == "feature-extraction" else 2
    ours, theirs = (
        pipeline(task, model=str(tmp_path / name), batch_size=batch_size, device="cpu", **trust)(inputs, **options)
        for name, trust in (("zoo", {"trust_remote_code": True}), ("native", {}))
    )
    assert_close(ours, theirs)


@pytest.mark.parametrize("task", ["text-classification", "feature-extraction"])
def test_pipeline_of_an_encoder_decoder(task, tmp_path):
    """(transformers 5 has removed those of translation, summarisation and text to text.)"""
    assert not {"translation", "summarization", "text2text-generation"} & set(get_supported_tasks())
    head = "ForSequenceClassification" if task == "text-classification" else "Model"
    tokenizer = make_tokenizer()
    # (A native BART of two classes does not load again: its configuration writes them down as if two were its default.)
    fields = LIKE_BART | {"vocab_size": len(tokenizer), "num_labels": 4}
    model = tiny_model(getattr(tfm_zoo, f"TfmEncoderDecoder{head}"), **fields)
    for folder, saved in ((tmp_path / "zoo", model), (tmp_path / "native", tfm_zoo.to_official(model))):
        saved.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    options = {"top_k": None} if task == "text-classification" else {}
    ours, theirs = (
        pipeline(task, model=str(tmp_path / name), batch_size=2, device="cpu", **trust)(SENTENCES, **options)
        for name, trust in (("zoo", {"trust_remote_code": True}), ("native", {}))
    )
    assert_close(ours, theirs)


def test_answers():
    """The spans that question answering finds in a padded batch, padding and all left to compete."""
    tokenizer = make_tokenizer()
    model = tiny_model(tfm_zoo.TfmBertForQuestionAnswering, vocab_size=len(tokenizer))
    batch = tokenizer([QUESTION] * len(SENTENCES), SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        ours, theirs = model(**batch), tfm_zoo.to_official(model)(**batch)
    real = batch["attention_mask"].bool()
    for name in ("start_logits", "end_logits"):
        torch.testing.assert_close(ours[name][real], theirs[name][real], rtol=1e-5, atol=1e-5)
        assert ours[name].argmax(-1).equal(theirs[name].masked_fill(~real, -torch.inf).argmax(-1))


def test_sentence_transformer(tmp_path):
    model, tokenizer = tiny_model(tfm_zoo.TfmBertModel), make_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    lengths = batch["attention_mask"].sum(1)
    means = [row[:length].mean(0) for row, length in zip(states, lengths, strict=True)]
    torch.testing.assert_close(encoder.encode(SENTENCES, convert_to_tensor=True), torch.stack(means))


@pytest.mark.parametrize("name", ["NomicBertModel", "ModernBertModel", "MPNetModel"])
def test_sentence_transformer_of_a_converted_model(name, tmp_path):
    """It embeds and learns as the official model does."""
    official, tokenizer = build_tiny(BY_NAME[name]), make_tokenizer()
    official.save_pretrained(tmp_path / "official")
    tfm_zoo.from_official(tmp_path / "official").save_pretrained(tmp_path / "zoo")
    embedded, losses = [], []
    for folder in (tmp_path / "official", tmp_path / "zoo"):
        tokenizer.save_pretrained(folder)
        encoder = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True)
        embedded.append(encoder.encode(SENTENCES, convert_to_tensor=True))
        ranking = MultipleNegativesRankingLoss(encoder.train())
        optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
        for _ in range(3):
            loss = ranking([encoder.tokenize(texts) for texts in (SENTENCES, SENTENCES[::-1])], None)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    torch.testing.assert_close(*embedded, rtol=1e-5, atol=1e-5)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def convert(source: Path, out: Path, *options: str) -> None:
    result = CliRunner().invoke(app, ["convert", str(source), str(out), *options])
    assert result.exit_code == 0, result.output


#: how a folder loads: with the zoo's classes, and with its own code, as where there is no zoo
LOADS = pytest.mark.parametrize("by", ["zoo", "own code"])


def loaded(kind: type, folder: Path, by: str) -> SentenceTransformer | CrossEncoder:
    with pytest.MonkeyPatch.context() as patch:
        for config in FAMILIES.values() if by == "own code" else ():
            patch.delitem(CONFIG_MAPPING._extra_content, config.model_type)
        model = kind(str(folder), device="cpu", trust_remote_code=True)
    assert type(model[0].auto_model).__module__.startswith({"zoo": "tfm_zoo", "own code": "transformers_modules"}[by])
    return model


def official_folder(folder: Path, name: str, **fields) -> Path:
    build_tiny(BY_NAME[name], **fields).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@LOADS
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "LlamaForCausalLM", "T5EncoderModel"])
def test_sentence_transformer_without_modules(name, by, tmp_path):
    """It pools the mean or the last token, by the official name."""
    official, zoo = official_folder(tmp_path / "official", name), tmp_path / "zoo"
    convert(official, zoo)
    ours, theirs = loaded(SentenceTransformer, zoo, by), SentenceTransformer(str(official), device="cpu")
    torch.testing.assert_close(*(each.encode(SENTENCES, convert_to_tensor=True) for each in (ours, theirs)))


@LOADS
@pytest.mark.parametrize(
    "name", ["T5ForConditionalGeneration", "UMT5Model", "MarianModel", "M2M100Model", "PegasusModel", "BlenderbotModel"]
)
def test_sentence_transformer_of_an_encoder(name, by, tmp_path):
    """sentence-transformers reads the encoder alone of these. (Of whole official models, it starts all but T5's kind at
    random.)"""
    module = Transformer(str(official_folder(tmp_path / "whole", name)), model_kwargs={"device_map": "cpu"})
    theirs = SentenceTransformer(modules=[module, Pooling(module.get_embedding_dimension())], device="cpu")
    theirs.save(str(tmp_path / "official"))
    convert(tmp_path / "official", tmp_path / "zoo")
    ours = loaded(SentenceTransformer, tmp_path / "zoo", by)
    torch.testing.assert_close(*(each.encode(SENTENCES, convert_to_tensor=True) for each in (ours, theirs)))
    convert(tmp_path / "whole", tmp_path / "whole zoo")
    ours = loaded(SentenceTransformer, tmp_path / "whole zoo", by)
    if by == "zoo":  # which tells it
        ids = torch.arange(5, 12)[None]
        states = (build_tiny(BY_NAME[name]).get_encoder()(ids), ours[0].auto_model(ids))
        torch.testing.assert_close(*(each.last_hidden_state for each in states))
    else:
        with pytest.raises(ValueError, match="convert with --head TfmEncoderDecoderEncoder"):
            ours.encode(SENTENCES)
    (tmp_path / "whole" / "modules.json").write_bytes((tmp_path / "official" / "modules.json").read_bytes())
    convert(tmp_path / "whole", tmp_path / "zoo", "--overwrite")
    assert json.loads((tmp_path / "zoo" / "config.json").read_text())["architectures"] == ["TfmEncoderDecoderEncoder"]


@LOADS
@pytest.mark.parametrize(
    "field",
    [
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    ],
)
def test_cross_encoder_of_a_converted_model(field, by, tmp_path):
    """Its activation stands in `config.json`."""
    official = official_folder(tmp_path / "official", "BertForSequenceClassification", labels=1, **field)
    convert(official, tmp_path / "zoo")
    ours, theirs = loaded(CrossEncoder, tmp_path / "zoo", by), CrossEncoder(str(official), device="cpu")
    pairs = list(zip(SENTENCES, SENTENCES[::-1], strict=True))
    torch.testing.assert_close(*(torch.tensor(each.predict(pairs)) for each in (ours, theirs)))


def test_dense_heads_of_a_sentence_transformer(tmp_path):
    """EmbeddingGemma: what stands behind the model is sentence-transformers' own, and comes along."""
    official, tokenizer = build_tiny(BY_NAME["embedding_gemma-Gemma3TextModel"]), make_tokenizer()
    official.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    transformer = Transformer(str(tmp_path / "model"), model_kwargs={"device_map": "cpu"})
    dense = Dense(32, 48, bias=False), Dense(48, 16, bias=False)
    whole = SentenceTransformer(modules=[transformer, Pooling(32), *dense, Normalize()], device="cpu")
    whole.save(str(tmp_path / "official"))
    convert(tmp_path / "official", tmp_path / "zoo")
    ours = SentenceTransformer(str(tmp_path / "zoo"), device="cpu", trust_remote_code=True)
    assert ours[0].auto_model.config.model_type == "tfm_bert" and len(ours) == 5
    torch.testing.assert_close(*(each.encode(SENTENCES, convert_to_tensor=True) for each in (ours, whole)))
