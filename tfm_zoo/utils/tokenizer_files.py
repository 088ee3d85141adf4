"""The names that tokenizers of transformers give their files."""

#: any of these makes a tokenizer
VOCABULARIES = (
    *("tokenizer.json", "*vocab.json", "vocab*.json", "*vocab.txt", "dict.txt", "bpe.codes", "byte_maps.json"),
    *("*.model", "*.spm", "*.tiktoken", "tekken.json", "prophetnet.tokenizer"),
)
OF_TOKENIZERS = (
    *VOCABULARIES,
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "normalizer.json"),
    *("emoji.json", "word_shape.json", "word_pronunciation.json"),
)
