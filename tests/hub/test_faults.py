"""Faults that are put into recorded models: whether `verify` finds them, and where. `recipes/verify.md` lists them."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import tfm_zoo
from tfm_zoo.hub import record, verify
from tfm_zoo.training.tokenizers import byte_level_bpe, word_piece_tokenizer

from ..official_models import BY_NAME, build_tiny
from ..tiny import tiny_model
from .test_record import OFFICIAL, SIGNALS

PAGE = Path(__file__).parents[2] / "recipes" / "verify.md"
TEXTS = ["The Transformer is a model.", "Two dogs play in the snow.", "it's OK"] * 3
CLASSES = {"bert": "BertForSequenceClassification", "llama": "LlamaForCausalLM", "marian": "MarianMTModel"}
FAULTS: list["Fault"] = []


@dataclass
class Fault:
    """`inject` changes a copy of a model's folder or, if `is_drift`, the model that a library makes of it."""

    title: str
    model: str
    says: str  # what `verify` finds first of all that tells this fault; "": nothing
    inject: Callable
    is_drift: bool
    why: str  # why it is not found, or why it is none


def fault(title: str, model: str, says: str = "", why: str = "", is_drift: bool = False) -> Callable:
    def add(inject: Callable) -> Callable:
        FAULTS.append(Fault(title, model, says, inject, is_drift, why))
        return inject

    return add


def drift(title: str, model: str, says: str = "", why: str = "") -> Callable:
    return fault(title, model, says, why, is_drift=True)


def edited(path: Path, **fields) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | fields))


def with_tensors(folder: Path, change: Callable[[dict], dict]) -> None:
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


# -- weights


@fault("one bit of a weight", "bert", "weights changed: bert.encoder.layer.1.output.dense.weight")
def _(folder):
    def flip(tensors):
        tensors["bert.encoder.layer.1.output.dense.weight"].view(torch.int32)[0, 0] ^= 1
        return tensors

    with_tensors(folder, flip)


@fault("two layers swapped in the file", "bert", "encoder.layer.0.attention.self.query (Linear), ...: its weights")
def _(folder):
    def swap(tensors):
        other = {"0": "1", "1": "0"}
        return {re.sub(r"(?<=layer\.)[01]", lambda i: other[i[0]], name): value for name, value in tensors.items()}

    with_tensors(folder, swap)


@fault("a tensor is missing", "bert", "weights missing when it is loaded: classifier.weight")
def _(folder):
    with_tensors(folder, lambda tensors: {name: tensors[name] for name in tensors if name != "classifier.weight"})


@fault("weights of a shard from another training", "llama", "weights changed: model.layers.2.mlp.down_proj.weight")
def _(folder):
    with_tensors(folder, lambda tensors: tensors | {DOWN: tensors[DOWN] * 1.01})


DOWN = "model.layers.2.mlp.down_proj.weight"


@fault("weights saved again in bfloat16", "llama", "weights changed: ")
def _(folder):
    with_tensors(folder, lambda tensors: {name: value.bfloat16() for name, value in tensors.items()})


@fault("the file is cut short", "bert", "weights cannot be read from model.safetensors")
def _(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-50])


# -- settings


@fault("an epsilon in config.json", "bert", "config.json: layer_norm_eps was 0.001 and is 1e-05")
def _(folder):
    edited(folder / "config.json", layer_norm_eps=1e-5)


@fault("an activation in config.json", "bert", "config.json: hidden_act was 'silu' and is 'gelu'")
def _(folder):
    edited(folder / "config.json", hidden_act="gelu")


@fault("two labels swapped", "bert", "config.json: id2label.0 was ")
def _(folder):
    edited(folder / "config.json", id2label={"0": "B", "1": "A"}, label2id={"B": 0, "A": 1})


@fault("a generation setting", "llama", "generation_config.json: temperature was None and is 0.3")
def _(folder):
    edited(folder / "generation_config.json", temperature=0.3, do_sample=True)


@fault("another architecture in config.json", "llama", "config.json: model_type was 'llama' and is 'gemma'")
def _(folder):
    edited(folder / "config.json", model_type="gemma")


