"""Models and their cards on their way to the Hub and back: all in one commit, or nothing; what a person wrote there
stays, and the Hub takes what the zoo wrote."""

import json
import re
import threading
from importlib import import_module
from pathlib import Path

import pytest
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import AutoModel
from transformers.activations import ACT2FN

from tfm_zoo import TfmBertForSequenceClassification, TfmGPTForCausalLM, from_official
from tfm_zoo.hub import PushError, files_to_push, push
from tfm_zoo.hub.cards import facts_of_zoo_model, with_source, write_card
from tfm_zoo.hub.model_card import MARK, card_of_model, make_card
from tfm_zoo.proof import verify
from tfm_zoo.proof.manifest import complete_manifest

from ..command import tfm_zoo as command
from ..official_models import BY_NAME, build_tiny
from ..tiny import HEADS, tiny_config, tiny_model
from ..words import make_tokenizer
from .editing import MANIFEST, both, write

NAME = "user/model"
RECIPE_CARD = f"---\nlicense: mit\n---\n{MARK.format('runs/old')}\n# old\nfrom a recipe"
OWN_CARD = "---\n# a comment\nlicense: mit   # yes\ntags: [mine]\n---\nmy own"


def save(folder: Path, seed: int = 0, size: str = "1GB", head: type = TfmBertForSequenceClassification) -> Path:
    tiny_model(head, seed=seed).save_pretrained(folder, max_shard_size=size)
    return folder


@pytest.fixture
def folder(tmp_path):
    return save(tmp_path / "model")


@pytest.fixture
def there(online, hub_server):
    """The repository on the Hub, once it is there."""
    return lambda: hub_server.repositories[NAME]


def served(repository) -> set[str]:
    return set(repository.at("main").files) - {".gitattributes"}


def card(repository) -> str:
    return repository.read("README.md").decode()


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_one_commit_holds_the_model_and_nothing_else(folder, there, hub_server):
    before = {path.name for path in folder.iterdir()}
    write("additional_chat_templates/tools.jinja", "part of a tokenizer")(folder)
    left = ("optimizer.pt", "training_args.bin", ".env", "events.out.tfevents.1", "wandb/run/x.txt", "sub/state.pkl")
    for name in (*left, "sub/checkpoint-3/model.safetensors", ".git/config"):
        write(name, "private")(folder)
    push(folder, NAME, private=True)
    assert served(there()) == before | {"additional_chat_templates/tools.jinja", "README.md"} and MANIFEST in before
    assert there().private and len(there().commits) == 2 and not (folder / "README.md").exists()
    push(folder, NAME)
    assert len(there().commits) == 2
    hub_server.tokens.clear()
    push(save(folder, seed=1), NAME, token="hf_other")
    assert verify(NAME, token="hf_other").ok and hub_server.tokens == {"Bearer hf_other"}  # not the environment's


def test_only_files_of_the_model_go(folder, there, hub_server, caplog):
    """What stays is named here, and not in the manifest on the Hub. A dry run says what goes, and asks for nothing."""
    others = {"customers.csv", "notes/a.txt"}
    kept = {"1_Own/table.tsv", "adapter/adapter_config.json", "onnx/model.onnx", "all_results.json", "a b/c.png"}
    for name in others | kept:
        write(name, "{}")(folder)
    complete_manifest(folder)
    both(write("modules.json", '[{"path": "1_Own"}]'), write("README.md", "![it](./a%20b/c.png)"))(folder)
    sizes, said = files_to_push(folder, NAME), command("push", folder, NAME, "--dry-run")
    assert f" {sizes['model.safetensors']:,} model.safetensors " in said and not hub_server.tokens
    assert caplog.text.count("no part of the model: customers.csv, notes/a.txt (add them with") == 2
    push(folder, NAME)
    assert {name: len(there().read(name)) for name in served(there())} == sizes and kept < sizes.keys()
    assert {"1_Own/table.tsv", "adapter/adapter_config.json"} == json.loads(there().read(MANIFEST))["files"].keys()


REFUSED = r"The upload to user/model failed: .* It lacks LICENSE: .* Push again \(tfm-zoo push .* user/model\)"
HANGS = r"there was no answer for 0\.3 seconds\. The repository does not"


@pytest.mark.parametrize("says", [REFUSED, HANGS])
def test_interrupted_and_run_again(folder, there, hub_server, says, monkeypatch):
    push(folder, NAME)
    before, hangs = there().branches["main"], threading.Event()
    write("LICENSE", "new")(save(folder, seed=1))
    hub_server.faults["commit"] = 403 if says is REFUSED else lambda: hangs.wait(60)
    with monkeypatch.context() as patched, pytest.raises(PushError, match=says):
        patched.setattr("tfm_zoo.hub.uploading.PATIENCE", 60 if says is REFUSED else 0.3)
        push(folder, NAME)
    hangs.set()
    assert there().branches["main"] == before
    hub_server.faults.clear()
    push(folder, NAME)
    assert there().branches["main"] != before and there().read(MANIFEST) == (folder / MANIFEST).read_bytes()


