"""Tokenizers made from the training texts, for models that start from nothing."""

import string
from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from tfm_zoo.training.sources import digest

END_OF_TEXT = "<|endoftext|>"
BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
LOWER_CASE = normalizers.BertNormalizer(lowercase=True)
BERT_WORDS = pre_tokenizers.BertPreTokenizer()
TOKENIZER_TEXT = 50_000_000  # characters, of the first texts of a stream, that are enough to make a tokenizer from
ALPHABET = 1000  # characters, the most frequent ones: others are unknown


def vocabulary_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """A short name of a tokenizer's tokens and their ids, by which to tell them from others."""
    return digest(f"{index} {token}" for token, index in sorted(tokenizer.get_vocab().items()))


def word_piece_tokenizer(texts: Iterable[str], vocab_size: int = 8000) -> PreTrainedTokenizerFast:
    """A lower-casing WordPiece tokenizer made from `texts`: their most frequent words, and single characters.

    Characters spell the words that are not in the vocabulary. The same texts give the same tokenizer.
    """
    words = Counter(word for text in texts for word, _ in BERT_WORDS.pre_tokenize_str(LOWER_CASE.normalize_str(text)))
    characters = sorted(set("".join(words)) | set(string.ascii_lowercase + string.digits + string.punctuation))
    by_frequency = sorted(words, key=lambda word: (-words[word], word))
    tokens = dict.fromkeys([*BERT_SPECIALS.values(), *characters, *(f"##{c}" for c in characters), *by_frequency])
    return _word_piece({token: index for index, token in enumerate(list(tokens)[:vocab_size])})


def learned_word_piece(texts: Sequence[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A lower-casing WordPiece tokenizer, of BERT's kind, made from `texts`: words, and parts that spell the others.

    The same texts give the same tokenizer.

    Raises:
        ValueError: if the vocabulary has no room for the special tokens and the texts' characters, which begin words
            and go on with them.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(LOWER_CASE.normalize_str(text))
    by_frequency = sorted(counts, key=lambda character: (-counts[character], character))
    characters = sorted([character for character in by_frequency if not character.isspace()][:ALPHABET])
    known = [*BERT_SPECIALS.values(), *characters, *(f"##{c}" for c in characters)]
    if vocab_size < len(known):
        raise ValueError(
            f"tokenizer_vocab_size must be at least {len(known)} (all characters of the texts, twice, and"
            f" {', '.join(BERT_SPECIALS.values())}), not {vocab_size}"
        )
    tokenizer = Tokenizer(models.WordPiece(unk_token=BERT_SPECIALS["unk"]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = LOWER_CASE, BERT_WORDS
    # What is known is named first, and in order: the trainer would number it in the order of a hash table, and decide
    # by these numbers which of two pairs of one frequency it merges.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=known,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _word_piece(tokenizer.get_vocab())


def _word_piece(vocab: dict[str, int]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=BERT_SPECIALS["unk"]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = LOWER_CASE, BERT_WORDS
    tokenizer.decoder = decoders.WordPiece()
    sep, cls = ((BERT_SPECIALS[name], vocab[BERT_SPECIALS[name]]) for name in ("sep", "cls"))
    tokenizer.post_processor = processors.BertProcessing(sep, cls)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": token for name, token in BERT_SPECIALS.items()},
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
