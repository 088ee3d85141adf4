"""Tokenizers made from the training texts, for models that start from nothing."""

import string
from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
SMALLEST_BPE = 257  # every byte, and the end of a text


def word_piece_tokenizer(texts: Iterable[str], vocab_size: int = 8000) -> PreTrainedTokenizerFast:
    """A lower-casing WordPiece tokenizer made from `texts`: their most frequent words, and single characters.

    Characters spell the words that are not in the vocabulary. The same texts give the same tokenizer.
    """
    specials = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    normalizer = normalizers.BertNormalizer(lowercase=True)
    split = pre_tokenizers.BertPreTokenizer()
    words = Counter(word for text in texts for word, _ in split.pre_tokenize_str(normalizer.normalize_str(text)))
    characters = sorted(set("".join(words)) | set(string.ascii_lowercase + string.digits + string.punctuation))
    by_frequency = sorted(words, key=lambda word: (-words[word], word))
    tokens = dict.fromkeys([*specials.values(), *characters, *(f"##{c}" for c in characters), *by_frequency])
    vocab = {token: index for index, token in enumerate(list(tokens)[:vocab_size])}

    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=specials["unk"]))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(
        (specials["sep"], vocab[specials["sep"]]), (specials["cls"], vocab[specials["cls"]])
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": token for name, token in specials.items()},
    )


def byte_level_bpe(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, of GPT-2's kind (Radford et al. 2019), made from `texts`.

    It knows every byte, so that it spells any text, and merges what is frequent up to `vocab_size` tokens. With the
    smallest vocabulary, 257, it merges nothing: each byte is a token. The same texts give the same tokenizer.
    """
    if vocab_size < SMALLEST_BPE:
        raise ValueError(
            f"tokenizer_vocab_size must be at least {SMALLEST_BPE} (all bytes, and the end of a text), not {vocab_size}"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )
