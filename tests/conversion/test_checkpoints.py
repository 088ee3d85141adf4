"""A checkpoint is read as its official class reads it, in every format, with the names, settings and ties that old ones
and new ones have; and it goes back as it was, bit for bit."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining, ElectraForPreTraining

import tfm_zoo
from tests.conversion.comparison import assert_same_model, assert_same_weights
from tests.hub.editing import CONFIG, GENERATION, both, delete, edit, edited, tensors, without, write
from tests.official_models import BY_NAME, OFFICIAL_CLASSES, ROPE, build_tiny, distinct
from tests.precision import assert_same, in_double
from tfm_zoo.commands.models import load
from tfm_zoo.converters import from_official, to_official
from tfm_zoo.converters.checkpoint import open_checkpoint
from tfm_zoo.converters.choosing import architecture_of
from tfm_zoo.converters.official_names import checkpoint_head

IDS = torch.tensor([[5, 6, 7, 8, 9, 2], [9, 8, 7, 6, 5, 2]])
BERT, GPT2, LLAMA = "BertForMaskedLM", "GPT2LMHeadModel", "LlamaForCausalLM"
MARIAN, BART, FSMT = "MarianMTModel", "BartForConditionalGeneration", "FSMTForConditionalGeneration"
T5 = "T5ForConditionalGeneration"
WEIGHTS, BIN = "model.safetensors", "pytorch_model.bin"


def as_bin(files: tuple[str, ...] = (BIN,), zipped: bool = True) -> Callable[[Path], None]:
    """In the format of PyTorch, or in that before its version 1.6; in shards, if there are several files."""

    def change(folder: Path) -> None:
        given = [*load_file(folder / WEIGHTS).items()]
        shards = {file: dict(given[i :: len(files)]) for i, file in enumerate(files)}
        for file, shard in shards.items():
            torch.save(shard, folder / file, _use_new_zipfile_serialization=zipped)
        if len(files) > 1:
            places = {name: file for file, shard in shards.items() for name in shard}
            edit(folder, f"{BIN}.index.json", metadata={}, weight_map=places)
        (folder / WEIGHTS).unlink()

    return change


def renamed(old: str, new: str) -> Callable[[Path], None]:
    return tensors(lambda given: {re.sub(old, new, name): tensor for name, tensor in given.items()})


def beside(**buffers: torch.Tensor) -> Callable[[Path], None]:
    return tensors(lambda given: given | buffers)


def in_type(dtype: torch.dtype) -> Callable[[Path], None]:
    change = tensors(lambda given: {name: tensor.to(dtype) for name, tensor in given.items()})
    return both(change, edited(CONFIG, dtype=str(dtype).removeprefix("torch.")))


def with_sinusoids(name: str) -> Callable[[Path], None]:
    def change(given: dict) -> dict:
        (dtype,), native = {tensor.dtype for tensor in given.values()}, build_tiny(BY_NAME[name]).state_dict()
        return given | {key: native[key].to(dtype) for key in native if key.endswith("embed_positions.weight")}

    return tensors(change)


#: what a translator's embeddings are called
SHARED = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
PROJECTION = "lm_head.weight"


def with_one_of_the_tied(*kept: str) -> Callable[[Path], None]:
    def change(given: dict) -> dict:
        others = {name: tensor for name, tensor in given.items() if name not in SHARED}
        return others | dict.fromkeys(kept, given[SHARED[0]])

    return tensors(change)


def with_unread_as_read(given: dict) -> dict:
    """Some official classes, with nothing tied, keep tensors that they do not read: these come back like the read."""
    read = {"cls.predictions.bias": "cls.predictions.decoder.bias", "lm_head.bias": "lm_head.decoder.bias"}
    read[SHARED[0]] = SHARED[1]
    return given | {name: given[of] for name, of in read.items() if name in given and of in given}


MASKS = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 40, 40).tril() for i in range(3)}
MASKS |= {"transformer.h.0.attn.masked_bias": torch.tensor(-1e4)}
AS_GPT2_ON_THE_HUB = both(
    beside(**MASKS),
    renamed("transformer.", ""),
    edited(CONFIG, **dict.fromkeys(("n_inner", "use_cache", "tie_word_embeddings"), ...)),
)
UNTIED, LABELS = {"tie_word_embeddings": False}, {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 71}
SETTINGS = {"num_beams": 4, "max_length": 30, "length_penalty": 1.5, "bad_words_ids": [[3]], "forced_bos_token_id": 7}
LLAMA3 = {key: value for key, value in ROPE["llama3"].items() if key != "rope_theta"}
#: before transformers 5: the rotary base and its scaling beside each other
OLD_ROPE = dict.fromkeys(("rope_parameters", "dtype", "head_dim"), ...) | {"rope_theta": 100.0}
OLD_SCALINGS = [{"rope_scaling": scaling} for scaling in (None, {"type": "linear", "factor": 2.0}, LLAMA3)]
OLD_SCALINGS += [{"architectures": ["LLaMAForCausalLM"], "torch_dtype": "float32", "pretraining_tp": 1}]
OLD_MARIAN = {"num_hidden_layers": 3, "classif_dropout": 0.0, "add_final_layer_norm": False, "torch_dtype": "float32"}
OLD_MARIAN |= dict.fromkeys(("dtype", "decoder_vocab_size", "share_encoder_decoder_embeddings"), ...)
OLD_FSMT = {"decoder": {"bos_token_id": 2, "model_type": "fsmt_decoder", "vocab_size": 91}, "num_hidden_layers": 3}
OLD_FSMT |= {"encoder_layerdrop": 0, "decoder_layerdrop": 0}
#: every head of one architecture of each family, and the architectures that do not combine known parts, or whose files
#: hold other tensors than the model
IN_SHARDS = [
    str(each)
    for each in distinct(by="rules")
    if each.architecture.model_type in ("bert", "gpt2", "bart")
    or (not each.has_common_head and (each.architecture.stored or not each.is_later))
]
#: names of a bare model's tensors as those of a model with a head, or as the writers of some files call them; and the
#: other way round
PREFIXED = {"BertModel": "bert.", "GPT2Model": "transformer.", "MarianModel": "model.", "GteModel": "new."}
BARE = {"BertForSequenceClassification": "bert.", "LlamaForSequenceClassification": "model.", MARIAN: "model."}
#: official class, its fields, what is done to its folder (where nothing is, it is in shards)
CASES = [
    *((name, {"dropout": True} | LABELS, None) for name in IN_SHARDS),
    *((BERT, {}, as_bin(**how)) for how in ({}, {"zipped": False}, {"files": ("a.bin", "b.bin")})),
    (BERT, {}, write(BIN, "code that would run")),
    (BERT, {}, edited(CONFIG, architectures=...)),
    (T5, {}, edited(CONFIG, architectures=["T5WithLMHeadModel"])),  # as T5-large on the Hub
    *((BERT, {}, renamed(*names)) for names in (("Norm.weight", "Norm.gamma"), ("Norm.bias", "Norm.beta"))),
    (BERT, {}, beside(**{"bert.embeddings.position_ids": torch.arange(40)[None]})),
    ("RobertaForMaskedLM", {}, edited(CONFIG, model_type=...)),
    (GPT2, {"n_inner": None}, AS_GPT2_ON_THE_HUB),
    ("OpenAIGPTLMHeadModel", {}, beside(**MASKS)),
    (LLAMA, {}, beside(**{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})),
    ("BartModel", {}, beside(**{f"{side}.version": torch.tensor([3.0]) for side in ("encoder", "decoder")})),
    ("LlamaForQuestionAnswering", {}, renamed("transformer.", "model.")),
    *((name, {}, renamed("^", prefix)) for name, prefix in PREFIXED.items()),
    *((name, {}, renamed(prefix, "")) for name, prefix in BARE.items()),
    ("NomicBertForMaskedLM", {}, renamed("nomic_bert.", "bert.")),
    ("RobertaForSequenceClassification", {}, in_type(torch.float16)),
    # settings of generation, in a file of their own or, as old ones have them, in the configuration
    *((name, {}, edited(GENERATION, **SETTINGS)) for name in (LLAMA, MARIAN, FSMT)),
    *((name, {}, both(delete(GENERATION), edited(CONFIG, **SETTINGS))) for name in (LLAMA, MARIAN, FSMT)),
    *(
        (LLAMA, {"head_dim": None}, both(delete(GENERATION), edited(CONFIG, **OLD_ROPE | rope)))
        for rope in OLD_SCALINGS
    ),
    (MARIAN, {}, both(delete(GENERATION), edited(CONFIG, **OLD_MARIAN | SETTINGS), with_sinusoids(MARIAN), as_bin())),
    (FSMT, {}, both(delete(GENERATION), edited(CONFIG, **OLD_FSMT))),
    # ties
    *((BART, {}, with_one_of_the_tied(kept)) for kept in (*SHARED, PROJECTION)),
    (BART, {}, with_one_of_the_tied(*SHARED, PROJECTION)),
    *((name, UNTIED, tensors(with_unread_as_read)) for name in (BERT, "RobertaForMaskedLM", GPT2, LLAMA, MARIAN, BART)),
    *(("T5ForConditionalGeneration", UNTIED, None), ("MT5ForConditionalGeneration", UNTIED, None)),
    ("T5ForConditionalGeneration", UNTIED, edited(CONFIG, scale_decoder_outputs=...)),  # as flan-T5 on the Hub
    *((MARIAN, fields, None) for fields in (TWO_VOCABULARIES, {"share_encoder_decoder_embeddings": False})),
    (FSMT, {"tgt_vocab_size": 99, "tie_word_embeddings": True}, None),
    *((name, {}, without("final_logits_bias")) for name in (MARIAN, BART)),
    *((name, {}, both(in_type(torch.bfloat16), with_sinusoids(name))) for name in (MARIAN, FSMT)),  # which are not read
]


def tied(model) -> list[list[str]]:
    """The names of parameters that are one."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter.data_ptr(), []).append(name)
    return sorted(each for each in names.values() if len(each) > 1)


