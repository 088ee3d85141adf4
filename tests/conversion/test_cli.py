"""The commands, on folders: what they write is there as a whole, and nothing is left of what fails."""

import json
import logging
import shutil
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from rich.console import Console
from tokenizers import Tokenizer, models, normalizers
from torch import nn
from transformers import AutoTokenizer
from typer.testing import CliRunner

import tfm_zoo
from tests.conversion.comparison import assert_same_model
from tests.hub.editing import CONFIG, GENERATION, MANIFEST, TOKENIZER, write
from tests.official_models import BY_NAME, build_tiny
from tfm_zoo.cli import app
from tfm_zoo.commands import screen
from tfm_zoo.converters import ARCHITECTURES, ConversionError
from tfm_zoo.converters.new_folders import new_folder
from tfm_zoo.converters.sources import no_folder
from tfm_zoo.utils import quiet


def run(*arguments, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.output


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / name).read_text())


def save(name: str, folder: Path, files: dict[str, str], **fields):
    """An official model of this class, with files beside it."""
    original = build_tiny(BY_NAME[name], **fields)
    original.save_pretrained(folder)
    for file, content in files.items():
        write(file, content)(folder)
    return original


@pytest.fixture
def places(tmp_path):
    return tmp_path / "official", tmp_path / "zoo", tmp_path / "back"


def numbered(*tokens: str) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


#: as an old checkpoint, whose `model_type` says which tokenizer this is; and what sentence-transformers puts beside it
WORDS = {"vocab.txt": "[PAD] [UNK] [CLS] [SEP] [MASK] the cat a s".replace(" ", "\n")}
WORDS |= {TOKENIZER: '{"do_lower_case": true}'}
WORDS |= dict.fromkeys(("sentence_bert_config.json", "config_sentence_transformers.json", "10_Dense/config.json"), "{}")
WORDS |= {"modules.json": "[]", "1_Pooling/config.json": "{}"}
#: as on the Hub: the tokenizer's class is not named, and generation has settings of its own
GPT2 = {"vocab.json": json.dumps(numbered("<|endoftext|>", *"theca", "Ġ", "th", "the", "Ġt"))}
GPT2 |= {"merges.txt": "#version: 0.2\nt h\nth e\n", TOKENIZER: '{"model_max_length": 40}'}
GPT2 |= {GENERATION: '{"do_sample": true, "top_k": 7, "eos_token_id": 2}'}
PHOBERT = {"vocab.txt": "the 9\ncat 8\na 7\n", "bpe.codes": "t h 9\nth e</w> 9\n"}
PHOBERT |= {TOKENIZER: '{"tokenizer_class": "PhobertTokenizer"}'}
#: tokenizers that need sentencepiece or sacremoses travel unread
MARIAN = {"source.spm": "a sentencepiece model", "target.spm": "another", "target_vocab.json": '{"</s>": 0}'}
MARIAN |= {"vocab.json": '{"</s>": 0, "<unk>": 1, "the": 2, "<pad>": 3}', GENERATION: '{"num_beams": 6}'}
MARIAN |= {TOKENIZER: '{"source_lang": "en", "target_lang": "de"}'}
PIECES = numbered("<unk>", "<s>", "</s>", *"▁thecas", "he", "▁t", "▁the")
BPE = models.BPE(PIECES, [("h", "e"), ("▁", "t"), ("▁t", "he")], unk_token="<unk>")
SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def pieces(**named: str) -> dict[str, str]:
    """The files of a tokenizer of pieces."""
    tokenizer = Tokenizer(BPE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens([*SPECIAL.values()])
    return {"tokenizer.json": tokenizer.to_str(), TOKENIZER: json.dumps(SPECIAL | named)}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        *(("BertForMaskedLM", WORDS), ("GPT2LMHeadModel", GPT2), ("MarianMTModel", MARIAN)),
        ("RobertaForMaskedLM", PHOBERT),
        *((f"{name}ForCausalLM", pieces(tokenizer_class="LlamaTokenizer")) for name in ("Llama", "Mistral")),
        *((f"{name}ForCausalLM", pieces()) for name in ("Llama", "Qwen2")),
    ],
)
def test_there_and_back(name, files, places):
    """Text becomes the same ids. Which tokenizer it is depends on the `model_type` too: Mistral's is not what its files
    name. Which tokens stand before a text and after it, the class says."""
    official, zoo, back = places
    original = save(name, official, files | {"optimizer.pt": "not part of it"})
    said, hint = run("convert", official, zoo).splitlines()[-2:]
    assert f"as {BY_NAME[name].head.zoo_name} in" in said and hint.endswith(f"tfm-zoo verify {zoo}")
    run("export", zoo, back)
    given, returned = (type(original).from_pretrained(folder) for folder in (official, back))
    assert_same_model(returned, given)
    if given.can_generate():
        assert returned.generation_config.to_dict() == given.generation_config.to_dict()
    wanted = json.loads(files[TOKENIZER]) | {"tokenizer_class": BY_NAME[name].architecture.tokenizer}
    settings = {key: value for key, value in wanted.items() if key != "tokenizer_class" or files is MARIAN}
    for folder in (zoo, back):
        assert files.keys() <= names(folder) and "optimizer.pt" not in names(folder)
        assert settings.items() <= read(folder, TOKENIZER).items()
    assert "auto_map" not in read(back, CONFIG) and not any(file.endswith(".py") for file in names(back))
    if files is not MARIAN:
        tokenizers = [AutoTokenizer.from_pretrained(folder, trust_remote_code=True) for folder in places]
        expected, *ids = (tokenizer(["the cat", "a  the</s>the", " the"]) for tokenizer in tokenizers)
        assert ids == [expected, expected] and any(map(any, expected["input_ids"]))
        assert read(zoo, MANIFEST)["tokenizer"]["ids"]  # so that `verify` finds what was changed beside the model