@fault("a kernel of attention in config.json", "llama", "config.json: attn_implementation was None and is 'eager'")
def _(folder):
    edited(folder / "config.json", attn_implementation="eager")


@fault("a kernel of a part of the model", "llama", "config.json: tower.experts_implementation was None and is 'eager'")
def _(folder):
    edited(folder / "config.json", tower={"width": 3, "experts_implementation": "eager"})
    manifest = json.loads((folder / "zoo_manifest.json").read_text())
    manifest["settings"]["config.json"]["tower"] = {"width": 3}
    edited(folder / "zoo_manifest.json", settings=manifest["settings"])


@fault("another file in the place of config.json", "llama", "config.json: configuration_files was None and is ['con")
def _(folder):
    shutil.copy(folder / "config.json", folder / "config.5.0.0.json")
    edited(folder / "config.json", configuration_files=["config.5.0.0.json"])


@fault("whether unknown generation settings count", "llama", "generation_config.json: _from_model_config was True and")
def _(folder):
    edited(folder / "generation_config.json", _from_model_config=False)


@fault("generation settings that come from config.json", "llama", "generation_config.json is missing")
def _(folder):
    (folder / "generation_config.json").unlink()


# -- the tokenizer


@fault("a merge of the tokenizer", "llama", "the tokenizer makes something else of a pair of texts, a text")
def _(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["merges"].remove(["i", "t"])
    (folder / "tokenizer.json").write_text(json.dumps(content))


@fault("the chat template", "llama", "the tokenizer makes something else of a conversation")
def _(folder):
    replaced(folder / "chat_template.jinja", "<|", "<")


@fault("a special token", "llama", "special tokens: eos_token was '<|endoftext|>' and is '<|end|>'")
def _(folder):
    edited(folder / "tokenizer_config.json", eos_token="<|end|>")


@fault("the tokenizer's vocabulary is gone", "bert", "files missing: tokenizer.json")
def _(folder):
    (folder / "tokenizer.json").unlink()


# -- code, and what loading runs or reads


@fault("a tokenizer with code of its own", "bert", "code file tokenization_mine.py was not saved with the checkpoint")
def _(folder):
    (folder / "tokenization_mine.py").write_text("raise SystemExit('it ran')")
    edited(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "tokenization_mine.Mine"]})


@fault("custom_generate/generate.py", "llama", "code file custom_generate/generate.py was not saved")
def _(folder):
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("raise SystemExit('it ran')")


@fault("adapter_config.json with another base", "llama", "adapter_config.json names the base 'someone/else'")
def _(folder):
    edited(folder / "adapter_config.json", base_model_name_or_path="someone/else", peft_type="LORA")


@fault("a pooling of sentence-transformers", "bert", "files changed since it was recorded: 1_Pooling/config.json")
def _(folder):
    edited(folder / "1_Pooling" / "config.json", pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)


@fault("auto_map into a folder", "zoo", "config.json names code 'sub/configuration_tfm_bert.TfmBertConfig'")
def _(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "configuration_tfm_bert.py").write_text("raise SystemExit('it ran')")
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    edited(folder / "config.json", auto_map=auto_map | {"AutoConfig": "sub/configuration_tfm_bert.TfmBertConfig"})


@fault("auto_map into another repository", "zoo", "config.json names code 'a/b--modeling_tfm_bert.TfmBertForMaskedLM'")
def _(folder):
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    target = "a/b--modeling_tfm_bert.TfmBertForMaskedLM"
    edited(folder / "config.json", auto_map=auto_map | {"AutoModelForMaskedLM": target})


@fault("auto_map into another local folder", "zoo", "config.json names code 'evil--modeling_evil.TfmBertForMaskedLM'")
def _(folder):
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    target = "evil--modeling_evil.TfmBertForMaskedLM"
    edited(folder / "config.json", auto_map=auto_map | {"AutoModelForMaskedLM": target})


@fault("a config.json that is not looked into", "llama", "config.json names code '.hidden/config.5.0.json'")
def _(folder):
    edited(folder / "config.json", configuration_files=[".hidden/config.5.0.json"])


