"""The commands, on folders: what they write, and that nothing is left of what fails."""

import json
import subprocess
import sys

import pytest
import torch
from rich.console import Console
from tokenizers import Tokenizer, models, normalizers
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, BertTokenizer
from typer.testing import CliRunner

import tfm_zoo
from tests.conversion.comparison import assert_same_model, assert_same_weights
from tests.official_models import BY_NAME, build_tiny
from tests.precision import assert_same, in_double
from tfm_zoo.cli import app
from tfm_zoo.converters import ARCHITECTURES

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "."]
#: what sentence-transformers puts beside a model, and what generation reads
EXTRAS = dict.fromkeys(
    ("generation_config.json", "sentence_roberta_config.json", "config_sentence_transformers.json"), "{}"
)
EXTRAS |= {"modules.json": "[]", "1_Pooling/config.json": "{}", "10_Dense/config.json": "{}"}


def run(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.output


def ran(*arguments) -> str:
    code, output = run(*arguments)
    assert code == 0, output
    return output


def refused(*arguments) -> str:
    """An error of one line."""
    code, output = run(*arguments)
    assert code == 1 and output.startswith("error: ") and output.count("\n") == 1, output
    return output


def names(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def read(folder, name: str) -> dict:
    return json.loads((folder / name).read_text())


def save(name: str, folder, files: dict[str, str], **fields):
    """An official model of this class, with files beside it."""
    original = build_tiny(BY_NAME[name], **fields)
    original.save_pretrained(folder)
    for file, content in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(content, encoding="utf-8")
    return original


@pytest.fixture
def places(tmp_path):
    return tmp_path / "official", tmp_path / "zoo", tmp_path / "back"


@pytest.fixture
def source(tmp_path):
    """As many an old checkpoint: it is the `model_type` that says which tokenizer this is."""
    files = EXTRAS | {"vocab.txt": "\n".join(WORDS), "tokenizer_config.json": '{"do_lower_case": true}'}
    save("BertForMaskedLM", tmp_path / "official", files | {"optimizer.pt": "not part of it"}, vocab_size=len(WORDS))
    return tmp_path / "official"


@pytest.fixture
def gpt2(tmp_path):
    """As on the Hub: the tokenizer's class is not named, and generation has settings of its own."""
    vocabulary = {token: index for index, token in enumerate(["<|endoftext|>", *"theca", "Ġ", "th", "the", "Ġt"])}
    files = {"vocab.json": json.dumps(vocabulary), "merges.txt": "#version: 0.2\nt h\nth e\n"}
    files["tokenizer_config.json"] = '{"model_max_length": 40}'
    files["generation_config.json"] = '{"do_sample": true, "top_k": 7, "eos_token_id": 2}'
    save("GPT2LMHeadModel", tmp_path / "official", files)
    return tmp_path / "official"


def test_convert_and_export(source, tmp_path):
    zoo, back = tmp_path / "new" / "zoo", tmp_path / "back"
    ran("convert", source, zoo)
    model = tfm_zoo.TfmBertForMaskedLM.from_pretrained(zoo)
    assert EXTRAS.keys() | {"modeling_tfm_bert.py"} <= names(zoo) and "optimizer.pt" not in names(zoo)
    tokenizer = AutoTokenizer.from_pretrained(zoo, trust_remote_code=True)
    assert tokenizer.tokenize("The cat sat on THE mat.") == ["the", "cat", "sat", "on", "the", "mat", "."]

    ran("export", zoo, back)
    original = AutoModelForMaskedLM.from_pretrained(source)
    assert_same_weights(AutoModelForMaskedLM.from_pretrained(back), original)
    assert EXTRAS.keys() <= names(back) and not any(name.endswith(".py") for name in names(back))
    assert "auto_map" not in read(back, "config.json")
    assert isinstance(AutoTokenizer.from_pretrained(back), BertTokenizer)
    ids = torch.tensor([[2, 5, 6, 4, 3]])
    with in_double():
        assert_same(model.double()(ids).logits, original.double()(ids).logits)
    assert model.config.name_or_path != str(source)  # it is now that of the folder it was loaded from


def test_a_decoder_there_and_back(gpt2, places):
    _, zoo, back = places
    result, hint = ran("convert", gpt2, zoo).splitlines()[-2:]
    assert result == f"GPT-2 as TfmGPTForCausalLM in {zoo}" and hint.endswith(f"tfm-zoo verify {zoo}")
    ran("export", zoo, back)
    assert_same_model(AutoModelForCausalLM.from_pretrained(back), AutoModelForCausalLM.from_pretrained(gpt2))
    expected = AutoTokenizer.from_pretrained(gpt2)("the cat")
    for folder in (zoo, back):
        assert AutoTokenizer.from_pretrained(folder, trust_remote_code=True)("the cat") == expected
        assert read(folder, "generation_config.json")["top_k"] == 7
    assert tfm_zoo.TfmGPTForCausalLM.from_pretrained(zoo).generation_config.do_sample


def test_fields_for_engines(gpt2, places):
    """Those that the checkpoint lacks (llama.cpp asks for this one; tests/engines tries the others)."""
    _, zoo, back = places
    ran("convert", gpt2, zoo)
    code, output = run("export", "--for-engines", "--onnx", zoo, back)
    assert code == 2 and "leave out" in output and not back.exists()
    ran("export", "--for-engines", zoo, back)
    config = read(back, "config.json")
    assert config["n_ctx"] == config["n_positions"]
    assert_same_weights(AutoModelForCausalLM.from_pretrained(back), build_tiny(BY_NAME["GPT2LMHeadModel"]))


PIECES = {piece: index for index, piece in enumerate(["<unk>", "<s>", "</s>", *"▁thecas", "he", "▁t", "▁the"])}
BPE = models.BPE(PIECES, [("h", "e"), ("▁", "t"), ("▁t", "he")], unk_token="<unk>")
SCORED = [(piece, -float(index)) for index, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *"▁thecas", "▁the"])]
UNIGRAM = models.Unigram(SCORED, unk_id=3)
SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
LANGUAGES = {"src_lang": "de_DE", "tgt_lang": "en_XX"}


