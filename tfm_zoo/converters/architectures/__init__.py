"""Every official architecture that the zoo converts: a file for those that share their code."""

from ..architecture import Architecture
from .bart import BART, FSMT, MARIAN, MBART
from .bert import BERT, CAMEMBERT, DISTILBERT, ROBERTA, XLM_ROBERTA
from .gpt import GPT2, OPENAI_GPT
from .llama import LLAMA, MISTRAL, QWEN2
from .torch_nn import TORCH_ENCODER, TORCH_TRANSFORMER

#: the tables by `model_type`. A zoo model that never was official is exported to the first that can express it.
ARCHITECTURES: dict[str, Architecture] = {
    architecture.model_type: architecture
    for architecture in (
        *(BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT, TORCH_ENCODER),
        *(GPT2, OPENAI_GPT, LLAMA, MISTRAL, QWEN2),
        *(MARIAN, BART, MBART, FSMT, TORCH_TRANSFORMER),
    )
}
