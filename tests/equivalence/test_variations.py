"""Official fields that make another architecture, beyond those of the tiny models that all other tests are run with."""

import pytest
import torch

from tests.equivalence.comparison import Pair, assert_same_outputs, assert_same_pair, ragged_batch
from tests.official_models import BY_NAME, FALCON_RW, ROPE, build_tiny
from tfm_zoo.converters import from_official

pytestmark = pytest.mark.usefixtures("double")

BIASES = {"attention_bias": True, "mlp_bias": True}
OPT_350M = {"do_layer_norm_before": False, "word_embed_proj_dim": 16}
DEBERTA_V3 = {"share_att_key": True, "position_biased_input": False, "type_vocab_size": 0, "legacy": False}
DEBERTA_ODD, CONVOLUTION = {"norm_rel_ebd": "none", "conv_groups": 4}, {"conv_kernel_size": 5, "conv_act": "gelu"}
VARIATIONS = [
    *(("ElectraForMaskedLM", {"embedding_size": 32}), ("ElectraForMultipleChoice", {"summary_activation": "relu"})),
    ("ElectraForMaskedLM", {"embedding_size": 44, "tie_word_embeddings": False}),
    ("AlbertForMaskedLM", {"num_hidden_groups": 1, "num_hidden_layers": 5}),
    ("EuroBertForMaskedLM", BIASES | {"tie_word_embeddings": True, "head_dim": None, "num_key_value_heads": 1}),
    *(("EuroBertForSequenceClassification", {"classifier_pooling": pooling}) for pooling in ("bos", "mean")),
    ("ModernBertForMaskedLM", BIASES | {"norm_bias": True, "decoder_bias": False, "local_attention": 2}),
    ("ModernBertForSequenceClassification", {"classifier_pooling": "mean", "classifier_bias": True}),
    ("ModernBertDecoderForSequenceClassification", {"classifier_bias": False}),
    ("ModernBertForTokenClassification", {"layer_types": ["sliding_attention"] * 3, "classifier_activation": "relu"}),
    ("ModernBertModel", {"rope_parameters": {"full_attention": ROPE["yarn"], "sliding_attention": ROPE["linear"]}}),
    ("NomicBertForMaskedLM", {"head_dim": 8, "rope_parameters": ROPE["yarn"]}),
    ("JinaEmbeddingsV3ForMaskedLM", {"type_vocab_size": 1, "rope_parameters": ROPE["dynamic"]}),
    ("RoFormerForMaskedLM", {"rotary_value": False, "embedding_size": 32}),
    ("EsmForMaskedLM", {"position_embedding_type": "absolute", "emb_layer_norm_before": True}),
    *(("EsmForMaskedLM", {"token_dropout": False}), ("GteForTokenClassification", {"type_vocab_size": 0})),
    ("XLMRobertaXLForMultipleChoice", {"tie_word_embeddings": False, "pad_token_id": 3}),
    ("embedding_gemma-Gemma3TextModel", {"attention_bias": True, "sliding_window": 3, "num_key_value_heads": 4}),
    *(("DebertaV2ForMaskedLM", DEBERTA_V3 | more) for more in ({}, {"embedding_size": 20, "legacy": True})),
    ("DebertaForMaskedLM", {"embedding_size": 20, "position_biased_input": True}),
    ("DebertaV2ForTokenClassification", DEBERTA_V3 | {"position_buckets": -1, "pos_att_type": "c2p"} | DEBERTA_ODD),
    ("DebertaV2Model", CONVOLUTION | {"pos_att_type": "p2c", "max_relative_positions": -1}),
    ("DebertaForMaskedLM", {"legacy": False, "pos_att_type": "p2c", "position_biased_input": True}),
    ("CLIPTextModelWithProjection", {"eos_token_id": 2, "num_attention_heads": 2}),
    ("M2M100ForConditionalGeneration", {"scale_embedding": True, "pad_token_id": 0, "encoder_layers": 1}),
    ("T5ForConditionalGeneration", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_kv": 8}),
    ("T5EncoderModel", {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 17}),
    ("MT5ForConditionalGeneration", {"feed_forward_proj": "relu", "num_layers": 1}),
    ("UMT5ForConditionalGeneration", {"feed_forward_proj": "gated-gelu", "num_decoder_layers": 4}),
    ("MPNetForMultipleChoice", {"hidden_act": "relu", "num_hidden_layers": 1}),
    ("BlenderbotForConditionalGeneration", {"scale_embedding": False, "decoder_layers": 4}),
    ("GPTNeoXForCausalLM", {"use_parallel_residual": False}),
    ("FalconForCausalLM", {"new_decoder_architecture": False, "multi_query": True, "parallel_attn": False}),
    ("FalconForCausalLM", FALCON_RW),
    ("FalconForSequenceClassification", FALCON_RW | {"multi_query": True, "num_attention_heads": 6}),
    ("OPTForCausalLM", {"do_layer_norm_before": False}),
    ("OPTForCausalLM", OPT_350M),
    ("OPTForQuestionAnswering", OPT_350M),
    ("OPTForSequenceClassification", {"word_embed_proj_dim": 48}),
    ("GPTBigCodeForCausalLM", {"multi_query": False, "scale_attn_weights": False}),
    ("GPT2LMHeadModel", {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True}),
]
UNTIED = {"tie_word_embeddings": False}
#: vocabularies of two sides, shared or not
OF_TWO_SIDES = [
    ("MarianMTModel", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 71}),
    ("MarianMTModel", UNTIED),
    ("BartForConditionalGeneration", UNTIED | {"scale_embedding": True}),
    ("MBartForConditionalGeneration", {"scale_embedding": False, "decoder_layers": 4}),
    ("FSMTForConditionalGeneration", {"tgt_vocab_size": 99, "tie_word_embeddings": True}),
    ("M2M100ForConditionalGeneration", UNTIED),
    ("PegasusForConditionalGeneration", UNTIED | {"scale_embedding": False}),
]


@pytest.mark.parametrize(("name", "fields"), [row for row in VARIATIONS + OF_TWO_SIDES if row[0] in BY_NAME], ids=str)
def test_as_official(name, fields):
    official_class, official = BY_NAME[name], build_tiny(BY_NAME[name], **fields)
    pair = Pair(official_class, official, [from_official(official)])
    if (name, fields) in OF_TWO_SIDES and UNTIED.items() <= fields.items():
        del official.model.shared  # which is then not read
    assert_same_pair(pair, "sdpa", "left", [13, 5, 9, 1])


def test_tasks_of_ernie():
    official = build_tiny(BY_NAME["ErnieModel"])
    zoo, batch = from_official(official), ragged_batch(BY_NAME["ErnieModel"], official, "right", [9, 4])
    batch["task_type_ids"] = torch.tensor([[2], [3]]).expand_as(batch["input_ids"])
    assert_same_outputs(zoo(**batch), official(**batch), batch["attention_mask"])
    with pytest.raises(ValueError, match="task_type_ids holds 4"):
        zoo(**batch | {"task_type_ids": batch["task_type_ids"] + 1})
    with pytest.raises(ValueError, match=r"task_type_ids of shape .* should be of shape"):
        zoo(**batch | {"task_type_ids": batch["task_type_ids"][:, :-1]})
