"""The pipelines of encoder-decoders, which transformers 5 has removed, write what `generate` writes of each text."""

import copy
import re
from typing import Any

import pytest
import torch
import transformers
from transformers import GenerationConfig, MBart50Tokenizer, PreTrainedModel
from transformers.pipelines.pt_utils import KeyDataset

import tfm_zoo
from tfm_zoo.training.tokenizers import byte_level_bpe

from ..tiny import tiny_model
from ..words import SENTENCES, WORDS, make_tokenizer
from .test_pipelines import LIKE_BART, assert_close

HEAD = tfm_zoo.TfmEncoderDecoderForConditionalGeneration
LENGTHS = {"max_length": 9}
OPTIONS = LENGTHS | {"num_beams": 3}
#: as the configurations of published models: a prefix for a task, and how it is generated
TASK_PARAMETERS = {
    "summarization": {"prefix": "a long story ", "max_length": 5, "num_beams": 2},
    "translation_en_to_de": {"prefix": "the ", "max_length": 6, "num_beams": 1},
}


@pytest.fixture(scope="module")
def zoo() -> PreTrainedModel:
    return tiny_model(HEAD, **LIKE_BART | {"vocab_size": len(make_tokenizer()), "initializer_range": 0.4})


@pytest.fixture(scope="module")
def native(zoo) -> PreTrainedModel:
    """Its configuration has settings for tasks."""
    official = tfm_zoo.to_official(zoo)
    official.config.task_specific_params, official.config.prefix = TASK_PARAMETERS, "good "
    return official


def make_pipeline(task: str, model: PreTrainedModel, **options: Any):
    return tfm_zoo.pipeline(task, model, **{"tokenizer": make_tokenizer(), "device": "cpu"} | options)


def generated(model: PreTrainedModel, text: str, **options: Any) -> list[str]:
    """What `generate` makes of a text alone."""
    tokenizer = make_tokenizer()
    batch = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
    return tokenizer.batch_decode(model.generate(**batch, **options), skip_special_tokens=True)


@pytest.mark.parametrize(("kind", "side"), [("zoo", "right"), ("native", "left")])
def test_texts(kind, side, zoo):
    """One by one, in padded batches, several for each text."""
    model, tokenizer = zoo if kind == "zoo" else tfm_zoo.to_official(zoo), make_tokenizer()
    tokenizer.padding_side = side
    written = [generated(zoo, sentence, **OPTIONS, num_return_sequences=2) for sentence in SENTENCES]
    expected = [{"translation_text": best} for best, _ in written]
    write = make_pipeline("translation", model, tokenizer=tokenizer, **OPTIONS)
    assert write(SENTENCES) == write(SENTENCES, batch_size=3) == expected
    assert write(SENTENCES[0]) == expected[:1] and write([]) == []
    data = KeyDataset([{"text": sentence} for sentence in SENTENCES], "text")
    for rows in (write(sentence for sentence in SENTENCES), write(data, batch_size=2)):
        assert list(rows) == [[each] for each in expected]
    several = write(SENTENCES, num_return_sequences=2, batch_size=2)
    assert [[each["translation_text"] for each in of_text] for of_text in several] == written


def test_what_is_returned(zoo):
    (text,) = generated(zoo, SENTENCES[0], **OPTIONS)
    assert make_pipeline("summarization", zoo)(SENTENCES[0], **OPTIONS) == [{"summary_text": text}]
    write = make_pipeline("text2text-generation", zoo, **OPTIONS)
    assert write(SENTENCES[0]) == [{"generated_text": text}]
    (ids,), (both,) = (write(SENTENCES[0], return_tensors=True, **more) for more in ({}, {"return_text": True}))
    assert [*ids] == ["generated_token_ids"] and both["generated_text"] == text
    assert make_tokenizer().decode(ids["generated_token_ids"], skip_special_tokens=True) == text


