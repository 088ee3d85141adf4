"""Tokenizers made from the training texts, for new models. The same texts give the same tokenizer."""

import string
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertTokenizer, GPT2Tokenizer, PreTrainedTokenizerFast

BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LOWER_CASE = normalizers.BertNormalizer(lowercase=True)
BERT_WORDS = pre_tokenizers.BertPreTokenizer()
TOKENIZER_TEXT = 50_000_000  # characters of a stream that are enough to make a tokenizer
SENTINEL, SENTINELS = "<extra_id_{}>", 100  # T5's names of tokens that stand for spans of a text, and their number
ALPHABET = 1000  # how many characters a WordPiece knows: the most frequent ones


def word_piece_tokenizer(texts: Iterable[str], vocab_size: int = 8000) -> BertTokenizer:
    """A lower-casing WordPiece tokenizer whose tokens are the most frequent words of `texts`, and characters that spell
    all other words. (The tokenizers library learns parts of words; a small data set is classified by whole words.)"""
    words = Counter(word for text in texts for word, _ in BERT_WORDS.pre_tokenize_str(LOWER_CASE.normalize_str(text)))
    characters = sorted(set("".join(words)) | set(string.ascii_lowercase + string.digits + string.punctuation))
    by_frequency = sorted(words, key=lambda word: (-words[word], word))
    tokens = dict.fromkeys([*BERT_SPECIALS, *characters, *(f"##{c}" for c in characters), *by_frequency])
    return BertTokenizer({token: index for index, token in enumerate(list(tokens)[:vocab_size])})


def learned_word_piece(texts: Iterable[str], vocab_size: int) -> BertTokenizer:
    """A lower-casing WordPiece tokenizer, of BERT's kind, made from `texts`: words, and parts of words."""
    texts = list(texts)  # which are read twice
    counts = Counter(chain.from_iterable(map(LOWER_CASE.normalize_str, texts)))
    by_frequency = sorted(counts, key=lambda character: (-counts[character], character))
    characters = sorted([character for character in by_frequency if not character.isspace()][:ALPHABET])
    check_size(vocab_size, "all characters of the texts, with and without ##", 2 * len(characters), BERT_SPECIALS)
    # Characters are named in order. The trainer would number them in a hash table's, by which it then breaks ties.
    named = [*characters, *(f"##{c}" for c in characters)]
    options = {"initial_alphabet": characters, "limit_alphabet": len(characters), "new_special_tokens": named}
    learned = BertTokenizer().train_new_from_iterator(texts, vocab_size, show_progress=False, **options)
    return BertTokenizer(learned.get_vocab())  # made anew, since the trained one has the characters as special tokens


def byte_level_bpe(texts: Iterable[str], vocab_size: int) -> GPT2Tokenizer:
    """A byte-level BPE tokenizer, of GPT-2's kind (Radford et al. 2019), made from `texts`. It spells any text."""
    check_size(vocab_size, "all bytes", 256, ["<|endoftext|>"])
    return GPT2Tokenizer().train_new_from_iterator(texts, vocab_size, show_progress=False)


def joint_bpe(texts: Iterable[str], vocab_size: int, sentinels: int = 0) -> PreTrainedTokenizerFast:
    """A BPE tokenizer (Sennrich et al. 2016) for both sides of a translation, made from `texts` of both languages.

    It works on bytes, so that it spells any text. A word has the same tokens wherever it stands, white space becomes
    one blank, and every text ends with `</s>`. `vocab_size` is 260 or more: `<pad>`, `<s>`, `</s>`, `<unk>` and bytes;
    and the `sentinels`, T5's `<extra_id_0>`, ..., which stand for what a text lacks.
    """
    specials = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    extra = [SENTINEL.format(number) for number in range(sentinels)]
    check_size(vocab_size, "all bytes", 256, [*specials.values(), *extra])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_special_tokens([*specials.values()])
    one_blank = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), one_blank, normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", left=1, right=0)])
    ends = {"single": "$A </s>", "pair": "$A </s> $B </s>", "special_tokens": [("</s>", 2)]}
    tokenizer.post_processor = processors.TemplateProcessing(**ends)
    options = {"model_input_names": ["input_ids", "attention_mask"], "clean_up_tokenization_spaces": False}
    untrained = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials, **options)
    trained = untrained.train_new_from_iterator(texts, vocab_size - sentinels, show_progress=False)
    if sentinels:
        trained.add_special_tokens({"extra_special_tokens": extra})
    return trained


bpe_with_sentinels = partial(joint_bpe, sentinels=SENTINELS)


def check_size(vocab_size: int, needed: str, count: int, specials: Sequence[str]) -> None:
    """Refuse a vocabulary with no room for `count` tokens, which `needed` names, and for the special tokens."""
    if vocab_size < count + len(specials):
        contents = f"{count + len(specials)} ({needed}, and {', '.join(specials)})"
        raise ValueError(f"tokenizer_vocab_size must be at least {contents}, not {vocab_size}")
