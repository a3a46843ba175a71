"""Seeds keyed by names: every random number has an address, none is shared by accident.

A `Key` is a seed and a path of names. Its bits are the SHA-256 of both, so streams for different layers,
blocks or repeats never collide, as `seed + 1000 * block` schemes do, and adding a stream changes no other.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

from tangentkit.core.errors import InputError


@dataclass(frozen=True)
class Key:
    """The address of a random stream: an integer seed and a path of names and numbers.

    Example:
        >>> key = Key(0)
        >>> key.fold("layer1.weight", 3) == key.fold("layer1.weight").fold(3)
        True
        >>> key.fold("1").entropy == key.fold(1).entropy
        False
    """

    seed: int
    path: tuple[str | int, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, (int, np.integer)) or self.seed < 0:
            raise InputError("bad seed", expected="an integer >= 0", got=repr(self.seed))
        object.__setattr__(self, "seed", int(self.seed))

    def fold(self, *names: str | int) -> "Key":
        """The key below this one that the names address."""
        return Key(self.seed, self.path + names)

    @property
    def entropy(self) -> int:
        """256 bits that depend on the seed and on every name of the path (and on their types)."""
        # Each part with its type and length: no two paths print alike.
        parts = ((type(part).__name__, str(part)) for part in (self.seed, *self.path))
        text = "".join(f"{kind}:{len(part)}:{part}" for kind, part in parts)
        return int.from_bytes(hashlib.sha256(text.encode()).digest(), "little")

    def numpy(self) -> np.random.Generator:
        """A counter-based numpy generator (Philox) for this key."""
        given = _Given(self.entropy % 2**128)
        return np.random.Generator(np.random.Philox(given))  # pyright: ignore[reportArgumentType]

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A torch generator for this key on a device."""
        return torch.Generator(device).manual_seed(self.entropy % 2**63)


class _Given(np.random.bit_generator.ISeedSequence):
    """Hands a generator its key. `Philox(key=...)` means the same, and first asks the system for a seed, in vain."""

    def __init__(self, key: int):
        self.key = key

    def generate_state(self, n_words: int, dtype: object = np.uint64) -> np.ndarray:  # noqa: ARG002
        """The key as n words of 64 bits."""
        return np.array([self.key >> (64 * i) & (2**64 - 1) for i in range(n_words)], dtype=np.uint64)