def test_fields_for_engines(places):
    """Those that the checkpoint lacks (llama.cpp asks for this one; tests/engines tries the others)."""
    original = save("GPT2LMHeadModel", places[0], {})
    run("convert", *places[:2])
    run("export", "--for-engines", *places[1:])
    assert read(places[2], CONFIG)["n_ctx"] == original.config.n_positions
    assert "--onnx writes no official checkpoint" in run("export", "--onnx", "--for-engines", *places[1:], code=2)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pad_token_id": 98, "decoder_start_token_id": 98}, ""),  # as a published one: padding's row is zero
        (
            {"pad_token_id": 98, "decoder_start_token_id": 2},
            "writes other text than this Marian. It starts the decoder",
        ),
        ({"pad_token_id": 0}, "does not convert this Marian. It drops the last row of the embeddings (98) as padding"),
    ],
)
def test_a_marian_that_ctranslate2_misreads(fields, said, places):
    save("MarianMTModel", places[0], {}, **fields)
    run("convert", *places[:2])
    output = run("export", "--for-engines", *places[1:])
    assert said in output and bool(said) == ("warning: CTranslate2" in output)


@pytest.mark.parametrize(
    ("name", "head", "wanted"),
    [
        ("GPT2LMHeadModel", "token-classification", "TfmGPTForTokenClassification"),  # several families have one
        ("GPT2LMHeadModel", "TfmGPTForSequenceClassification", "TfmGPTForSequenceClassification"),
        ("BertForMaskedLM", "QuestionAnswering", "TfmBertForQuestionAnswering"),
    ],
)
def test_head_and_dtype(name, head, wanted, places):
    save(name, places[0], {})
    run("convert", *places[:2], "--head", head, "--dtype", "bfloat16")
    config = read(places[1], CONFIG)
    assert (config["architectures"], config["dtype"]) == ([wanted], "bfloat16")
    assert "bit for bit" not in (places[1] / "README.md").read_text()
    run("convert", *places[:2], "--head", head, "--overwrite")
    assert "tensors that it takes from the checkpoint" in (places[1] / "README.md").read_text()  # not all of them


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("convert {source} {out} --head CausalLM", "'CausalLM' is not a class of the zoo's family tfm_bert; choose"),
        ("convert {source} {out} --dtype int3", "dtype='int3'"),
        ("convert no-such-model {out}", "neither a folder nor a model on the Hub"),
        ("export {source} {out}", "not one of the zoo"),
        ("export {of_torch} {out}", "goes back to nn.TransformerEncoder, which no checkpoint holds"),
        ("convert {broken} {out}", "tokenizer_config.json is not valid JSON"),  # found after weights have been written
        ("convert {source} {full}", "--overwrite"),
        ("convert {source} {full} --overwrite --head Nonsense", "'Nonsense' is not a class"),
        ("convert {source} {file} --overwrite", "not a folder"),
    ],
)
def test_an_error_is_one_line_and_leaves_all_as_it_was(tmp_path, arguments, message):
    places = {name: tmp_path / name for name in ("official", "broken", "full", "file", "of_torch")}
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    tfm_zoo.from_official(nn.TransformerEncoder(layer, 1)).save_pretrained(places["of_torch"])
    broken = {TOKENIZER: "{", "vocab.txt": "a"}
    for name, files in (("official", WORDS), ("broken", broken), ("full", {"mine": "mine"})):
        save("BertModel", places[name], files)
    places["file"].write_text("mine")
    before = names(tmp_path)
    places |= {"source": places["official"], "out": tmp_path / "deep" / "out"}
    output = run(*(argument.format(**places) for argument in arguments.split()), code=1)
    assert message in output and output.startswith("error: ") and output.count("\n") == 1, output
    assert names(tmp_path) == before and not (tmp_path / "deep").exists()
    assert places["file"].read_text() == (places["full"] / "mine").read_text() == "mine"


