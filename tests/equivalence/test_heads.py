"""Every official architecture with every head: outputs, hidden states, attention weights, losses and gradients of the
official class.

A head that several classes share is compared in one of them.
"""

from collections.abc import Iterator

import pytest
import torch

from tests.equivalence import comparison
from tests.equivalence.comparison import Pair, assert_same_outputs, loss_of, positions_of, ragged_batch, target_mask
from tests.official_models import BY_NAME, SPECIAL_TOKENS, OfficialClass, build, build_tiny, distinct, keep_every_layer
from tests.precision import assert_same
from tests.published_sizes import PUBLISHED
from tfm_zoo.converters import from_official

pytestmark = pytest.mark.usefixtures("double")

LENGTHS = [13, 5, 5, 1]  # neighbours of one length are one call of a kernel
LONGEST = [13] * 4
#: vocabularies are soon multiplied with
FEW_WORDS = {"vocab_size": 8000}
FEW_WORDS_OF_LLAMA = FEW_WORDS | SPECIAL_TOKENS
#: of each kind of stack one published size: the head that reads it in most ways (what a head adds is tested at tiny
#: sizes), and what the comparison has otherwise
FULL_SIZE = {
    "bert-base": ("BertForPreTraining", FEW_WORDS),
    "smollm-135m": ("LlamaForCausalLM", FEW_WORDS_OF_LLAMA),
    "opus-mt": ("MarianMTModel", FEW_WORDS | {"pad_token_id": 3, "decoder_start_token_id": 3}),
}
#: other stacks, which `-m by_hand` runs, each in up to 14 GB; the largest have fewer layers
MORE_FULL_SIZE = {
    **{"roberta-base": ("RobertaForMaskedLM", {}), "distilbert-base": ("DistilBertForMaskedLM", {})},
    **{"albert-base-v2": ("AlbertForMaskedLM", {}), "electra-small": ("ElectraForMaskedLM", {})},
    **{"mpnet-base": ("MPNetForMaskedLM", {}), "modernbert-base": ("ModernBertForMaskedLM", {})},
    **{"nomic-embed-text-v1.5": ("NomicBertForMaskedLM", {}), "gte-multilingual-base": ("GteForMaskedLM", FEW_WORDS)},
    "jina-embeddings-v3": ("JinaEmbeddingsV3ForMaskedLM", FEW_WORDS),
    "eurobert-210m": ("EuroBertForMaskedLM", FEW_WORDS_OF_LLAMA | {"mask_token_id": 3}),
    **{"deberta-v3-base": ("DebertaV2ForMaskedLM", FEW_WORDS), "deberta-base": ("DebertaForMaskedLM", FEW_WORDS)},
    "deberta-v2-xlarge": ("DebertaV2ForMaskedLM", FEW_WORDS | {"num_hidden_layers": 3}),
    "embeddinggemma-300m": ("embedding_gemma-Gemma3TextModel", FEW_WORDS_OF_LLAMA | {"num_hidden_layers": 12}),
    "xlm-roberta-xl": ("XLMRobertaXLForMaskedLM", FEW_WORDS | {"num_hidden_layers": 2}),
    **{"gpt2": ("GPT2LMHeadModel", {}), "qwen3-0.6b": ("Qwen3ForCausalLM", {})},
    **{"gemma-3-270m": ("Gemma3ForCausalLM", {}), "pythia-160m": ("GPTNeoXForCausalLM", {})},
    **{"opt-125m": ("OPTForCausalLM", {}), "bloom-560m": ("BloomForCausalLM", FEW_WORDS)},
    "smollm3-3b": ("SmolLM3ForCausalLM", FEW_WORDS_OF_LLAMA | {"num_hidden_layers": 4}),
    "gpt-j-6b": ("GPTJForCausalLM", FEW_WORDS_OF_LLAMA | {"n_layer": 2}),
    "bart-base": ("BartForConditionalGeneration", FEW_WORDS),
    "nllb-200-distilled-600m": ("M2M100ForConditionalGeneration", FEW_WORDS),
    "pegasus-large": ("PegasusForConditionalGeneration", FEW_WORDS | {"encoder_layers": 8, "decoder_layers": 8}),
    "blenderbot-400m-distill": ("BlenderbotForConditionalGeneration", {}),
    **{"t5-small": ("T5ForConditionalGeneration", {}), "flan-t5-base": ("T5ForConditionalGeneration", FEW_WORDS)},
}


def with_and_without_padding(pair: Pair) -> Iterator[bool]:
    """Whether padding is left out: what an encoder is tested with, one way after the other; a known head in one."""
    official_class = pair.official_class
    is_known = official_class.has_common_head and official_class.is_later
    for skips in (True,) if official_class.is_decoder or is_known else (True, False):
        for module in pair.zoo_models[0].modules():
            if hasattr(module, "config"):
                module.config.skip_padding = skips
        yield skips