def test_lengths(zoo, native):
    """By default 256 new tokens by 4 beams; whatever a caller or the model says comes first."""
    of = make_pipeline("translation", zoo).generate_arguments
    assert of({}) == {"max_new_tokens": 23, "num_beams": 4}  # it has 24 positions
    assert of({"max_length": 7, "num_beams": 2}) == {"max_length": 7, "num_beams": 2}
    given = GenerationConfig(max_length=7)
    completed = of({"generation_config": given})["generation_config"]
    assert (completed.max_length, completed.num_beams, given.num_beams == 4) == (7, 4, False)
    said = copy.deepcopy(native)
    said.generation_config.update(max_length=8, num_beams=3)
    assert make_pipeline("text2text-generation", said).generate_arguments({}) == {}


@pytest.mark.parametrize(
    ("task", "options", "prefix", "written"),
    [
        ("summarization", {}, "a long story", {"max_length": 5, "num_beams": 2}),
        ("summarization", {"max_new_tokens": 9}, "a long story", {"max_new_tokens": 9, "num_beams": 2}),
        ("translation_en_to_de", {}, "the", {"max_length": 6, "num_beams": 1}),
        ("translation", {}, "the", {"max_length": 6, "num_beams": 1}),  # it knows one
        ("text2text-generation", {"max_length": 6}, "good", {"max_length": 6, "num_beams": 4}),
    ],
)
def test_settings_of_a_task(task, options, prefix, written, native):
    """A converted model has kept those of the official one."""
    (expected,), read = generated(native, f"{prefix} bad", **written), make_tokenizer()(f"{prefix} bad")["input_ids"]
    for model in (native, tfm_zoo.from_official(native)):
        write = make_pipeline(task, model)
        assert write.preprocess("bad")["input_ids"].tolist() == [read]
        assert [*write("bad", **options)[0].values()] == [expected]