def test_overwrite_replaces(tmp_path):
    """Its source, too."""
    source, out = tmp_path / "official", tmp_path / "out"
    save("BertModel", source, {})
    write("mine.txt", "old")(out)
    for place in (out, source):
        run("convert", source, place, "--overwrite")
        assert tfm_zoo.TfmBertModel.from_pretrained(place) and "mine.txt" not in names(place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["official", "out"]


def make(out: Path, text: str, overwrite: bool = False) -> None:
    with new_folder(out, overwrite) as folder:
        (folder / "file").write_text(text)


def test_an_interrupt_leaves_nothing_and_what_came_in_between(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "deep" / "out") as folder:
        (folder / "half").write_text("")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConversionError, match="exists and is not empty"), new_folder(tmp_path / "out"):
        write("out/mine", "precious")(tmp_path)
    assert names(tmp_path) == {"out/mine"} and (tmp_path / "out" / "mine").read_text() == "precious"


def test_two_at_a_time(tmp_path):
    """The second is told of the first, and may write when that has ended."""
    (tmp_path / ".out.partial").mkdir()
    with FileLock(tmp_path / ".out.partial" / "lock") as lock:
        Path(lock.lock_file).write_text("process 123 of there")
        with pytest.raises(FileExistsError, match=r"/out: process 123 of there writes there now; wait"):
            make(tmp_path / "out", "second", overwrite=True)
    make(tmp_path / "out", "third")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with new_folder(tmp_path / "a" / "b"):
        make(tmp_path / "a-b", "in a temporary folder of another name")


def test_what_a_killed_process_left_is_cleared_first(tmp_path):
    """It may be as large as a model."""
    write(".out.partial/scratch/0", "left")(tmp_path)
    with new_folder(tmp_path / "out") as folder:
        assert names(folder.parent) == {"lock"}


def test_killed_while_it_replaces(tmp_path, monkeypatch):
    """What is on the disk before and after each renaming is what a kill would leave there."""
    place, rename, states = tmp_path / "place", Path.rename, []

    def observed(path: Path, target: Path) -> None:
        for act in (lambda: None, lambda: rename(path, target)):
            act()
            states.append(shutil.copytree(place, tmp_path / str(len(states))))

    place.mkdir()
    make(place / "out", "old")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", observed)
        make(place / "out", "new", overwrite=True)
    assert len(states) == 4
    for state in states:
        out = state / "out"
        is_found = out.exists() or str(state / ".out.partial" / "old") in no_folder(out)
        with pytest.raises(ConversionError, match="give --overwrite"):  # there is one again
            make(out, "newer")
        assert is_found and (out / "file").read_text() in ("old", "new")
        assert [path.name for path in state.iterdir()] == ["out"]


def test_version_and_list(monkeypatch):
    """All architectures; the classes of one, by its name or a model's; or what is like it."""
    monkeypatch.setattr("tfm_zoo.commands.listing.results", Console(width=250))
    assert run("--version") == f"tfm-zoo {tfm_zoo.__version__}\n"
    listed, marked = run("list"), run("list", "--all")
    assert not [each.title for each in ARCHITECTURES.values() if each.title not in listed]
    assert not [each.model_type for each in ARCHITECTURES.values() if each.model_type not in marked]
    for name, head in (("Roberta", "RobertaForMaskedLM"), ("mmbert", "ModernBertForMaskedLM")):
        assert head in run("list", name)
    assert "learned sink" in run("list", "gpt-oss", code=1)
    assert "Did you mean 'bart'?" in run("list", "facebook/bart-large-cnn", code=1)
    assert "Did you mean" not in run("list", "xlnet", code=1)  # not MPNet, whose name is as near as that


def test_control_codes_do_not_reach_the_terminal(capsys):
    """As they may stand in labels, cards, names of tensors, and tokens. A log without any keeps its arguments."""
    screen.report("a \x1b[31mred\x07 label\nand \u202eanother, \N{LATIN SMALL LETTER U WITH DIAERESIS}")
    shown = "a \\x1b[31mred\\x07 label\nand \\u202eanother, \N{LATIN SMALL LETTER U WITH DIAERESIS}\n"
    assert capsys.readouterr().out == shown
    make_record = logging.getLogRecordFactory()
    try:
        quiet.silence_control_codes()
        made = logging.getLogRecordFactory()
        records = [made("name", logging.INFO, "file", 1, "%s asked", (text,), None) for text in ("he", "\x1b[31mhe")]
    finally:
        logging.setLogRecordFactory(make_record)
    shown = [("he asked", ("he",)), ("\\x1b[31mhe asked", ())]
    assert [(record.getMessage(), record.args) for record in records] == shown


def test_an_interrupt_has_no_traceback(monkeypatch, capsys):
    """Other errors have theirs."""
    monkeypatch.setattr("sys.excepthook", sys.__excepthook__)
    quiet.silence_interrupt()
    with pytest.raises(SystemExit, match="130"):
        sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == ""
    sys.excepthook(ValueError, ValueError("why"), None)
    assert "ValueError: why" in capsys.readouterr().err
