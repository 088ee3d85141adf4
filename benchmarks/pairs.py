"""Official models with random weights, of published shapes or tiny, and their zoo twins; and one step of each kind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import transformers
from transformers import PreTrainedModel

import tfm_zoo

Step = Callable[[dict], object]
Pair = tuple[PreTrainedModel, PreTrainedModel]
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


def pair(name: str, head: str, settings: Settings, training: bool = False, **fields: object) -> Pair:
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


def tiny(name: str, layers: int) -> Pair:
    """An official model so small that arithmetic hardly counts, by the name of its class, and its zoo twin."""
    torch.manual_seed(0)
    model_class, heads, inner = getattr(transformers, name), 4, 128
    sizes = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": layers, "num_attention_heads": heads}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    stack = {"layers": layers, "attention_heads": heads, "ffn_dim": inner}
    stacks = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in stack.items()}
    more = {
        "GPT2LMHeadModel": {"n_inner": inner},
        "LlamaForCausalLM": {"intermediate_size": inner, "num_key_value_heads": 2},
        "MarianMTModel": stacks | {"decoder_start_token_id": 0, "scale_embedding": True},
    }.get(name, {"intermediate_size": inner})
    official = model_class(model_class.config_class(**sizes | tokens | more)).eval()
    return official, tfm_zoo.from_official(official).eval()


def forward(model: PreTrainedModel) -> Step:
    @torch.inference_mode()
    def run(batch: dict) -> None:
        model(**batch)

    return run


def prefill(model: PreTrainedModel) -> Step:
    return lambda batch: forward(model)(batch | {"use_cache": True, "logits_to_keep": 1})


def decoding(model: PreTrainedModel, batch: dict) -> Iterator[torch.Tensor]:
    """The next token of each row, greedily, again and again: a forward call each, and nothing of `generate`."""
    cache, inputs, ids, name = None, {}, batch["input_ids"], "input_ids"
    if model.config.is_encoder_decoder:
        inputs = {"encoder_outputs": model.get_encoder()(**batch), "attention_mask": batch["attention_mask"]}
        ids, name = torch.zeros_like(ids[:, :1]), "decoder_input_ids"
    while True:
        outputs = model(**inputs, **{name: ids}, past_key_values=cache, use_cache=True)
        cache, ids = outputs.past_key_values, outputs.logits[:, -1:].argmax(dim=-1)
        yield ids


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