@pytest.mark.parametrize(("name", "fields", "change"), CASES)
def test_a_folder_there_and_back(name, fields, change, tmp_path, caplog):
    """As the model that its official class reads from it. (`test_fields.py` converts models that no folder holds.)"""
    original = build_tiny(BY_NAME[name], **fields)
    official, zoo, back = (tmp_path / place for place in ("official", "zoo", "back"))
    original.save_pretrained(official, max_shard_size="1GB" if change else "40KB")
    assert change or len(list(official.glob("model-*.safetensors"))) > 1
    (change or Path)(official)
    native, loading = type(original).from_pretrained(official, output_loading_info=True)
    if len(loading["missing_keys"]) > 1:  # transformers does not read these names
        native.load_state_dict(original.state_dict())
    caplog.clear()  # of what the official class may say
    made = from_official(official)
    made.save_pretrained(zoo)
    reloaded = BY_NAME[name].head.zoo.from_pretrained(zoo)
    assert_same_weights(reloaded, made)
    to_official(reloaded).save_pretrained(back)
    returned = type(original).from_pretrained(back)
    assert_same_model(returned, native)
    assert tied(returned) == tied(native)
    if hasattr(made, "lm_head"):
        base = made.base_model
        sides = (base.encoder, base.decoder) if made.config.is_encoder_decoder else (base,)
        tables = [made.lm_head.weight, *(side.embeddings.embed_tokens.weight for side in sides)]
        assert all((one is other) == one.equal(other) for one in tables for other in tables), "equal tables are not one"
    if native.can_generate():
        settings = native.generation_config.to_dict()
        assert [each.generation_config.to_dict() for each in (made, reloaded, returned)] == [settings] * 3
    assert made.dtype == reloaded.dtype == native.dtype and not caplog.text
    if native.can_generate() and native.dtype == torch.float32:
        batch = {"input_ids": IDS} | ({"decoder_input_ids": IDS[:, :4]} if native.config.is_encoder_decoder else {})
        models = made.double(), native.double()  # outside: frequencies are those of float32, as in any process
        with in_double():
            made, expected = (model(**batch, use_cache=False).logits for model in models)
            assert_same(made, expected)


