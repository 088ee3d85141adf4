"""In other libraries: what they make of a model that is sped up is what they make of the official one."""

import copy

import numpy as np
import peft
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling
from torch import nn
from transformers import (
    AutoModel,
    BertForSequenceClassification,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    pipeline,
)

from tests.official_models import BY_NAME, build_tiny
from tests.speed_up.models import fell_back, operations
from tests.words import make_tokenizer
from tfm_zoo.inference import restore, speed_up

TEXTS = ["the film was very good and bright", "a", "a dull story", "who saw"]
IDS = torch.arange(5, 19).view(2, 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folders of tiny models, by class."""

    def saved(name: str) -> str:
        path = tmp_path_factory.mktemp(name)
        for each in (build_tiny(BY_NAME[name], labels=2), make_tokenizer()):
            each.save_pretrained(path)
        return str(path)

    return saved


@pytest.fixture(scope="module")
def bert() -> PreTrainedModel:
    return build_tiny(BY_NAME["BertModel"])


@pytest.fixture(scope="module")
def sentences(folder):
    module = Transformer(folder("BertModel"))
    return SentenceTransformer(modules=[module, Pooling(32)], device="cpu")


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
def test_sentence_transformer(sentences, pooling, tmp_path):
    model = SentenceTransformer(modules=[copy.deepcopy(sentences)[0], Pooling(32, pooling_mode=pooling)], device="cpu")
    expected = model.encode(TEXTS)
    assert speed_up(model) is model
    for texts in (TEXTS, TEXTS[::-1]):
        np.testing.assert_allclose(model.encode(texts), expected if texts is TEXTS else expected[::-1], atol=1e-5)
    assert not fell_back(model)
    model.save(str(tmp_path), create_model_card=False)
    assert AutoModel.from_pretrained(tmp_path).config.model_type == "bert"
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS), expected, atol=1e-6)
    assert np.array_equal(restore(model).encode(TEXTS), expected)


def test_cross_encoder(folder):
    model = CrossEncoder(folder("BertForSequenceClassification"), device="cpu")
    pairs = [(text, TEXTS[0]) for text in TEXTS]
    expected = model.predict(pairs)
    np.testing.assert_allclose(speed_up(model).predict(pairs), expected, atol=1e-5)
    features = model.preprocess(pairs)
    first, second = (model(features)["scores"] for _ in range(2))  # the second time "scores" are among the inputs
    assert torch.equal(first, second)
    assert not fell_back(model)


def test_sparse_encoder(folder):
    model = SparseEncoder(modules=[MLMTransformer(folder("BertForMaskedLM")), SpladePooling("max")], device="cpu")
    expected = model.encode(TEXTS, convert_to_sparse_tensor=False)
    torch.testing.assert_close(
        speed_up(model).encode(TEXTS, convert_to_sparse_tensor=False), expected, atol=1e-5, rtol=0
    )
    assert not fell_back(model)


def test_pipeline(folder):
    task = pipeline("text-classification", folder("BertForSequenceClassification"), device="cpu")
    expected = task(TEXTS, batch_size=4)
    assert speed_up(task) is task
    for made, wanted in zip(task(TEXTS, batch_size=4), expected, strict=True):
        assert made["label"] == wanted["label"] and abs(made["score"] - wanted["score"]) < 1e-5
    assert not fell_back(task.model)


@pytest.mark.parametrize("adapts", [False, True])
def test_trainer(folder, adapts, tmp_path):
    """Losses of steps with accumulation, autocast and checkpointing; a Trainer is walked, too."""
    tokenizer = make_tokenizer()
    rows = [{**tokenizer(text), "labels": number % 2} for number, text in enumerate(TEXTS * 2)]
    results = []
    for is_fast in (False, True):
        model = BertForSequenceClassification.from_pretrained(folder("BertForSequenceClassification"))
        if adapts:
            torch.manual_seed(1)
            model = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"]))
        options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 3, "use_cpu": True}
        options |= {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1, "seed": 3}
        arguments = TrainingArguments(str(tmp_path), **options, bf16=not adapts, learning_rate=1e-2)
        trainer = Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
        checkpoint = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
        checkpoint()
        if is_fast:
            assert speed_up(trainer) is trainer
        trainer.train()
        losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
        results.append((losses, trainer.evaluate(rows)["eval_loss"], model))
    (losses, after, _), (fast_losses, fast_after, fast) = results
    assert not fell_back(fast)
    assert fast_losses == pytest.approx(losses, abs=2e-4 if adapts else 2e-2)
    assert fast_after == pytest.approx(after, abs=2e-4 if adapts else 2e-2)


def test_adapters_compute_no_padding(folder):
    model = BertForSequenceClassification.from_pretrained(folder("BertForSequenceClassification"))
    model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["query", "value"]))
    ids = torch.randint(5, 99, (4, 20))
    mask = (torch.arange(20) < torch.tensor([[20], [3], [4], [5]])).long()

    def run(each):
        return each(input_ids=ids, attention_mask=mask).logits.sum().backward()

    expected = operations(model, run)[0]
    assert operations(speed_up(model), run)[0] < 0.6 * expected
    assert not fell_back(model)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_packed_weights(bert, dtype):
    """They follow what is written to the model later, and refuse to be trained."""
    model = copy.deepcopy(bert)
    fast = speed_up(copy.deepcopy(model), dtype)
    assert "quantization_config" not in vars(fast.forward.call.twin.model.config)  # it is not saved: nobody is billed
    bound = {"float32": 1e-5, "bfloat16": 0.06, "int8": 0.3}[dtype]
    for each in (model, fast):
        assert all(parameter.requires_grad for parameter in each.parameters())
        with torch.no_grad():
            for parameter in each.parameters():
                parameter.add_(0.05)
    assert (fast(IDS)[0] - model(IDS)[0]).abs().max() < bound
    assert not fell_back(fast)
    with pytest.raises(RuntimeError, match=f"speed_up has packed the weights of this BertModel in {dtype}"):
        fast(IDS)[0].sum().backward()
    with pytest.raises(RuntimeError, match="before training"):
        fast.train()(IDS)


def test_calibrated_bytes(sentences):
    """They are found on texts, by the tokenizer of the thing; the official weights stay as they are."""
    model = copy.deepcopy(sentences)
    before, state = model.encode(TEXTS), copy.deepcopy(model.state_dict())
    speed_up(model, "int8", calibrate=TEXTS * 8)
    vectors = model.encode(TEXTS)
    cosines = (vectors * before).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(before, axis=1)
    assert 0.99 <= cosines.min() < 1 and (vectors != before).any()
    assert (model.encode(TEXTS, batch_size=1) == vectors).all()
    assert all(torch.equal(state[name], each) for name, each in restore(model).state_dict().items())
    assert np.abs(model.encode(TEXTS) - before).max() < 1e-6


def test_other_libraries_may_wrap_the_forward(bert):
    model = speed_up(copy.deepcopy(bert))
    with torch.no_grad():
        expected = model(IDS)[0]
        inner = model.forward
        model.forward = lambda *args, **kwargs: inner(*args, **kwargs)
        model.forward.__wrapped__ = inner
        assert torch.equal(model(IDS)[0], expected)
        restore(model)
        assert not inner.is_on
        torch.testing.assert_close(model(IDS)[0], expected, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_a_graph_is_the_official_one(bert):
    model = copy.deepcopy(bert)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    with torch.no_grad():
        expected = model(IDS, mask).last_hidden_state
        fast = speed_up(copy.deepcopy(model))
        exported = torch.export.export(fast, (IDS, mask), strict=False).module()
        torch.testing.assert_close(exported(IDS, mask).last_hidden_state, expected)
        compiled = torch.compile(fast, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(IDS, mask).last_hidden_state, expected)


class Summed(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, ids):
        return self.inner(input_ids=ids).last_hidden_state.sum()


def test_functions_of_parameters(bert):
    """`torch.func` puts other tensors instead of parameters for one call."""
    model = copy.deepcopy(bert)
    fast = speed_up(copy.deepcopy(model))
    for each in (model, fast):
        each.other = {name: parameter.detach() * 1.1 for name, parameter in each.named_parameters()}
    made, wanted = (torch.func.functional_call(each, each.other, (IDS,))[0] for each in (fast, model))
    torch.testing.assert_close(made, wanted, atol=1e-5, rtol=0)
    summed = [
        torch.func.grad(lambda weights, each=each: torch.func.functional_call(each, weights, (IDS,))[0].sum())
        for each in (fast, model)
    ]
    made, wanted = (run(each.other) for run, each in zip(summed, (fast, model), strict=True))
    torch.testing.assert_close(made, wanted, atol=1e-4, rtol=1e-4)
