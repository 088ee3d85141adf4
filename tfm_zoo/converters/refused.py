"""Architectures that need more than a table, since the zoo's block lacks a part, and which part that is."""

STATES = "it has layers that are not attention (state spaces, convolutions or delta rules)"
SPARSE = "its attention sees chosen blocks or global tokens"
PICTURES = "it reads pictures too; its text tower is converted where that is saved by itself, as CLIPTextModel is"
QK_POST_NORM = "jina-bert-v2-qk-post-norm"  # whose `model_type` is BERT's: the name of its code tells
REFUSED = {  # `model_type` -> why it is not converted
    QK_POST_NORM: "it adds what attention reads twice, each time before a norm",
    "phimoe": "its router chooses experts one after the other, and in training at random (SparseMixer)",
    "gpt_oss": "each head has a learned sink in its softmax, which no kernel but eager attention computes",
    "bitnet": "its checkpoints hold weights of three values, which its layers unpack as they multiply",
    "encoder-decoder": "its two halves are models of their own, such as BERTs, with configurations of their own; "
    "from_official converts the encoder, loaded and saved by itself",
    "nllb-moe": "the official class sends every first choice of a sparse layer to one expert",
    "switch_transformers": "its experts have a capacity for each row, beyond which they leave out tokens",
    "t5gemma": "its two stacks have configurations of their own, with widths, windows and caps that may differ",
    **dict.fromkeys(("clip", "siglip", "siglip2"), PICTURES),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), "it has latent attention"),
    **dict.fromkeys(("llama4", "llama4_text"), "its attention runs in chunks, and scales queries by their position"),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "lfm2", "granitemoehybrid", "nemotron_h", "mamba2"), STATES),
    **dict.fromkeys(("longformer", "led", "big_bird", "bigbird_pegasus"), SPARSE),
}
