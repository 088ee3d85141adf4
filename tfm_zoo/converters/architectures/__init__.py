"""Every official architecture that the zoo converts: a file for those that share their code."""

from ..architecture import Architecture
from .albert import ALBERT
from .alibi import BLOOM, MPT
from .alibi_encoders import JINA_V2, MOSAIC_BERT
from .bart import BART, BLENDERBOT, BLENDERBOT_SMALL, FSMT, M2M100, MARIAN, MBART, MVP, PEGASUS, PLBART
from .bert import BERT, CAMEMBERT, DISTILBERT, ROBERTA, XLM_ROBERTA, XLM_ROBERTA_XL
from .bert_relatives import BERT_GENERATION, DATA2VEC_TEXT, ERNIE, MEGATRON_BERT, ROBERTA_PRELAYERNORM
from .deberta import DEBERTA, DEBERTA_ABSOLUTE, DEBERTA_V2
from .electra import ELECTRA
from .eleuther import CODEGEN, GPT_NEOX, GPTJ
from .esm import ESM
from .eurobert import EUROBERT
from .experts import GRANITE_MOE, MIXTRAL, OLMOE, QWEN2_MOE, QWEN3_MOE
from .falcon import FALCON
from .gemma import EMBEDDING_GEMMA, GEMMA, GEMMA2, GEMMA3, VAULT_GEMMA
from .gpt import GPT2, OPENAI_GPT
from .granite import GRANITE
from .llama import LLAMA, MISTRAL, QWEN2, QWEN3
from .llama_relatives import (
    APERTUS,
    ARCEE,
    COHERE,
    COHERE2,
    ERNIE4_5,
    EXAONE4,
    GLM,
    GLM4,
    HELIUM,
    HUNYUAN,
    JAIS2,
    MINISTRAL3,
    NANOCHAT,
    NEMOTRON,
    PERSIMMON,
    SEED_OSS,
    STABLELM,
)
from .modernbert import MODERNBERT, MODERNBERT_DECODER
from .mpnet import MPNET
from .nomic_bert import GTE, JINA_V3, NOMIC_BERT
from .older import BIOGPT, GPT_NEO, XGLM
from .olmo import OLMO1, OLMO2, OLMO3
from .opt import OPT
from .phi import PHI, PHI3
from .roformer import ROFORMER
from .smollm import SMOLLM3
from .starcoder import GPT_BIGCODE, STARCODER2
from .t5 import MT5, T5, UMT5
from .text_towers import CLIP_TEXT, SIGLIP2_TEXT, SIGLIP_TEXT
from .torch_nn import TORCH_DECODER, TORCH_ENCODER, TORCH_TRANSFORMER

#: the tables by `model_type`, or a variant's name. `official_for` looks for the nearest to a zoo model that never was
#: official; of those that are equally near, it takes the first.
ARCHITECTURES: dict[str, Architecture] = {
    architecture.model_type: architecture
    for architecture in (
        *(BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, XLM_ROBERTA_XL, DISTILBERT, ELECTRA, ALBERT),
        *(MPNET, MODERNBERT, NOMIC_BERT, GTE, JINA_V3, EUROBERT, EMBEDDING_GEMMA, TORCH_ENCODER),
        *(MOSAIC_BERT, JINA_V2),
        *(MEGATRON_BERT, ROBERTA_PRELAYERNORM, DATA2VEC_TEXT, ERNIE, BERT_GENERATION, ROFORMER, ESM),
        *(DEBERTA_V2, DEBERTA, DEBERTA_ABSOLUTE, CLIP_TEXT, SIGLIP_TEXT, SIGLIP2_TEXT),
        *(GPT2, OPENAI_GPT, LLAMA, MISTRAL, QWEN2, QWEN3, SMOLLM3, OLMO2, OLMO3, GEMMA, GEMMA2, GEMMA3, GRANITE),
        *(PHI, PHI3, GPT_BIGCODE, STARCODER2, GPT_NEOX, GPTJ, OPT, FALCON, BLOOM, MPT, MIXTRAL, QWEN2_MOE, QWEN3_MOE),
        *(SEED_OSS, ARCEE, JAIS2, HELIUM, ERNIE4_5, GLM, GLM4, STABLELM, COHERE, COHERE2, EXAONE4, PERSIMMON),
        *(NEMOTRON, APERTUS, HUNYUAN, NANOCHAT, MINISTRAL3, MODERNBERT_DECODER),
        *(VAULT_GEMMA, GPT_NEO, BIOGPT, XGLM, CODEGEN, OLMO1, OLMOE, GRANITE_MOE),
        *(MARIAN, BART, MBART, PLBART, MVP, FSMT, M2M100, PEGASUS, BLENDERBOT, BLENDERBOT_SMALL),
        *(T5, MT5, UMT5, TORCH_DECODER, TORCH_TRANSFORMER),
    )
}