def test_no_connection_or_no_permission(folder, online, monkeypatch):
    with pytest.raises(PushError, match=r"^other/model: 403.* Nothing was sent; push again: tfm-zoo .* --private$"):
        push(folder, "other/model", private=True)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(PushError, match=r"The Hub \(http://127.*\) cannot be reached: .* Nothing was sent; .*: tfm-z"):
        push(folder, NAME)


def test_a_commit_whose_answer_is_lost(folder, there, hub_server):
    """The Hub made it: it is asked, and nothing is sent a second time. The command says where it is."""
    hub_server.faults["commit"] = "cut"
    assert hub_server.url in (said := command("push", folder, NAME, "--commit-message", "First"))
    assert there().branches["main"] in said and there().at("main").title == "First" and len(there().commits) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_what_an_earlier_push_left_goes(tmp_path, there):
    """Shards beside a whole file, or beside fewer; code of another family: what loads is what was pushed last."""
    for seed, size in enumerate(("1GB", "8KB", "20KB", "1GB")):
        head = TfmGPTForCausalLM if seed == 3 else TfmBertForSequenceClassification
        push(folder := save(tmp_path / str(seed), seed, size, head), NAME)
        assert served(there()) == {path.name for path in folder.iterdir()} | {"README.md"}
    assert verify(NAME).ok


def test_save_and_push_sends_what_was_saved(tmp_path, there):
    model = tiny_model(TfmBertForSequenceClassification)
    halved = {name: tensor / 2 for name, tensor in model.state_dict().items()}
    options = {"repo_id": NAME, "max_shard_size": "8KB", "commit_message": "Halved", "tags": "given"}
    model.save_pretrained(tmp_path, state_dict=halved, push_to_hub=True, **options)
    assert "given" in ModelCard(card(there())).data.tags and there().at("main").title == "Halved"
    assert all(there().read(path.name) == path.read_bytes() for path in tmp_path.iterdir())


def test_revisions_and_privacy(folder, there, tmp_path):
    """A branch is made and moves alone; a person's card stays on it, and weights of an earlier push go. A tag or a
    commit takes no push, and what is public does not become private."""
    push(folder, NAME, private=False)
    commit = there().branches["main"]
    push(save(tmp_path / "shards", 1, "8KB"), NAME, revision="tuned")
    assert there().branches["main"] == commit != there().branches["tuned"]
    there().add(there().at("tuned").files | {"README.md": OWN_CARD.encode()}, "tuned")
    push(save(folder, seed=2), NAME, revision="tuned")
    assert there().read("README.md", "tuned").decode() == OWN_CARD and MARK.format(NAME) in card(there())
    assert there().at("tuned").files.keys() == there().at("main").files.keys()
    there().tags["v1"], branches = commit, dict(there().branches)
    wrong = {"is a commit of": {"revision": commit}, "v1 is a tag of": {"revision": "v1"}, "public": {"private": True}}
    for message, options in wrong.items():
        with pytest.raises(ValueError, match=message):
            push(folder, NAME, **options)
    assert there().branches == branches


