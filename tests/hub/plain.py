"""What a user with transformers alone does with a zoo checkpoint; `python -I plain.py result.pt` does a job.

Nothing here imports the project: the same functions run in an environment that has it and in one that has it not.
Each job runs in a process of its own, since transformers reuses in one process the remote code that it loaded first.
"""

import json
import sys

import torch
import transformers


def load(source: str, auto_class: str = "AutoModel", **options):
    """A model in evaluation mode; what its checkpoint lacks is initialised from a fixed seed."""
    torch.manual_seed(0)
    return getattr(transformers, auto_class).from_pretrained(source, **options).eval()


def batch_for(model) -> dict[str, torch.Tensor]:
    """A fixed ragged batch."""
    mask = (torch.arange(9) < torch.tensor([9, 4, 6])[:, None]).long()
    batch = {"input_ids": torch.arange(1, 28).view(3, 9) * mask, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        batch["input_ids"][:, 3] = model.config.eos_token_id  # where a classifier reads the decoder's state
    if type(model).__name__.endswith("MultipleChoice"):
        batch = {name: value.unsqueeze(1).expand(-1, 2, -1) for name, value in batch.items()}
    return batch


def run(model) -> dict[str, torch.Tensor]:
    """Every tensor that the model gives for that batch."""
    for parameter in model.parameters():  # rounding can depend on where in memory a tensor begins
        parameter.data = parameter.data.clone()
    return dict(model(**batch_for(model)).items())


@torch.no_grad()
def outputs(source: str, auto_class: str, **options) -> dict[str, torch.Tensor]:
    # The classifiers of two heads differ in shape, and are named alike (as the native ones are).
    model = load(source, auto_class, ignore_mismatched_sizes=True, **options)
    assert isinstance(model.config, type(model).config_class)
    return run(model)


def exact(model, inputs: dict) -> dict[str, torch.Tensor]:
    """The outputs, computed in double precision, in the types of those that the model gives; its own ones if the two
    are not near each other, as where a part is rounded. What another machine has recorded is then compared with
    numbers that do not depend on how this one rounds."""
    given, dtype = by_name(model(**inputs, output_hidden_states=True)), model.dtype
    try:
        double = by_name(model.double()(**inputs, output_hidden_states=True))
    except RuntimeError:  # a kernel of experts has no double precision
        return given
    finally:
        model.to(dtype)
    for name, values in double.items():
        if values.is_floating_point():  # at padding stands the lowest number of a type
            lowest = values == torch.finfo(values.dtype).min
            double[name] = values.masked_fill(lowest, torch.finfo(dtype).min).to(given[name].dtype)
    return double if all(torch.allclose(given[name], double[name], rtol=1e-5, atol=1e-5) for name in given) else given


def by_name(outputs) -> dict[str, torch.Tensor]:
    """The tensors of a model's outputs; those of a tuple by number."""
    layers = {name: value for name, value in outputs.items() if isinstance(value, tuple)}
    found = {f"{name}.{index}": layer for name, value in layers.items() for index, layer in enumerate(value)}
    return found | {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}


@torch.no_grad()
def replay(source: str, model_class=None, **options) -> dict:
    """Runs the checkpoint's head on the inputs recorded beside it: its outputs, its greedy tokens where it generates,
    and the keys that loading did not match. By default the Auto class of the head loads it."""
    config = transformers.AutoConfig.from_pretrained(source, **options)
    if model_class is None:
        head = config.architectures[0]
        auto_class = next(auto for auto, name in config.auto_map.items() if name.endswith(f".{head}"))
        model_class = getattr(transformers, auto_class)
    model, loading = model_class.from_pretrained(source, output_loading_info=True, **options)
    recorded = torch.load(f"{source}/recorded.pt")
    answers = exact(model.eval(), recorded["inputs"])
    result = {"outputs": answers, "unmatched": {name: list(keys) for name, keys in loading.items() if keys}}
    if "prompt" in recorded:
        options = {"do_sample": False, "no_repeat_ngram_size": 1, "max_new_tokens": 8, "min_new_tokens": 8}
        result["tokens"] = model.generate(**recorded["prompt"], **options)
    return result


def replay_all(sources: list[str], **options) -> list[dict | str]:
    """In one process: every checkpoint of a family has the same code. Where there is no result stands the error."""
    results = []
    for source in sources:
        try:
            results.append(replay(source, **options))
        except Exception as error:
            results.append(f"{type(error).__name__}: {error}")
    return results


def each_of(jobs: list[tuple[str, dict]]) -> list:
    """What several functions of this file give, in one process."""
    return [globals()[function](**arguments) for function, arguments in jobs]


def fine_tune(model, steps: int = 2) -> None:
    """Whatever its head, with a loss of all that it gives."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        sum(value.square().mean() for value in run(model).values() if value.is_floating_point()).backward()
        optimizer.step()
        optimizer.zero_grad()


def train_and_save(source: str, auto_class: str, target: str, push=False, **options) -> dict[str, torch.Tensor]:
    """Two optimizer steps, a save or, with `push`, a commit on the Hub, and the outputs after it."""
    model = load(source, auto_class, **options)
    fine_tune(model)
    model.push_to_hub(target) if push else model.save_pretrained(target)
    with torch.no_grad():
        return run(model)


@torch.no_grad()
def make_and_save(class_name: str, config: dict, target: str) -> dict[str, torch.Tensor]:
    """An official model, and what it gives."""
    model_class = getattr(transformers, class_name)
    torch.manual_seed(0)
    model = model_class(model_class.config_class.from_dict(config)).eval()
    model.save_pretrained(target)
    return {name: value for name, value in run(model).items() if isinstance(value, torch.Tensor)}


@torch.no_grad()
def written(source: str, auto_class: str, texts: list[str], **options) -> dict:
    """What `generate` writes after texts: by its usual cache, by a static one, and by beams or in a pipeline. Of an
    encoder-decoder also the encoder alone, as `AutoModelForTextEncoding` loads it."""
    model = load(source, auto_class, **options)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=True)
    how = {"do_sample": False, "max_new_tokens": 6, "no_repeat_ngram_size": 1}
    batch = tokenizer(texts, padding=True, add_special_tokens=model.config.is_encoder_decoder, return_tensors="pt")
    ids = {name: model.generate(**batch, **how, cache_implementation=name) for name in ("dynamic", "static")}
    result = ids | {"tied": model.lm_head.weight is model.get_input_embeddings().weight}
    if not model.config.is_encoder_decoder:
        say = transformers.pipeline("text-generation", model=source, batch_size=2, device="cpu", **options)
        return result | {"texts": say(texts, **how, max_length=None)}
    encoder = load(source, "AutoModelForTextEncoding", **options)
    return result | {
        "beams": model.generate(**batch, **how, num_beams=3),
        "encoded": encoder(**batch).last_hidden_state,
        "encoded by the whole": model.get_encoder()(**batch).last_hidden_state,
    }


def with_the_zoo(source: str, auto_class: str, first: bool, target: str) -> list:
    """Outputs by the checkpoint's own code, and by the package's, which is imported `first` or after; and the modules
    of both classes. Both models are saved in folders of these names."""
    own = None if first else load(source, auto_class, trust_remote_code=True)
    import tfm_zoo  # noqa: F401

    own = own or load(source, auto_class, trust_remote_code=True)
    models = {"own": own, "package": load(source, auto_class)}
    for name, model in models.items():
        model.save_pretrained(f"{target}/{name}")
    with torch.no_grad():
        return [(type(model).__module__.split(".")[0], run(model)) for model in models.values()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    function, arguments = json.load(sys.stdin)
    torch.save(globals()[function](**arguments), sys.argv[1])
