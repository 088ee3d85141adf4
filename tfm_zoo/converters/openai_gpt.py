"""OpenAI GPT, the first one (Radford et al. 2018)."""

from ..models import modeling_tfm_gpt as zoo
from .architecture import Architecture, Head, Reading
from .gpt2 import BLOCK, CLASSIFIER_DROPOUT, FIELDS, FREE, IGNORED, LANGUAGE_MODEL, READ_BY, SEQUENCE_CLASSIFIER
from .rules import Rename

#: the native class has activations of its own, under names that elsewhere mean others
ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}
OFFICIAL_ACTIVATIONS = {act: name for name, act in reversed(ACTIVATIONS.items())}

OPENAI_GPT = Architecture(
    model_type="openai-gpt",
    title="OpenAI GPT",
    prefix="transformer",
    fields=FIELDS,
    readings={
        "hidden_act": Reading(
            lambda fields: ACTIVATIONS[fields.get("afn", "gelu")],
            lambda act: {"afn": OFFICIAL_ACTIVATIONS.get(act, act)},
        ),
        "classifier_dropout": CLASSIFIER_DROPOUT,
    },
    constants={
        "norm_position": "post",
        "intermediate_size": lambda fields: 4 * fields["hidden_size"],
        "token_types_as_tokens": True,
        "scaled_residual_init": False,
    },
    required={"afn": ACTIVATIONS.__contains__},
    body=(
        Rename("tokens_embed", "embeddings.embed_tokens"),
        Rename("positions_embed", "embeddings.embed_positions"),
        *BLOCK,
    ),
    heads=(
        Head("OpenAIGPTModel", zoo.TfmGPTModel),
        Head("OpenAIGPTLMHeadModel", zoo.TfmGPTForCausalLM, (LANGUAGE_MODEL,)),
        Head("OpenAIGPTForSequenceClassification", zoo.TfmGPTForSequenceClassification, (SEQUENCE_CLASSIFIER,)),
    ),
    ignored=IGNORED,
    read_by=READ_BY,
    free=FREE,
    tokenizer="OpenAIGPTTokenizer",
)
