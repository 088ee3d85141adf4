"""A checkpoint that is broken, or that the zoo does not convert, is refused at once: with the file, the value or the
tensors named, and nobody asked on the Hub."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import constants

import tfm_zoo
from tests.command import tfm_zoo as run
from tests.conversion.comparison import assert_same_model
from tests.hub.editing import CONFIG, INDEX, both, cut, delete, edit, edited, tensors, without, write
from tests.official_models import BY_NAME, ROPE, build_tiny
from tests.tiny import tiny_model
from tfm_zoo.commands.models import load
from tfm_zoo.converters import ConversionError, checkpoint, from_official, sources, to_official
from tfm_zoo.hub import push
from tfm_zoo.proof import verify

BERT, GPT2, LLAMA = "BertForMaskedLM", "GPT2LMHeadModel", "LlamaForCausalLM"
MARIAN, BART = "MarianMTModel", "BartForConditionalGeneration"
CLASSIFIER, MPT = "BertForSequenceClassification", "MptModel"
WEIGHTS, BIN = "model.safetensors", "pytorch_model.bin"
LAYER = "bert.encoder.layer"
DENSE = f"{LAYER}.0.output.dense.weight"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
TABLE = "model.encoder.embed_positions.weight"
UNLIKE = tensors(lambda given: given | {"model.encoder.embed_tokens.weight": given["model.shared.weight"] + 1})


def refusal(source, head: str | None = None, **given) -> str:
    with pytest.raises(ConversionError) as caught:
        from_official(source, head and getattr(tfm_zoo, head), **given)
    return str(caught.value)


def pickled(content: object) -> Callable[[Path], None]:
    """Instead of weights that are not code."""
    return both(delete(WEIGHTS), lambda folder: torch.save(content, folder / BIN))


def indexed(**content) -> Callable[[Path], None]:
    return both(delete(WEIGHTS), write(INDEX, json.dumps(content)))


def with_wrong_tensors(given: dict) -> dict:
    others = {f"{LAYER}.0.adapter.weight": torch.zeros(3), f"{LAYER}.3.output.dense.bias": torch.zeros(32)}
    del given[f"{LAYER}.1.attention.self.query.bias"]
    return given | others | {DENSE: torch.zeros(32, 40)}


def in_file(change: Callable[[Path], object], says: str, name: str = BERT) -> tuple:
    return name, change, {}, says


def beside(says: str, name: str = BERT, **given) -> tuple:
    """A row for a head and fields that are given."""
    return name, lambda _: None, given, says


def missing(name: str, *lacking: str, **fields) -> tuple:
    return name, without(*lacking), {}, "missing: .*" + ".*".join(lacking), fields


def field(name: str, says: str = "", **field) -> tuple:
    """A row for a value of a field of `config.json`, which is named."""
    ((key, value),) = field.items()
    return name, edited(CONFIG, **field), {}, re.escape(f"{key}={value!r}") + says


def not_converted(name: str, **fields) -> tuple:
    return field(name, ".* is not converted", **fields)


UNTIED = {"tie_word_embeddings": False}
WRONG = rf"\nmissing: {LAYER}.1.attention.self.query.bias\.\nunexpected: .*0.adapter.weight.*3.output.dense.bias.*\n"
WRONG += rf"misshapen: {DENSE} of shape \(32, 40\), where .* \(32, 48\)"
PRE = r"missing: model.norm.weight.*\nIt may be for what was given: norm_position='pre', hidden_dropout=0.2\."
IS_POINTER = "is a Git LFS pointer, not the file itself: run `git lfs pull`"
#: official class, what is done to its folder, what is given beside it (a head, fields), what the refusal says (and the
#: fields of the official model)
CASES = [
    in_file(cut(WEIGHTS, 1000), "^FOLDER/model.safetensors is truncated"),
    in_file(both(pickled({"a": torch.zeros(1000)}), cut(BIN, 1000)), "^FOLDER/pytorch_model.bin is truncated"),
    in_file(pickled({"bert.x": os.system}), "pytorch_model.bin"),
    in_file(pickled(torch.zeros(2)), "pytorch_model.bin holds a Tensor; it should hold a dict"),
    in_file(indexed(weight_map={"a": "model-1.safetensors"}), "the folder lacks: model-1.safetensors"),
    in_file(indexed(), "model.safetensors.index.json has no weight_map"),
    in_file(indexed(weight_map={"a": "notes.txt"}), "'notes.txt' as a file of weights"),
    in_file(delete(WEIGHTS), "holds no weights"),
    in_file(delete(CONFIG), "holds no config.json"),
    in_file(shutil.rmtree, "'FOLDER'"),
    in_file(write(CONFIG, "{"), "config.json is not valid JSON"),
    in_file(write(CONFIG, "[]"), "config.json holds a list; it should hold an obj"),
    *(in_file(write(name, POINTER), f"^FOLDER/{name} {IS_POINTER}") for name in (WEIGHTS, CONFIG, "tokenizer.json")),
    in_file(tensors(lambda given: given | {DENSE: given[DENSE].char()}), rf"{DENSE} .*\(32, 48\), not of a floating"),
    in_file(tensors(lambda given: given | {"crf.b": torch.zeros(3)}), r"unexpected: crf\.b\."),
    in_file(tensors(with_wrong_tensors), WRONG),
    in_file(
        tensors(lambda given: given | {TABLE: build_tiny(BY_NAME[MARIAN]).state_dict()[TABLE] + 0.1}),
        f"{TABLE} of .* is not the table of sinusoids .* differs by 0.1",
        MARIAN,
    ),
    in_file(UNLIKE, "tied, but different: model.shared.weight and model.encoder.embed_tokens.weight", BART),
    # the head of a checkpoint has to be whole, and what is not tied has to be there
    missing(CLASSIFIER, "bert.pooler.dense.weight", "classifier.weight"),
    missing("BertForPreTraining", "cls.predictions.transform.dense.bias", "cls.seq_relationship.weight"),
    missing(MARIAN, "model.shared.weight"),
    missing(MARIAN, "model.decoder.embed_tokens.weight", share_encoder_decoder_embeddings=False),
    *(missing(name, "lm_head.weight", **UNTIED) for name in (MARIAN, GPT2)),
    # what is given beside the checkpoint
    beside(PRE, norm_position="pre", hidden_dropout=0.2),
    beside("'hiden_dropout'.*'hidden_dropout'", hiden_dropout=0.2),
    beside(r"classifier\.weight of shape \(3, 32\).* \(5.*\n.*ignore_mism", CLASSIFIER, num_labels=5),
    beside(r"unexpected: .*position_embeddings", position_embedding_type="rotary"),
    beside("TfmGPTForCausalLM is of another family", head="TfmGPTForCausalLM"),
    *((*beside("=True: .* differs", name, tie_word_embeddings=True), UNTIED) for name in (BERT, GPT2)),
    beside("TfmBertPreTrainedModel'> should be a class", head="TfmBertPreTrainedModel"),
    beside(r"id2label=\['no', 'yes'\] should be a dict", id2label=["no", "yes"]),
    *(beside("takes no field 'official'", official={}), beside("num_labels='3' is not a value", num_labels="3")),
    beside("label2id={'no': 0} should be the reverse of id2label={0: 'LABEL_0', ", label2id={"no": 0}),
    beside("dtype='float8_e5m2' should be .* torch.bfloat16", dtype="float8_e5m2"),
    # fields that no configuration holds: at once, though a model of so many layers would take hours to build
    *(field(BERT, num_hidden_layers=value) for value in (100_000, -1)),
    *(field(BERT, hidden_size=10**9), field(BERT, vocab_size=10**12)),
    *(field(BERT, model_type=["bert"]), field(BERT, architectures=[["BertModel"]]), field(BERT, id2label=[1])),
    *(field(BERT, rope_parameters="x"), field(BERT, dtype=3)),
    field(BERT, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}),
    # values that are not converted
    not_converted(BERT, position_embedding_type="relative_key"),
    *(not_converted(BERT, is_decoder=True), not_converted("GPT2Model", add_cross_attention=True)),
    *(not_converted("OpenAIGPTModel", afn="tanh"), not_converted("LlamaModel", sliding_window=4)),
    not_converted("LlamaModel", rope_parameters=ROPE["default"] | {"partial_rotary_factor": 0.5}),
    *(not_converted("MistralModel", layer_types=["full_attention"] * 3), not_converted(MPT, no_bias=False)),
    in_file(edited(CONFIG, attn_config={"alibi": False}), "What is converted: .*alibi=True", MPT),
    not_converted(MARIAN, encoder_layerdrop=0.1),
    in_file(edited(CONFIG, relative_attention_num_buckets=2), "T5 with these .*num_buckets=2 should", "T5Model"),
    not_converted("CLIPTextModel", eos_token_id=[7, 8]),
    beside("pooled_position='end' is where the end token stands", "CLIPTextModel", eos_token_id=[7, 8]),
    # No official class declares the field by which a decoder sees later tokens.
    *(field(name, ".* True", is_causal=False) for name in ("LlamaModel", "BartModel")),
    *(not_converted("NomicBertModel", prenorm=True), not_converted("DebertaModel", talking_head=True)),
    field("ModernBertForMaskedLM", sparse_pred_ignore_index=7),
    in_file(edited(CONFIG, model_type="gpt_oss"), "'gpt_oss'.* not convert: each head has a learned sink"),
    in_file(edited(CONFIG, model_type="mamba"), "'mamba'.* bert, .*gpt2, .*llama, .*from_state_dict"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}, {case[3]}")
def test_it_is_named(case, tmp_path):
    name, change, given, says, *fields = case
    build_tiny(BY_NAME[name], **dict(*fields)).save_pretrained(folder := tmp_path / "official")
    change(folder)
    assert re.search(says.replace("FOLDER", str(folder)), said := refusal(folder, **given), re.DOTALL), said


def test_a_text_tower_is_converted_where_it_is_saved_by_itself(tmp_path):
    tiny = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    text = tiny | {"vocab_size": 99, "eos_token_id": 7, "bos_token_id": 5, "projection_dim": 20}
    config = transformers.CLIPConfig(text_config=text, vision_config=tiny, projection_dim=20)
    transformers.CLIPModel(config).save_pretrained(tmp_path / "whole")
    assert "its text tower is converted where that is saved by itself" in refusal(tmp_path / "whole")
    tower = transformers.CLIPTextModelWithProjection.from_pretrained(tmp_path / "whole").eval()
    tower.save_pretrained(tmp_path / "tower")
    assert_same_model(to_official(from_official(tmp_path / "tower")), tower)


def test_a_zoo_model_is_not_official_and_is_as_its_configuration_says(tmp_path):
    zoo = tiny_model(tfm_zoo.TfmBertModel)
    zoo.save_pretrained(tmp_path)
    for source in (zoo, tmp_path):
        assert "a model of the zoo already" in refusal(source)
    edit(tmp_path, CONFIG, model_type="our_bert")
    assert "whose class is derived from one of the zoo's" in refusal(tmp_path)
    with pytest.raises(ConversionError, match=r"'our_bert', whose class .*: export takes the zoo's own classes alone"):
        load(tmp_path)
    edit(tmp_path, CONFIG, model_type="tfm_bert", intermediate_size=7)
    with pytest.raises(ConversionError, match=r"layers.0.mlp.up_proj.weight of shape \(48, 32\), not \(7, 32\)"):
        load(tmp_path)


def test_an_architecture_of_a_later_release_is_named(monkeypatch):
    zoo = from_official(build_tiny(BY_NAME[BERT]))
    monkeypatch.delitem(transformers.CONFIG_MAPPING._mapping, "bert")
    with pytest.raises(ConversionError, match=r"is exported to BERT, which transformers 5.* does not have"):
        to_official(zoo)


def test_the_hub_is_not_asked_for_a_misspelt_folder(tmp_path, monkeypatch):
    """Without a connection, it would take half a minute to say no."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "imdb").mkdir(parents=True)
    monkeypatch.delattr(checkpoint, "snapshot_download")
    monkeypatch.delattr(sys.modules[verify.__module__], "snapshot_download")
    assert refusal("./nowhere") == "There is no folder './nowhere'."
    monkeypatch.delattr(sources, "HfApi")
    assert sources.is_path("runs/imdb")  # nobody is asked for a folder that is there
    for command in (from_official, verify, partial(push, repo_id="user/model")):
        with pytest.raises((ConversionError, FileNotFoundError), match="'runs/imbd'; did you mean 'runs/imdb'"):
            command("runs/imbd")


