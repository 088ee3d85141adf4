"""FSMT, the translation models of fairseq (Ng et al. 2019).

Its bare native class gives logits, since it holds the projection: it is the zoo's class with that head too.
"""

from ..models import modeling_tfm_encoder_decoder as zoo
from .architecture import Architecture, Head
from .marian import BLOCKS, CONSTANTS, EQUAL, FIELDS, IGNORED, READ_BY, REQUIRED, SINUSOIDS
from .rules import Rename

FSMT = Architecture(
    model_type="fsmt",
    title="FSMT",
    prefix="model",
    fields=FIELDS | {"src_vocab_size": "vocab_size", "tgt_vocab_size": "decoder_vocab_size"},
    constants=CONSTANTS
    | {
        "position_embedding_type": "sinusoidal",
        "sinusoid_type": "tensor2tensor",
        "position_ids_from_padding": True,
        "start_with_last_token": True,
        "share_encoder_decoder_embeddings": lambda fields: fields["tie_word_embeddings"],
    },
    required=REQUIRED,
    equal=EQUAL,
    body=(
        Rename("encoder.embed_tokens", "encoder.embeddings.embed_tokens"),
        Rename("decoder.embed_tokens", "decoder.embeddings.embed_tokens"),
        *BLOCKS,
    ),
    heads=(
        Head(
            "FSMTForConditionalGeneration",
            zoo.TfmEncoderDecoderForConditionalGeneration,
            (Rename("model.decoder.output_projection.weight", "lm_head.weight"),),
        ),
    ),
    ignored=IGNORED,
    sinusoids=SINUSOIDS,
    read_by=READ_BY,
    tokenizer="FSMTTokenizer",
)
