"""GPT-2 (Radford et al. 2019)."""

from typing import Any

from ..models import modeling_tfm_gpt as zoo
from .architecture import Architecture, Head, Reading
from .rules import Rename, SplitTransposed, Transpose, same

#: configuration fields that are the same for GPT-2 and its predecessor
FIELDS = {
    **same(
        "vocab_size",
        "initializer_range",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "tie_word_embeddings",
    ),
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "resid_pdrop": "hidden_dropout",
    "embd_pdrop": "embedding_dropout",
    "attn_pdrop": "attention_dropout",
    "layer_norm_epsilon": "norm_eps",
}
#: of a block: nothing but the embeddings and the final norm is called otherwise in GPT-2 than in its predecessor
BLOCK = (
    Rename("h.{i}.ln_1", "layers.{i}.self_attn_norm"),
    SplitTransposed("h.{i}.attn.c_attn", tuple(f"layers.{{i}}.self_attn.{part}_proj" for part in "qkv")),
    Transpose("h.{i}.attn.c_proj", "layers.{i}.self_attn.o_proj"),
    Rename("h.{i}.ln_2", "layers.{i}.mlp_norm"),
    Transpose("h.{i}.mlp.c_fc", "layers.{i}.mlp.up_proj"),
    Transpose("h.{i}.mlp.c_proj", "layers.{i}.mlp.down_proj"),
)
#: the causal mask, and what a masked score was set to
IGNORED = (".attn.bias", ".attn.masked_bias")
LANGUAGE_MODEL = Rename("lm_head.weight", "lm_head.weight")
SEQUENCE_CLASSIFIER = Rename("score.weight", "score.weight")
QUESTION_ANSWERING = Rename("qa_outputs", "qa_outputs")
#: zoo fields that only some heads of the decoder family read, and those that no native class has
READ_BY = {"classifier_dropout": (zoo.TfmGPTForTokenClassification,)}
FREE = ("token_types_as_tokens", "use_cache")


def classifier_dropout(fields: dict[str, Any]) -> float:
    """What native classifiers of tokens drop, by fields that their configurations may have or not."""
    rates = (fields.get(name) for name in ("classifier_dropout", "hidden_dropout"))
    return next((rate for rate in rates if rate is not None), 0.1)


def intermediate_size(fields: dict[str, Any]) -> int:
    width = fields.get("n_inner")
    return 4 * fields["n_embd"] if width is None else width


CLASSIFIER_DROPOUT = Reading(classifier_dropout, lambda rate: {"classifier_dropout": rate})

GPT2 = Architecture(
    model_type="gpt2",
    title="GPT-2",
    prefix="transformer",
    fields={**FIELDS, **same("use_cache"), "activation_function": "hidden_act"},
    readings={
        "intermediate_size": Reading(intermediate_size, lambda width: {"n_inner": width}),
        "classifier_dropout": CLASSIFIER_DROPOUT,
    },
    constants={"token_types_as_tokens": True},
    required={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    body=(
        Rename("wte", "embeddings.embed_tokens"),
        Rename("wpe", "embeddings.embed_positions"),
        *BLOCK,
        Rename("ln_f", "norm"),
    ),
    heads=(
        Head("GPT2Model", zoo.TfmGPTModel),
        Head("GPT2LMHeadModel", zoo.TfmGPTForCausalLM, (LANGUAGE_MODEL,)),
        Head("GPT2ForSequenceClassification", zoo.TfmGPTForSequenceClassification, (SEQUENCE_CLASSIFIER,)),
        Head("GPT2ForTokenClassification", zoo.TfmGPTForTokenClassification, (Rename("classifier", "score"),)),
        Head("GPT2ForQuestionAnswering", zoo.TfmGPTForQuestionAnswering, (QUESTION_ANSWERING,)),
    ),
    ignored=IGNORED,
    read_by=READ_BY,
    free=FREE,
    tokenizer="GPT2Tokenizer",
)
