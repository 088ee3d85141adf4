"""The recipe of language modelling: texts from what it leaves, where there is no zoo, and their figures."""

import runpy

import pytest
import torch
from transformers import AutoTokenizer

import tfm_zoo

from .conftest import ROOT, WITHOUT_ZOO, run_python

GENERATE = ROOT / "recipes" / "generate.py"


@pytest.mark.slow
def test_built_in_text_and_generation_where_there_is_no_zoo(recipe, tmp_path, capsys):
    folder, options = tmp_path / "run", {"max_train_samples": 32, "max_eval_samples": 8, "sample_length": 100}
    assert recipe("causal_lm")(train_file=None, per_device_train_batch_size=8, **options)["train_steps"] == 32 // 8
    assert "The text is generated" in (folder / "README.md").read_text()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    options = ["--max_new_tokens", 9, "--num_samples", 2, "--seed", 1]
    shown = run_python("-c", WITHOUT_ZOO, GENERATE, folder, "the film", "", *options)
    assert shown.stdout.count("the film") == 2 and "torchao" not in shown.stderr  # which warns when it is imported
    model = tfm_zoo.TfmGPTForCausalLM.from_pretrained(folder)
    ids = torch.tensor([tokenizer("the film")["input_ids"]] * 2)
    torch.manual_seed(1)
    texts = tokenizer.batch_decode(model.generate(ids, max_new_tokens=9), skip_special_tokens=True)
    assert shown.stdout.startswith("\n\n".join(texts))

    def generated(*options: object) -> tuple[list[str], str]:
        """The texts for two prompts of a file, and what is said of them."""
        (tmp_path / "prompts.txt").write_text("the film\nthe actor\n")
        capsys.readouterr()
        command = [folder, "--file", tmp_path / "prompts.txt", "--max_new_tokens", 12, *options]
        runpy.run_path(str(GENERATE))["main"](list(map(str, command)))
        shown = capsys.readouterr()
        return shown.out.split("\n\n"), shown.err

    texts, said = generated("--num_beams", 3, "--num_samples", 2, "--repetition_penalty", 1.3)
    beams = {"num_beams": 3, "num_return_sequences": 2, "repetition_penalty": 1.3, "max_new_tokens": 12}
    wanted, losses = [], []
    for prompt in ("the film", "the actor"):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        rows = model.generate(ids, do_sample=False, **beams)
        wanted += tokenizer.batch_decode(rows, skip_special_tokens=True)
        losses.append(model(rows, labels=rows.index_fill(1, torch.arange(ids.shape[1]), -100)).loss)
    assert texts[:4] == wanted and "distinct-n    share of the n-grams" in said and "48 tokens" in said
    assert f"perplexity {torch.stack(losses).mean().exp():.2f}, distinct-1" in said

    with pytest.raises(SystemExit):
        generated("--num_beams", 2, "--num_samples", 3)
    assert "2 beams give at most so many texts" in capsys.readouterr().err


def test_figures_of_generated_text():
    diversity = runpy.run_path(str(GENERATE))["diversity"]
    for texts, figures in (
        ([[1, 2, 3, 1, 2], [1, 2, 4]], "distinct-1 0.50, distinct-2 0.67, distinct-3 1.00, repetition 0.00"),
        ([[7] * 8], "distinct-1 0.12, distinct-2 0.14, distinct-3 0.17, repetition 0.80"),
    ):
        assert diversity(texts) == figures
