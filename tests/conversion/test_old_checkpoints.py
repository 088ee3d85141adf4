"""Names and settings that only old checkpoints have, or that they lack."""

import copy
import json

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForPreTraining, ElectraForPreTraining

import tfm_zoo
from tests.conversion.comparison import assert_same_model
from tests.conversion.folders import edit_config, rewrite
from tests.official_models import BY_NAME, OFFICIAL_CLASSES, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo.commands.models import load
from tfm_zoo.converters import from_official, to_official
from tfm_zoo.converters.checkpoint import open_checkpoint
from tfm_zoo.converters.choosing import architecture_of
from tfm_zoo.converters.official_names import checkpoint_head

TINY = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}


def test_gamma_and_beta(original, folder):
    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    rewrite(folder, lambda tensors: {old(name): tensor for name, tensor in tensors.items()})
    assert_same_model(to_official(from_official(folder)), original)


@pytest.mark.parametrize(
    "name",
    [
        *("BertModel", "BertForSequenceClassification", "RobertaModel", "DistilBertModel"),
        *("GPT2Model", "GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "LlamaModel", "LlamaForSequenceClassification"),
        *("MarianModel", "MarianMTModel", "BartForSequenceClassification", "FSMTForConditionalGeneration"),
    ],
)
def test_with_and_without_prefix(name, tmp_path):
    native = BY_NAME[name]
    original = build_tiny(native)
    original.save_pretrained(tmp_path)
    prefix = native.architecture.prefix + "."

    def toggled(tensors: dict) -> dict:
        heads = ("classif", "score", "lm_head", "final_logits_bias")
        base = {key: tensor for key, tensor in tensors.items() if not key.startswith(heads)}
        if native.head.is_bare:
            return {prefix + key: tensor for key, tensor in base.items()}
        return tensors | {key.removeprefix(prefix): tensors.pop(key) for key in base}

    rewrite(tmp_path, toggled)
    assert_same_model(to_official(from_official(tmp_path)), original)


@pytest.mark.parametrize(
    ("name", "buffers"),
    [
        ("BertForMaskedLM", {"bert.embeddings.position_ids": torch.arange(40)[None]}),
        (
            "GPT2LMHeadModel",
            {
                "transformer.h.0.attn.bias": torch.ones(1, 1, 40, 40).tril(),
                "transformer.h.0.attn.masked_bias": torch.tensor(-1e4),
            },
        ),
        ("OpenAIGPTLMHeadModel", {"transformer.h.2.attn.bias": torch.ones(1, 1, 40, 40).tril()}),
        ("LlamaForCausalLM", {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}),
        ("BartModel", {"encoder.version": torch.tensor([3.0]), "decoder.version": torch.tensor([3.0])}),
    ],
    ids=["BERT", "GPT-2", "OpenAI GPT", "LLaMA", "BART"],
)
def test_what_is_no_weight_is_passed_over(name, buffers, tmp_path, caplog):
    original = build_tiny(BY_NAME[name])
    original.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda tensors: tensors | buffers)
    assert_same_model(to_official(from_official(tmp_path)), original)
    assert not caplog.text


def test_gpt2_as_it_lies_on_the_hub(tmp_path):
    """No prefix, no tied head, masks among the weights, and a configuration with fields of old."""
    original = build_tiny(BY_NAME["GPT2LMHeadModel"], n_inner=None, n_ctx=40)
    original.save_pretrained(tmp_path)
    masks = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 40, 40).tril() for i in range(3)}
    rewrite(
        tmp_path,
        lambda tensors: {name.removeprefix("transformer."): tensor for name, tensor in (tensors | masks).items()},
    )
    edit_config(tmp_path, n_inner=..., use_cache=..., tie_word_embeddings=..., torch_dtype="float32", dtype=...)
    zoo = from_official(tmp_path)
    assert type(zoo) is tfm_zoo.TfmGPTForCausalLM
    assert zoo.lm_head.weight is zoo.model.embeddings.embed_tokens.weight
    assert_same_model(to_official(zoo), original)


def test_question_answering_under_either_prefix(tmp_path):
    """Classes like LLaMA's hold their base model as `model`, but for question answering as `transformer`."""
    original = build_tiny(BY_NAME["LlamaForQuestionAnswering"])
    original.save_pretrained(tmp_path)
    assert_same_model(to_official(from_official(tmp_path)), original)
    rewrite(
        tmp_path,
        lambda tensors: {name.replace("transformer.", "model."): tensor for name, tensor in tensors.items()},
    )
    assert_same_model(to_official(from_official(tmp_path)), original)


@pytest.mark.parametrize("shard", ["5GB", "20KB"], ids=["one file", "shards"])
def test_a_tied_head_may_be_missing_or_there(shard, tmp_path):
    original = build_tiny(BY_NAME["LlamaForCausalLM"], tie_word_embeddings=True)
    original.save_pretrained(tmp_path, max_shard_size=shard)
    assert_same_model(to_official(from_official(tmp_path)), original)
    if shard == "5GB":
        head = {"lm_head.weight": original.lm_head.weight.detach()}
        rewrite(tmp_path, lambda tensors: tensors | head)
        zoo = from_official(tmp_path)
        assert zoo.lm_head.weight is zoo.model.embeddings.embed_tokens.weight
        assert_same_model(to_official(zoo), original)


