"""What a model gives for a text: a class for each kind of head, which says which columns its results have."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import ModelOutput

from ..proof.poolings import POOLINGS
from ..proof.reading import Reading

if TYPE_CHECKING:
    import pyarrow as pa

DTYPES = ("float32", "float16")


class Embeddings:
    """A vector for each text: `embedding`."""

    task, auto_class, tokenizing = "embeddings", AutoModel, {}

    def __init__(self, model: PreTrainedModel, _: Any, reading: Reading, dtype: str = "float32"):
        names = reading.pooling.split("+")
        if unknown := [name for name in names if name not in POOLINGS]:
            why = f"{unknown[0]!r} is not a pooling" if reading.pooling else "no pooling is given"
            lacks = "" if reading.pooling else ", and the model has neither a head nor files of sentence-transformers"
            raise ValueError(f"{why}{lacks}: give one of {', '.join(POOLINGS)}")
        if dtype not in DTYPES:
            raise ValueError(f"embedding_dtype {dtype!r}: vectors are stored as {' or '.join(DTYPES)}")
        self.poolings = [POOLINGS[name] for name in names]
        self.normalize = reading.normalize
        self.dtype = dtype
        self.size = reading.size or len(self.poolings) * model.config.hidden_size
        self.settings = {"pooling": reading.pooling, "normalize": self.normalize, "size": self.size}
        self.settings["embedding_dtype"] = dtype

    def columns(self) -> "dict[str, pa.DataType]":
        import pyarrow as pa

        return {"embedding": pa.list_(getattr(pa, self.dtype)(), self.size)}

    def __call__(self, outputs: ModelOutput, mask: Tensor, batch: dict[str, list]) -> Iterator[dict[str, Any]]:
        states, real = outputs.last_hidden_state.float(), mask.unsqueeze(2).float()
        vectors = torch.cat([pool(states, real) for pool in self.poolings], dim=1)
        vectors = (normalize(vectors) if self.normalize else vectors)[:, : self.size]
        return ({"embedding": vector} for vector in vectors.to(getattr(torch, self.dtype)).cpu().numpy())


class Labels:
    """A classifier's `label` and the `probabilities` of all labels, in the order of the model's `id2label`.

    If several labels may hold at once, or the model has only one, `labels` are those with probabilities above one half.
    A regression gives `values`.
    """

    task, auto_class, tokenizing = "labels", AutoModelForSequenceClassification, {}

    def __init__(self, model: PreTrainedModel, *_: Any):
        self.names = [model.config.id2label[index] for index in range(model.config.num_labels)]
        # The softmax of a single label would always be 1.
        usual = "multi_label_classification" if len(self.names) == 1 else "single_label_classification"
        self.problem = model.config.problem_type or usual
        self.settings = {"labels": self.names}

    def columns(self) -> "dict[str, pa.DataType]":
        import pyarrow as pa

        numbers = pa.list_(pa.float32(), len(self.names))
        return {
            "single_label_classification": {"label": pa.string(), "probabilities": numbers},
            "multi_label_classification": {"labels": pa.list_(pa.string()), "probabilities": numbers},
            "regression": {"values": numbers},
        }[self.problem]

    def __call__(self, outputs: ModelOutput, mask: Tensor, batch: dict[str, list]) -> Iterator[dict[str, Any]]:
        logits = outputs.logits.float()
        if self.problem == "regression":
            return ({"values": row} for row in logits.cpu().numpy())
        if self.problem == "multi_label_classification":
            rows = logits.sigmoid().cpu().numpy()
            return ({"labels": [self.names[i] for i in (row > 0.5).nonzero()[0]], "probabilities": row} for row in rows)
        rows = logits.softmax(-1).cpu().numpy()
        return ({"label": self.names[row.argmax()], "probabilities": row} for row in rows)


class Tags:
    """The `tags` of a text: the words that a model tags, as transformers' pipeline gives them, with their places."""

    task, auto_class = "tags", AutoModelForTokenClassification
    tokenizing = {"return_offsets_mapping": True, "return_special_tokens_mask": True}

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *_: Any):
        from transformers import TokenClassificationPipeline

        self.pipeline = TokenClassificationPipeline(model=model, tokenizer=tokenizer, device=model.device)
        self.settings = {"labels": [model.config.id2label[index] for index in range(model.config.num_labels)]}

    def columns(self) -> "dict[str, pa.DataType]":
        import pyarrow as pa

        of_word = {"entity_group": pa.string(), "score": pa.float32(), "word": pa.string()}
        return {"tags": pa.list_(pa.struct(of_word | {"start": pa.int32(), "end": pa.int32()}))}

    def __call__(self, outputs: ModelOutput, mask: Tensor, batch: dict[str, list]) -> Iterator[dict[str, Any]]:
        for row, logits in enumerate(outputs.logits.float().cpu()):
            found = {name: torch.tensor([column[row]]) for name, column in batch.items() if name != "sentence"}
            found |= {"logits": logits[None, : len(batch["input_ids"][row])], "sentence": batch["sentence"][row]}
            yield {"tags": self.pipeline.postprocess([found], aggregation_strategy="first")}


#: how the name of a model's class ends -> what it gives
RESULTS = {"SequenceClassification": Labels, "TokenClassification": Tags}


def results_of(config: PreTrainedConfig) -> type[Embeddings | Labels | Tags]:
    """What a model gives, by its head: embeddings, if it neither classifies nor tags."""
    name = (config.architectures or [""])[0]
    if name.endswith("QuestionAnswering") or config.is_encoder_decoder:
        raise ValueError(f"{name} gives the texts of a corpus neither labels, tags nor vectors")
    return next((kind for head, kind in RESULTS.items() if name.endswith(head)), Embeddings)
