"""`python stand_ins.py PEER FOLDER SUITE`: tiny models for the tests of a peer.

FOLDER/official/hub and FOLDER/zoo/hub are caches of the Hub with the same names: of official models, and of what
`tfm-zoo convert` makes of them. They have random weights, and the tokenizer of MiniLM, which lies beside the project.
The BERTs have its embeddings, too: like sentences are alike.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from tests.official_models import BY_NAME, OFFICIAL_CLASSES, TINY, TINY_OF, build_tiny
from tfm_zoo.cli import app
from tfm_zoo.converters import ARCHITECTURES

MINILM = Path(os.environ["MINILM"])
FEW = 4000  # tokens of most models; MiniLM has 30522
COMMIT = "0" * 40
BERT, RERANKER = "sentence-transformers-testing/stsb-bert-tiny-safetensors", "cross-encoder-testing/reranker-bert-tiny"
#: the commits that tests name, the newest first; of the second of a name, the weights are others
COMMITS = {
    BERT: [
        "f3cb857cba53019a20df283396bcca179cf051a4",
        "ba33022fdf0b0fc2643263f0726f44d0a07d0e24",
        "3b4f75bcb3dec36a7e05da8c44ee2f7f1d023b1a",
    ],
    RERANKER + "-gooaq-bce": ["f3cb857cba53019a20df283396bcca179cf051a4", "ba33022fdf0b0fc2643263f0726f44d0a07d0e24"],
    "sentence-transformers-testing/stsb-bert-tiny-lora": ["3b4f75bcb3dec36a7e05da8c44ee2f7f1d023b1a"],
}
ACTIVATION = "torch.nn.modules.activation."
TRL = (
    *("Qwen2ForCausalLM-2.5", "Qwen2ForSequenceClassification-2.5", "Qwen3MoeForCausalLM", "LlamaForCausalLM-3.2"),
    *("Qwen3MoeForSequenceClassification", "GPTNeoXForCausalLM", "Cohere2ForCausalLM", "Olmo3ForCausalLM"),
)
TEMPLATE = "{% for turn in messages %}{{ turn.role }}: {{ turn.content }}\n{% endfor %}"
TEMPLATE += "{% if add_generation_prompt %}assistant:{% endif %}"


def whole_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.model_max_length = 512
    return tokenizer


def small_tokenizer(**names: str) -> PreTrainedTokenizerFast:
    text = json.loads((MINILM / "tokenizer.json").read_text())
    text["model"]["vocab"] = {word: i for word, i in text["model"]["vocab"].items() if i < FEW}
    text["truncation"] = text["padding"] = None
    names |= {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(text)), model_max_length=512, **names)


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> str:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def like_bert(name: str, seed: int = 0, **fields) -> PreTrainedModel:
    """A BERT, or a DistilBERT, whose embeddings are MiniLM's, at 128 channels."""
    words = transformers.AutoModel.from_pretrained(MINILM).get_input_embeddings().weight.detach()
    words = words - words.mean(0)
    words = words @ torch.linalg.eigh(words.T @ words).eigenvectors[:, -128:]
    torch.manual_seed(seed)
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": len(words)}
    sizes |= {"hidden_dim": 256} if name.startswith("Distil") else {"intermediate_size": 512}
    model_class = getattr(transformers, name)
    model = model_class(model_class.config_class(**sizes, **fields)).eval()
    model.get_input_embeddings().weight.data.copy_(words)
    return model


def like_roberta(name: str, labels: list[str] | None = None, **sizes) -> PreTrainedModel:
    sizes |= {"vocab_size": FEW, "num_hidden_layers": 2, "max_position_embeddings": 514, "pad_token_id": 0}
    sizes |= (
        {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}} if labels else {}
    )
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.RobertaConfig(type_vocab_size=1, **sizes)).eval()
    if labels:
        model.classifier.out_proj.weight.data.mul_(20)
    return model


