"""Faults that are put into recorded models: `verify` finds them, and says where, as `recipes/verify.md` lists them."""

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from torch.nn import ModuleList, Parameter, ReLU
from torch.nn.functional import cross_entropy

import tfm_zoo
from tfm_zoo.proof import record, verify
from tfm_zoo.training.tokenizers import byte_level_bpe, word_piece_tokenizer

from ..official_models import BY_NAME, build_tiny
from ..tiny import tiny_model
from .editing import CONFIG, MANIFEST, accept, both, cut, delete, edit, edited, replace, tensors, without, write
from .test_record import OFFICIAL, SIGNALS

PAGE = Path(__file__).parents[2].joinpath("recipes", "verify.md").read_text(encoding="utf-8")
UNREAD = ("README.md", ".gitattributes", "runs/events.out.tfevents.1")
TEXTS = ["The Transformer is a model.", "Two dogs play in the snow.", "it's OK"] * 3
CLASSES = {"bert": "BertForSequenceClassification", "llama": "LlamaForCausalLM", "marian": "MarianMTModel"}
RUNS = "raise SystemExit('it ran')\n"
#: what is changed, the model that it is changed in, and what `verify` says (after "it was not run, ..." whatever)
ROWS = re.findall(r"^\| ([^|]+) \| (bert|llama|marian|zoo) \| (.+) \|$", PAGE, re.MULTILINE)
DENSE, DOWN = "bert.encoder.layer.1.output.dense.weight", "model.layers.2.mlp.down_proj.weight"
GENERATION, TOKENIZER = "generation_config.json", "tokenizer_config.json"


def flip_a_bit(weights: dict) -> dict:
    weights[DENSE].view(torch.int32)[0, 0] ^= 1
    return weights


def with_layers_swapped(weights: dict) -> dict:
    return {re.sub(r"(?<=layer\.)[01]", lambda n: str(1 - int(n[0])), name): each for name, each in weights.items()}


def naming(auto_class: str, target: str) -> Callable:
    return edited(CONFIG, auto_map={auto_class: target})


def lose_a_merge(folder: Path) -> None:
    model = edit(folder, "tokenizer.json")["model"]
    model["merges"].remove(["i", "t"])
    edit(folder, "tokenizer.json", model=model)


def with_code(*names: str, **fields) -> Callable:
    """`layers.py` runs more, by itself or by a file that it imports, and the manifest says that it was saved so."""

    def act(folder: Path) -> None:
        layers = folder / "layers.py"
        layers.write_text("from .more import *\n" + layers.read_text() if names else layers.read_text() + RUNS)
        for name in names:
            (folder / name).write_text(RUNS)
        accept(folder, "layers.py", *names)
        edit(folder, MANIFEST, **fields)

    return act


def name_settings_as_earlier_releases(folder: Path) -> None:
    settings = edit(folder, MANIFEST)["settings"]
    config = settings[CONFIG]
    config["torch_dtype"], config["rope_theta"] = config.pop("dtype"), config.pop("rope_parameters")["rope_theta"]
    del settings[GENERATION]["_from_model_config"]
    edit(folder, MANIFEST, settings=settings)


def module(path: str, kind: str) -> Callable:
    """The modules.json of sentence-transformers."""
    return write("modules.json", json.dumps([{"idx": 0, "name": "0", "path": path, "type": kind}]))


def saved(make: Callable) -> Callable:
    return lambda folder: make(folder).save_pretrained(folder)


