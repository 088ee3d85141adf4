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
EXTRAS = {
    "generation_config.json": "{}",
    "modules.json": "[]",
    "sentence_roberta_config.json": "{}",
    "config_sentence_transformers.json": "{}",
    "1_Pooling/config.json": "{}",
    "10_Dense/config.json": "{}",
}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "official"
    build_tiny(BY_NAME["BertForMaskedLM"], vocab_size=len(WORDS)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    # As in many an old checkpoint, it is the `model_type` that says which tokenizer this is.
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    for name, content in EXTRAS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    (folder / "optimizer.pt").write_bytes(b"not part of it")
    return folder


def run(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.output


def names(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_convert_and_export(source, tmp_path):
    zoo, back = tmp_path / "new" / "zoo", tmp_path / "back"
    code, output = run("convert", source, zoo)
    assert code == 0, output
    model = tfm_zoo.TfmBertForMaskedLM.from_pretrained(zoo)
    assert EXTRAS.keys() <= names(zoo)
    assert "modeling_tfm_bert.py" in names(zoo)
    assert "optimizer.pt" not in names(zoo)
    tokenizer = AutoTokenizer.from_pretrained(zoo, trust_remote_code=True)
    assert tokenizer.tokenize("The cat sat on THE mat.") == ["the", "cat", "sat", "on", "the", "mat", "."]

    code, output = run("export", zoo, back)
    assert code == 0, output
    original = AutoModelForMaskedLM.from_pretrained(source)
    assert_same_weights(AutoModelForMaskedLM.from_pretrained(back), original)
    assert EXTRAS.keys() <= names(back)
    assert not any(name.endswith(".py") for name in names(back))
    assert "auto_map" not in json.loads((back / "config.json").read_text())
    assert isinstance(AutoTokenizer.from_pretrained(back), BertTokenizer)
    ids = torch.tensor([[2, 5, 6, 4, 3]])
    with in_double():
        assert_same(model.double()(ids).logits, original.double()(ids).logits)
    assert model.config.name_or_path != str(source)  # it is now that of the folder it was loaded from


@pytest.fixture
def gpt2(tmp_path):
    """As on the Hub: the tokenizer's class is not named, and generation has settings of its own."""
    folder = tmp_path / "official"
    build_tiny(BY_NAME["GPT2LMHeadModel"]).save_pretrained(folder)
    vocabulary = {token: index for index, token in enumerate(["<|endoftext|>", *"theca", "Ġ", "th", "the", "Ġt"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 40}))
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "top_k": 7, "eos_token_id": 2}))
    return folder


def test_a_decoder_there_and_back(gpt2, tmp_path):
    zoo, back = tmp_path / "zoo", tmp_path / "back"
    code, output = run("convert", gpt2, zoo)
    assert code == 0, output
    result, hint = output.splitlines()[-2:]
    assert result == f"GPT-2 as TfmGPTForCausalLM in {zoo}" and hint.endswith(f"tfm-zoo verify {zoo}")
    assert "modeling_tfm_gpt.py" in names(zoo)
    code, output = run("export", zoo, back)
    assert code == 0, output
    original = AutoModelForCausalLM.from_pretrained(gpt2)
    assert_same_model(AutoModelForCausalLM.from_pretrained(back), original)
    text = "the cat"
    for folder in (zoo, back):
        assert AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(text) == AutoTokenizer.from_pretrained(
            gpt2
        )(text)
        assert json.loads((folder / "generation_config.json").read_text())["top_k"] == 7
    assert tfm_zoo.TfmGPTForCausalLM.from_pretrained(zoo).generation_config.do_sample


def test_fields_for_engines(gpt2, tmp_path):
    """Those that the checkpoint lacks (llama.cpp asks for this one; tests/engines tries the others)."""
    assert run("convert", gpt2, tmp_path / "zoo")[0] == 0
    code, output = run("export", "--for-engines", tmp_path / "zoo", tmp_path / "back")
    assert code == 0, output
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["n_ctx"] == config["n_positions"]
    assert_same_weights(AutoModelForCausalLM.from_pretrained(tmp_path / "back"), build_tiny(BY_NAME["GPT2LMHeadModel"]))
    code, output = run("export", "--for-engines", "--onnx", tmp_path / "zoo", tmp_path / "onnx")
    assert code == 2
    assert "leave out" in output
    assert not (tmp_path / "onnx").exists()