def of_sentence_transformers(root: Path, suite: Path) -> None:
    from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
    from sentence_transformers.sentence_transformer.modules import (
        Dense,
        Pooling,
        Router,
        StaticEmbedding,
        Transformer,
        WordEmbeddings,
    )
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SparseStaticEmbedding, SpladePooling

    full, small, parts = whole_tokenizer(), small_tokenizer(), root / ".parts"

    def saved(kind: type, name: str, *modules: torch.nn.Module) -> None:
        kind(modules=list(modules)).save(str(root / name), create_model_card=False)

    def embedder(name: str, model: PreTrainedModel, tokenizer=full, *more: torch.nn.Module) -> None:
        module = Transformer(save(model, tokenizer, parts / name))
        saved(SentenceTransformer, name, module, Pooling(module.get_embedding_dimension()), *more)

    embedder(BERT, like_bert("BertModel"))
    embedder(f"older/{BERT}", like_bert("BertModel", seed=1))
    embedder("sentence-transformers-testing/all-nli-bert-tiny-dense", like_bert("BertModel"), full, Dense(128, 64))
    embedder(
        "sentence-transformers/paraphrase-distilroberta-base-v1",
        like_roberta("RobertaModel", hidden_size=768, num_attention_heads=12, intermediate_size=768),
        small,
    )
    for name in ("all-MiniLM-L6-v2", "paraphrase-MiniLM-L6-v2"):
        shutil.copytree(MINILM, root / "sentence-transformers" / name)
        (root / "sentence-transformers" / name / "2_Normalize").mkdir(exist_ok=True)
    save(like_bert("BertModel"), full, root / "hf-internal-testing/tiny-random-bert")
    for name in ("google-bert/bert-base-uncased", "bert-base-uncased"):
        save(like_bert("BertForMaskedLM"), full, root / name)
    save(like_bert("DistilBertForMaskedLM"), full, root / "distilbert/distilbert-base-uncased")

    reranker = like_bert("BertForSequenceClassification", num_labels=1)
    reranker.classifier.weight.data.mul_(20)
    encoder = CrossEncoder(save(reranker, full, parts / RERANKER))
    encoder.model_card_data.generate_widget_examples = False
    encoder.save(str(root / f"{RERANKER}-gooaq-bce-STv54"), create_model_card=False)
    # Before release 5.4 a cross-encoder was a model's folder, with a field in config.json.
    for name, fields in {
        f"{RERANKER}-gooaq-bce": {"sentence_transformers": {"activation_fn": f"{ACTIVATION}Sigmoid"}},
        f"{RERANKER}-gooaq-bce-tanh-v4": {"sentence_transformers": {"activation_fn": f"{ACTIVATION}Tanh"}},
        f"{RERANKER}-gooaq-bce-tanh-v3": {"sbert_ce_default_activation_function": f"{ACTIVATION}Tanh"},
        **{RERANKER: {}, f"older/{RERANKER}-gooaq-bce": {}},
    }.items():
        shutil.copytree(parts / RERANKER, root / name)
        file = root / name / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    for name, labels in {
        "distilbert/distilroberta-base": ["LABEL_0"],
        "cross-encoder/stsb-distilroberta-base": ["LABEL_0"],
        "cross-encoder/nli-MiniLM2-L6-H768": ["contradiction", "entailment", "neutral"],
    }.items():
        sizes = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 256}
        save(like_roberta("RobertaForSequenceClassification", labels, **sizes), small, root / name)

    model = like_bert("BertForMaskedLM")
    model.cls.predictions.bias.data.fill_(-0.05)
    model.get_input_embeddings().weight.data.mul_(0.3)
    splade = save(model, full, parts / "splade")
    sparse = [MLMTransformer(splade), SpladePooling(pooling_strategy="max")]
    saved(SparseEncoder, "sparse-encoder-testing/splade-bert-tiny-nq", *sparse)
    query = [SparseStaticEmbedding(tokenizer=full, frozen=False)]
    router = Router.for_query_document(query_modules=query, document_modules=sparse)
    saved(SparseEncoder, "sparse-encoder-testing/inference-free-splade-bert-tiny-nq", router)

    words = [word for word, i in sorted(full.get_vocab().items(), key=lambda each: each[1]) if i < FEW]
    weights = torch.randn(FEW, 300, generator=torch.Generator().manual_seed(0)).numpy()
    name = "sentence-transformers/average_word_embeddings_levy_dependency"
    saved(SentenceTransformer, name, WordEmbeddings(WhitespaceTokenizer(words), weights), Pooling(300))
    torch.manual_seed(0)
    static = StaticEmbedding(small, embedding_dim=1024)
    saved(SentenceTransformer, "sentence-transformers/static-retrieval-mrl-en-v1", static)

    names = json.loads((suite / "tests/base/modules/transformer/transformers_tiny_models.json").read_text())
    for model_type in ARCHITECTURES:
        classes = [each for each in OFFICIAL_CLASSES if each.architecture.model_type == model_type]
        if classes and names.get(model_type):
            ends = ("ForCausalLM", "LMHeadModel")
            wanted = [each for each in classes if each.head.official.endswith(ends)]
            wanted = wanted if names[model_type].endswith(ends) else [each for each in classes if each.head.is_bare]
            model = longer((wanted or classes)[0].__str__(), **{"marian": {"pad_token_id": 1}}.get(model_type, {}))
            save(model, small, root / names[model_type])


