"""A checkpoint is read as it was written, in every format, and with the names and settings that only old ones have."""

import copy
import json
import os

import pytest
import torch
from transformers import AutoModelForPreTraining, ElectraForPreTraining

import tfm_zoo
from tests.conversion.comparison import assert_same_model, assert_same_weights
from tests.conversion.folders import edit_config, rewrite
from tests.official_models import BY_NAME, OFFICIAL_CLASSES, ROPE, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo.commands.models import load
from tfm_zoo.converters import ConversionError, from_official, to_official
from tfm_zoo.converters.checkpoint import open_checkpoint
from tfm_zoo.converters.choosing import architecture_of
from tfm_zoo.converters.official_names import checkpoint_head

IDS = torch.tensor([[5, 6, 7, 8, 9, 2], [9, 8, 7, 6, 5, 2]])
MASKS = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 40, 40).tril() for i in range(3)}


def test_sharded_safetensors(original, tmp_path):
    original.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_same_model(to_official(from_official(tmp_path)), original)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before PyTorch 1.6"])
def test_bin(original, folder, zipped):
    """It is read once: the model does not change with its file."""
    (folder / "model.safetensors").unlink()
    file, state = folder / "pytorch_model.bin", original.state_dict()
    torch.save(state, file, _use_new_zipfile_serialization=zipped)
    zoo = from_official(folder)
    assert open_checkpoint(folder, mapped=True).tensors.keys() == state.keys()
    torch.save({name: tensor + 1 for name, tensor in state.items()}, file)
    assert_same_model(to_official(zoo), original)
    zoo.save_pretrained(folder / "zoo")
    assert_same_weights(type(zoo).from_pretrained(folder / "zoo"), zoo)


def test_sharded_bin(original, folder):
    (folder / "model.safetensors").unlink()
    tensors = list(original.state_dict().items())
    shards = {"a.bin": dict(tensors[:20]), "b.bin": dict(tensors[20:])}
    for file, shard in shards.items():
        torch.save(shard, folder / file)
    index = {"weight_map": {name: file for file, shard in shards.items() for name in shard}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert_same_model(to_official(from_official(folder)), original)


def test_safetensors_come_before_bin_and_code_is_not_run(original, folder):
    torch.save({"bert.x": os.system}, folder / "pytorch_model.bin")
    assert_same_model(to_official(from_official(folder)), original)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConversionError, match=r"pytorch_model\.bin"):
        from_official(folder)


