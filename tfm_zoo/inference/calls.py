"""A call of an official class, as one of its twin: arguments, caches, outputs."""

import inspect
from collections.abc import Mapping
from typing import get_args

import torch
from torch import nn
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.utils import ModelOutput

from ..models.batch import CACHE, Tokens, is_pad_mask, is_traced
from ..models.decoder_entrance import decoder_batch
from ..models.inputs import one_of
from ..models.source import check_source
from .caches import Recorded
from .finding import Found
from .modes import UnfollowedError
from .reading import READ, Asked, Read
from .twins import Twin

#: arguments that the twin reads, and those that change nothing in a base model
READS = {"input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds", "past_key_values", CACHE}
READS |= {"use_cache", "output_attentions", "output_hidden_states", "return_dict", "task_type_ids"}
READS |= {"encoder_hidden_states", "encoder_attention_mask", "output_router_logits"}
#: no official class reads them. (sentence-transformers writes outputs into its inputs, and calls a model with both.)
IDLE = {"num_items_in_batch", "cache_position", "scores", "token_embeddings", "sentence_embedding", "causal_logits"}
OF_ENCODERS = {"past_key_values", "encoder_hidden_states", "encoder_attention_mask"}
#: architectures whose padding sees everything, or nothing, or is zero behind a norm
OWN_PADDING = {"bloom", "codegen", "deberta", "deberta-v2", "deberta-v2-absolute", "esm", "falcon", "gpt_neo", "gptj"}
OWN_PADDING |= {"megatron-bert", "modernbert", "mpt", "mvp", "openai-gpt", "xglm"}


class TracedError(Exception):
    """A graph is being made, which the official class defines."""


