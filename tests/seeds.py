"""Other random numbers for all tests at once."""

import torch

seed_all, Generator = torch.manual_seed, torch.Generator


def shift_seeds(shift: int) -> None:
    """Whoever asks torch for the numbers of a seed, in this process, gets those of `seed + shift`."""

    class ShiftedGenerator(Generator):
        def manual_seed(self, seed: int) -> Generator:
            return super().manual_seed(seed + shift)

    torch.manual_seed = lambda seed: seed_all(seed + shift)
    torch.Generator = ShiftedGenerator