def test_hub_cache_without_network(original, tmp_path, monkeypatch):
    """The cache's own layout: a reference to a commit, a snapshot of it."""
    repo = tmp_path / "models--someone--tiny-bert"
    original.save_pretrained(repo / "snapshots" / "abc")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    for module in ("_snapshot_download", "file_download"):
        monkeypatch.setattr(f"huggingface_hub.{module}.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    zoo = from_official("someone/tiny-bert")
    assert zoo.config.name_or_path == "someone/tiny-bert"
    assert_same_model(to_official(zoo), original)
    with pytest.raises(ConversionError, match="someone/other"):
        from_official("someone/other")


@pytest.mark.parametrize(
    "asked", [{"output_attentions": True}, {"output_hidden_states": True}, {"return_dict": False}], ids=str
)
def test_outputs_that_a_configuration_asks_for(folder, asked):
    """They are returned, also by what was saved and loaded again; a field of the file that asks for attention weights
    chooses the attention that has them, as transformers does where one is set."""
    edit_config(folder, **asked)
    from_official(folder).save_pretrained(folder / "zoo")
    model = tfm_zoo.TfmBertForMaskedLM.from_pretrained(folder / "zoo")
    outputs = model(torch.ones(1, 3, dtype=torch.long))
    if "return_dict" in asked:
        assert type(outputs) is tuple
    else:
        assert len(outputs[-1]) == model.config.num_hidden_layers + ("output_hidden_states" in asked)
    to_official(model).save_pretrained(folder / "back")
    assert asked.items() <= json.loads((folder / "back" / "config.json").read_text()).items()


def renamed(old: str, new: str):
    return lambda tensors: {name.replace(old, new): tensor for name, tensor in tensors.items()}


def beside(buffers: dict):
    return lambda tensors: tensors | buffers


def as_gpt2_on_the_hub(tensors: dict) -> dict:
    return {name.removeprefix("transformer."): tensor for name, tensor in (tensors | MASKS).items()}


#: what the writers of some files call their tensors; transformers, too, saves these classes with packed projections
AS_TRAINED = {
    "NomicBertForMaskedLM": ("nomic_bert.", "bert.", "bert.encoder.layers.0.attn.Wqkv.weight"),
    "GteModel": ("", "new.", "new.encoder.layer.0.mlp.up_gate_proj.weight"),
    "JinaEmbeddingsV3Model": ("", "", "encoder.layers.0.mixer.Wqkv.bias"),
}


def as_trained(name: str):
    prefix, other, wanted = AS_TRAINED[name]

    def change(tensors: dict) -> dict:
        tensors = {key.replace(prefix, other) if prefix else other + key: tensor for key, tensor in tensors.items()}
        assert wanted in tensors
        return tensors

    return change


@pytest.mark.parametrize(
    ("name", "change", "fields"),
    [
        ("BertForMaskedLM", renamed("LayerNorm.weight", "LayerNorm.gamma"), {}),
        ("BertForMaskedLM", renamed("LayerNorm.bias", "LayerNorm.beta"), {}),
        ("BertForMaskedLM", beside({"bert.embeddings.position_ids": torch.arange(40)[None]}), {}),
        ("GPT2LMHeadModel", beside(MASKS | {"transformer.h.0.attn.masked_bias": torch.tensor(-1e4)}), {}),
        ("OpenAIGPTLMHeadModel", beside(MASKS), {}),
        ("LlamaForCausalLM", beside({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}), {}),
        ("BartModel", beside({"encoder.version": torch.tensor([3.0]), "decoder.version": torch.tensor([3.0])}), {}),
        ("LlamaForQuestionAnswering", renamed("transformer.", "model."), {}),
        *((name, as_trained(name), {}) for name in AS_TRAINED),
        ("RobertaForMaskedLM", beside({}), {"model_type": ...}),
        ("BertForMaskedLM", beside({}), {"architectures": ...}),
        ("GPT2LMHeadModel", as_gpt2_on_the_hub, dict.fromkeys(("n_inner", "use_cache", "tie_word_embeddings"), ...)),
    ],
)
def test_names_and_buffers_of_old(name, change, fields, tmp_path, caplog):
    original = build_tiny(BY_NAME[name], **{field: None for field in fields if field == "n_inner"})
    original.save_pretrained(tmp_path)
    rewrite(tmp_path, change)
    edit_config(tmp_path, **fields)
    assert_same_model(to_official(from_official(tmp_path)), original)
    assert not caplog.text


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


LLAMA3 = {key: value for key, value in ROPE["llama3"].items() if key != "rope_theta"}
NO_ROPE = dict.fromkeys(("rope_parameters", "dtype", "head_dim"), ...)
BEAMS = {"num_beams": 6, "max_length": 512, "bad_words_ids": [[3]]}
OPUS = {"num_hidden_layers": 3, "classif_dropout": 0.0, "add_final_layer_norm": False, "torch_dtype": "float32"}
OPUS |= dict.fromkeys(("dtype", "decoder_vocab_size", "share_encoder_decoder_embeddings"), ...)
FSMT = {"decoder": {"bos_token_id": 2, "model_type": "fsmt_decoder", "vocab_size": 91}, "num_hidden_layers": 3}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        # before transformers 5: the rotary base and its scaling beside each other
        ("LlamaForCausalLM", NO_ROPE | {"rope_theta": 100.0, "rope_scaling": None, "torch_dtype": "float32"}),
        ("LlamaForCausalLM", NO_ROPE | {"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 2.0}}),
        ("LlamaForCausalLM", NO_ROPE | {"rope_theta": 100.0, "rope_scaling": LLAMA3, "pretraining_tp": 1}),
        ("LlamaForCausalLM", NO_ROPE | {"rope_theta": 100.0, "architectures": ["LLaMAForCausalLM"]}),
        # as they lie on the Hub: every tied tensor and the sinusoids among the weights, and fields of old
        ("MarianMTModel", OPUS | BEAMS),
        ("FSMTForConditionalGeneration", FSMT | {"encoder_layerdrop": 0, "decoder_layerdrop": 0}),
    ],
)
def test_configurations_of_old(name, fields, tmp_path):
    """They are read as transformers reads them, settings for `generate` among them, and give the same numbers."""
    original = build_tiny(BY_NAME[name], **({"head_dim": None} if name.startswith("Llama") else {}))
    original.save_pretrained(tmp_path)
    edit_config(tmp_path, **fields)
    (tmp_path / "generation_config.json").unlink()
    if name == "MarianMTModel":
        (tmp_path / "model.safetensors").unlink()
        torch.save(original.state_dict(), tmp_path / "pytorch_model.bin")
    native, zoo = type(original).from_pretrained(tmp_path), from_official(tmp_path)
    assert_same_model(to_official(zoo), native)
    assert zoo.generation_config.to_dict() == native.generation_config.to_dict()
    zoo, native = zoo.double(), native.double()  # outside: frequencies are those of float32, as in any process
    batch = {"input_ids": IDS} | ({"decoder_input_ids": IDS[:, :4]} if zoo.config.is_encoder_decoder else {})
    with in_double():
        assert_same(zoo(**batch, use_cache=False).logits, native(**batch, use_cache=False).logits)


#: what stands in `config.json` of nomic-embed-text-v1.5 and nomic-bert-2048, with other sizes
NOMIC = {
    **{"n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": 48, "n_positions": 8192, "vocab_size": 99},
    **{"layer_norm_epsilon": 1e-3, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "type_vocab_size": 2},
    **{"activation_function": "swiglu", "rotary_emb_base": 100, "rotary_emb_fraction": 1.0, "use_flash_attn": True},
    **dict.fromkeys(("prenorm", "causal", "parallel_block", "use_rms_norm", "rotary_emb_interleaved"), False),
    **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "reorder_and_upcast_attn"), False),
    **{"rotary_emb_scale_base": None, "rotary_scaling_factor": None, "pad_vocab_size_multiple": 64},
    **{"model_type": "nomic_bert", "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling.NomicBertModel"}},
}


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM"])
def test_nomic_embed_as_it_is_published(head, tmp_path):
    """Its configuration has GPT-2's names, its tensors those of flash-attention, and its code is not run."""
    original = build_tiny(BY_NAME[f"NomicBert{head}"], head_dim=None)
    original.save_pretrained(tmp_path)  # tensors have their published names there
    (tmp_path / "config.json").write_text(json.dumps(NOMIC | {"architectures": [f"NomicBert{head}"]}))
    zoo = from_official(tmp_path)
    models = [model.double() for model in (to_official(zoo), zoo, original)]  # outside, as above
    with in_double():
        back, made, expected = (model(IDS)[0] for model in models)
        assert_same((back, made), (expected, expected))
    edit_config(tmp_path, prenorm=True)
    with pytest.raises(ConversionError, match="prenorm=True is not converted"):
        from_official(tmp_path)


