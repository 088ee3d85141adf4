"""BERT (Devlin et al. 2018) and the encoders that share its code: RoBERTa, XLM-R and its XL, CamemBERT; DistilBERT."""

from ..architecture import Architecture, Head
from ..config_rules import (
    Computed,
    ConfigRule,
    Field,
    Fields,
    Following,
    LabelCount,
    Requires,
    amended,
    constants,
    ignored,
    only,
    same,
)
from ..tensor_rules import NotConverted, Rename, TensorRule


def classifier_rate(official: Fields) -> float:
    """The dropout of official classifiers."""
    rate = official.get("classifier_dropout")
    return official["hidden_dropout_prob"] if rate is None else rate


FIELDS = (
    *same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *same("max_position_embeddings", "type_vocab_size", "initializer_range"),
    *same("pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"),
    Field("hidden_dropout_prob", "hidden_dropout"),
    Field("attention_probs_dropout_prob", "attention_dropout"),
    Field("layer_norm_eps", "norm_eps"),
    Following("classifier_dropout", classifier_rate),
)
HAS_SEGMENTS = Requires("type_vocab_size", lambda size: size > 0, "at least 1")
AS_DECODER = "False: as a decoder, such as that of sentence-transformers' TSDAE, leave it to the official class"
ENCODER = tuple(Requires(name, lambda value: not value, AS_DECODER) for name in ("is_decoder", "add_cross_attention"))
CONFIG = (*FIELDS, *only(position_embedding_type="absolute"), *ENCODER, HAS_SEGMENTS)
EMBEDDINGS = (
    Rename("embeddings.word_embeddings", "embeddings.embed_tokens"),
    Rename("embeddings.position_embeddings", "embeddings.embed_positions"),
    Rename("embeddings.token_type_embeddings", "embeddings.embed_token_types"),
    Rename("embeddings.LayerNorm", "embeddings.norm"),
)
#: what old versions saved
BUFFERS = (NotConverted("embeddings.position_ids"), NotConverted("embeddings.token_type_ids"))
TENSORS = (
    *EMBEDDINGS,
    *BUFFERS,
    Rename("encoder.layer.{i}.attention.self.query", "layers.{i}.self_attn.q_proj"),
    Rename("encoder.layer.{i}.attention.self.key", "layers.{i}.self_attn.k_proj"),
    Rename("encoder.layer.{i}.attention.self.value", "layers.{i}.self_attn.v_proj"),
    Rename("encoder.layer.{i}.attention.output.dense", "layers.{i}.self_attn.o_proj"),
    Rename("encoder.layer.{i}.attention.output.LayerNorm", "layers.{i}.self_attn_norm"),
    Rename("encoder.layer.{i}.intermediate.dense", "layers.{i}.mlp.up_proj"),
    Rename("encoder.layer.{i}.output.dense", "layers.{i}.mlp.down_proj"),
    Rename("encoder.layer.{i}.output.LayerNorm", "layers.{i}.mlp_norm"),
)
CLASSIFIER = Rename("classifier", "classifier")
SEQUENCE_CLASSIFIER = Rename("classifier", "classifier.out_proj")
QUESTION_ANSWERING = Rename("qa_outputs", "qa_outputs")


def masked_lm(head: str, dense: str, norm: str) -> tuple[TensorRule, ...]:
    """The head of masked language models, in the official module `head`."""
    return (
        Rename(f"{head}.{dense}", "head.dense"),
        Rename(f"{head}.{norm}", "head.norm"),
        Rename(f"{head}.decoder.weight", "lm_head.weight"),
        Rename(f"{head}.bias", "lm_head.bias", also=f"{head}.decoder.bias"),
    )


NEXT_SENTENCE = Rename("cls.seq_relationship", "seq_relationship")
BERT_MASKED_LM = masked_lm("cls.predictions", "transform.dense", "transform.LayerNorm")


