"""What recipes save can be verified, and goes to the Hub as `tfm-zoo push` sends it."""

import sys
from argparse import Namespace
from functools import partial

import pytest
from huggingface_hub import ModelCard
from trained import open_config

from tfm_zoo.proof import verify
from tfm_zoo.training.loop import train
from tfm_zoo.training.run import errors_in_one_line

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked")]
REPOSITORY = "user/fine"
PUSHES = {"max_train_steps": 1, "push_to_hub": True, "hub_model_id": "fine", "hub_token": "hf_given"}


@pytest.mark.parametrize("model_class", ["zoo", "native"])
def test_what_a_recipe_saves_is_pushed(model_class, recipe, online, hub_server, tmp_path):
    options = {"hub_private_repo": True, "hub_revision": "tuned", "checkpointing_steps": 1, "with_tracking": True}
    prepared = recipe("classification").prepare(model_class=model_class, **PUSHES, **options)
    assert not hub_server.repositories
    train(prepared)
    assert hub_server.tokens == {"Bearer hf_given"}

    folder, repository = tmp_path / "run", hub_server.repositories[REPOSITORY]
    pushed = {name: repository.read(name, "tuned") for name in repository.at("tuned").files}
    saved = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != ".lock"}
    assert saved == {name: content for name, content in pushed.items() if name != ".gitattributes"}
    assert repository.private and ".gitattributes" in pushed
    assert not any(b"hf_given" in path.read_bytes() for path in folder.rglob("*") if path.is_file())

    card = ModelCard(pushed["README.md"].decode())
    assert f'model="{REPOSITORY}"' in card.text and card.data.eval_results
    assert ("## Architecture" in card.text) == ("tfm_zoo" in (card.data.tags or [])) == (model_class == "zoo")
    if model_class == "zoo":
        verdict = verify(folder.rename(tmp_path / "moved"))
        assert verdict.ok and not verdict.warnings, verdict
        assert verify(REPOSITORY, revision="tuned", token="hf_user").ok
        asked = partial(Namespace, model=REPOSITORY, trust_remote_code=True)  # as scripts for trained models ask
        for revision, message in {None: "main branch: .*, give --revision", "v9": "no revision v9"}.items():
            with pytest.raises(SystemExit, match=message):
                open_config(asked(revision=revision), "predict.py", "", error=sys.exit)
        assert open_config(asked(revision="tuned"), "predict.py", "", sys.exit).model_type.startswith("tfm_")


def test_what_cannot_be_pushed_is_said_before_any_work_or_costs_nothing(recipe, online, hub_server, tmp_path, capsys):
    """A token that may not write; an upload that fails."""
    finetune = recipe("classification")
    assert "403" in finetune.refusal(**PUSHES | {"hub_model_id": "other/fine"}) and not (tmp_path / "run").exists()
    hub_server.faults["commit"] = 403
    with pytest.raises(SystemExit), errors_in_one_line():
        finetune(**PUSHES)
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"to {REPOSITORY} failed" in line and f"Push again (tfm-zoo push {tmp_path / 'run'} {REPOSITORY})" in line
