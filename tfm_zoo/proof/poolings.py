"""How the states of a text's tokens become a vector."""

import torch

#: name -> states, `(batch, length, hidden_size)`, become vectors, `(batch, hidden_size)`. `real`, `(batch, length, 1)`,
#: is 1 at tokens and 0 at padding, which stands at the right
POOLINGS = {
    "mean": lambda states, real: (states * real).sum(1) / real.sum(1),
    "cls": lambda states, real: states[:, 0],
    "last": lambda states, real: states[torch.arange(len(states)), real[:, :, 0].sum(1).long() - 1],
    "max": lambda states, real: states.masked_fill(real == 0, -torch.inf).amax(1),
    "mean_sqrt_len_tokens": lambda states, real: (states * real).sum(1) / real.sum(1).sqrt(),
    "weightedmean": lambda states, real: POOLINGS["mean"](states, real * real.cumsum(1)),
}
