"""The pipelines that transformers 5 has removed: translators and summarisers write what `generate` writes of each text,
and answers to questions are what a search of every span finds."""

from collections import Counter
from typing import Any

import pytest
import torch
from tokenizers.models import WordPiece
from transformers import GenerationConfig, MBart50Tokenizer, PreTrainedModel
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

import tfm_zoo
from tfm_zoo.training.tokenizers import byte_level_bpe

from ..precision import assert_alike
from ..tiny import tiny_model
from ..words import SENTENCES, SPECIAL, WORDS, make_tokenizer
from .test_pipelines import LIKE_BART, TO_ROUNDING

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
    assert [*write(sentence for sentence in SENTENCES)] == [[each] for each in expected]
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


def test_a_stop_sequence_ends_the_text_wherever_tokens_end():
    tokenizer = byte_level_bpe(SENTENCES, 290)
    tokens = {"pad_token_id": 0, "eos_token_id": None, "decoder_start_token_id": 0, "vocab_size": len(tokenizer)}
    options = LENGTHS | {"suppress_tokens": [n for n in range(290) if not tokenizer.decode([n]).isalpha()]}
    write = make_pipeline("text2text-generation", tiny_model(HEAD, **LIKE_BART | tokens), tokenizer=tokenizer)
    text = write("good", num_beams=1, **options)[0]["generated_text"]
    stopped = write("good", num_beams=1, **options, stop_sequence=text[2:4])[0]["generated_text"]
    assert text.startswith(stopped) and text[2:4] in stopped and len(stopped) < len(text)


def test_lengths(zoo):
    """By default 256 new tokens by 4 beams; whatever a caller says comes first."""
    of = make_pipeline("translation", zoo).generate_arguments
    assert of({}) == {"max_new_tokens": 23, "num_beams": 4}  # it has 24 positions
    assert of({"max_length": 7, "num_beams": 2}) == {"max_length": 7, "num_beams": 2}
    completed = of({"generation_config": GenerationConfig(max_length=7)})["generation_config"]
    assert (completed.max_length, completed.num_beams) == (7, 4)


@pytest.mark.parametrize(
    ("task", "options", "prefix", "written"),
    [
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


@pytest.mark.parametrize("task", ["translation", "text-generation"])
def test_a_model_of_another_kind_is_refused(task, tmp_path):
    """In memory, where no tokenizer is given yet, or in a folder."""
    (model := tiny_model(tfm_zoo.TfmBertModel)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"^{task} needs .* not TfmBertModel"):
        tfm_zoo.pipeline(task, model)
    with pytest.raises(ValueError, match=f"^{task} needs a model of transformers or of the zoo, and not Linear"):
        tfm_zoo.pipeline(task, torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="a head for it, such as TfmBertForQuestionAnswering, and not TfmBertModel"):
        tfm_zoo.pipeline("question-answering", model)
    with pytest.raises(ValueError, match=rf"^{task} needs .*, and {tmp_path} holds no such model"):
        tfm_zoo.pipeline(task, str(tmp_path), tokenizer=make_tokenizer())
    for official_task in ("translation", "question-answering"):
        with pytest.raises(ValueError, match=f"^{official_task} needs .*, and not BertModel"):
            make_pipeline(official_task, tfm_zoo.to_official(model))(question="who", context="a film")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("translation_german", "'translation_german' is not a task"),
        ("sumarization", "sumarization is not a task. Did you mean 'summarization'"),
        ("translation", "translation takes texts, and not 7"),
        ("summarization", "summarization has no model by default: name one, as in pipeline.'summarization', 'a folder"),
    ],
)
def test_refusals(task, message, zoo):
    with pytest.raises((ValueError, KeyError), match=message):
        make_pipeline(task, None if "by default" in message else zoo, **LENGTHS)(["good", 7])


def test_what_is_said_of_lengths_and_languages(native, caplog):
    make_pipeline("summarization", native)("bad", min_length=10, max_length=9)
    make_pipeline("translation_fr_to_de", native)
    short, long, language = (record.message for record in caplog.records)
    assert short == "min_length=10 should be less than max_length=9."
    assert long == "A text of 6 tokens is to be summarised in up to max_length=9."
    assert language == "translation_fr_to_de is not among the translations that the model names: translation_en_to_de."


QUESTION, CONTEXT = "who saw a film", " and ".join(SENTENCES)
EXAMPLES = [{"question": QUESTION, "context": sentence} for sentence in (CONTEXT, *SENTENCES, "bad film bad")]
EXAMPLE, SHORT = {"data": EXAMPLES[0]}, {"max_seq_len": 14, "doc_stride": 3}


@pytest.fixture(scope="module")
def reader() -> PreTrainedModel:
    return tiny_model(tfm_zoo.TfmBertForQuestionAnswering, vocab_size=len(make_tokenizer()), initializer_range=0.5)


