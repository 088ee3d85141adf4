"""What a masked language model is to guess (Devlin et al. 2019)."""

import numpy as np
from transformers import PreTrainedTokenizerBase

from tfm_zoo.models.inputs import IGNORED

MASKED, RANDOM = 0.8, 0.1  # shares of the chosen tokens that a [MASK] or another token takes the place of


class Masking:
    """Chooses tokens to predict, and hides them: 80 % behind `[MASK]`, 10 % behind another token, 10 % not at all.

    Each word, or each token, is chosen with the same probability, and by itself; special tokens never are, nor do they
    take another's place. (transformers' `DataCollatorForLanguageModeling` draws from one generator for all batches, so
    that what it masks depends on how many processes there are and where they began; it replaces no words, and may
    replace a token by a special one.)

    Args:
        probability: share of the tokens that are chosen, above 0 and below 1.

    Raises:
        ValueError: for another probability, or a tokenizer without a token to mask with.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, probability: float = 0.15):
        if not 0 < probability < 1:
            raise ValueError(f"mlm_probability must be above 0 and below 1, not {probability}")
        if tokenizer.mask_token_id is None:
            raise ValueError(f"tokenizer {tokenizer.name_or_path!r} has no mask token, which a masked model needs")
        self.probability, self.mask = probability, tokenizer.mask_token_id
        self.is_special = np.zeros(len(tokenizer), dtype=bool)
        self.is_special[tokenizer.all_special_ids] = True
        self.ordinary = np.flatnonzero(~self.is_special)

    def __call__(self, ids: np.ndarray, begins: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The ids as the model sees them, and its labels, -100 where there is nothing to predict.

        Args:
            ids: `(tokens,)`, one example or many behind one another.
            begins: `(tokens,)`, true where what is masked as a whole begins: at words, or at each token.
        """
        word = np.cumsum(begins) - begins[0]
        chosen = (rng.random(word[-1] + 1) < self.probability)[word] & ~self.is_special[ids]
        lot = rng.random(len(ids))
        replaced = chosen & (lot >= 1 - RANDOM)
        seen = np.where(chosen & (lot < MASKED), self.mask, ids)
        seen[replaced] = rng.choice(self.ordinary, np.count_nonzero(replaced))
        return seen, np.where(chosen, ids, IGNORED)