def settings_of(official_class: OfficialClass) -> list[tuple[str, str]]:
    """The attention, and the side of padding: all for what is new, and half as many for a known part, stack or head."""
    settings = [("sdpa", "right"), ("eager", "left"), ("sdpa", "left"), ("eager", "right")]
    return settings[: 4 // 2 ** (official_class.has_common_head + official_class.is_later)]


@pytest.fixture(scope="module", params=distinct(), ids=str)
def pair(request) -> Pair:
    """An official class, built once for all tests of it."""
    official = build_tiny(request.param)
    return Pair(request.param, official, [from_official(official)])


def test_outputs(pair):
    official_class, official, [zoo] = pair
    encoder_states = "encoder_hidden_states" if official_class.is_encoder_decoder else "hidden_states"
    may_skip = not (official_class.is_decoder or official_class.pools_last)
    for attention, side in settings_of(official_class):
        pair.prepare(attention)
        batch = ragged_batch(official_class, official, side, LONGEST if official_class.reads_padding(side) else LENGTHS)
        given = [batch, batch | {"position_ids": positions_of(batch)}] if official_class.is_decoder else [batch]
        # (Falcon's official class computes other logits where it is asked for attention weights.)
        shows_weights = attention == "eager" and official_class.architecture.model_type != "falcon"
        asked = {"output_hidden_states": True, "output_attentions": shows_weights}
        for inputs in given:
            with torch.no_grad():
                expected = official(**inputs, **asked)
                assert len(expected[encoder_states]) == 4
                for skips in with_and_without_padding(pair):
                    outputs = zoo(**inputs, **asked)
                    assert_same_outputs(outputs, expected, batch["attention_mask"], target_mask(batch))
                    if may_skip and skips and side == "right":
                        padded = batch["attention_mask"].flatten(0, -2) == 0
                        assert not outputs[encoder_states][1][padded].any(), "padding has been computed"


def test_loss_and_gradients(pair):
    """In two of the settings that `test_outputs` crosses: where there are several, each attention and each side; of
    earlier architectures, with labels at padding in the first."""
    official_class, official, [zoo] = pair
    for number, (attention, side) in enumerate(settings_of(official_class)[:2]):
        lengths = LONGEST if official_class.reads_padding(side, has_labels=True) else LENGTHS
        batch = ragged_batch(official_class, official, side, lengths)
        has_both = number == 0 and not (official_class.is_later or official_class.differs_at_padding)
        for everywhere in (True, False) if has_both else (False,):
            pair.prepare(attention, training=True)
            labels = comparison.labels_for(official_class, official, batch, everywhere)
            expected = loss_of(official, official_class, batch, labels)
            expected.backward()
            for _ in with_and_without_padding(pair):
                zoo.zero_grad()
                loss = loss_of(zoo, official_class, batch, labels)
                loss.backward()
                assert_same(loss, expected)
                comparison.assert_same_gradients(zoo, official, official_class)


#: of later architectures that add no dropout to their stacks
ALIKE = ("Model", "QuestionAnswering")
WITH_DROPOUT = [each for each in distinct("rules") if not (each.is_later and str(each).endswith(ALIKE))]
#: Falcon's eager attention leaves dropout out, and one classifier drops states before they are pooled
NOT_DROPPED = {"falcon": {"attention_dropout": 0.0, "hidden_dropout": 0.0}}
NOT_DROPPED |= {"modernbert-decoder": {"classifier_dropout": 0.0}}


@pytest.mark.parametrize("official_class", WITH_DROPOUT, ids=str)
def test_dropout_stands_where_the_official_class_has_it(official_class):
    """With padding computed both draw the same random numbers in the same order, if every dropout is in its place."""
    rates = NOT_DROPPED.get(official_class.architecture.model_type, {})
    official = build_tiny(official_class, dropout=True, attn_implementation="eager", **rates).train()
    zoo = from_official(official, attn_implementation="eager", skip_padding=False).train()
    # FSMT has the batch after the positions: the order is the same for a batch of one alone.
    is_alone = official_class.architecture.model_type == "fsmt" or official_class.differs_at_padding
    batch = ragged_batch(official_class, official, "right", LENGTHS[:1] if is_alone else LENGTHS)
    outputs = []
    for model in (zoo, official):
        torch.manual_seed(0)
        with keep_every_layer():
            outputs.append(next(iter(model(**batch).values())))
    assert_same(*outputs, "output in training mode")


MORE = [pytest.param(name, marks=pytest.mark.by_hand) for name in MORE_FULL_SIZE]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FULL_SIZE, *MORE])
def test_published_size(name):
    """One pair of models under each setting: to build them takes longer than to run them."""
    head, changes = (FULL_SIZE | MORE_FULL_SIZE)[name]
    official = build(BY_NAME[head], **PUBLISHED[name] | changes)
    pair = Pair(BY_NAME[head], official, [from_official(official)])
    for attention, side in (("eager", "right"), ("sdpa", "left")):
        comparison.assert_same_pair(pair, attention, side, [40, 23], training=False)
