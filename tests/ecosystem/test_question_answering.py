"""The pipeline that answers questions, which transformers 5 has removed, finds what a search of every span finds."""

from collections import Counter

import pytest
import torch
from tokenizers.models import WordPiece
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

import tfm_zoo

from ..tiny import tiny_model
from ..words import SENTENCES, SPECIAL, WORDS, make_tokenizer
from .test_pipelines import QUESTION, assert_close

CONTEXT = " and ".join(SENTENCES)
EXAMPLES = [{"question": QUESTION, "context": sentence} for sentence in (CONTEXT, *SENTENCES, "bad film bad")]
SHORT = {"max_seq_len": 14, "doc_stride": 3}


@pytest.fixture(scope="module")
def zoo() -> PreTrainedModel:
    return tiny_model(tfm_zoo.TfmBertForQuestionAnswering, vocab_size=len(make_tokenizer()), initializer_range=0.5)


def make_pipeline(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None, **options):
    return tfm_zoo.pipeline(
        "question-answering", model, tokenizer=tokenizer or make_tokenizer(), device="cpu", **options
    )


def python_tokenizer(folder) -> BertTokenizerLegacy:
    """The same words in a tokenizer of the other kind."""
    (folder / "vocab.txt").write_text("\n".join(f"{SPECIAL} {WORDS}".split()))
    return BertTokenizerLegacy(folder / "vocab.txt", model_max_length=24)


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


@pytest.mark.parametrize(
    ("kind", "side", "batch_size"), [("rust", "right", 1), ("rust", "left", 3), ("python", "right", 3)]
)
def test_every_span(zoo, kind, side, batch_size, tmp_path):
    """Long and short contexts, in windows that overlap, one by one and in padded batches."""
    tokenizer = make_tokenizer() if kind == "rust" else python_tokenizer(tmp_path)
    tokenizer.padding_side = side
    answer = make_pipeline(zoo, tokenizer, batch_size=batch_size, max_answer_len=4, **SHORT)
    results = answer(EXAMPLES, top_k=1000, handle_impossible_answer=True)
    for example, answers in zip(EXAMPLES, results, strict=True):
        scores, least = every_span(zoo, example["context"], side == "left")
        assert {each["answer"]: each["score"] for each in answers} == pytest.approx(scores | {"": least}, rel=1e-4)
        assert [each["score"] for each in answers] == sorted((each["score"] for each in answers), reverse=True)
        for each in answers:
            assert example["context"][each["start"] : each["end"]] == each["answer"]


def test_what_a_call_takes(zoo):
    """Every form that transformers 4 took, and what it returned."""
    answer = make_pipeline(zoo)
    first, second = EXAMPLES[1:3]
    expected = [answer(question=QUESTION, context=each["context"]) for each in (first, second)]
    assert expected[0].keys() == {"score", "start", "end", "answer"} and expected[0] != expected[1]
    for forms in (
        answer([first, second]),
        answer(first, second),
        answer(data=[first, second]),
        answer(question=[QUESTION, QUESTION], context=[first["context"], second["context"]]),
        answer(question=QUESTION, context=[first["context"], second["context"]]),
        list(answer(example for example in (first, second))),
        [answer([each | {"id": 7, "answers": []}]) for each in (first, second)],
        [answer(QUESTION, each["context"]) for each in (first, second)],
    ):
        assert_close(forms, expected)
    assert len(answer(first, top_k=3)) == 3
    assert answer([]) == []
    nothing = answer(question=QUESTION, context=" ")
    assert nothing == {"score": 0.0, "start": 0, "end": 0, "answer": ""}


def test_words_and_tokens(zoo):
    """An answer ends with a word, unless a caller wants tokens."""
    tokenizer = make_tokenizer()
    pieces = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "film": 4, "##good": 5, "who": 6}
    tokenizer.backend_tokenizer.model = WordPiece(pieces, unk_token="[UNK]")
    example = {"question": "who", "context": "filmgood filmgood"}
    answer = make_pipeline(zoo, tokenizer, top_k=20)
    assert {each["answer"] for each in answer(example)} == {"filmgood", "filmgood filmgood"}
    assert {each["answer"] for each in answer(example, align_to_words=False)} == {
        *("film", "good", "filmgood", "good film", "good filmgood", "filmgood film", "filmgood filmgood")
    }


def test_a_long_question_is_cut(zoo, tmp_path):
    expected = make_pipeline(zoo)(question=QUESTION, context=SENTENCES[0])
    long = {"question": f"{QUESTION} and the dull story", "context": SENTENCES[0]}
    for tokenizer in (make_tokenizer(), python_tokenizer(tmp_path)):
        assert_close(make_pipeline(zoo, tokenizer)(**long, max_question_len=4), expected)


EXAMPLE = {"data": EXAMPLES[0]}
REFUSED = [
    ({"question": "who"}, "context=None"),
    ({"question": "who", "context": ""}, "context=''"),
    ({"data": [{"question": "who"}]}, "context=None"),
    ({"data": "who"}, "question=None in 'who'"),
    ({"question": ["who"] * 2, "context": ["a film"] * 3}, "2 questions do not go with 3 contexts"),
    (EXAMPLE | {"top_k": 0}, "top_k=0: at least 1"),
    (EXAMPLE | {"max_answer_len": 0}, "max_answer_len=0: at least 1"),
    (EXAMPLE | {"doc_strid": 2}, "takes no doc_strid"),
    (EXAMPLE | {"doc_stride": 30, "max_seq_len": 20}, "doc_stride=30 is not a number of tokens"),
    (EXAMPLE | {"max_seq_len": 7}, "max_seq_len=7 leaves no room"),
    (EXAMPLE | {"max_question_len": 0}, "max_question_len=0: at least 1"),
    (EXAMPLE | {"handle_impossible_answer": True}, "a tokenizer with a CLS token"),
]


@pytest.mark.parametrize(("arguments", "complaint"), REFUSED)
def test_refusals(zoo, arguments, complaint):
    tokenizer = make_tokenizer()
    if "handle_impossible_answer" in arguments:
        tokenizer.cls_token = None
    with pytest.raises(ValueError, match=complaint):
        make_pipeline(zoo, tokenizer)(**arguments)