class Call:
    """Runs calls of one owner through its twin."""

    def __init__(self, found: Found, twin: Twin):
        self.owner, self.twin = found.owner, twin
        self.output_class = output_class_of(type(found.owner))
        family = found.architecture.family
        self.is_decoder = family == "tfm_gpt"
        self.is_target = found.part == "decoder" and not self.is_decoder
        self.is_source = found.part == "encoder"
        self.is_encoder = not (self.is_target or self.is_decoder)
        self.is_protein_model = found.architecture.model_type == "esm"
        self.has_own_padding = found.architecture.model_type in OWN_PADDING
        self.fills_cache = found.architecture.model_type == "embedding_gemma"
        self.is_tower = family == "tfm_text_tower"
        official = type(found.owner).forward
        self.takes = {*inspect.signature(official).parameters}

    def __call__(self, options: dict) -> ModelOutput:
        """The outputs of the official class for these arguments by name.

        Raises:
            UnfollowedError: for arguments that the twin does not follow; ValueError: for those that it refuses.
        """
        options = {name: value for name, value in options.items() if value is not None and name not in IDLE}
        config = self.owner.config
        unknown = options.keys() - READS
        if self.is_encoder:
            unknown |= options.keys() & OF_ENCODERS
        if self.is_encoder or self.is_target:
            unknown |= options.keys() & {"output_router_logits"}
        unknown |= {"position_ids"} & options.keys() - self.takes  # some classes pass them on, and do not read them
        if unknown:
            raise UnfollowedError(f"it was called with {', '.join(sorted(unknown))}")
        given = one_of(options.get("input_ids"), options.get("inputs_embeds"))
        if is_traced(given):
            raise TracedError
        if options.get("output_attentions", getattr(config, "output_attentions", False)):
            raise UnfollowedError("output_attentions asks for the weights of attention")
        shows = options.get("output_hidden_states", getattr(config, "output_hidden_states", False))
        if shows is True and getattr(config, "tie_last_hidden_states", None) is not None:
            raise UnfollowedError("its configuration says which hidden state is the last")
        if not isinstance(shows, bool):
            raise UnfollowedError(f"output_hidden_states={shows!r} asks for some of them")
        mask = options.get("attention_mask")
        if mask is not None and not is_pad_mask(mask):
            raise UnfollowedError("attention_mask says who attends to whom (as generate does for a static cache)")
        if self.has_own_padding:
            self.check_padding(options, READ.get())
        if self.is_protein_model:
            self.check_embeddings(options)
        arguments = {name: options[name] for name in ("token_type_ids", "task_type_ids") if name in options}
        arguments |= {"output_hidden_states": shows, "output_attentions": False}
        if self.is_decoder or "output_router_logits" in options:
            router = options.get("output_router_logits", getattr(config, "output_router_logits", None))
            arguments |= {} if router is None else {"output_router_logits": router}
        positions = options.get("position_ids")
        if positions is not None:
            arguments["position_ids"] = self.positions(positions, given, mask)
        run = self.decode if self.is_decoder else self.decode_target if self.is_target else self.encode
        return self.as_official(run(options, given, mask, arguments, READ.get()))

    def check_padding(self, options: dict, read: Read) -> None:
        """Raises [`UnfollowedError`] for a row of padding alone, for padding that somebody reads, and for a mask that
        holds other numbers than 0 and 1, which the official class may multiply by."""
        read = read if self.is_encoder else read._replace(first=False)
        for name in ("attention_mask", "encoder_attention_mask"):
            if (mask := options.get(name)) is None:
                continue
            if not mask.any(dim=1).all():
                raise UnfollowedError("a row has no token")
            if not ((mask == 0) | (mask == 1)).all():
                raise UnfollowedError(f"{name} holds other numbers than 0 and 1")
            is_read = name == "attention_mask" and not (self.is_source and read.of_target)
            places = read.places(mask) if is_read else None
            if places is not None and (places.to(mask.device).bool() & (mask == 0)).any():
                raise UnfollowedError("padding is read, which its class computes in a way of its own")

    def check_embeddings(self, options: dict) -> None:
        """Raises [`UnfollowedError`] for arguments from which ESM's embeddings make something else than the zoo's."""
        own = self.twin.model.embeddings
        if "position_ids" in options:
            raise UnfollowedError("its positions count tokens, whatever position_ids say")
        if "inputs_embeds" in options and (own.norm is not None or own.embed_positions is not None):
            raise UnfollowedError("inputs_embeds stand for what its embeddings make")

    def positions(self, positions: torch.Tensor, given: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """A caller's positions, counted from 0.

        Raises:
            UnfollowedError: if those of real tokens do not rise: to some official classes these are several documents.
        """
        length = given.shape[1]
        if positions.dim() != 2 or positions.shape[1] != length:
            raise UnfollowedError(f"position_ids are of shape {tuple(positions.shape)}")
        steps = positions.diff(dim=1)
        # (Without a mask, some official decoders see a document behind every step but one.)
        is_usual = bool(((steps == 1) if mask is None else (steps > 0)).all())
        if mask is not None and not is_usual:
            real = mask[:, -length:].to(positions.device).bool()
            before = positions.expand(real.shape).masked_fill(~real, -1).cummax(dim=1).values
            is_usual = not bool(((positions[:, 1:] <= before[:, :-1]) & real[:, 1:]).any())
        if not is_usual:
            raise UnfollowedError("position_ids do not count the tokens of each row")
        return positions - self.twin.model.first_position

    def encode(self, options: dict, given: torch.Tensor, mask, arguments: dict, read: Read) -> ModelOutput:
        """An encoder's call; `mask`, if there is one, is of padding."""
        ids, embeddings = options.get("input_ids"), options.get("inputs_embeds")
        if self.fills_cache and options.get("use_cache", self.owner.config.use_cache):
            raise UnfollowedError("use_cache=True needs a cache, which an encoder of the zoo lacks")
        if mask is None and self.is_source:  # the twin would take the tokens of padding for it
            mask = torch.ones(given.shape[:2], dtype=torch.long, device=given.device)
        if not self.is_tower:
            arguments["inputs_embeds"] = embeddings
            if mask is not None and not read.of_target:
                arguments["read_positions"] = read.places(mask)
                note(read, Asked(mask, arguments["read_positions"], is_causal=False))
        outputs = self.twin.model(ids, attention_mask=mask, return_dict=True, **arguments)
        if self.twin.pooler is not None:
            outputs["pooler_output"] = self.twin.pooler(outputs.last_hidden_state)
        return outputs

    def decode(self, options: dict, given: torch.Tensor, mask, arguments: dict, read: Read) -> ModelOutput:
        """A decoder's call: what reads padding is kept out of nothing; a cache gets what the official class writes."""
        model, config = self.twin.model, self.owner.config
        cache, use_cache = self.cache(options, config)
        wanted = use_cache if use_cache is not None else getattr(config, "use_cache", False)
        if self.checkpoints():
            if cache is not None:
                raise UnfollowedError("gradient checkpointing reads no cache")
            wanted = False
        seen = cache.get_seq_length() if cache is not None else 0
        if cache is not None and (seen or type(cache) is not DynamicCache or cache.offloading):
            if not self.twin.form.is_usual:
                raise UnfollowedError("its cache lays out keys in another way than the zoo")
            return model(
                options.get("input_ids"),
                attention_mask=mask,
                past_key_values=cache,
                inputs_embeds=options.get("inputs_embeds"),
                use_cache=True,
                return_dict=True,
                **arguments,
            )
        reads_last = (cache is not None or use_cache) if read.last is None else read.last
        if cache is None and wanted and "past_key_values" in self.takes:
            cache = DynamicCache(config=config)
        places = None
        if mask is not None:
            places = read._replace(first=False).places(mask)
            places = mask.bool() if places is None else places | mask.bool()
            if reads_last:
                places = places | (torch.arange(given.shape[1], device=places.device) == given.shape[1] - 1)
            note(read, Asked(mask.bool(), places, is_causal=True))
        tokens = Tokens(given, arguments.pop("token_type_ids", None), arguments.pop("position_ids", None))
        batch = decoder_batch(model, tokens, mask, None, False, arguments, places)
        if cache is not None:
            batch = batch._replace(cache=Recorded(cache, batch.kept, self.twin.form))
        outputs = model.run(batch, **arguments)
        outputs.past_key_values = cache
        return outputs

    def decode_target(self, options: dict, given: torch.Tensor, mask, arguments: dict, read: Read) -> ModelOutput:
        """The call of an encoder-decoder's decoder."""
        model, config = self.twin.model, self.owner.config
        cache, use_cache = self.cache(options, config)
        states, source_mask = options.get("encoder_hidden_states"), options.get("encoder_attention_mask")
        if states is None:
            raise UnfollowedError("its decoder reads no source")
        if source_mask is not None and not is_pad_mask(source_mask):
            raise UnfollowedError("encoder_attention_mask says who attends to whom")
        wanted = use_cache if use_cache is not None else getattr(config, "use_cache", False)
        if self.checkpoints():
            if cache is not None:
                raise UnfollowedError("gradient checkpointing reads no cache")
            wanted = False
        if cache is not None and not isinstance(cache, EncoderDecoderCache):
            raise UnfollowedError(f"its cache is a {type(cache).__name__}")
        if cache is None and wanted:
            cache = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
        places = None
        if cache is None and (mask is not None or read.is_all):
            real = given.new_zeros(given.shape[:2], dtype=torch.bool) if mask is None else mask.bool()
            places = read.places(real) if read.of_target else None
            places = real if places is None else places | real
            places = places if mask is not None or places.any() else None
            if places is not None:
                real = torch.ones_like(places) if mask is None else real
                note(read, Asked(real, places, is_causal=True))
        tokens = Tokens(given, position_ids=arguments.pop("position_ids", None))
        batch = decoder_batch(model, tokens, mask, cache, cache is not None, arguments, places)
        check_source(model.config, states.shape[:2], source_mask, tokens, cache)
        outputs = model(
            batch=batch,
            encoder_hidden_states=states,
            encoder_attention_mask=source_mask,
            past_key_values=cache,
            return_dict=True,
            **arguments,
        )
        outputs.past_key_values = cache
        return outputs

    def cache(self, options: dict, config) -> tuple[Cache | None, bool | None]:
        cache = options.get("past_key_values", options.get(CACHE))
        if cache is not None and not isinstance(cache, Cache):
            raise UnfollowedError(f"past_key_values is a {type(cache).__name__}")
        use_cache = options.get("use_cache")
        if cache is not None and use_cache is False:
            raise UnfollowedError("use_cache=False with a cache")
        return cache, use_cache

    def checkpoints(self) -> bool:
        layers = self.twin.model.layers
        return self.twin.model.training and len(layers) > 0 and layers[0].gradient_checkpointing

    def as_official(self, outputs: Mapping) -> ModelOutput:
        """The same outputs in the official class; a field that it has not is left out."""
        fields = self.output_class.__dataclass_fields__
        return self.output_class(**{name: value for name, value in outputs.items() if name in fields})


def note(read: Read, asked: Asked) -> None:
    """Tells the head that called, if it is known, what it has asked for."""
    if read.asked is not None:
        read.asked.append(asked)


def output_class_of(kind: type[nn.Module]) -> type[ModelOutput]:
    """The class of outputs that an official `forward` makes: the one that its code names, or else its annotation."""
    forward = inspect.unwrap(kind.forward)
    annotation = forward.__annotations__.get("return")
    named = [forward.__globals__.get(name) for name in forward.__code__.co_names]
    classes = [each for each in (annotation, *get_args(annotation), *named) if isinstance(each, type)]
    return [each for each in classes if issubclass(each, ModelOutput)][-1]
