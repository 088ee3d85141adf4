"""Official models of published shapes with random weights, and their zoo twins; and one step of each kind."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

import tfm_zoo

Step = Callable[[dict], object]
MINILM = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}  # all-MiniLM-L6-v2


@dataclass(frozen=True)
class Settings:
    """How both sides run."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    attention: str = "sdpa"
    rounds: int = 5
    layers: int | None = None  # of each stack, at most; None: the published number

    @property
    def official_attention(self) -> str:
        """The attention of the official class, which lacks `"varlen"`."""
        return "sdpa" if self.attention == "varlen" else self.attention


def pair(
    name: str, head: str, settings: Settings, training: bool = False, **fields: object
) -> tuple[PreTrainedModel, PreTrainedModel]:
    """An official model and its zoo twin.

    Args:
        name: of a configuration of `tfm_zoo.named_config`.
        head: the Auto class whose head both have, such as `"AutoModelForMaskedLM"`.
        fields: of the zoo's configuration that differ.
    """
    torch.manual_seed(0)
    published = tfm_zoo.named_config(name)
    if settings.layers:
        layers = min(settings.layers, published.num_hidden_layers)
        more = "decoder_layers" if published.is_encoder_decoder else "layer_types"
        kinds = layers if published.is_encoder_decoder else published.layer_types[:layers]
        fields = {"num_hidden_layers": layers, more: kinds} | fields
    config = tfm_zoo.named_config(name, **fields)
    zoo = getattr(tfm_zoo, config.auto_classes[head])(config)
    official = tfm_zoo.to_official(zoo)
    if official._supports_sdpa:  # MPNet computes its own
        official.set_attn_implementation(settings.official_attention)
    zoo.set_attn_implementation(settings.attention)
    return tuple(model.to(settings.device, settings.dtype).train(training) for model in (official, zoo))


def forward(model: PreTrainedModel) -> Step:
    @torch.inference_mode()
    def run(batch: dict) -> None:
        model(**batch)

    return run


def prefill(model: PreTrainedModel) -> Step:
    return lambda batch: forward(model)(batch | {"use_cache": True, "logits_to_keep": 1})


def write(tokens: int, beams: int = 1) -> Callable[[PreTrainedModel], Step]:
    """`generate` for so many tokens of each sequence: models of random weights never end."""

    def make(model: PreTrainedModel) -> Step:
        options = {"num_beams": beams, "do_sample": False, "pad_token_id": model.config.pad_token_id or 0}
        options |= {"min_new_tokens": tokens, "max_new_tokens": tokens, "eos_token_id": model.config.vocab_size}

        def run(batch: dict) -> None:
            inputs = {name: batch[name] for name in ("input_ids", "attention_mask") if name in batch}
            model.generate(**{"attention_mask": torch.ones_like(batch["input_ids"])} | inputs, **options)

        return run

    return make


def train(model: PreTrainedModel, autocast: bool = False) -> Step:
    """A training step, in the model's own type or with products in bfloat16."""
    # No optimizer state: official BERT-base, at 16 x 512 tokens, and its twin are to fit into 24 GB together.
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)

    def run(batch: dict) -> None:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run
