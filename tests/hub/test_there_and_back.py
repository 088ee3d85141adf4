"""A model, fine-tuned here, goes to the Hub, comes back where there is no zoo, is tuned there and goes again."""

import pytest
import torch
from huggingface_hub import ModelCard

from tfm_zoo import TfmBertForSequenceClassification, TfmEncoderDecoderForConditionalGeneration, TfmGPTForCausalLM
from tfm_zoo.hub import push, verify

from ..tiny import tiny_model
from . import plain

#: of each family a head; that every head loads where there is no zoo, `test_loading.py` shows
HEADS = (TfmBertForSequenceClassification, TfmGPTForCausalLM, TfmEncoderDecoderForConditionalGeneration)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_each_comes_back_the_same(online, tmp_path, do_online, hub_server):
    first, again = {}, []
    for head in HEADS:
        name, repository = head.__name__, f"user/{head.__name__}"
        model = tiny_model(head)
        plain.fine_tune(model)
        model.save_pretrained(tmp_path / name)
        with torch.no_grad():
            first[repository] = push(tmp_path / name, repository).oid, plain.run(model)
        auto = next(auto for auto, target in model.config.auto_classes.items() if target == name)
        again.append(("fine_tune_and_push", {"source": repository, "auto_class": auto, "repository": repository}))
    second = dict(zip(first, do_online(again), strict=True))

    jobs, expected = [], []
    for (_, options), pushes in zip(again, zip(first.values(), second.values(), strict=True), strict=True):
        for commit, outputs in pushes:
            where = {"source": options["repository"], "auto_class": options["auto_class"], "revision": commit}
            jobs.append(("outputs", where | {"trust_remote_code": True}))
            expected.append(outputs)
    torch.testing.assert_close(do_online(jobs), expected, rtol=0, atol=0)

    for head, (repository, (commit, outputs)) in zip(HEADS, first.items(), strict=True):
        kept = hub_server.repositories[repository]
        code = [
            {name: kept.read(name, revision) for name in kept.at(revision).files if name.endswith(".py")}
            for revision in (commit, "main")
        ]
        assert code[0] == code[1] and f"modeling_{head.config_class.model_type}.py" in code[0]
        assert kept.branches["main"] == second[repository][0] != commit
        assert any((outputs[name] != second[repository][1][name]).any() for name in outputs)
        card = ModelCard(kept.read("README.md", "main").decode())
        assert card.data.tags[0] == "tfm_zoo" and f'.from_pretrained("{repository}", trust' in card.text
        assert verify(repository, revision=commit, token="hf_user").ok
        # Pushed from where there is no zoo, it has the manifest of the first push, and is not what that says.
        differences = verify(repository, token="hf_user").differences
        assert any(difference.startswith("weights changed: ") for difference in differences), differences
