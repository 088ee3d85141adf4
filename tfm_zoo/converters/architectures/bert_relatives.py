"""Encoders that share the code of BERT or RoBERTa but for norms, embeddings or names.

Megatron-BERT (Shoeybi et al. 2019) and RoBERTa-PreLayerNorm (Wettig et al. 2022) are pre-norm; data2vec-text (Baevski
et al. 2022) has another name; ERNIE (Sun et al. 2019) may embed a task; BERT-generation (Rothe et al. 2019) has no
segments.
"""

from ..architecture import Architecture, Head
from ..config_rules import Computed, Fields, amended, constants
from ..tensor_rules import Rename
from .bert import CONFIG, ENCODER, FIELDS, TENSORS, bert, roberta

LAYER = "encoder.layer.{i}"


def tasks(official: Fields) -> int:
    count = official.get("task_type_vocab_size", 3)
    return count if official.get("use_task_id") else 0


def task_fields(count: int) -> dict[str, int]:
    return {"use_task_id": count > 0} | ({"task_type_vocab_size": count} if count else {})


ERNIE = bert(
    *("ernie", "ERNIE", "Ernie", "ernie"),
    (*CONFIG, Computed("task_type_vocab_size", tasks, task_fields)),
    (Rename("embeddings.task_type_embeddings", "embeddings.embed_token_types.tasks"), *TENSORS),
)

#: its norms stand before what reads them, with names of their own
MEGATRON_BERT = bert(
    *("megatron-bert", "Megatron-BERT", "MegatronBert", "bert"),
    amended(CONFIG, *constants(norm_position="pre", embedding_norm=False, classifier_dropout=None)),
    (
        Rename(f"{LAYER}.attention.ln", "layers.{i}.self_attn_norm"),
        Rename(f"{LAYER}.ln", "layers.{i}.mlp_norm"),
        Rename("encoder.ln", "norm"),
        *TENSORS,
    ),
)
ROBERTA_PRELAYERNORM = roberta(
    *("roberta-prelayernorm", "RoBERTa-PreLayerNorm", "RobertaPreLayerNorm"),
    amended(CONFIG, *constants(norm_position="pre")),
    (
        Rename(f"{LAYER}.attention.LayerNorm", "layers.{i}.self_attn_norm"),
        Rename(f"{LAYER}.intermediate.LayerNorm", "layers.{i}.mlp_norm"),
        Rename("LayerNorm", "norm"),
        *TENSORS,
    ),
    tokenizer="RobertaTokenizer",
    prefix="roberta_prelayernorm",
)
DATA2VEC_TEXT = roberta(
    *("data2vec-text", "data2vec-text", "Data2VecText"), tokenizer="RobertaTokenizer", prefix="data2vec_text"
)
#: Its decoder reads from left to right, and so belongs to another family: it is not converted.
BERT_GENERATION = Architecture(
    model_type="bert-generation",
    title="BERT-generation",
    prefix="encoder",
    config=amended(FIELDS, *constants(type_vocab_size=0, add_pooling_layer=False), *ENCODER),
    tensors=TENSORS,
    heads=(Head("BertGenerationEncoder", "TfmBertModel"),),
    tokenizer="BertGenerationTokenizer",
)