MBART = "MBartForConditionalGeneration"


@pytest.mark.parametrize(
    ("name", "named"),
    [
        *(("LlamaForCausalLM", named) for named in ("LlamaTokenizer", "PreTrainedTokenizerFast", None)),
        *(("MistralForCausalLM", "LlamaTokenizer"), ("Qwen2ForCausalLM", "LlamaTokenizer"), ("Qwen2ForCausalLM", None)),
        *((MBART, "MBartTokenizer"), (MBART, "MBart50Tokenizer"), (MBART, None)),
    ],
)
def test_text_becomes_the_same_ids(name, named, places):
    """Which tokenizer class it is depends on the `model_type` too: Mistral's is not the one that its files name. Which
    tokens stand before a text and after it, and which languages there are, the class says."""
    model, settings = (UNIGRAM, LANGUAGES) if name == MBART else (BPE, SPECIAL)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if settings is SPECIAL:
        tokenizer.add_special_tokens([*SPECIAL.values()])
    settings = settings | ({"tokenizer_class": named} if named else {})
    save(name, places[0], {"tokenizer.json": tokenizer.to_str(), "tokenizer_config.json": json.dumps(settings)})
    ran("convert", *places[:2])
    ran("export", *places[1:])
    target = {"text_target": ["the", "a", "s"]} if "src_lang" in settings else {}
    expected, *ids = (
        AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(["the cat", "a  the</s>the", " the"], **target)
        for folder in places
    )
    assert ids == [expected, expected]


#: what the tokenizers of encoder-decoders consist of; those that need sentencepiece or sacremoses travel unread
COMPANIONS = {
    "MarianMTModel": {
        **{"source.spm": "a sentencepiece model", "target.spm": "another", "target_vocab.json": '{"</s>": 0}'},
        "vocab.json": '{"</s>": 0, "<unk>": 1, "the": 2, "<pad>": 3}',
        "tokenizer_config.json": '{"source_lang": "en", "target_lang": "de"}',
    },
    "MBartForConditionalGeneration": {
        "sentencepiece.bpe.model": "a sentencepiece model",
        "tokenizer_config.json": '{"tokenizer_class": "MBart50Tokenizer", "src_lang": "en_XX"}',
    },
}


@pytest.mark.parametrize("name", COMPANIONS)
def test_companions_there_and_back(name, places):
    save(name, places[0], COMPANIONS[name] | {"generation_config.json": '{"num_beams": 6}'})
    assert "as TfmEncoderDecoderForConditionalGeneration in" in ran("convert", *places[:2])
    ran("export", *places[1:])
    before = json.loads(COMPANIONS[name]["tokenizer_config.json"])
    for folder in places[1:]:
        assert COMPANIONS[name].keys() <= names(folder)
        assert read(folder, "generation_config.json")["num_beams"] == 6
        wanted = {"tokenizer_class": BY_NAME[name].architecture.tokenizer} | before
        assert wanted.items() <= read(folder, "tokenizer_config.json").items()


def test_the_encoder_alone(places):
    """It can be asked for, and not exported."""
    save("BartForConditionalGeneration", places[0], {})
    output = ran("convert", *places[:2], "--head", "TfmEncoderDecoderEncoder")
    assert "BART as TfmEncoderDecoderEncoder in" in output
    assert "TfmEncoderDecoderEncoder has no counterpart among the classes of BART." in refused("export", *places[1:])
    assert not places[2].exists()


