"""In other libraries: what they make of a model that is sped up is what they make of the official one."""

import copy
from functools import partial

import numpy as np
import peft
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling
from transformers import AutoModel, BertForSequenceClassification, PreTrainedModel, Trainer, TrainingArguments, pipeline

from tests.official_models import BY_NAME, build_tiny, official_folder
from tests.speed_up.models import fell_back, operations
from tests.tiny import recompute_activations
from tests.words import make_tokenizer
from tfm_zoo.inference import restore, speed_up

TEXTS = ["the film was very good and bright", "a", "a dull story", "who saw"]
IDS = torch.arange(5, 19).view(2, 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folders of tiny models, by class."""
    return lambda name: str(official_folder(tmp_path_factory.mktemp(name), name, labels=2))


def bert(dtype: str | None = None) -> tuple[PreTrainedModel, PreTrainedModel]:
    """As it is, and sped up."""
    return build_tiny(BY_NAME["BertModel"]), speed_up(build_tiny(BY_NAME["BertModel"]), dtype)


def sentences(folder, pooling: str = "mean") -> SentenceTransformer:
    return SentenceTransformer(modules=[Transformer(folder("BertModel")), Pooling(32, pooling_mode=pooling)])


def sparse(folder) -> SparseEncoder:
    return SparseEncoder(modules=[MLMTransformer(folder("BertForMaskedLM")), SpladePooling("max")])


def scored(model: CrossEncoder) -> np.ndarray:
    pairs = [(text, TEXTS[0]) for text in TEXTS]
    features = model.preprocess(pairs)
    first, second = (model(features)["scores"] for _ in range(2))  # the second time "scores" are among the inputs
    assert torch.equal(first, second)
    return model.predict(pairs)


def classified(task) -> list[float]:
    """The probability of the first label."""
    return [min(found, key=lambda each: each["label"])["score"] for found in task(TEXTS, batch_size=4)]


#: thing -> what makes it, and what is computed with it
OF_PAIRS = "BertForSequenceClassification"
THINGS = {
    "sentences": (sentences, lambda model: model.encode(TEXTS)),
    "last token": (partial(sentences, pooling="lasttoken"), lambda model: model.encode(TEXTS)),
    "cross-encoder": (lambda folder: CrossEncoder(folder(OF_PAIRS), device="cpu"), scored),
    "sparse encoder": (sparse, lambda model: model.encode(TEXTS, convert_to_sparse_tensor=False).numpy()),
    "pipeline": (
        lambda folder: pipeline("text-classification", folder(OF_PAIRS), top_k=None, device="cpu"),
        classified,
    ),
}


@pytest.mark.parametrize("name", THINGS)
def test_things_that_hold_a_model(name, folder):
    make, run = THINGS[name]
    thing = make(folder)
    expected = run(thing)
    assert speed_up(thing) is thing
    np.testing.assert_allclose(run(thing), expected, atol=1e-5)
    assert not fell_back(thing.model if name == "pipeline" else thing)


def test_what_is_saved_is_the_official_model(folder, tmp_path):
    model = sentences(folder)
    expected = model.encode(TEXTS)
    speed_up(model).save(str(tmp_path), create_model_card=False)
    assert AutoModel.from_pretrained(tmp_path).config.model_type == "bert"
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS), expected, atol=1e-6)
    assert np.array_equal(restore(model).encode(TEXTS), expected)


def classifier(folder, adapts: bool) -> torch.nn.Module:
    model = BertForSequenceClassification.from_pretrained(folder("BertForSequenceClassification"))
    torch.manual_seed(1)
    lora = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"])
    return peft.get_peft_model(model, lora) if adapts else model


@pytest.mark.parametrize("adapts", [False, True])
def test_trainer(folder, adapts, tmp_path):
    """Losses of steps with accumulation, autocast and checkpointing; a Trainer is walked, too."""
    tokenizer = make_tokenizer()
    rows = [{**tokenizer(text), "labels": number % 2} for number, text in enumerate(TEXTS * 2)]
    results = []
    for is_fast in (False, True):
        model = classifier(folder, adapts)
        options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 3, "use_cpu": True}
        options |= {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1, "seed": 3}
        rate = 1e-2 if adapts else 1e-3  # (in bfloat16, a higher one enlarges what is rounded)
        arguments = TrainingArguments(str(tmp_path), **options, bf16=not adapts, learning_rate=rate)
        trainer = Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
        recompute_activations(model)
        if is_fast:
            assert speed_up(trainer) is trainer
        trainer.train()
        losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
        results.append((losses, trainer.evaluate(rows)["eval_loss"], model))
    (losses, after, _), (fast_losses, fast_after, fast) = results
    assert not fell_back(fast)
    assert [*fast_losses, fast_after] == pytest.approx([*losses, after], abs=2e-4 if adapts else 1e-2)


def test_adapters_compute_no_padding(folder):
    model = classifier(folder, adapts=True)
    ids = torch.randint(5, 99, (4, 20))
    mask = (torch.arange(20) < torch.tensor([[20], [3], [4], [5]])).long()

    def run(each):
        return each(input_ids=ids, attention_mask=mask).logits.sum().backward()

    expected = operations(model, run)[0]
    assert operations(speed_up(model), run)[0] < 0.6 * expected and not fell_back(model)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-5), ("bfloat16", 0.06), ("int8", 0.3)])
def test_packed_weights(dtype, bound):
    """They follow what is written to the model later, and refuse to be trained."""
    model, fast = bert(dtype)
    assert "quantization_config" not in vars(fast.forward.call.twin.model.config)  # it is not saved: nobody is billed
    for parameter in (*model.parameters(), *fast.parameters()):
        assert parameter.requires_grad
        with torch.no_grad():
            parameter.add_(0.05)
    assert (fast(IDS)[0] - model(IDS)[0]).abs().max() < bound and not fell_back(fast)
    with pytest.raises(RuntimeError, match=f"speed_up has packed the weights of this BertModel in {dtype}"):
        fast(IDS)[0].sum().backward()
    with pytest.raises(RuntimeError, match="before training"):
        fast.train()(IDS)


def test_calibrated_bytes(folder):
    """They are found on texts, by the tokenizer of the thing; the official weights stay as they are."""
    model = sentences(folder)
    before, state = model.encode(TEXTS), copy.deepcopy(model.state_dict())
    speed_up(model, "int8", calibrate=TEXTS * 8)
    vectors = model.encode(TEXTS)
    cosines = (vectors * before).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(before, axis=1)
    assert 0.99 <= cosines.min() < 1 and (vectors != before).any()
    assert (model.encode(TEXTS, batch_size=1) == vectors).all()
    assert all(torch.equal(state[name], each) for name, each in restore(model).state_dict().items())
    assert np.abs(model.encode(TEXTS) - before).max() < 1e-6


@torch.no_grad()
def test_other_libraries_may_wrap_the_forward():
    model, fast = bert()
    inner = fast.forward
    fast.forward = lambda *args, **kwargs: inner(*args, **kwargs)
    fast.forward.__wrapped__ = inner
    torch.testing.assert_close(fast(IDS)[0], model(IDS)[0], atol=1e-5, rtol=0)
    restore(fast)
    assert not inner.is_on and torch.equal(fast(IDS)[0], model(IDS)[0])


@pytest.mark.slow
@torch.no_grad()
def test_a_graph_is_the_official_one():
    model, fast = bert()
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    exported = torch.export.export(fast, (IDS, mask), strict=False).module()
    for graph in (exported, torch.compile(fast, backend="eager", fullgraph=True)):
        torch.testing.assert_close(graph(IDS, mask).last_hidden_state, model(IDS, mask).last_hidden_state)