@fault("a tokenizer of another local folder", "bert", "tokenizer_config.json names code 'evil--tokens.Mine'")
def _(folder):
    edited(folder / "tokenizer_config.json", auto_map=["evil--tokens.Mine", None])  # as old tokenizers have it


@fault("auto_map of a folder in a folder", "bert", "code file a/b/mine.py was not saved with the checkpoint")
def _(folder):
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "mine.py").write_text("raise SystemExit('it ran')")
    edited(folder / "a" / "b" / "config.json", auto_map={"AutoModel": "mine.Mine"})


@fault("a module of sentence-transformers outside", "bert", "modules.json names the folder '../other'")
def _(folder):
    module = {"idx": 0, "name": "0", "path": "../other", "type": "sentence_transformers.models.Transformer"}
    (folder / "modules.json").write_text(json.dumps([module]))


@fault("an activation of sentence-transformers", "bert", "2_Dense/config.json names code 'theirs.Activation'")
def _(folder):
    (folder / "2_Dense").mkdir()
    edited(folder / "2_Dense" / "config.json", activation_function="theirs.Activation")


@fault("a library of an adapter", "bert", "more/adapter_config.json names code 'theirs'")
def _(folder):
    (folder / "more").mkdir()
    edited(folder / "more" / "adapter_config.json", auto_mapping={"parent_library": "theirs"})


@fault("a pipeline of another repository", "zoo", "config.json names code 'a/b--pipe.Mine'")
def _(folder):
    edited(folder / "config.json", custom_pipelines={"mine": {"impl": "a/b--pipe.Mine", "pt": ["AutoModel"]}})


@fault("auto_map of a part of the model", "llama", "config.json names code 'a/b--theirs.Tower'")
def _(folder):
    edited(folder / "config.json", tower={"model_type": "tower", "auto_map": {"AutoModel": "a/b--theirs.Tower"}})


@fault("a kernel of attention from the Hub", "llama", "config.json names code 'someone/kernel'")
def _(folder):
    edited(folder / "config.json", attn_implementation="someone/kernel")


@fault("a module of sentence-transformers with its own code", "bert", "code file mine.py was not saved with the")
def _(folder):
    (folder / "mine.py").write_text("raise SystemExit('it ran')")
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "mine.Pooling"}]))


@fault("a character of the zoo's code", "zoo", "code file positions.py has been changed")
def _(folder):
    replaced(folder / "positions.py", "10000.0", "10000.1")


@fault("a module that the zoo does not have, in code and manifest", "zoo", "it was not run, ...somebody's own: more.py")
def _(folder):
    (folder / "more.py").write_text("raise SystemExit('it ran')")
    path = folder / "layers.py"
    path.write_text("from .more import *\n" + path.read_text())
    accepted(folder, "more.py", "layers.py")


@fault("changed code, and a manifest that names another version", "zoo", "code file layers.py is not the one that")
def _(folder):
    path = folder / "layers.py"
    path.write_text(path.read_text() + "\nraise SystemExit('it ran')\n")
    accepted(folder, "layers.py")
    edited(folder / "zoo_manifest.json", tfm_zoo="0.2.0")


@fault("changed code, and a manifest of an unknown version", "zoo", "it was not run, ...; changed: layers.py")
def _(folder):
    path = folder / "layers.py"
    path.write_text(path.read_text() + "\nraise SystemExit('it ran')\n")
    accepted(folder, "layers.py")
    edited(folder / "zoo_manifest.json", tfm_zoo="0.0.1", loading={})


def accepted(folder: Path, *names: str) -> None:
    """Forges the digests of these code files."""
    path = folder / "zoo_manifest.json"
    digests = tfm_zoo.hub.contents.digests_of_files(folder, names)
    edited(path, code=json.loads(path.read_text())["code"] | digests)


@fault("weights changed, and the manifest written anew", "bert", why="a manifest is no signature: sign the folder")
def _(folder):
    with_tensors(folder, lambda tensors: {name: value * 1.1 for name, value in tensors.items()})
    record(folder)


# -- libraries that compute otherwise: what has been loaded is changed


