"""How samples are drawn."""

from collections.abc import Callable

import torch
from torch import Tensor

from tangentkit.core.batches import Batch

Draw = Callable[[torch.Generator, int], Batch]
"""(generator, n) -> n samples."""


def floats(*shape: int) -> Draw:
    """Gaussian samples."""
    return lambda generator, n: torch.randn(n, *shape, generator=generator)


def tokens(vocabulary: int, *shape: int) -> Draw:
    """Integers below the size of a vocabulary."""
    return lambda generator, n: torch.randint(vocabulary, (n, *shape), generator=generator)


def joined(*draws: Draw) -> Draw:
    """Tuples of batches."""
    return lambda generator, n: tuple(draw(generator, n) for draw in draws)


def named(**draws: Draw | object) -> Draw:
    """Dicts of batches; what is not a rule for drawing is a constant."""
    return lambda generator, n: {
        key: draw(generator, n) if callable(draw) else draw for key, draw in draws.items()
    }


def lengths(longest: int) -> Draw:
    """Masks (n, longest): True where a position is padding, never at the first."""

    def draw(generator: torch.Generator, n: int) -> Tensor:
        length = torch.randint(1, longest + 1, (n,), generator=generator)
        return torch.arange(longest)[None, :] >= length[:, None]

    return draw


def signs(*wanted: int, shape: tuple[int, ...] = (4,)) -> Draw:
    """Samples whose first entries have these signs (and then chance)."""

    def draw(generator: torch.Generator, n: int) -> Tensor:
        x = torch.randn(n, *shape, generator=generator)
        flat = x.view(n, -1)
        for i, sign in enumerate(wanted[:n]):
            flat[i, 0] = sign * flat[i, 0].abs()
        return x

    return draw