def test_a_class_of_ones_own_goes_with_its_code(there, tmp_path, monkeypatch, caplog):
    """Once that is registered, and not before: nobody could load it. By the zoo's configuration, its class loads."""
    code = "from tfm_zoo import *\nclass Bare(TfmBertModel): 1\nclass Config(TfmBertConfig): model_type = 'own'\n"
    write("own_block.py", f"{code}class Own(TfmBertModel): config_class = Config")(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    model = (own := import_module("own_block")).Own(own.Config(**tiny_config().to_diff_dict() | {"model_type": "own"}))
    monkeypatch.setitem(ACT2FN, "cubed", type(ACT2FN["relu"]))
    cubed = tiny_model(TfmBertForSequenceClassification, hidden_act="cubed")
    for each, said in ((model, "register_for_auto_class"), (cubed, "transformers has no activation 'cubed'")):
        each.save_pretrained(tmp_path / said)
        for act, where in ((each.push_to_hub, ()), (push, [tmp_path / said])):
            with pytest.raises((ValueError, FileNotFoundError), match=said):
                act(*where, NAME)
    own.Bare(tiny_config()).save_pretrained(tmp_path / "bare")
    assert {caplog.text.count(it) for it in (said, "class TfmBertModel in its place", "model_type of its own")} == {1}
    assert "names class Bare, which neither transformers" in str(verify(tmp_path / "bare"))
    own.Config.register_for_auto_class()
    own.Own.register_for_auto_class("AutoModel")
    model.push_to_hub(NAME)
    assert served(there()) >= {"own_block.py", MANIFEST} and not served(there()) & {"layers.py"}
    assert f"`tfm-zoo verify {NAME} --trust-remote-code`" in card(there())
    assert type(AutoModel.from_pretrained(NAME, trust_remote_code=True)).__name__ == "Own"


def test_an_adapter_goes_as_transformers_sends_it(there):
    from peft import LoraConfig

    model = tiny_model(TfmBertForSequenceClassification)
    model.add_adapter(LoraConfig(target_modules=["q_proj"]))
    model.push_to_hub(NAME)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= served(there()) and MANIFEST not in served(there())


def test_a_card_that_a_person_wrote_stays(folder, there):
    """In the folder, which stays as it is, and on the Hub. One that the zoo wrote names the repository there."""
    write("README.md", RECIPE_CARD)(folder)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    push(folder, NAME)
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    assert "# model\nfrom a recipe" in card(there()) and MARK.format(NAME) in card(there())
    for text in (OWN_CARD, RECIPE_CARD):
        write("README.md", text)(folder)
        push(folder, NAME)
        assert "my own" in card(there())
    tiny_model(TfmBertForSequenceClassification).push_to_hub(NAME, tags=["given"])
    tagged = ModelCard(card(there()))
    assert (tagged.data.tags, tagged.data.license, tagged.text.strip()) == (["mine", "given"], "mit", "my own")


@pytest.mark.parametrize("name", ["2024", "mod\u00e8le", "a-model"])
def test_results_in_a_card_have_the_name_of_the_repository(name):
    """A number, too, and from a folder of any name."""
    result = EvalResult("text-classification", "imdb", "IMDB", "accuracy", 0.9)
    for old, new in ((name, "user/2025"), ("model", f"user/{name}")):
        card = make_card("text", ModelCardData(model_name=old, eval_results=[result]), old)
        assert ModelCard(with_source(str(card), new)).data.model_name == new.removeprefix("user/")


def test_card_of_a_converted_checkpoint(tmp_path, there, caplog):
    """It is pushed with the repository's name, and the Hub reads its metadata."""
    ends = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1, "forced_eos_token_id": 1}
    native, folder = build_tiny(BY_NAME["MarianMTModel"], **ends), tmp_path / "zoo"
    native.save_pretrained(tmp_path / "official")
    push(tmp_path / "official", NAME, native=True)
    assert "model.safetensors" in served(there()) and "README.md" not in served(there()) and "no card" in caplog.text
    write("official/README.md", "---\nlicense: mit\n---\nThe original.")(tmp_path)
    command("convert", tmp_path / "official", folder)
    made = ModelCard.load(folder / "README.md")
    assert (made.data.pipeline_tag, made.data.license) == ("translation", "mit")
    assert {"tfm_zoo", "marian"} <= set(made.data.tags) and "| positions | sinusoidal |\n| norm |" in made.text
    facts = facts_of_zoo_model(from_official(build_tiny(BY_NAME["T5ForConditionalGeneration"])))
    assert "| positions | biased by distance |\n| norm |" in facts["about"].render(facts)
    trained = sum(weight.numel() for weight in native.parameters() if weight.requires_grad)
    assert f"| parameters | {trained:,} |" in made.text and "The checkpoint had no tokenizer" in made.text
    assert "bit for bit" in made.text
    push(folder, NAME)
    for form in ('.from_pretrained("{}"', "`tfm-zoo verify {}`", MARK):
        assert form.format("zoo") in made.content and form.format(NAME) in card(there())
    assert (folder / "README.md").read_text() == made.content  # what is here stays
    write("README.md", "my own")(folder)
    assert not write_card(folder, "text", made.data, "zoo") and (folder / "README.md").read_text() == "my own"


@pytest.mark.parametrize("way", ["MaskedLM", "MultipleChoice", "CausalLM", "ForConditionalGeneration"])
def test_the_example_of_a_card_runs(way, tmp_path):
    """It loads the model and its tokenizer, and uses them as heads of this kind are used."""
    model = tiny_model(next(head for head in HEADS if head.__name__.endswith(way)))
    model.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    exec(re.search(r"```python\n(.+?)```", card_of_model(model, str(tmp_path)).text, re.DOTALL)[1], found := {})
    assert found.keys() & {"outputs", "texts"} and found["tokenizer"].vocab_size < 61
