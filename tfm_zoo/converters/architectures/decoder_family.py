"""What all official decoders share: fields of their configurations, and their heads."""

from collections.abc import Iterable

from ..architecture import Head
from ..config_rules import Computed, Fields, Free, same
from ..tensor_rules import Rename


def token_classifier_dropout(official: Fields) -> float:
    """The dropout of official token classifiers, from the first of two fields that a configuration has."""
    rates = (official.get(name) for name in ("classifier_dropout", "hidden_dropout"))
    return next((rate for rate in rates if rate is not None), 0.1)


CONFIG = (
    *same("vocab_size", "initializer_range", "pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"),
    Computed("classifier_dropout", token_classifier_dropout),
    Free("token_types_as_tokens"),
)
#: the projections that official classes may hold in one piece
QKV = tuple(f"layers.{{i}}.self_attn.{part}_proj" for part in "qkv")
LM_HEAD = Rename("lm_head.weight", "lm_head.weight")
SCORE = Rename("score.weight", "score.weight")
QUESTION_ANSWERING = Rename("qa_outputs", "qa_outputs")
#: the heads that transformers writes for all its newer decoders
GENERIC = {
    "Model": (),
    "ForCausalLM": (LM_HEAD,),
    "ForSequenceClassification": (SCORE,),
    "ForTokenClassification": (SCORE, Rename("score.bias", "score.bias")),
    "ForQuestionAnswering": (QUESTION_ANSWERING,),
}


def generic_heads(name: str, kinds: Iterable[str | Head] = GENERIC) -> tuple[Head, ...]:
    """Those of these kinds, of official classes whose names begin with `name`; a `Head` stands for itself."""
    made = {kind: Head(f"{name}{kind}", f"TfmGPT{kind}", rules) for kind, rules in GENERIC.items()}
    return tuple(made.get(kind, kind) for kind in kinds)