def test_tied_tensors_may_all_be_there(original, folder):
    state = original.state_dict()
    rewrite(folder, lambda tensors: {name: tensor.clone() for name, tensor in state.items()})
    zoo = from_official(folder)
    assert zoo.lm_head.weight is zoo.model.embeddings.embed_tokens.weight
    assert_same_model(to_official(zoo), original)


def test_config_without_model_type(original, folder):
    edit_config(folder, model_type=...)
    assert_same_model(to_official(from_official(folder)), original)


UNTOLD = (
    *("MultipleChoice", "ModernBertForTokenClassification", "ModernBertForQuestionAnswering"),
    *("T5ForConditionalGeneration", "T5EncoderModel"),
)


@pytest.mark.parametrize(
    "architecture", dict.fromkeys(each.architecture for each in OFFICIAL_CLASSES), ids=lambda each: each.model_type
)
def test_every_head_is_known_by_its_tensors(architecture):
    """Where `architectures` is missing. (It alone tells choices, ModernBERT's kinds of labels and T5's heads.)"""
    for native in OFFICIAL_CLASSES:
        if native.architecture is architecture and not str(native).endswith(UNTOLD):
            checkpoint = open_checkpoint(build_tiny(native))
            assert checkpoint_head(architecture_of(checkpoint), None, checkpoint.tensors) is native.head, native


def test_config_without_architectures(original, folder):
    edit_config(folder, architectures=...)
    assert_same_model(to_official(from_official(folder)), original)


@pytest.mark.parametrize(
    ("name", "prefix", "stored"),
    [
        ("NomicBertForMaskedLM", "bert", "encoder.layers.0.attn.Wqkv.weight"),
        ("GteModel", "new", "encoder.layer.0.mlp.up_gate_proj.weight"),
        ("JinaEmbeddingsV3Model", "", "encoder.layers.0.mixer.Wqkv.bias"),
    ],
)
def test_files_have_names_of_their_own(name, prefix, stored, tmp_path):
    """transformers, too, saves these classes under the names of the code that trained them, with packed projections."""
    native = BY_NAME[name]
    original = build_tiny(native)
    original.save_pretrained(tmp_path)
    written = f"{native.architecture.prefix}."

    def as_on_the_hub(tensors: dict) -> dict:
        names = {key: key.replace(written, f"{prefix}.") for key in tensors}
        if native.head.is_bare:
            names = {key: f"{prefix}.{key}".lstrip(".") for key in tensors}
        return {names[key]: tensor for key, tensor in tensors.items()}

    rewrite(tmp_path, as_on_the_hub)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert f"{prefix}.{stored}".lstrip(".") in file.keys()  # noqa: SIM118
    assert_same_model(to_official(from_official(tmp_path)), original)


def test_a_discriminator(tmp_path, caplog):
    """With its head, in a folder whose code an Auto class finds; or as a base model."""
    original = build_tiny(BY_NAME["ElectraModel"])
    discriminator = ElectraForPreTraining(original.config).eval()
    discriminator.electra.load_state_dict(original.state_dict())
    discriminator.save_pretrained(tmp_path)
    from_official(tmp_path).save_pretrained(tmp_path / "zoo")
    detector = AutoModelForPreTraining.from_pretrained(tmp_path / "zoo", trust_remote_code=True)
    assert type(detector).__name__ == "TfmBertForReplacedTokenDetection"
    assert type(detector) is tfm_zoo.TfmBertForReplacedTokenDetection is type(load(tmp_path / "zoo"))
    assert type(AutoModelForPreTraining.from_config(tfm_zoo.TfmBertConfig(**TINY))) is tfm_zoo.TfmBertForPreTraining
    _, loading = tfm_zoo.TfmBertForMaskedLM.from_pretrained(tmp_path / "zoo", output_loading_info=True)
    assert "head.dense.weight" in loading["missing_keys"]
    halved = copy.deepcopy(detector).bfloat16()(torch.arange(5, 9)[None], labels=torch.ones(1, 4).long())
    assert halved.loss.dtype == torch.float32
    auto_map = json.loads((tmp_path / "zoo/config.json").read_text())["auto_map"]
    assert auto_map["AutoModelForPreTraining"] == "modeling_tfm_bert.TfmBertForReplacedTokenDetection"
    ids = torch.arange(5, 9)[None]
    with in_double():
        assert_same(detector.double()(ids).logits, discriminator.double()(ids).logits)
    zoo = from_official(tmp_path, tfm_zoo.TfmBertModel)
    assert "left out what belongs to another head: discriminator_predictions.dense.bias" in caplog.text
    assert_same_model(to_official(zoo), original)
