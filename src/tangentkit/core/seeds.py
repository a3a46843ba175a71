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
        return np.random.Generator(np.random.Philox(key=self.entropy % 2**128))

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A torch generator for this key on a device."""
        return torch.Generator(device).manual_seed(self.entropy % 2**63)