def test_weights_are_contiguous_copies(tmp_path):
    """Neither direction shares memory with what it converts, nor with a file; GPT-2's matrices are turned and cut."""
    original = build_tiny(BY_NAME[GPT2])
    original.save_pretrained(tmp_path)
    as_bin()(tmp_path)
    original.transformer.wte.weight.data = original.transformer.wte.weight.data.t().contiguous().t()
    before, zoo = copy.deepcopy(original.state_dict()), from_official(original)
    back, read = to_official(zoo), from_official(tmp_path)
    for model in (zoo, back, read):
        assert all(tensor.is_contiguous() for tensor in model.state_dict().values())
    torch.save({name: tensor + 1 for name, tensor in before.items()}, tmp_path / BIN)
    for changed, kept in ((back, zoo), (zoo, read)):
        for parameter in changed.parameters():
            torch.nn.init.zeros_(parameter)
        assert_same_model(to_official(kept), original)
    assert all(tensor.equal(before[name]) for name, tensor in original.state_dict().items())


def test_of_two_tables_the_one_that_the_official_model_reads(tmp_path):
    """In a base model, whose names lack the prefix that rules have."""
    original = build_tiny(BY_NAME["BartModel"], **UNTIED)
    original.save_pretrained(tmp_path)
    assert from_official(tmp_path).encoder.embeddings.embed_tokens.weight.equal(original.encoder.embed_tokens.weight)