@pytest.mark.parametrize("named", ["LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast", None])
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"])
def test_text_becomes_the_same_ids(tmp_path, name, named):
    """Which tokenizer class it is depends on the `model_type` too: Mistral's is not the one that its files name."""
    official, zoo, back = (tmp_path / place for place in ("official", "zoo", "back"))
    build_tiny(BY_NAME[name]).save_pretrained(official)
    pieces = ["<unk>", "<s>", "</s>", *"▁thecas", "he", "▁t", "▁the"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("h", "e"), ("▁", "t"), ("▁t", "he")], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(official / "tokenizer.json"))
    settings = {"tokenizer_class": named, "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    settings = {key: value for key, value in settings.items() if value}
    (official / "tokenizer_config.json").write_text(json.dumps(settings))
    assert run("convert", official, zoo)[0] == run("export", zoo, back)[0] == 0
    expected, *ids = (
        AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(["the cat", "a  the</s>the", " the"])["input_ids"]
        for folder in (official, zoo, back)
    )
    assert ids == [expected, expected]


#: what the tokenizers of encoder-decoders consist of; those that need sentencepiece or sacremoses travel unread
COMPANIONS = {
    "MarianMTModel": {
        "source.spm": "a sentencepiece model",
        "target.spm": "another",
        "vocab.json": '{"</s>": 0, "<unk>": 1, "the": 2, "<pad>": 3}',
        "target_vocab.json": '{"</s>": 0}',
        "tokenizer_config.json": '{"source_lang": "en", "target_lang": "de"}',
    },
    "FSMTForConditionalGeneration": {
        "vocab-src.json": '{"<s>": 0}',
        "vocab-tgt.json": '{"<s>": 0}',
        "merges.txt": "t h",
        "tokenizer_config.json": '{"langs": ["en", "ru"], "do_lower_case": false}',
    },
    "MBartForConditionalGeneration": {
        "sentencepiece.bpe.model": "a sentencepiece model",
        "tokenizer_config.json": '{"tokenizer_class": "MBart50Tokenizer", "src_lang": "en_XX"}',
    },
}


@pytest.mark.parametrize("name", COMPANIONS)
def test_an_encoder_decoder_there_and_back(name, tmp_path):
    official, zoo, back = (tmp_path / place for place in ("official", "zoo", "back"))
    original = build_tiny(BY_NAME[name])
    original.generation_config.num_beams = 6
    original.save_pretrained(official)
    for file, content in COMPANIONS[name].items():
        (official / file).write_text(content)
    code, output = run("convert", official, zoo)
    assert code == 0, output
    assert "as TfmEncoderDecoderForConditionalGeneration in" in output
    assert "modeling_tfm_encoder_decoder.py" in names(zoo)
    code, output = run("export", zoo, back)
    assert code == 0, output
    assert_same_model(type(original).from_pretrained(back), original)
    for folder in (zoo, back):
        assert COMPANIONS[name].keys() <= names(folder)
        assert json.loads((folder / "generation_config.json").read_text())["num_beams"] == 6
        settings, before = (json.loads((place / "tokenizer_config.json").read_text()) for place in (folder, official))
        assert before.items() <= settings.items()
        named = before.get("tokenizer_class", BY_NAME[name].architecture.tokenizer)
        assert settings["tokenizer_class"] == named


@pytest.mark.parametrize("named", ["MBartTokenizer", "MBart50Tokenizer", None])
def test_languages_come_along(named, tmp_path):
    """Which tokens stand before a text and after it, and which languages there are, the tokenizer's class says."""
    official, zoo, back = (tmp_path / place for place in ("official", "zoo", "back"))
    build_tiny(BY_NAME["MBartForConditionalGeneration"]).save_pretrained(official)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *"thecas", "▁the"]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(index)) for index, piece in enumerate(pieces)], unk_id=3))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.save(str(official / "tokenizer.json"))
    settings = {"src_lang": "de_DE", "tgt_lang": "en_XX"} | ({"tokenizer_class": named} if named else {})
    (official / "tokenizer_config.json").write_text(json.dumps(settings))
    assert run("convert", official, zoo)[0] == run("export", zoo, back)[0] == 0
    expected, *ids = (
        AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(["the cat", "cats"], text_target=["the", "a"])
        for folder in (official, zoo, back)
    )
    assert ids == [expected, expected]


def test_the_encoder_alone(tmp_path):
    """It can be asked for, and not exported."""
    build_tiny(BY_NAME["BartForConditionalGeneration"]).save_pretrained(tmp_path / "official")
    code, output = run("convert", tmp_path / "official", tmp_path / "zoo", "--head", "TfmEncoderDecoderEncoder")
    assert code == 0, output
    assert "BART as TfmEncoderDecoderEncoder in" in output
    code, output = run("export", tmp_path / "zoo", tmp_path / "back")
    assert code == 1
    assert "TfmEncoderDecoderEncoder has no counterpart among the classes of BART." in output
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("head", ["token-classification", "QuestionAnswering", "TfmGPTForSequenceClassification"])
def test_heads_of_the_family(gpt2, tmp_path, head):
    """Several families have a head of the same short name."""
    code, output = run("convert", gpt2, tmp_path / "zoo", "--head", head)
    assert code == 0, output
    config = json.loads((tmp_path / "zoo" / "config.json").read_text())
    assert config["architectures"][0].startswith("TfmGPTFor")
    assert head.replace("-", "").lower() in config["architectures"][0].lower()


def test_head_of_another_family(gpt2, tmp_path):
    code, output = run("convert", gpt2, tmp_path / "zoo", "--head", "MaskedLM")
    assert code == 1
    assert "'MaskedLM' is no class of the zoo's family tfm_gpt; those there are: TfmGPTModel" in output


