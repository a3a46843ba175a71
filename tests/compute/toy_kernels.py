"""Kernels for tests of Gram matrices, in a module of their own so that other processes can import them."""

import os
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.compute import Kernel


def samples(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def matrix(kernel, x, y=None) -> torch.Tensor:
    k = kernel(x, y)
    return k.flatten(2).flatten(0, 1) if k.ndim == 4 else k


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5 if a.dtype == torch.float32 else 1e-11, atol=1e-12)


@dataclass(eq=False)
class Gaussian(Kernel):
    """exp(-‖x - y‖² / 2), called for each tile, and not faster than it is told to be."""

    width: float = 1.0
    delay: float = 0.0

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        time.sleep(self.delay)
        y = x if y is None else y
        return torch.exp(-0.5 * (x[:, None] - y[None]).square().sum(2) / self.width**2)

    def diag(self, x: Tensor) -> Tensor:
        return torch.ones_like(x[:, 0])

    def identity(self) -> dict:
        # The numbers are the same, however long they take: who waits for them may go on where nobody does.
        return {name: value for name, value in super().identity().items() if name != "delay"}


@dataclass(frozen=True, eq=False)
class Linear(Kernel):
    """x · y, by features."""

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        fx = self.features(x)
        return fx @ (fx if y is None else self.features(y)).T

    def diag(self, x: Tensor) -> Tensor:
        return self.features(x).square().sum(1)


@dataclass(frozen=True, eq=False)
class Blocks(Kernel):
    """(n, c, m, c): x · y times a fixed positive matrix between outputs."""

    between: Tensor

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return torch.einsum("nd,md,ab->namb", x, x if y is None else y, self.between)

    def diag(self, x: Tensor) -> Tensor:
        return x.square().sum(1)[:, None] * self.between.diagonal()


@dataclass(eq=False)
class Counted(Kernel):
    """Another kernel, counting the samples of its calls."""

    base: Kernel

    def __post_init__(self) -> None:
        self._calls: list[tuple[str, int, int]] = []

    def identity(self) -> dict:
        return self.base.identity()

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        self._calls.append(("tile", len(x), 0 if y is None else len(y)))
        return self.base(x, y)

    def diag(self, x: Tensor) -> Tensor:
        self._calls.append(("diag", len(x), 0))
        return self.base.diag(x)


@dataclass(eq=False)
class CountedFeatures(Counted):
    """The same with features."""

    def features(self, x: Tensor) -> Tensor:
        self._calls.append(("features", len(x), 0))
        return self.base.features(x)  # type: ignore[attr-defined]


@dataclass(eq=False)
class Witness(Gaussian):
    """Notes in a file each time a process receives it, and the memory it is given at each tile."""

    log: str = ""
    memory: int | None = None

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state)
        self._note(f"received by {os.getpid()}")

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        self._note(f"memory {self.memory}")
        return super().__call__(x, y)

    def _note(self, line: str) -> None:
        with open(self.log, "a") as file:
            file.write(line + "\n")


@dataclass(eq=False)
class RowWitness(Witness):
    """Notes in a file each time a row of tiles is begun."""

    def row(self, x: Tensor):
        self._note(f"row begun by {os.getpid()}")
        time.sleep(0.01)  # tiles of some length, so that workers take turns
        return super().row(x)
