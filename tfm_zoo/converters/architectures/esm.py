"""ESM-1b and ESM-2 (Rives et al. 2021; Lin et al. 2023): protein language models, pre-norm encoders."""

from typing import Any

from ..architecture import Architecture, Head
from ..config_rules import Computed, Fields, amended, choice, constants, ignored, only
from ..tensor_rules import Frequencies, Kept, NotConverted, Rename, When
from .bert import CLASSIFIER, ENCODER, FIELDS, ROBERTA_CLASSIFIER, ROBERTA_MASKED_LM, TENSORS

LAYER = "encoder.layer.{i}"
POOLER = Rename("esm.pooler.dense", "model.pooler.dense")


def rotation(official: Fields) -> dict[str, Any] | None:
    if official.get("position_embedding_type") != "rotary":
        return None
    return {"rope_type": "default", "rope_theta": official.get("rope_theta", 10000.0)}


def has_absolute_positions(official: Fields) -> bool:
    return official.get("position_embedding_type", "absolute") == "absolute"


def dropped_token_id(official: Fields) -> int | None:
    return official.get("mask_token_id") if official.get("token_dropout") else None


def masks(index: int | None) -> dict[str, Any]:
    return {"token_dropout": index is not None} | ({} if index is None else {"mask_token_id": index})


def has_table(config) -> bool:
    return config.position_embedding_type == "learned"


#: The official model reads `inputs_embeds` as what its embeddings have made; the zoo reads them as tokens.
ESM = Architecture(
    model_type="esm",
    title="ESM-2",
    prefix="esm",
    config=amended(
        FIELDS,
        *choice(
            "position_embedding_type",
            "position_embedding_type",
            {"absolute": "learned", "rotary": "rotary"},
            "absolute",
        ),
        Computed("position_ids_from_padding", has_absolute_positions, lambda value: {}),
        Computed(
            "rope_parameters",
            rotation,
            lambda own: {"rope_theta": own["rope_theta"]} if own and "rope_theta" in own else {},
        ),
        Computed(
            "embedding_norm",
            lambda official: bool(official.get("emb_layer_norm_before")),
            lambda value: {"emb_layer_norm_before": value},
        ),
        Computed("dropped_token_id", dropped_token_id, masks),
        *constants(
            norm_position="pre", type_vocab_size=0, embedding_dropout=0.0, hidden_act="gelu", lm_head_act="gelu"
        ),
        *constants(classifier_dropout=None, pooler_dropout=lambda zoo: zoo["hidden_dropout"]),
        *only(is_folding_model=False),
        *ignored("esmfold_config", "vocab_list"),
        *ENCODER,
    ),
    tensors=(
        Rename("embeddings.layer_norm", "embeddings.norm"),
        When("embeddings.position_embeddings", "embeddings.embed_positions", condition=has_table),
        NotConverted("embeddings.position_embeddings"),  # which files with rotary positions hold all the same
        Rename(f"{LAYER}.attention.LayerNorm", "layers.{i}.self_attn_norm"),
        Rename(f"{LAYER}.LayerNorm", "layers.{i}.mlp_norm"),
        Rename("encoder.emb_layer_norm_after", "norm"),
        Frequencies("rotary_embeddings.inv_freq"),
        # as earlier versions of transformers save them, and as 5.23 does, with a star
        *(Frequencies(f"{layer}.attention.self.rotary_embeddings.inv_freq") for layer in (LAYER, "encoder.layer.*")),
        Kept("contact_head.regression"),
        *TENSORS,
    ),
    heads=(
        Head("EsmModel", "TfmBertModel", (POOLER,), constants(pooler_dropout=0.0)),
        Head("EsmForMaskedLM", "TfmBertForMaskedLM", ROBERTA_MASKED_LM),
        Head("EsmForSequenceClassification", "TfmBertForSequenceClassification", ROBERTA_CLASSIFIER),
        Head("EsmForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
    ),
    tokenizer="EsmTokenizer",
)
