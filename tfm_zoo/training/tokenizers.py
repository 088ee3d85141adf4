"""Tokenizers made from the training texts, for models that start from nothing."""

import string
from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"


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
    tokenizer = _learned_merges(texts, vocab_size, [END_OF_TEXT])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )


def joint_bpe(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A BPE tokenizer (Sennrich et al. 2016) for both sides of a translation, made from `texts` of both languages.

    It works on bytes, so that it spells any text. A word is the same tokens wherever it stands, white space is one
    blank, and every text ends with `</s>`. The same texts give the same tokenizer.

    Args:
        vocab_size: number of tokens, at least 260: `<pad>`, `<s>`, `</s>` and `<unk>` (ids 0 to 3) and the bytes.
    """
    specials = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    one_blank = normalizers.Replace(Regex(r"\s+"), " ")
    normalizer = normalizers.Sequence([normalizers.NFC(), one_blank, normalizers.Strip()])
    tokenizer = _learned_merges(texts, vocab_size, [*specials.values()], normalizer, add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", left=1, right=0)])
    end = specials["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, tokenizer.token_to_id(end))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **specials,
    )


def _learned_merges(
    texts: Iterable[str],
    vocab_size: int,
    specials: list[str],
    normalizer: normalizers.Normalizer | None = None,
    add_prefix_space: bool = False,
) -> Tokenizer:
    """The special tokens, all bytes, and merges of what is frequent in the texts."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    least = len(specials) + len(alphabet)
    if vocab_size < least:
        raise ValueError(
            f"tokenizer_vocab_size must be at least {least} (all bytes, and {', '.join(specials)}), not {vocab_size}"
        )
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