@pytest.mark.parametrize("head", ["TfmBertForTokenClassification", "token-classification", "TokenClassification"])
def test_head_and_dtype(source, tmp_path, head):
    code, output = run("convert", source, tmp_path / "zoo", "--head", head, "--dtype", "bfloat16")
    assert code == 0, output
    config = json.loads((tmp_path / "zoo" / "config.json").read_text())
    assert config["architectures"] == ["TfmBertForTokenClassification"]
    assert config["dtype"] == "bfloat16"


def test_a_failing_conversion_leaves_nothing(source, tmp_path, monkeypatch):
    before = names(tmp_path)
    (source / "tokenizer_config.json").write_text("{")  # found out after the weights have been written
    code, output = run("convert", source, tmp_path / "deep" / "zoo")
    assert code == 1
    assert output.startswith("error: ")
    assert f"{source / 'tokenizer_config.json'} is not valid JSON" in output
    assert output.count("\n") == 1
    assert names(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["official"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "{source}", "{out}", "--head", "Nonsense"], "'Nonsense' is no class of the zoo's family tfm_bert"),
        (["convert", "{source}", "{out}", "--dtype", "int3"], "dtype='int3'"),
        (["convert", "{source}/1_Pooling", "{out}"], "holds no weights"),
        (["convert", "no-such-model", "{out}"], "neither a folder nor a model on the Hub"),
        (["convert", "{source}s", "{out}"], "official'?"),
        (["export", "{source}", "{out}"], "not one of the zoo"),
    ],
)
def test_errors_are_one_line(source, tmp_path, arguments, message):
    out = tmp_path / "out"
    code, output = run(*(argument.format(source=source, out=out) for argument in arguments))
    assert code == 1
    assert message in output
    assert output.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["official"]


def test_debug_shows_where(source, tmp_path):
    result = CliRunner().invoke(app, ["export", str(source), str(tmp_path / "out"), "--debug"])
    assert result.exit_code == 1
    assert "not one of the zoo" in str(result.exception)


def test_what_is_there_is_kept(source, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("precious")
    code, output = run("convert", source, out)
    assert code == 1
    assert "--overwrite" in output
    assert names(out) == {"mine.txt"}
    # a conversion that fails replaces nothing
    code, _ = run("convert", source, out, "--overwrite", "--head", "Nonsense")
    assert code == 1
    assert names(out) == {"mine.txt"}
    code, output = run("convert", source, out, "--overwrite")
    assert code == 0, output
    assert "mine.txt" not in names(out)
    assert "model.safetensors" in names(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["official", "out"]


def test_a_file_in_the_way(source, tmp_path):
    (tmp_path / "out").write_text("precious")
    code, output = run("convert", source, tmp_path / "out", "--overwrite")
    assert code == 1
    assert "no folder" in output
    assert (tmp_path / "out").read_text() == "precious"


def test_conversion_onto_its_source(source):
    code, output = run("convert", source, source, "--overwrite")
    assert code == 0, output
    assert tfm_zoo.TfmBertForMaskedLM.from_pretrained(source)


def test_version():
    assert CliRunner().invoke(app, ["--version"]).output == f"tfm-zoo {tfm_zoo.__version__}\n"


def test_list(monkeypatch):
    """A line for each architecture of the tables, with a mark under each of its heads; the classes of one."""
    monkeypatch.setattr("tfm_zoo.commands.listing.results", Console(width=250))
    code, output = run("list")
    assert code == 0
    for architecture in ARCHITECTURES.values():
        [line] = [line.split() for line in output.splitlines() if architecture.model_type in line.split()[-12:]]
        assert line.count("●") == len({head.zoo_name.partition("For")[2] for head in architecture.heads} - {""})
    assert "MLM MaskedLM" in output
    code, output = run("list", "Roberta")
    assert code == 0 and "RobertaForMaskedLM" in output and "TfmBertForMaskedLM" in output
    code, output = run("list", "mmbert")
    assert code == 0 and "ModernBertForMaskedLM" in output
    code, output = run("list", "gpt_oss")
    assert code == 1 and "sink" in output
    code, output = run("list", "robertta")
    assert code == 1 and "named 'robertta'. Did you mean 'roberta'?" in output
    for name in ("SmolLM", "phi-4", "nllb", "pythia"):  # models that go by other names than their architecture
        assert run("list", name)[0] == 0
    for name in ("bart-large", "facebook/bart-large-cnn"):
        assert "Did you mean 'bart'?" in run("list", name)[1]
    assert "no architecture named ''" in run("list", "")[1]
    code, output = run("list", "xlnet")  # and not MPNet, whose name is as near as that
    assert code == 1 and "no architecture named 'xlnet'. `tfm-zoo list` prints" in output


@pytest.mark.slow
def test_as_a_process(source, tmp_path):
    command = [sys.executable, "-m", "tfm_zoo", "convert", str(source), str(tmp_path / "zoo")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "TfmBertForMaskedLM" in result.stdout
    assert "WARNING" not in result.stdout + result.stderr  # of DeepSpeed