def bert(
    model_type: str,
    title: str,
    name: str,
    prefix: str,
    config: tuple[ConfigRule, ...] = CONFIG,
    tensors: tuple[TensorRule, ...] = TENSORS,
) -> Architecture:
    """The table of BERT, for official classes whose names begin with `name`."""
    pooler = Rename(f"{prefix}.pooler.dense", "model.pooler.dense")
    text_classifier = (Rename(f"{prefix}.pooler.dense", "classifier.dense"), SEQUENCE_CLASSIFIER)
    return Architecture(
        model_type=model_type,
        title=title,
        prefix=prefix,
        config=config,
        tensors=tensors,
        heads=(
            Head(f"{name}Model", "TfmBertModel", (pooler,)),
            Head(f"{name}ForPreTraining", "TfmBertForPreTraining", (pooler, *BERT_MASKED_LM, NEXT_SENTENCE)),
            Head(f"{name}ForMaskedLM", "TfmBertForMaskedLM", BERT_MASKED_LM),
            Head(f"{name}ForNextSentencePrediction", "TfmBertForNextSentencePrediction", (pooler, NEXT_SENTENCE)),
            Head(f"{name}ForSequenceClassification", "TfmBertForSequenceClassification", text_classifier),
            Head(f"{name}ForMultipleChoice", "TfmBertForMultipleChoice", (pooler, CLASSIFIER)),
            Head(f"{name}ForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
            Head(f"{name}ForQuestionAnswering", "TfmBertForQuestionAnswering", (QUESTION_ANSWERING,), (LabelCount(2),)),
        ),
        tokenizer="BertTokenizer",
    )


BERT = bert("bert", "BERT", "Bert", "bert")

ROBERTA_MASKED_LM = masked_lm("lm_head", "dense", "layer_norm")
ROBERTA_CLASSIFIER = tuple(Rename(f"classifier.{name}", f"classifier.{name}") for name in ("dense", "out_proj"))


def classifier_dropout(zoo: Fields) -> float:
    """The dropout of the zoo's classifiers."""
    return zoo["hidden_dropout"] if zoo["classifier_dropout"] is None else zoo["classifier_dropout"]


def roberta_choice_dropout(zoo: Fields) -> float | None:
    """The dropout of hidden states, for multiple choice. In XLM-R-XL, attention's output has the same dropout; in the
    others it is `hidden_dropout`, which the zoo reads in place of `None`."""
    return zoo.get("attention_output_dropout")


def roberta(
    model_type: str,
    title: str,
    name: str,
    config: tuple[ConfigRule, ...] = CONFIG,
    tensors: tuple[TensorRule, ...] = TENSORS,
    tokenizer: str | None = None,
    prefix: str = "roberta",
) -> Architecture:
    """The table of RoBERTa, for official classes whose names begin with `name`."""
    pooler = Rename(f"{prefix}.pooler.dense", "model.pooler.dense")
    no_pooler_dropout = constants(pooler_dropout=0.0)
    #: this official class uses the dropout of hidden states, whatever `classifier_dropout` says
    multiple_choice = (*no_pooler_dropout, *constants(classifier_dropout=roberta_choice_dropout))
    return Architecture(
        model_type=model_type,
        title=title,
        prefix=prefix,
        config=(
            *config,
            *constants(position_ids_from_padding=True, lm_head_act="gelu", pooler_dropout=classifier_dropout),
        ),
        tensors=tensors,
        heads=(
            Head(f"{name}Model", "TfmBertModel", (pooler,), no_pooler_dropout),
            Head(f"{name}ForMaskedLM", "TfmBertForMaskedLM", ROBERTA_MASKED_LM),
            Head(f"{name}ForSequenceClassification", "TfmBertForSequenceClassification", ROBERTA_CLASSIFIER),
            Head(f"{name}ForMultipleChoice", "TfmBertForMultipleChoice", (pooler, CLASSIFIER), multiple_choice),
            Head(f"{name}ForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,)),
            Head(f"{name}ForQuestionAnswering", "TfmBertForQuestionAnswering", (QUESTION_ANSWERING,), (LabelCount(2),)),
        ),
        tokenizer=tokenizer or f"{name}Tokenizer",
    )


ROBERTA = roberta("roberta", "RoBERTa", "Roberta")
XLM_ROBERTA = roberta("xlm-roberta", "XLM-R", "XLMRoberta")
CAMEMBERT = roberta("camembert", "CamemBERT", "Camembert")


#: Goyal et al. 2021: pre-norm, and without dropout of what the feed-forward adds
XLM_ROBERTA_XL = roberta(
    *("xlm-roberta-xl", "XLM-R-XL", "XLMRobertaXL"),
    amended(
        CONFIG,
        *constants(norm_position="pre", embedding_norm=False, hidden_dropout=0.0),
        Field("hidden_dropout_prob", "embedding_dropout"),
        Field("hidden_dropout_prob", "attention_output_dropout"),
        Computed("classifier_dropout", classifier_rate),
    ),
    (
        Rename("encoder.layer.{i}.attention.self_attn_layer_norm", "layers.{i}.self_attn_norm"),
        Rename("encoder.layer.{i}.LayerNorm", "layers.{i}.mlp_norm"),
        Rename("encoder.LayerNorm", "norm"),
        *TENSORS,
    ),
    tokenizer="XLMRobertaTokenizer",
)

PRE_CLASSIFIER = Rename("pre_classifier", "model.pooler.dense")
DISTILBERT_CLASSIFIER = (Rename("pre_classifier", "classifier.dense"), SEQUENCE_CLASSIFIER)
DISTILBERT_MASKED_LM = (
    Rename("vocab_transform", "head.dense"),
    Rename("vocab_layer_norm", "head.norm"),
    Rename("vocab_projector", "lm_head"),
)
#: this official class uses the dropout of hidden states, whatever `seq_classif_dropout` says
TOKEN_DROPOUT = constants(classifier_dropout=None)

DISTILBERT = Architecture(
    model_type="distilbert",
    title="DistilBERT",
    prefix="distilbert",
    config=(
        *same("vocab_size", "max_position_embeddings", "attention_dropout", "qa_dropout", "initializer_range"),
        *same("pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"),
        Field("dim", "hidden_size"),
        Field("n_layers", "num_hidden_layers"),
        Field("n_heads", "num_attention_heads"),
        Field("hidden_dim", "intermediate_size"),
        Field("activation", "hidden_act"),
        Field("dropout", "hidden_dropout"),
        Field("seq_classif_dropout", "classifier_dropout"),
        *constants(norm_eps=1e-12, type_vocab_size=0, attention_output_dropout=0.0),
        *constants(add_pooling_layer=False, pooler_act="relu"),
        *ignored("sinusoidal_pos_embds"),  # what positions start from
    ),
    tensors=(
        *EMBEDDINGS,
        *BUFFERS,
        Rename("transformer.layer.{i}.attention.q_lin", "layers.{i}.self_attn.q_proj"),
        Rename("transformer.layer.{i}.attention.k_lin", "layers.{i}.self_attn.k_proj"),
        Rename("transformer.layer.{i}.attention.v_lin", "layers.{i}.self_attn.v_proj"),
        Rename("transformer.layer.{i}.attention.out_lin", "layers.{i}.self_attn.o_proj"),
        Rename("transformer.layer.{i}.sa_layer_norm", "layers.{i}.self_attn_norm"),
        Rename("transformer.layer.{i}.ffn.lin1", "layers.{i}.mlp.up_proj"),
        Rename("transformer.layer.{i}.ffn.lin2", "layers.{i}.mlp.down_proj"),
        Rename("transformer.layer.{i}.output_layer_norm", "layers.{i}.mlp_norm"),
    ),
    heads=(
        Head("DistilBertModel", "TfmBertModel"),
        Head("DistilBertForMaskedLM", "TfmBertForMaskedLM", DISTILBERT_MASKED_LM),
        Head("DistilBertForSequenceClassification", "TfmBertForSequenceClassification", DISTILBERT_CLASSIFIER),
        Head("DistilBertForMultipleChoice", "TfmBertForMultipleChoice", (PRE_CLASSIFIER, CLASSIFIER)),
        Head("DistilBertForTokenClassification", "TfmBertForTokenClassification", (CLASSIFIER,), TOKEN_DROPOUT),
        Head("DistilBertForQuestionAnswering", "TfmBertForQuestionAnswering", (QUESTION_ANSWERING,), (LabelCount(2),)),
    ),
    tokenizer="BertTokenizer",
)