@drift("an epsilon in a library", "bert", "encoder.layer.1.output.LayerNorm (LayerNorm), ...: a norm")
def _(model):
    model.bert.encoder.layer[1].output.LayerNorm.eps = 0.1


@drift("an activation in a library", "bert", "intermediate_act_fn (ReLU), ...: an activation")
def _(model):
    model.bert.encoder.layer[2].intermediate.intermediate_act_fn = torch.nn.ReLU()


@drift("the mask made causal", "bert", "layer.0.attention.self (BertSelfAttention), ...: who attends to whom")
def _(model):
    attention = "transformers.models.bert.modeling_bert.create_bidirectional_mask"
    causal = transformers.masking_utils.create_causal_mask
    return attention, lambda **options: causal(**{k: v for k, v in options.items() if k in KEPT}, **NONE)


KEPT, NONE = ("config", "inputs_embeds", "attention_mask"), {"past_key_values": None, "position_ids": None}


@drift("the mask of padding lost", "bert", "layer.0.attention.self (BertSelfAttention), ...: the mask of padding")
def _(model):
    return "transformers.models.bert.modeling_bert.create_bidirectional_mask", lambda **_: None


@drift("a decoder that sees ahead", "llama", "layers.0.self_attn.o_proj (Linear), ...: who attends to whom")
def _(model):
    def seen(attention_mask, **_):
        return attention_mask[:, None, None].bool().expand(-1, 1, attention_mask.shape[1], -1)

    return "transformers.models.llama.modeling_llama.create_causal_mask", seen


@drift("learned positions shifted by one", "bert", "embeddings.position_embeddings (Embedding), ...: positions")
def _(model):
    model.bert.embeddings.position_ids += 1


@drift("another base of rotary positions", "llama", "model.rotary_emb (LlamaRotaryEmbedding), ...: positions")
def _(model):
    model.model.rotary_emb.inv_freq *= 0.9


@drift("two layers swapped in memory", "llama", "weights are not as in their file once loaded: model.layers.0")
def _(model):
    layers = model.model.layers
    layers[0], layers[1] = layers[1], layers[0]


@drift(
    "weights initialised anew after loading", "bert", "encoder.layer.0.attention.self.query (Linear), ...: its weights"
)
def _(model):
    model.bert.encoder.layer[0].attention.self.query.weight.data.normal_()


@drift("a layer in bfloat16", "bert", "layer.1.intermediate.dense (Linear), ...: its type was float32 and is bfloat16")
def _(model):
    dense = model.bert.encoder.layer[1].intermediate.dense
    forward = dense.forward
    dense.forward = lambda states: forward(states).bfloat16().float().bfloat16()
    act = model.bert.encoder.layer[1].intermediate.intermediate_act_fn
    model.bert.encoder.layer[1].intermediate.intermediate_act_fn = torch.nn.Sequential(ToFloat(), act)


class ToFloat(torch.nn.Module):
    def forward(self, states):
        return states.float()


@drift(
    "another scale of attention",
    "bert",
    "layer.1.attention.self (BertSelfAttention), ...: its mask, its positions or its scale",
)
def _(model):
    model.bert.encoder.layer[1].attention.self.scaling *= 0.5


@drift("an activation that is no module", "marian", "decoder.layers.1.fc2 (Linear), ...: the feed-forward part")
def _(model):
    layer = model.model.decoder.layers[1]
    del layer.activation_fn
    layer.activation_fn = torch.relu


@drift("another loss", "bert", "output loss drifted by")
def _(model):
    return "torch.nn.CrossEntropyLoss.forward", lambda self, logits, labels: torch.nn.functional.cross_entropy(
        logits, labels, label_smoothing=0.1
    )


# -- what changes nothing, or cannot be seen


@drift("rotary positions shifted by one", "llama", why="it computes the same: only distances count")
def _(model):
    forward = model.model.forward
    model.model.forward = lambda **given: forward(**given | {"position_ids": torch.arange(1, 13)[None]})


@drift("positions behind the twelfth", "bert", why="the fixed inputs are twelve tokens long; a changed file is found")
def _(model):
    model.bert.embeddings.position_ids[0, 20:] = 0


