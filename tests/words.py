"""A tokenizer of a few words, made on the spot."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = "[PAD] [UNK] [CLS] [SEP] [MASK]"
WORDS = "a an the film story actor was is and not very good bad long short dull bright who what wrote saw"
SENTENCES = ["the film was very good and bright", "a dull story", "the actor saw a short film and was not bad", "good"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate(f"{SPECIAL} {WORDS}".split())}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    names = {f"{name.strip('[]').lower()}_token": name for name in SPECIAL.split()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=24, **names)