MINE = {"AutoModel": "mine.Mine"}
OWN = {"AutoTokenizer": [None, "tokenization_mine.Mine"]}
POOLING = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
PIPELINES = {"mine": {"impl": "a/b--pipe.Mine", "pt": ["AutoModel"]}}
TOWER = {"model_type": "tower", "auto_map": {"AutoModel": "a/b--theirs.Tower"}}
LOCAL, OTHER = "sub/configuration_tfm_bert", "modeling_tfm_bert.TfmBertForMaskedLM"
IN_A_FOLDER = both(write(f"{LOCAL}.py", RUNS), naming("AutoConfig", f"{LOCAL}.TfmBertConfig"))
#: row of the page -> what changes a copy of the model's folder
FAULTS = {
    "one bit of a weight": tensors(flip_a_bit),
    "two layers swapped in the file": tensors(with_layers_swapped),
    "a tensor is missing": without("classifier.weight"),
    "weights of a shard from another training": tensors(lambda weights: weights | {DOWN: weights[DOWN] * 1.01}),
    "weights saved again in bfloat16": saved(partial(transformers.LlamaForCausalLM.from_pretrained, dtype="bfloat16")),
    "the file is cut short": cut("model.safetensors", 50),
    "an epsilon in config.json": edited(CONFIG, layer_norm_eps=1e-5),
    "an activation in config.json": edited(CONFIG, hidden_act="gelu"),
    "two labels swapped": edited(CONFIG, id2label={"0": "B", "1": "A"}, label2id={"B": 0, "A": 1}),
    "a generation setting": edited(GENERATION, temperature=0.3, do_sample=True),
    "another architecture in config.json": edited(CONFIG, model_type="gemma"),
    "a kernel of attention in config.json": edited(CONFIG, attn_implementation="eager"),
    "the official model of it": saved(lambda at: tfm_zoo.to_official(tfm_zoo.TfmBertForMaskedLM.from_pretrained(at))),
    "another file instead of config.json": edited(CONFIG, configuration_files=["config.5.0.0.json"]),
    "whether unknown generation settings count": edited(GENERATION, _from_model_config=False),
    "generation settings that come from config.json": delete(GENERATION),
    "a merge of the tokenizer": lose_a_merge,
    "the chat template": replace("chat_template.jinja", "<|", "<"),
    "a special token": edited(TOKENIZER, eos_token="<|end|>"),
    "the tokenizer's length": edited(TOKENIZER, model_max_length=64),
    "the tokenizer's vocabulary is gone": delete("tokenizer.json"),
    "a tokenizer with code of its own": both(write("tokenization_mine.py", RUNS), edited(TOKENIZER, auto_map=OWN)),
    "custom_generate/generate.py": write("custom_generate/generate.py", RUNS),
    "adapter_config.json with another base": edited("adapter_config.json", base_model_name_or_path="someone/else"),
    "a pooling of sentence-transformers": edited("1_Pooling/config.json", **POOLING),
    "auto_map into a folder": IN_A_FOLDER,
    "auto_map into another repository": naming("AutoModelForMaskedLM", f"a/b--{OTHER}"),
    "auto_map into another local folder": naming("AutoModelForMaskedLM", "evil--modeling_evil.TfmBertForMaskedLM"),
    "a config.json that is not looked into": edited(CONFIG, configuration_files=[".hidden/config.5.0.json"]),
    "a tokenizer of another local folder": edited(TOKENIZER, auto_map=["evil--tokens.Mine", None]),  # as old ones have
    "auto_map of a folder in a folder": both(write("a/b/mine.py", RUNS), edited("a/b/config.json", auto_map=MINE)),
    "a module of sentence-transformers outside": module("../other", "sentence_transformers.models.Any"),
    "an activation of sentence-transformers": edited("2_Dense/config.json", activation_function="theirs.Activation"),
    "a library of an adapter": edited("more/adapter_config.json", auto_mapping={"parent_library": "theirs"}),
    "a pipeline of another repository": edited(CONFIG, custom_pipelines=PIPELINES),
    "auto_map of a part of the model": edited(CONFIG, tower=TOWER),
    "a kernel of attention from the Hub": edited(CONFIG, attn_implementation="someone/kernel"),
    "a module of sentence-transformers with its own code": both(write("mine.py", RUNS), module("", "mine.Pooling")),
    "a character of the zoo's code": replace("positions.py", "10000.0", "10000.1"),
    "a module that the zoo does not have, in code and manifest": with_code("more.py"),
    "changed code, and a manifest that names another version": with_code(tfm_zoo="0.2.0"),
    "changed code, and a manifest of an unknown version": with_code(tfm_zoo="0.0.1", loading={}),
    "weights changed, and the manifest written anew": both(tensors(flip_a_bit), record),
    "a README edited, .gitattributes, runs/": both(*(write(name, "mine") for name in UNREAD)),
    "a tokenizer saved after the model, as Trainer does": saved(lambda _: word_piece_tokenizer(TEXTS)),
    "a tokenizer saved again": saved(transformers.AutoTokenizer.from_pretrained),
    "a model saved again": saved(transformers.LlamaForCausalLM.from_pretrained),
    "the settings of an earlier release": name_settings_as_earlier_releases,
    "a default that is not written": edited(CONFIG, hidden_act=..., transformers_version="5.99", _name_or_path="else"),
}


def see_no_further(config, inputs_embeds, attention_mask, **_):
    given = {"config": config, "inputs_embeds": inputs_embeds, "attention_mask": attention_mask}
    return transformers.masking_utils.create_causal_mask(**given, past_key_values=None, position_ids=None)


def see_ahead(attention_mask, **_):
    return attention_mask[:, None, None].bool().expand(-1, 1, attention_mask.shape[1], -1)


def in_bfloat16(forward: Callable) -> Callable:
    """What an intermediate part computes if its dense layer gives bfloat16."""
    part, dense = forward.__self__, forward.__self__.dense.forward
    part.dense.forward = lambda states: dense(states).bfloat16()
    return lambda states: part.intermediate_act_fn(part.dense(states).float())