def every_span(model: PreTrainedModel, context: str, left: bool) -> tuple[dict[str, float], float]:
    """The score of every answer of up to four words, and of none. Each token of these texts is a word."""
    tokenizer, scores, least = make_tokenizer(), {}, 1.0
    words, question = context.split(), QUESTION.split()
    room, stride = SHORT["max_seq_len"] - len(question) - 3, SHORT["doc_stride"]
    for begin in range(0, max(len(words) - room, 0) + room - stride, room - stride):
        window = words[begin : begin + room]
        texts = (window, question) if left else (question, window)
        with torch.no_grad():
            output = model(**tokenizer(*map(" ".join, texts), return_tensors="pt"))
        offset = 1 if left else 2 + len(question)
        real = [0, *range(offset, offset + len(window))]
        starts, ends = (output[name][0, real].softmax(0) for name in ("start_logits", "end_logits"))
        least = min(least, float(starts[0] * ends[0]))
        of_window: Counter[str] = Counter()
        for first in range(len(window)):
            for last in range(first, min(first + 4, len(window))):
                of_window[" ".join(window[first : last + 1])] += float(starts[first + 1] * ends[last + 1])
        scores |= {text: max(score, scores.get(text, 0.0)) for text, score in of_window.items()}
    return scores, least


@pytest.mark.parametrize(("kind", "side"), [("rust", "left"), ("python", "right")])
def test_every_span(reader, kind, side, tmp_path):
    """Long and short contexts, in windows that overlap, in padded batches."""
    (words := tmp_path / "vocab.txt").write_text("\n".join(f"{SPECIAL} {WORDS}".split()))
    tokenizer = make_tokenizer() if kind == "rust" else BertTokenizerLegacy(words, model_max_length=24)
    tokenizer.padding_side = side
    options = SHORT | {"batch_size": 3, "max_answer_len": 4}
    answer = make_pipeline("question-answering", reader, tokenizer=tokenizer, **options)
    for example, answers in zip(EXAMPLES, answer(EXAMPLES, top_k=1000, handle_impossible_answer=True), strict=True):
        scores, least = every_span(reader, example["context"], side == "left")
        assert {each["answer"]: each["score"] for each in answers} == pytest.approx(scores | {"": least}, rel=1e-4)
        assert [each["score"] for each in answers] == sorted((each["score"] for each in answers), reverse=True)
        for each in answers:
            assert example["context"][each["start"] : each["end"]] == each["answer"]


def test_what_a_call_takes(reader):
    """Every form that transformers 4 took, and what it returned."""
    answer = make_pipeline("question-answering", reader)
    first, second = EXAMPLES[1:3]
    expected = [answer(question=QUESTION, context=each["context"]) for each in (first, second)]
    assert expected[0].keys() == {"score", "start", "end", "answer"} and expected[0] != expected[1]
    for forms in (
        answer([first, second]),
        answer(first, second),
        answer(data=[first, second]),
        answer(question=QUESTION, context=[first["context"], second["context"]]),
        list(answer(example for example in (first, second))),
        [answer([each | {"id": 7, "answers": []}]) for each in (first, second)],
        [answer(QUESTION, each["context"]) for each in (first, second)],
    ):
        assert_alike(forms, expected, **TO_ROUNDING)
    assert len(answer(first, top_k=3)) == 3 and answer([]) == []
    assert answer(question=QUESTION, context=" ") == {"score": 0.0, "start": 0, "end": 0, "answer": ""}
    long = first | {"question": f"{QUESTION} and the dull story"}
    assert_alike(answer(long, max_question_len=4), expected[0], **TO_ROUNDING)  # which cuts it


def test_words_and_tokens(reader):
    """An answer ends with a word, unless a caller wants tokens."""
    tokenizer = make_tokenizer()
    pieces = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "film": 4, "##good": 5, "who": 6}
    tokenizer.backend_tokenizer.model = WordPiece(pieces, unk_token="[UNK]")
    example = {"question": "who", "context": "filmgood filmgood"}
    answer = make_pipeline("question-answering", reader, tokenizer=tokenizer, top_k=20)
    assert {each["answer"] for each in answer(example)} == {"filmgood", "filmgood filmgood"}
    assert {each["answer"] for each in answer(example, align_to_words=False)} == {
        *("film", "good", "filmgood", "good film", "good filmgood", "filmgood film", "filmgood filmgood")
    }


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"question": "who", "context": ""}, "context=''"),
        ({"data": "who"}, "question=None in 'who'"),
        ({"question": ["who"] * 2, "context": ["a film"] * 3}, "2 questions do not go with 3 contexts"),
        (EXAMPLE | {"top_k": 0}, "top_k=0: at least 1"),
        (EXAMPLE | {"doc_strid": 2}, "takes no doc_strid"),
        (EXAMPLE | {"doc_stride": 30, "max_seq_len": 20}, "doc_stride=30 is not a number of tokens"),
        (EXAMPLE | {"max_seq_len": 7}, "max_seq_len=7 leaves no room"),
        (EXAMPLE | {"max_question_len": 0}, "max_question_len=0: at least 1"),
        (EXAMPLE | {"handle_impossible_answer": True}, "True needs a tokenizer with a CLS token, which stands for no"),
    ],
)
def test_refused_questions(reader, arguments, complaint):
    (answer := make_pipeline("question-answering", reader)).tokenizer.cls_token = None
    with pytest.raises(ValueError, match=complaint):
        answer(**arguments)