def longer(name: str, **fields) -> PreTrainedModel:
    """A tiny model for texts of some length."""
    sizes = dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 514)
    sizes |= dict.fromkeys(("vocab_size", "src_vocab_size", "tgt_vocab_size", "decoder_vocab_size"), FEW)
    tiny = TINY_OF.get(BY_NAME[name].architecture.model_type, TINY)
    return build_tiny(BY_NAME[name], **{field: sizes.get(field, value) for field, value in tiny.items()} | fields)


def of_trl(root: Path, suite: Path) -> None:
    tokenizer = small_tokenizer(eos_token="[SEP]", bos_token="[CLS]")
    tokenizer.chat_template = TEMPLATE
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("eos", "bos", "pad")}
    for name in TRL:
        labels = {"labels": 1} if "Classification" in name else {}
        model = longer(name.partition("-")[0], large_matrices=False, **ids, **labels)
        save(model, tokenizer, root / f"trl-internal-testing/tiny-{name}")


def of_peft(root: Path, suite: Path) -> None:
    tokenizer = small_tokenizer()
    save(longer("BertModel", large_matrices=False), tokenizer, root / "peft-internal-testing/tiny-random-BertModel")


def convert_all(official: Path, zoo: Path) -> None:
    """Every folder with a model becomes one of the zoo; files beside them, such as a router's, are copied."""
    shutil.copytree(official, zoo, ignore=shutil.ignore_patterns(".parts"))
    for config in sorted(zoo.rglob("config.json")):
        if "model_type" in json.loads(config.read_text()):
            source = official / config.parent.relative_to(zoo)
            if app(["convert", str(source), str(config.parent), "--overwrite"], standalone_mode=False):
                sys.exit(f"{source} was not converted.")


def add_adapter(models: Path) -> None:
    """An adapter of the first sentence encoder."""
    from peft import LoraConfig, get_peft_model

    model = transformers.AutoModel.from_pretrained(models / BERT)
    torch.manual_seed(0)
    model = get_peft_model(model, LoraConfig(task_type="FEATURE_EXTRACTION", r=4, init_lora_weights=False))
    model.peft_config["default"].base_model_name_or_path = BERT
    save(model, whole_tokenizer(), models / "sentence-transformers-testing/stsb-bert-tiny-lora")


def lay_out(models: Path, hub: Path) -> None:
    """The models as a cache of the Hub."""
    folders = {
        file.parent for each in ("config.json", "modules.json", "adapter_config.json") for file in models.rglob(each)
    }
    outer = (folder for folder in folders if not folders & set(folder.parents) and ".parts" not in folder.parts)
    for folder in outer:
        name = str(folder.relative_to(models))
        if name.startswith("older/"):
            continue
        commits, older = COMMITS.get(name, [COMMIT]), models / "older" / name
        repository = hub / f"models--{name}".replace("/", "--")
        for commit, source in zip(commits, (folder, older, folder), strict=False):
            shutil.copytree(source, repository / "snapshots" / commit, copy_function=os.link)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(commits[0])


def main(peer: str, out: Path, suite: Path) -> None:
    official, zoo = out / "official/models", out / "zoo/models"
    official.mkdir(parents=True)
    {"sentence-transformers": of_sentence_transformers, "trl": of_trl, "peft": of_peft}[peer](official, suite)
    convert_all(official, zoo)
    for models in (official, zoo):
        if peer == "sentence-transformers":
            add_adapter(models)
        lay_out(models, models.parent / "hub")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]))
