"""The recipe of language modelling: texts from what it leaves, where there is no zoo, and their figures."""

import pytest
import torch
from transformers import AutoTokenizer

import tfm_zoo

from .conftest import ROOT, WITHOUT_ZOO, imported, run_python

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

    (tmp_path / "prompts.txt").write_text("the film\nthe actor\n")
    generate, command = imported(GENERATE).main, [str(folder), "--file", str(tmp_path / "prompts.txt")]
    command += ["--max_new_tokens", "12", "--num_beams", "3", "--repetition_penalty", "1.3", "--num_samples"]
    capsys.readouterr()
    generate([*command, "2"])
    shown = capsys.readouterr()
    beams = {"num_beams": 3, "num_return_sequences": 2, "repetition_penalty": 1.3, "max_new_tokens": 12}
    wanted, losses = [], []
    for prompt in ("the film", "the actor"):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        rows = model.generate(ids, do_sample=False, **beams)
        wanted += tokenizer.batch_decode(rows, skip_special_tokens=True)
        losses.append(model(rows, labels=rows.index_fill(1, torch.arange(ids.shape[1]), -100)).loss)
    assert shown.out.split("\n\n")[:4] == wanted and "48 tokens" in shown.err
    assert f"perplexity {torch.stack(losses).mean().exp():.2f}, distinct-1" in shown.err
    for wrong, said in ((["4"], "3 beams give at most so many texts"), (["2", "--beams", "4"], "mean --num_beams?")):
        with pytest.raises(SystemExit):
            generate([*command, *wrong])
        assert said in capsys.readouterr().err


def test_figures_of_generated_text():
    diversity = imported(GENERATE).diversity
    varied = diversity([[1, 2, 3, 1, 2], [1, 2, 4]])
    assert varied == "distinct-1 0.50, distinct-2 0.67, distinct-3 1.00, repetition 0.00"
    assert diversity([[7] * 8]) == "distinct-1 0.12, distinct-2 0.14, distinct-3 0.17, repetition 0.80"