BERT_MASK = "transformers.models.bert.modeling_bert.create_bidirectional_mask"
LLAMA_MASK = "transformers.models.llama.modeling_llama.create_causal_mask"
LAYER, IDS = "bert.encoder.layer", ("bert.embeddings", "position_ids")
FROM_ONE = {"position_ids": torch.arange(1, 13)[None]}
#: row of the page -> in the model that a library makes of a folder: a part, what it has, and what it has then
DRIFTS = {
    "an epsilon in a library": (f"{LAYER}.1.output.LayerNorm", "eps", lambda _: 0.1),
    "an activation in a library": (f"{LAYER}.2.intermediate", "intermediate_act_fn", lambda _: ReLU()),
    "learned positions shifted by one": (*IDS, lambda ids: ids + 1),
    "positions behind the twelfth": (*IDS, lambda ids: ids * (torch.arange(ids.shape[1]) < 20)),
    "another base of rotary positions": ("model.rotary_emb", "inv_freq", lambda frequencies: frequencies * 0.9),
    "rotary positions shifted by one": ("model", "forward", lambda run: lambda **given: run(**given | FROM_ONE)),
    "two layers swapped in memory": ("model", "layers", lambda all: ModuleList([all[1], all[0], *all[2:]])),
    "weights initialised anew after loading": (f"{LAYER}.0.attention.self.query", "weight", lambda w: Parameter(-w)),
    "a layer in bfloat16": (f"{LAYER}.1.intermediate", "forward", in_bfloat16),
    "another scale of attention": (f"{LAYER}.1.attention.self", "scaling", lambda scale: scale * 0.5),
    "an activation that is not a module": ("model.decoder.layers.1", "activation_fn", lambda _: torch.relu),
}
#: row of the page -> what stands in a library for what it has
PATCHES = {
    "the mask made causal": (BERT_MASK, see_no_further),
    "the mask of padding lost": (BERT_MASK, lambda **_: None),
    "a decoder that sees ahead": (LLAMA_MASK, see_ahead),
    "another loss": ("torch.nn.CrossEntropyLoss.forward", lambda _, *given: cross_entropy(*given, label_smoothing=0.1)),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, here) -> dict[str, Path]:
    """Recorded models, and one of the zoo with the manifest that it was saved with."""
    root = tmp_path_factory.mktemp("recorded")
    bpe = byte_level_bpe(TEXTS, 300)
    bpe.chat_template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    tokenizers = {"bert": word_piece_tokenizer(TEXTS), "llama": bpe}
    edit(root, "bert/1_Pooling/config.json", **{name: not value for name, value in POOLING.items()})
    for name, class_name in CLASSES.items():
        tokenizer = tokenizers.get(name)
        model = build_tiny(BY_NAME[class_name], **({"vocab_size": len(tokenizer)} if tokenizer else {}))
        for each in filter(None, (model, tokenizer)):
            each.save_pretrained(root / name)
        record(root / name)
    tiny_model(tfm_zoo.TfmBertForMaskedLM).save_pretrained(root / "zoo")
    return {name: root / name for name in (*CLASSES, "zoo")}


def test_the_page_lists_them():
    assert sorted(row[0] for row in ROWS) == sorted(FAULTS | DRIFTS | PATCHES)
    assert [name for name in (*OFFICIAL, *SIGNALS) if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize(("title", "model", "answer"), ROWS, ids=[row[0] for row in ROWS])
def test_fault(title, model, answer, recorded, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(recorded[model], tmp_path / "model"))
    if title in FAULTS:
        FAULTS[title](folder)
    elif title in PATCHES:
        monkeypatch.setattr(*PATCHES[title])
    else:
        loaded_otherwise(getattr(transformers, CLASSES[model]), *DRIFTS[title], monkeypatch)
    verdict = verify(folder)
    says = answer[1:-1] if answer.startswith("`") else ""  # else the page says why nothing is said
    assert verdict.ok == (not says), verdict
    pattern = ".*".join(map(re.escape, says.split("...")))
    said = [f"{one}; {verdict.code}" for one in verdict.differences or [""]]
    assert any(re.search(pattern, one) for one in said), "\n".join(said)
    assert not (says.startswith("config.json: ") and "first_change" in verdict.figures)
    if re.match("code file|it was not run|.* names (code|the folder)", says):
        assert not verify(folder, code_only=True).ok and "loader" not in verify(folder, python="another").figures
    if says.endswith("has been changed"):  # to trust the code that was saved is not to trust that
        assert "loader" not in verify(folder, trust_remote_code=True).figures


def loaded_otherwise(model_class: type, part: str, name: str, change: Callable, monkeypatch) -> None:
    """Lets `from_pretrained` change what it has loaded."""
    load = model_class.from_pretrained

    def from_pretrained(*args, **options):
        model, info = load(*args, **options)
        module = model.get_submodule(part)
        old = getattr(module, name)
        new = change(old)
        if isinstance(old, torch.nn.Module) and not isinstance(new, torch.nn.Module):
            delattr(module, name)
        setattr(module, name, new)
        return model, info

    monkeypatch.setattr(model_class, "from_pretrained", from_pretrained)