#: heads that `architectures` alone tells: choices, ModernBERT's kinds of labels, and T5's
UNTOLD = (
    *("MultipleChoice", "ModernBertForTokenClassification", "ModernBertForQuestionAnswering"),
    *("T5ForConditionalGeneration", "T5EncoderModel"),
)


@pytest.mark.parametrize(
    "architecture", dict.fromkeys(each.architecture for each in OFFICIAL_CLASSES), ids=lambda each: each.model_type
)
def test_every_head_is_known_by_its_tensors(architecture):
    """Where `architectures` is missing."""
    for native in OFFICIAL_CLASSES:
        if native.architecture is architecture and not str(native).endswith(UNTOLD):
            checkpoint = open_checkpoint(build_tiny(native))
            assert checkpoint_head(architecture_of(checkpoint), None, checkpoint.tensors) is native.head, native


def test_a_discriminator(tmp_path, caplog):
    """With its head, in a folder whose code an Auto class finds; or as a base model."""
    original = build_tiny(BY_NAME["ElectraModel"])
    discriminator = ElectraForPreTraining(original.config).eval()
    discriminator.electra.load_state_dict(original.state_dict())
    discriminator.save_pretrained(tmp_path)
    from_official(tmp_path).save_pretrained(tmp_path / "zoo")
    detector = AutoModelForPreTraining.from_pretrained(tmp_path / "zoo", trust_remote_code=True)
    assert type(detector) is tfm_zoo.TfmBertForReplacedTokenDetection is type(load(tmp_path / "zoo"))
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    assert type(AutoModelForPreTraining.from_config(tfm_zoo.TfmBertConfig(**sizes))) is tfm_zoo.TfmBertForPreTraining
    _, loading = tfm_zoo.TfmBertForMaskedLM.from_pretrained(tmp_path / "zoo", output_loading_info=True)
    assert "head.dense.weight" in loading["missing_keys"]
    halved = copy.deepcopy(detector).bfloat16()(IDS, labels=torch.ones_like(IDS))
    assert halved.loss.dtype == torch.float32
    auto_map = json.loads((tmp_path / "zoo/config.json").read_text())["auto_map"]
    assert auto_map["AutoModelForPreTraining"] == "modeling_tfm_bert.TfmBertForReplacedTokenDetection"
    with in_double():
        assert_same(detector.double()(IDS).logits, discriminator.double()(IDS).logits)
    zoo = from_official(tmp_path, tfm_zoo.TfmBertModel)
    assert "left out what belongs to another head: discriminator_predictions.dense.bias" in caplog.text
    assert_same_model(to_official(zoo), original)