def test_languages():
    """A tokenizer of many languages marks that of the source; the target's begins the translation."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *(f"▁{word}" for word in WORDS.split())]
    tokenizer = MBart50Tokenizer(vocab=[(piece, -1.0) for piece in pieces])
    tokens = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "start_with_last_token": True}
    like_mbart = LIKE_BART | tokens | {"norm_position": "pre", "final_norm": True, "vocab_size": len(tokenizer)}
    model, german = tiny_model(HEAD, **like_mbart), tokenizer.convert_tokens_to_ids("de_DE")
    tokenizer.src_lang, options = "en_XX", {"max_length": 6, "return_tensors": True}
    batches, beams = [tokenizer(text, return_tensors="pt") for text in SENTENCES], {"max_length": 6, "num_beams": 4}
    expected = [model.generate(**batch, forced_bos_token_id=german, **beams)[0] for batch in batches]
    assert all(ids[1] == german for ids in expected)
    tokenizer.src_lang, named = "fr_XX", {"src_lang": "en_XX", "tgt_lang": "de_DE"}
    for task, languages in (("translation_en_XX_to_de_DE", {}), ("translation", named)):
        translate = make_pipeline(task, model, tokenizer=tokenizer)
        for found, ids in zip(translate(SENTENCES, batch_size=3, **options, **languages), expected, strict=True):
            assert found["translation_token_ids"][: len(ids)].equal(ids)
    with pytest.raises(ValueError, match="src_lang"):
        make_pipeline("translation", model, tokenizer=tokenizer)(SENTENCES)


def test_a_stop_sequence_ends_the_text_wherever_tokens_begin_and_end():
    tokenizer = byte_level_bpe(SENTENCES, 290)
    tokens = {"pad_token_id": 0, "eos_token_id": None, "decoder_start_token_id": 0, "vocab_size": len(tokenizer)}
    model = tiny_model(HEAD, **LIKE_BART | tokens)
    no_letters = [index for index in range(len(tokenizer)) if not tokenizer.decode([index]).isalpha()]
    options = LENGTHS | {"suppress_tokens": no_letters, "num_beams": 1}
    write = make_pipeline("text2text-generation", model, tokenizer=tokenizer, **options)
    text = write("good")[0]["generated_text"]
    stopped = write("good", stop_sequence=text[2:4])[0]["generated_text"]
    assert text.startswith(stopped) and text[2:4] in stopped and len(stopped) < len(text)


def test_a_folder_and_truncation(zoo, tmp_path):
    tokenizer = make_tokenizer()
    for saved in (zoo, tokenizer):
        saved.save_pretrained(tmp_path)
    write = tfm_zoo.pipeline("summarization", str(tmp_path), device="cpu", trust_remote_code=True, **LENGTHS)
    assert write(SENTENCES) == make_pipeline("summarization", zoo, **LENGTHS)(SENTENCES)
    long = " ".join(SENTENCES * 2)
    cut = tokenizer.decode(tokenizer(long, truncation=True)["input_ids"], skip_special_tokens=True)
    assert write(long, truncation=True) == write(cut)


def test_warnings(zoo, native, caplog):
    """Of lengths that do not suit each other or the text, and of a pair of languages that the model does not name."""
    caplog.set_level("WARNING", "tfm_zoo")
    make_pipeline("translation_en_to_de", native)
    assert not [record for record in caplog.records if record.name.startswith("tfm_zoo")]
    make_pipeline("translation_en_to_es", native)
    make_pipeline("summarization", zoo)("good", max_length=9, min_length=10)
    make_pipeline("translation", zoo)(SENTENCES[0], max_length=5)
    wanted = ("translation_en_to_es .* translation_en_to_de", "min_length=10 should be less than max_length=9")
    wanted += (
        "of 3 tokens is to be summarised in up to max_length=9",
        "of 9 .* to be translated in up to max_length=5",
    )
    assert all(re.search(said, caplog.text) for said in wanted)


def test_other_tasks_go_to_transformers():
    model, text = tiny_model(tfm_zoo.TfmBertForMaskedLM, vocab_size=len(make_tokenizer())), "the [MASK] was good"
    makers = (tfm_zoo.pipeline, transformers.pipeline)
    ours, theirs = (make("fill-mask", model, tokenizer=make_tokenizer(), device="cpu") for make in makers)
    assert type(ours) is type(theirs)
    assert_close(ours(text), theirs(text))


@pytest.mark.parametrize(
    ("task", "needed"),
    [
        ("translation", "an encoder-decoder with a language modelling head"),
        ("question-answering", "a model with a head for it, such as TfmBertForQuestionAnswering"),
        ("text-generation", "a model that AutoModelForCausalLM loads"),
        ("sentiment-analysis", "a model that AutoModelForSequenceClassification loads"),
    ],
)
def test_a_model_of_another_kind_is_refused(task, needed, tmp_path):
    """In memory, where no tokenizer is given yet, or in a folder."""
    model = tiny_model(tfm_zoo.TfmBertModel)
    with pytest.raises(ValueError, match=f"^{task} needs {needed}.* not TfmBertModel"):
        tfm_zoo.pipeline(task, model)
    with pytest.raises(ValueError, match=f"^{task} needs a model of transformers or of the zoo, and not Linear"):
        tfm_zoo.pipeline(task, torch.nn.Linear(2, 2))
    if task in ("translation", "text-generation"):
        model.save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=rf"^{task} needs {needed}.*, and {tmp_path} holds no such model: .*$"):
            tfm_zoo.pipeline(task, str(tmp_path), tokenizer=make_tokenizer())


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("translation_german", "'translation_german' is not a task"),
        ("no-task", "no-task"),
        ("sumarization", r"^.sumarization is not a task\. Did you mean 'summarization'"),
        ("translation", "translation takes texts, and not 7"),
    ],
)
def test_refusals(task, message, zoo):
    with pytest.raises((ValueError, KeyError), match=message):
        make_pipeline(task, zoo, **LENGTHS)(["good", 7])
    with pytest.raises(ValueError, match="summarization has no model by default: name one"):
        tfm_zoo.pipeline("summarization")