@pytest.mark.parametrize(
    ("name", "head", "wanted"),
    [
        ("gpt2", "token-classification", "TfmGPTForTokenClassification"),  # several families have one
        ("gpt2", "QuestionAnswering", "TfmGPTForQuestionAnswering"),
        ("gpt2", "TfmGPTForSequenceClassification", "TfmGPTForSequenceClassification"),
        ("source", "token-classification", "TfmBertForTokenClassification"),
    ],
)
def test_head_and_dtype(name, head, wanted, tmp_path, request):
    ran("convert", request.getfixturevalue(name), tmp_path / "zoo", "--head", head, "--dtype", "bfloat16")
    config = read(tmp_path / "zoo", "config.json")
    assert (config["architectures"], config["dtype"]) == ([wanted], "bfloat16")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "convert {source} {out} --head CausalLM",
            "'CausalLM' is not a class of the zoo's family tfm_bert; choose from",
        ),
        ("convert {source} {out} --dtype int3", "dtype='int3'"),
        ("convert {source}/1_Pooling {out}", "holds no weights"),
        ("convert no-such-model {out}", "neither a folder nor a model on the Hub"),
        ("convert {source}s {out}", "official'?"),
        ("export {source} {out}", "not one of the zoo"),
        ("convert {broken} {out}", "tokenizer_config.json is not valid JSON"),  # found after weights have been written
        ("convert {source} {full}", "--overwrite"),
        ("convert {source} {full} --overwrite --head Nonsense", "'Nonsense' is not a class"),
        ("convert {source} {file} --overwrite", "not a folder"),
    ],
)
def test_an_error_is_one_line_and_leaves_all_as_it_was(source, tmp_path, arguments, message):
    places = {name: tmp_path / name for name in ("broken", "full", "file")}
    save("BertModel", places["broken"], {"tokenizer_config.json": "{", "vocab.txt": "a"})
    save("BertModel", places["full"], {"mine.txt": "precious"})
    places["file"].write_text("precious")
    before = names(tmp_path)
    places |= {"source": source, "out": tmp_path / "deep" / "out"}
    assert message in refused(*(argument.format(**places) for argument in arguments.split()))
    assert names(tmp_path) == before and not (tmp_path / "deep").exists()
    assert places["file"].read_text() == (places["full"] / "mine.txt").read_text() == "precious"


def test_overwrite_replaces(source, tmp_path):
    """Its source, too."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("old")
    for out in (tmp_path / "out", source):
        ran("convert", source, out, "--overwrite")
        assert tfm_zoo.TfmBertForMaskedLM.from_pretrained(out) and "mine.txt" not in names(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["official", "out"]


def test_version():
    assert ran("--version") == f"tfm-zoo {tfm_zoo.__version__}\n"


def test_list_in_a_screen(monkeypatch):
    monkeypatch.setattr("tfm_zoo.commands.listing.results", Console(width=80))
    output = ran("list")
    assert len(output.splitlines()) <= 40
    assert {each.title for each in ARCHITECTURES.values() if each.title not in " ".join(output.split())} == set()


def test_list_of_all(monkeypatch):
    """A line for each architecture of the tables, with a mark under each of its heads."""
    monkeypatch.setattr("tfm_zoo.commands.listing.results", Console(width=250))
    output = ran("list", "--all")
    for architecture in ARCHITECTURES.values():
        [line] = [line.split() for line in output.splitlines() if architecture.model_type in line.split()[-12:]]
        assert line.count("●") == len({head.zoo_name.partition("For")[2] for head in architecture.heads} - {""})
    assert "MLM MaskedLM" in output


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("Roberta", 0, "RobertaForMaskedLM TfmBertForMaskedLM"),
        ("mmbert", 0, "ModernBertForMaskedLM"),
        *((name, 0, "") for name in ("SmolLM", "phi-4", "nllb", "pythia")),  # other names than their architecture's
        *((name, 1, "sink") for name in ("gpt_oss", "gpt-oss")),
        ("robertta", 1, "'robertta'. Did you mean 'roberta'?"),
        *((name, 1, "Did you mean 'bart'?") for name in ("bart-large", "facebook/bart-large-cnn")),
        ("", 1, "no architecture named ''"),
        ("xlnet", 1, "'xlnet'. `tfm-zoo list` prints"),  # and not MPNet, whose name is as near as that
    ],
)
def test_list_of_one(name, code, words, monkeypatch):
    """Its classes, or what is like it."""
    monkeypatch.setattr("tfm_zoo.commands.listing.results", Console(width=250))
    found, output = run("list", name)
    assert found == code and (words in output if code else all(word in output for word in words.split()))


@pytest.mark.slow
def test_as_a_process(source, tmp_path):
    command = [sys.executable, "-m", "tfm_zoo", "convert", str(source), str(tmp_path / "zoo")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "TfmBertForMaskedLM" in result.stdout
    assert "WARNING" not in result.stdout + result.stderr  # of DeepSpeed
