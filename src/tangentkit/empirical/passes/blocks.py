"""Sizes of blocks: large enough for fast matrix products, small enough for the cache and the memory budget."""

from dataclasses import dataclass
from typing import Self

BUILT_PER_SAMPLE = 2**18
"""Entries of the buffer for each sample, where the budget allows."""
LONGEST_SUM = 2**16
"""Columns of one matrix product. One float32 product over 11M columns loses three digits; blocks do not."""


@dataclass(frozen=True)
class Blocks:
    """How many entries are worked on at a time."""

    pieces: int = 2**21
    """Of factors that are unfolded or stacked: 8 MB in float32. Blocks of this size stay near the cache, and the
    allocator gives the same memory again; larger ones would be fresh memory every time."""
    pairs: int = 2**22
    """Of pairs of positions."""
    built: int = 2**24
    """Of gradients built in one buffer, which all layers use in turn."""

    def bytes(self, item: int) -> int:
        """Memory that these blocks take, with the temporary copies of each."""
        return item * (4 * self.pieces + 4 * self.pairs + self.built)

    @classmethod
    def within(cls, budget: int, item: int, samples: int) -> Self:
        """The usual blocks, or smaller ones that take no more than a third of a small budget.

        Inputs are unfolded anew for every block of gradients: with many samples the buffer grows, so that a layer is
        built in no more blocks than with few.
        """
        usual = cls()
        share = min(1.0, budget / (3 * usual.bytes(item)))
        pieces, pairs, built = (
            max(1, int(size * share)) for size in (usual.pieces, usual.pairs, usual.built)
        )
        return cls(pieces, pairs, max(built, min(BUILT_PER_SAMPLE * samples, budget // (16 * item))))


def even(total: int, most: int) -> int:
    """The size of equal parts: 10 in parts of at most 6 is 5 + 5, not 6 + 4."""
    most = min(most, total)
    return -(-total // -(-total // most))


def row_block(n: int) -> int:
    """Rows of a block of a symmetric product: few enough to save nearly half, enough for a fast product."""
    return max(32, min(64, n // 2), min(128, -(-n // 4)), -(-n // 16))


def pair_block(n: int, rows: int) -> int:
    """Samples of a block of pairs, of so many rows each: an eighth, to save nearly half, if rows suffice."""
    return max(-(-n // 8), -(-128 // rows))
