"""Tokenizers made from the training texts, for models that start from nothing."""

import string
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from tfm_zoo.training.sources import digest

END_OF_TEXT = "<|endoftext|>"
BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LOWER_CASE = normalizers.BertNormalizer(lowercase=True)
BERT_WORDS = pre_tokenizers.BertPreTokenizer()
TOKENIZER_TEXT = 50_000_000  # characters of a stream that are enough to make a tokenizer
BPE_OPTIONS = {"model_input_names": ["input_ids", "attention_mask"], "clean_up_tokenization_spaces": False}
ALPHABET = 1000  # how many characters a WordPiece knows: the most frequent ones


def vocabulary_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """A short name for a tokenizer's tokens and their ids, which others do not have."""
    return digest(f"{index} {token}" for token, index in sorted(tokenizer.get_vocab().items()))


def word_piece_tokenizer(texts: Iterable[str], vocab_size: int = 8000) -> BertTokenizer:
    """A lower-casing WordPiece tokenizer whose tokens are the most frequent words of `texts`, and single characters.

    Characters spell all other words. (The trainers of the tokenizers library learn parts of words instead; a small data
    set is classified by its whole words.) The same texts give the same tokenizer.
    """
    words = Counter(word for text in texts for word, _ in BERT_WORDS.pre_tokenize_str(LOWER_CASE.normalize_str(text)))
    characters = sorted(set("".join(words)) | set(string.ascii_lowercase + string.digits + string.punctuation))
    by_frequency = sorted(words, key=lambda word: (-words[word], word))
    tokens = dict.fromkeys([*BERT_SPECIALS, *characters, *(f"##{c}" for c in characters), *by_frequency])
    return BertTokenizer({token: index for index, token in enumerate(list(tokens)[:vocab_size])})


def learned_word_piece(texts: Iterable[str], vocab_size: int) -> BertTokenizer:
    """A lower-casing WordPiece tokenizer, of BERT's kind, made from `texts`: words, and parts of words.

    The same texts give the same tokenizer.

    Raises:
        ValueError: if the vocabulary has no room for the special tokens and for each character, both at the beginning
            of a word and within one.
    """
    texts = list(texts)  # which are read twice
    counts = Counter(chain.from_iterable(map(LOWER_CASE.normalize_str, texts)))
    by_frequency = sorted(counts, key=lambda character: (-counts[character], character))
    characters = sorted([character for character in by_frequency if not character.isspace()][:ALPHABET])
    known = [*BERT_SPECIALS, *characters, *(f"##{c}" for c in characters)]
    if vocab_size < len(known):
        raise ValueError(
            f"tokenizer_vocab_size must be at least {len(known)} (all characters of the texts, twice, and"
            f" {', '.join(BERT_SPECIALS)}), not {vocab_size}"
        )
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = LOWER_CASE, BERT_WORDS
    # Characters are named here, in order. The trainer would number them in the order of a hash table, and these numbers
    # decide which of two pairs of the same frequency it merges.
    options = {"special_tokens": known, "initial_alphabet": characters, "limit_alphabet": len(characters)}
    trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, show_progress=False, **options)
    tokenizer.train_from_iterator(texts, trainer)
    return BertTokenizer(tokenizer.get_vocab())


def byte_level_bpe(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, of GPT-2's kind (Radford et al. 2019), made from `texts`.

    It knows every byte, so that it spells any text, and merges frequent pairs up to `vocab_size` tokens. With the
    smallest vocabulary, 257, each byte is a token. The same texts give the same tokenizer.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    _learn_merges(tokenizer, texts, vocab_size, [END_OF_TEXT])
    ends = {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends, **BPE_OPTIONS)


def joint_bpe(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A BPE tokenizer (Sennrich et al. 2016) for both sides of a translation, made from `texts` of both languages.

    It works on bytes, so that it spells any text. A word has the same tokens wherever it stands, white space becomes
    one blank, and every text ends with `</s>`. The same texts give the same tokenizer.

    Args:
        vocab_size: number of tokens, at least 260: `<pad>`, `<s>`, `</s>` and `<unk>` (ids 0 to 3) and the bytes.
    """
    specials = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    one_blank = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), one_blank, normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", left=1, right=0)])
    _learn_merges(tokenizer, texts, vocab_size, [*specials.values()])
    end = specials["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, tokenizer.token_to_id(end))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials, **BPE_OPTIONS)


def _learn_merges(tokenizer: Tokenizer, texts: Iterable[str], vocab_size: int, specials: list[str]) -> None:
    """Give a tokenizer the special tokens, all bytes, and merges of frequent pairs in the texts."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    least = len(specials) + len(alphabet)
    if vocab_size < least:
        raise ValueError(
            f"tokenizer_vocab_size must be at least {least} (all bytes, and {', '.join(specials)}), not {vocab_size}"
        )
    options = {"special_tokens": specials, "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab_size, **options))