def test_types(tmp_path, caplog):
    """On demand; and of T5, whose official class holds a part in float32, which does not decide."""
    original = build_tiny(BY_NAME["T5Model"])
    original.save_pretrained(tmp_path)
    half = type(original).from_pretrained(tmp_path, dtype=torch.float16)
    assert {tensor.dtype for tensor in half.parameters()} == {torch.float16, torch.float32}
    assert from_official(half).dtype == torch.float16
    assert "T5Model holds wo in float32 there: dtype='bfloat16' is safe." in caplog.text
    caplog.clear()
    assert from_official(half, dtype="bfloat16").dtype == torch.bfloat16
    assert from_official(original).dtype == torch.float32 and not caplog.text
    with pytest.raises(ValueError, match="float31"):
        from_official(original, dtype="float31")


def test_the_implementation_of_attention_comes_along():
    """OpenAI GPT computes its own; the zoo's model may have any."""
    for name, given, zoo, back in (
        ("BertModel", {"attn_implementation": "eager"}, "eager", "eager"),
        ("OpenAIGPTLMHeadModel", {}, "sdpa", "eager"),
    ):
        model = from_official(build_tiny(BY_NAME[name], **given))
        assert model.config._attn_implementation == zoo and to_official(model).config._attn_implementation == back


def test_outputs_that_a_configuration_asks_for(tmp_path):
    """They are returned, also by what was saved and loaded again, with the attention that has weights to return."""
    build_tiny(BY_NAME[BERT]).save_pretrained(tmp_path)
    edit(tmp_path, CONFIG, output_attentions=True, output_hidden_states=True)
    from_official(tmp_path).save_pretrained(tmp_path / "zoo")
    model = tfm_zoo.TfmBertForMaskedLM.from_pretrained(tmp_path / "zoo")
    outputs, layers = model(IDS), model.config.num_hidden_layers
    assert (len(outputs.attentions), len(outputs.hidden_states)) == (layers, layers + 1)
    assert to_official(model).config.output_attentions


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
    (tmp_path / CONFIG).write_text(json.dumps(NOMIC | {"architectures": [f"NomicBert{head}"]}))
    zoo = from_official(tmp_path)
    models = [model.double() for model in (to_official(zoo), zoo, original)]  # outside, as above
    with in_double():
        back, made, expected = (model(IDS)[0] for model in models)
        assert_same((back, made), (expected, expected))


#: heads that `architectures` alone tells: choices, ModernBERT's kinds of labels, and T5's
UNTOLD = (
    *("MultipleChoice", "ModernBertForTokenClassification", "ModernBertForQuestionAnswering"),
    *("T5ForConditionalGeneration", "T5EncoderModel"),
)


@pytest.mark.parametrize("table", {each.architecture: 0 for each in OFFICIAL_CLASSES}, ids=lambda each: each.model_type)
def test_every_head_is_known_by_its_tensors(table):
    """Where `architectures` is missing."""
    for native in OFFICIAL_CLASSES:
        if native.architecture is table and not str(native).endswith(UNTOLD):
            checkpoint = open_checkpoint(build_tiny(native))
            assert architecture_of(checkpoint.config, "it") is table
            assert checkpoint_head(table, None, checkpoint.tensors) is native.head, native
            if str(native) == "EuroBertForMaskedLM":  # whose head is one tensor, which files leave out if it is tied
                tensors = {name: each for name, each in checkpoint.tensors.items() if name != "lm_head.weight"}
                assert len(tensors) < len(checkpoint.tensors)
                assert checkpoint_head(table, None, tensors) is native.head


def test_a_discriminator(tmp_path, caplog):
    """With its head, in a folder whose code an Auto class finds; or as a base model."""
    original = build_tiny(BY_NAME["ElectraModel"])
    discriminator = ElectraForPreTraining(original.config).eval()
    discriminator.electra.load_state_dict(original.state_dict())
    discriminator.save_pretrained(tmp_path)
    from_official(tmp_path).save_pretrained(tmp_path / "zoo")
    detector = AutoModelForPreTraining.from_pretrained(tmp_path / "zoo", trust_remote_code=True)
    assert type(detector) is tfm_zoo.TfmBertForReplacedTokenDetection is type(load(tmp_path / "zoo"))
    with in_double():
        assert_same(detector.double()(IDS).logits, discriminator.double()(IDS).logits)
    zoo = from_official(tmp_path, tfm_zoo.TfmBertModel)
    assert "left out what belongs to another head: discriminator_predictions.dense.bias" in caplog.text
    assert_same_model(to_official(zoo), original)