def test_a_hub_id_beside_a_folder_with_a_similar_name(tmp_path, online, monkeypatch):
    """As `tfm-zoo convert user/model user/model-zoo` leaves one; on the Hub, and in its cache."""
    original = build_tiny(BY_NAME[BERT])
    original.save_pretrained(tmp_path / "here", max_shard_size="40KB")
    (tmp_path / "user" / "model-zoo").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    online().create_repo("user/model")
    online().upload_folder(repo_id="user/model", folder_path=tmp_path / "here")
    for offline in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        zoo = from_official("user/model")
        assert zoo.config.name_or_path == "user/model"
        assert_same_model(to_official(zoo), original)
    assert "did you mean 'user/model-zoo'?" in refusal("user/model-zo")


def command(*options: str, name: str = "convert") -> Callable[[str], str]:
    return lambda source: run(name, source, "zoo", *options, code=1)


UNKNOWN = ("mamba", "user/model is of architecture 'mamba', which the zoo does not")
OF_ANOTHER_FAMILY = ("bert", "'causal-lm' is not a class of the zoo's family tfm_bert")


@pytest.mark.parametrize(
    ("refuse", "model_type", "message"),
    [
        (refusal, *UNKNOWN),
        (command(), *UNKNOWN),
        (command("--model-class", "causal-lm"), *OF_ANOTHER_FAMILY),
        (command("--dtype", "int3"), "bert", "dtype='int3' should be one of torch.float64"),
        (command("--quantize", "int8", "--split", "no.csv"), "bert", "--split 'no.csv' is neither a file"),
        (command(name="export"), "bert", "user/model holds a model of type 'bert', not one of the zoo"),
    ],
)
def test_no_weights_are_downloaded_for_what_is_refused(tmp_path, online, refuse, model_type, message):
    for name, content in ((CONFIG, json.dumps({"model_type": model_type})), (WEIGHTS, "large")):
        online().create_repo("user/model", exist_ok=True)
        online().upload_file(path_or_fileobj=content.encode(), path_in_repo=name, repo_id="user/model")
    assert message in refuse("user/model")
    names = {file.name for file in (tmp_path / "cache").rglob("*.*")}
    assert CONFIG in names and WEIGHTS not in names
