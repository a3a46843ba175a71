"""Random signs, places and numbers by address: the ground of the seed contract.

All of them are made from the raw 64-bit words of Philox under a `Key`, never from a library's distributions, whose
streams may change with its version. So a seed means the same sketch on every platform, device and number of threads,
today and next week.
"""

import numpy as np
import torch
from torch import Tensor

from tangentkit.core.seeds import Key


def words(key: Key, n: int) -> np.ndarray:
    """The first n 64-bit words of a key's stream."""
    return np.asarray(key.numpy().bit_generator.random_raw(n), dtype="<u8")  # pyright: ignore


def as_signs(drawn: np.ndarray, n: int) -> Tensor:
    """n independent signs ±1, int8, from n/64 words.

    Example:
        >>> sorted(set(as_signs(words(Key(0), 2), 100).tolist()))
        [-1, 1]
    """
    bits = np.unpackbits(drawn.view(np.uint8), count=n, bitorder="little")
    return torch.from_numpy(bits.view(np.int8)).mul_(2).sub_(1)


def as_places(drawn: np.ndarray, below: int) -> Tensor:
    """Independent places among `below`, one a word."""
    return torch.from_numpy((drawn % np.uint64(below)).astype(np.int64))


def as_distinct_places(drawn: np.ndarray, n: int) -> Tensor:
    """n different places among as many as there are words, every choice equally likely.

    Example:
        >>> as_distinct_places(words(Key(0), 4), 4).sort().values
        tensor([0, 1, 2, 3])
    """
    return torch.from_numpy(np.argsort(drawn, kind="stable")[:n].astype(np.int64))


def signs(key: Key, n: int) -> Tensor:
    """n independent signs ±1, int8."""
    return as_signs(words(key, words_of_signs(n)), n)


def words_of_signs(n: int) -> int:
    """Words that n signs take."""
    return -(-n // 64)


def normals(key: Key, n: int) -> Tensor:
    """n independent standard normal numbers, float64, by Box and Muller's formula."""
    half = -(-n // 2)
    uniform = (words(key, 2 * half) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log1p(-uniform[:half])), 2 * np.pi * uniform[half:]
    return torch.from_numpy(np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n])