@fault("a README edited, .gitattributes, runs/", "bert", why="it is sound")
def _(folder):
    (folder / "README.md").write_text("# Mine")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs")
    (folder / "runs").mkdir()
    (folder / "runs" / "events.out.tfevents.1").write_text("")


@fault("a tokenizer saved after the model, as Trainer does", "zoo", why="it is sound")
def _(folder):
    word_piece_tokenizer(TEXTS).save_pretrained(folder)


@fault("a tokenizer saved again", "bert", why="it is sound")
def _(folder):
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


@fault("a model saved again", "llama", why="it is sound")
def _(folder):
    transformers.LlamaForCausalLM.from_pretrained(folder).save_pretrained(folder)


@fault("the settings of an earlier release", "llama", why="it is sound: `dtype` and `rope_parameters` were called so")
def _(folder):
    manifest = json.loads((folder / "zoo_manifest.json").read_text())
    config = manifest["settings"]["config.json"]
    config["torch_dtype"], config["rope_theta"] = config.pop("dtype"), config.pop("rope_parameters")["rope_theta"]
    del manifest["settings"]["generation_config.json"]["_from_model_config"]
    edited(folder / "zoo_manifest.json", settings=manifest["settings"])


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Recorded models, and one of the zoo with the manifest that it was saved with."""
    root = tmp_path_factory.mktemp("recorded")
    bpe = byte_level_bpe(TEXTS, 300)
    bpe.chat_template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    tokenizers = {"bert": word_piece_tokenizer(TEXTS), "llama": bpe}
    for name, class_name in CLASSES.items():
        tokenizer = tokenizers.get(name)
        model = build_tiny(BY_NAME[class_name], **({"vocab_size": len(tokenizer)} if tokenizer else {}))
        model.save_pretrained(root / name)
        if tokenizer:
            tokenizer.save_pretrained(root / name)
    (root / "bert" / "1_Pooling").mkdir()
    edited(root / "bert" / "1_Pooling" / "config.json", pooling_mode_mean_tokens=True, pooling_mode_cls_token=False)
    tiny_model(tfm_zoo.TfmBertForMaskedLM).save_pretrained(root / "zoo")
    return {name: root / name for name in (*CLASSES, "zoo")}


@pytest.fixture(scope="module")
def recorded(folders, here) -> dict[str, Path]:
    for name in CLASSES:
        record(folders[name])
    return folders


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.title)
def test_fault(fault, recorded, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(recorded[fault.model], tmp_path / "model"))
    if fault.is_drift:
        loaded_otherwise(getattr(transformers, CLASSES[fault.model]), fault.inject, monkeypatch)
    else:
        fault.inject(folder)
    verdict = verify(folder)
    assert verdict.ok == (not fault.says), verdict
    pattern = ".*".join(map(re.escape, fault.says.split("...")))
    said = [f"{one}; {verdict.code}" for one in verdict.differences or [""]]
    assert any(re.search(pattern, one) for one in said), "\n".join(said)
    if re.match("code file|it was not run|.* names (code|the folder)", fault.says):
        assert not verify(folder, code_only=True).ok and "loader" not in verify(folder, python="another").figures


def test_the_page_lists_them():
    rows = [f"| {fault.title} | {fault.model} | {f'`{fault.says}`' if fault.says else fault.why} |" for fault in FAULTS]
    page = PAGE.read_text(encoding="utf-8")
    assert [row for row in rows if row not in page] == []
    assert [name for name in (*OFFICIAL, *SIGNALS) if f"`{name}`" not in page] == []


def loaded_otherwise(model_class: type, inject: Callable, monkeypatch) -> None:
    """Lets `from_pretrained` change what it has loaded; `inject` may return what it patches in a library."""
    load = model_class.from_pretrained

    def from_pretrained(*args, **options):
        model, info = load(*args, **options)
        patched = inject(model)
        if patched:
            monkeypatch.setattr(*patched)
        return model, info

    monkeypatch.setattr(model_class, "from_pretrained", from_pretrained)
