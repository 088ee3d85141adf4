"""Pipelines and Sentence Transformers take zoo models as they take native ones."""

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import CONFIG_MAPPING, pipeline

import tfm_zoo
from tfm_zoo.families.auto_classes import FAMILIES

from ..command import tfm_zoo as command
from ..official_models import BY_NAME, build_tiny, official_folder
from ..precision import assert_alike
from ..tiny import tiny_model
from ..words import SENTENCES, make_tokenizer

#: what makes of the family a BART, which knows the ends of sentences by the tokenizer's
LIKE_BART = {
    **{"position_embedding_type": "learned", "position_offset": 2, "embedding_norm": True, "scale_embedding": False},
    **{"eos_token_id": 3, "decoder_start_token_id": 3},
}
BART = LIKE_BART | {"num_labels": 4}  # a native BART of two classes does not load again
TO_ROUNDING = {"rel": 1e-4, "abs": 1e-5}
MASKED, TOP = ["the film was [MASK]", "[MASK] story was dull and long"], {"top_k": None}


@pytest.mark.parametrize(
    ("task", "head", "texts", "options", "fields"),
    [
        ("text-classification", "TfmBertForSequenceClassification", SENTENCES, TOP, {}),
        ("token-classification", "TfmBertForTokenClassification", SENTENCES, {"aggregation_strategy": "simple"}, {}),
        ("fill-mask", "TfmBertForMaskedLM", MASKED, {}, {}),
        # Features are returned at padding too, where the zoo has none: one sentence at a time.
        ("feature-extraction", "TfmBertModel", SENTENCES, {"batch_size": 1}, {}),
        ("text-classification", "TfmEncoderDecoderForSequenceClassification", SENTENCES, TOP, BART),
        ("feature-extraction", "TfmEncoderDecoderModel", SENTENCES, {}, BART),
    ],
)
def test_pipeline(task, head, texts, options, fields, tmp_path):
    tokenizer, answers = make_tokenizer(), []
    model = tiny_model(getattr(tfm_zoo, head), vocab_size=len(tokenizer), **fields)
    for saved, make in ((model, tfm_zoo.pipeline), (tfm_zoo.to_official(model), pipeline)):
        folder = tmp_path / type(saved).__name__
        for each in (saved, tokenizer):
            each.save_pretrained(folder)
        write = make(task, str(folder), device="cpu", trust_remote_code=True)
        answers.append(write(texts, **{"batch_size": 2} | options))
    assert_alike(*answers, **TO_ROUNDING)


def convert(source: Path, out: Path) -> Path:
    command("convert", source, out)
    return out


def same(one: SentenceTransformer, other: SentenceTransformer) -> None:
    torch.testing.assert_close(*(each.encode(SENTENCES, convert_to_tensor=True) for each in (one, other)))


#: how a folder loads: with the zoo's classes, and with its own code, as where there is no zoo
LOADS = pytest.mark.parametrize("by", ["zoo", "own code"])


def loaded(kind: type, folder: Path, by: str) -> SentenceTransformer | CrossEncoder:
    with pytest.MonkeyPatch.context() as patch:
        for config in FAMILIES.values() if by == "own code" else ():
            patch.delitem(CONFIG_MAPPING._extra_content, config.model_type)
        model = kind(str(folder), device="cpu", trust_remote_code=True)
    assert type(model[0].auto_model).__module__.startswith({"zoo": "tfm_zoo", "own code": "transformers_modules"}[by])
    return model


@LOADS
@pytest.mark.parametrize("name", ["MPNetModel", "T5EncoderModel", "GPT2LMHeadModel", "LlamaForCausalLM"])
def test_sentence_transformer_without_modules(name, by, tmp_path):
    """It pools the mean or the last token, by the official name."""
    official = official_folder(tmp_path / "official", name)
    zoo = convert(official, tmp_path / "zoo")
    same(loaded(SentenceTransformer, zoo, by), SentenceTransformer(str(official), device="cpu", trust_remote_code=True))


@LOADS
@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "MarianModel"])
def test_sentence_transformer_of_an_encoder(name, by, tmp_path):
    """sentence-transformers reads the encoder alone of these, whose folder is converted as an encoder."""
    whole, official = official_folder(tmp_path / "whole", name), tmp_path / "official"
    module = Transformer(str(whole), model_kwargs={"device_map": "cpu"})
    theirs = SentenceTransformer(modules=[module, Pooling(module.get_embedding_dimension())], device="cpu")
    theirs.save(str(official))
    same(loaded(SentenceTransformer, convert(official, tmp_path / "zoo"), by), theirs)
    (whole / "modules.json").write_bytes((official / "modules.json").read_bytes())
    config = json.loads((convert(whole, tmp_path / "whole zoo") / "config.json").read_text())
    assert config["architectures"] == ["TfmEncoderDecoderEncoder"]


def test_the_encoder_of_a_whole_model_is_read_where_the_zoo_tells_it(tmp_path):
    zoo = convert(official_folder(tmp_path / "whole", "MarianModel"), tmp_path / "whole_zoo")
    encoder, ids = loaded(SentenceTransformer, zoo, "zoo")[0].auto_model, torch.arange(5, 12)[None]
    torch.testing.assert_close(encoder(ids)[0], build_tiny(BY_NAME["MarianModel"]).get_encoder()(ids)[0])
    with pytest.raises(ValueError, match="convert with --head TfmEncoderDecoderEncoder"):
        loaded(SentenceTransformer, zoo, "own code").encode(SENTENCES)


@LOADS
def test_cross_encoder_of_a_converted_model(by, tmp_path):
    """Its activation stands in `config.json`."""
    fields = {"labels": 1, "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    official = official_folder(tmp_path / "official", "BertForSequenceClassification", **fields)
    ours = loaded(CrossEncoder, convert(official, tmp_path / "zoo"), by)
    pairs, theirs = list(zip(SENTENCES, SENTENCES[::-1], strict=True)), CrossEncoder(str(official), device="cpu")
    torch.testing.assert_close(*(torch.tensor(each.predict(pairs)) for each in (ours, theirs)))


def test_dense_heads_of_a_sentence_transformer(tmp_path):
    """EmbeddingGemma: what stands behind the model is sentence-transformers' own, and comes along."""
    model = official_folder(tmp_path / "model", "embedding_gemma-Gemma3TextModel")
    transformer = Transformer(str(model), model_kwargs={"device_map": "cpu"})
    dense = Dense(32, 48, bias=False), Dense(48, 16, bias=False)
    whole = SentenceTransformer(modules=[transformer, Pooling(32), *dense, Normalize()], device="cpu")
    whole.save(str(tmp_path / "official"))
    ours = loaded(SentenceTransformer, convert(tmp_path / "official", tmp_path / "zoo"), "zoo")
    assert ours[0].auto_model.config.model_type == "tfm_bert" and len(ours) == 5
    same(ours, whole)
