"""Which samples meet which: the samples of two panels, or of one panel with themselves."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tangentkit.infinite.duals.dual import Dual, Sides
from tangentkit.infinite.propagate.position_pairs import PairAxis

Axes = tuple[PairAxis, ...]

FEW = 8
"""Channels up to which inner products are sums of outer products: small matrix products are slower."""


@dataclass
class Panel:
    """Some samples: their inputs and the variances of their fields.

    Args:
        inputs: for each source of the network the values (channels, positions..., n).
        variances: for each node that looks at them, E z² of its input at each position (positions..., n).
    """

    inputs: dict[int, Tensor]
    variances: dict[int, Tensor] = field(default_factory=dict)

    def __getitem__(self, part: slice) -> "Panel":
        return Panel(
            {i: v[..., part] for i, v in self.inputs.items()},
            {i: v[..., part] for i, v in self.variances.items()},
        )

    @staticmethod
    def concatenated(panels: "Sequence[Panel]") -> "Panel":
        """One panel of the samples of several."""
        if len(panels) == 1:
            return panels[0]
        first = panels[0]
        return Panel(
            {i: torch.cat([p.inputs[i] for p in panels], -1) for i in first.inputs},
            {i: torch.cat([p.variances[i] for p in panels], -1) for i in first.variances},
        )

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to the samples."""
        return torch.is_grad_enabled() and any(v.requires_grad for v in self.inputs.values())

    def __len__(self) -> int:
        return next(iter(self.inputs.values())).shape[-1]


class Pairing(ABC):
    """Pairs of samples, and what is known of each side."""

    is_self = False
    """Whether samples only meet themselves."""
    is_symmetric = False
    """Whether the pair (y, x) is there for every pair (x, y)."""

    @property
    @abstractmethod
    def pairs(self) -> int:
        """How many there are."""

    @abstractmethod
    def gram(self, source: int, axes: Axes) -> tuple[Tensor, float]:
        """Inner products over the channels of a source, and the factor 1 / channels that goes with them."""

    @abstractmethod
    def dual(self, node: int, dual: Dual, k: Tensor, axes: Axes, *, slope: bool) -> tuple[Tensor, ...]:
        """E[φ(u) φ(v)] of a node's function φ, and with `slope` E[φ'(u) φ'(v)], from its input's covariances k."""

    @abstractmethod
    def variances(self, node: int, axes: Axes, mean_over: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
        """The variances of a node's input on both sides of every pair, perhaps averaged over some axes."""

    @abstractmethod
    def mirror(self, values: Tensor) -> Tensor:
        """The values of the pairs (y, x)."""

    @abstractmethod
    def note_variance(self, node: int, k: Tensor, axes: Axes) -> None:
        """Called with the covariance of a node's input: samples that meet themselves keep its diagonal."""


class Selves(Pairing):
    """Every sample of a panel with itself; learns the panel's variances on the way."""

    is_self = True
    is_symmetric = True

    def __init__(self, panel: Panel):
        self.panel = panel
        self._sides: dict[int, Sides] = {}

    @property
    def pairs(self) -> int:
        """As many as samples."""
        return len(self.panel)

    def gram(self, source: int, axes: Axes) -> tuple[Tensor, float]:
        """Inner products over the channels, and 1 / channels."""
        values = self.panel.inputs[source]
        left, right = at(values, axes, "left", first=1), at(values, axes, "right", first=1)
        return (left * right).sum(0), 1 / len(values)

    def dual(self, node: int, dual: Dual, k: Tensor, axes: Axes, *, slope: bool) -> tuple[Tensor, ...]:
        """The expectations of a node's function."""
        if node not in self._sides:
            variances = self.panel.variances[node]
            self._sides[node] = dual.sides(variances, variances)
        sides = self._sides[node]
        if sides.is_wide and axes and axes[-1].is_all:
            # (..., l r, n) as matrices (..., n, l, r).
            left = at(sides.left, axes[:-1], "left", first=1).mT.unsqueeze(-1)
            right = at(sides.right, axes[:-1], "right", first=1).mT.unsqueeze(-2)
            square = _square(k, axes[-1].size, rest=1).movedim(-1, -3)
            found = sides(left, square.contiguous(), right, slope=slope)
            return tuple(v.movedim(-3, -1).reshape(k.shape) for v in found)
        left, right = at(sides.left, axes, "left", first=1), at(sides.right, axes, "right", first=1)
        return sides(left, k, right, slope=slope)

    def variances(self, node: int, axes: Axes, mean_over: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
        """The variances on both sides of every pair."""
        q = averaged(self.panel.variances[node], mean_over)
        return at(q, axes, "left"), at(q, axes, "right")

    def mirror(self, values: Tensor) -> Tensor:
        """The values of the pairs (y, x)."""
        return values

    def note_variance(self, node: int, k: Tensor, axes: Axes) -> None:
        """Keeps the diagonal, which holds the variances of later covariances."""
        # Noted anew whenever it is seen: K at equal positions is then the variance to the last bit, its dual exact.
        if not all(0 in axis.offsets for axis in axes):
            return
        for a, axis in enumerate(axes):
            k = k[(slice(None),) * a + (axis.same,)]
        self.panel.variances[node] = k
        self._sides.pop(node, None)


class _Two(Pairing):
    """Samples of two panels, whose variances are known before they meet."""

    def note_variance(self, node: int, k: Tensor, axes: Axes) -> None:
        """Keeps nothing: the variances were known before."""


class Products(_Two):
    """Every sample of one panel with every sample of another, as (n, m)."""

    def __init__(self, first: Panel, second: Panel, *, symmetric: bool = False):
        self.first, self.second, self.is_symmetric = first, second, symmetric
        self._sides: dict[int, Sides] = {}

    @property
    def pairs(self) -> int:
        """The number of pairs, n · m."""
        return len(self.first) * len(self.second)

    def gram(self, source: int, axes: Axes) -> tuple[Tensor, float]:
        """Inner products over the channels, and 1 / channels."""
        left = at(self.first.inputs[source], axes, "left", first=1)
        right = at(self.second.inputs[source], axes, "right", first=1)
        if len(left) > FEW:
            return torch.matmul(left.movedim(0, -1), right.movedim(0, -2)), 1 / len(left)
        return inner(left.unsqueeze(-1), right.unsqueeze(-2)), 1 / len(left)

    def dual(self, node: int, dual: Dual, k: Tensor, axes: Axes, *, slope: bool) -> tuple[Tensor, ...]:
        """The expectations of a node's function."""
        sides = self.sides(node, dual)
        if sides.is_wide and axes and axes[-1].is_all:
            # (..., l r, n, m) as matrices (..., l n, r m).
            left = at(sides.left, axes[:-1], "left", first=1).flatten(-2).unsqueeze(-1)
            right = at(sides.right, axes[:-1], "right", first=1).flatten(-2).unsqueeze(-2)
            square = _square(k, axes[-1].size, rest=2).transpose(-3, -2)
            found = sides(left, square.flatten(-4, -3).flatten(-2), right, slope=slope)
            return tuple(v.reshape(square.shape).transpose(-3, -2).reshape(k.shape) for v in found)
        left, right = at(sides.left, axes, "left", first=1), at(sides.right, axes, "right", first=1)
        return sides(left.unsqueeze(-1), k, right.unsqueeze(-2), slope=slope)

    def sides(self, node: int, dual: Dual) -> Sides:
        """What a node's dual knows of all positions of all samples."""
        if node not in self._sides:
            self._sides[node] = dual.sides(self.first.variances[node], self.second.variances[node])
        return self._sides[node]

    def variances(self, node: int, axes: Axes, mean_over: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
        """The variances on both sides of every pair."""
        left = at(averaged(self.first.variances[node], mean_over), axes, "left")
        right = at(averaged(self.second.variances[node], mean_over), axes, "right")
        return left.unsqueeze(-1), right.unsqueeze(-2)

    def mirror(self, values: Tensor) -> Tensor:
        """The values of the pairs (y, x)."""
        return values.mT


class Listed(_Two):
    """Every sample of one panel with every sample of another, as a list of n · m pairs.

    Where many offsets are taken one after the other, each sample's numbers are repeated once for all of them, and
    every operation runs over rows of pairs without broadcasting.
    """

    def __init__(self, first: Panel, second: Panel, *, symmetric: bool):
        self.shape, self.is_symmetric = (len(first), len(second)), symmetric
        self.products = Products(first, second)
        self.left = {i: self._repeated(values, -1) for i, values in first.inputs.items()}
        self.right = {i: self._repeated(values, -2) for i, values in second.inputs.items()}
        self._sides: dict[int, tuple[Tensor, Tensor]] = {}

    def _repeated(self, values: Tensor, axis: int) -> Tensor:
        return values.unsqueeze(axis).expand(*values.shape[:-1], *self.shape).flatten(-2)

    @property
    def pairs(self) -> int:
        """The number of pairs, n · m."""
        return self.shape[0] * self.shape[1]

    def gram(self, source: int, axes: Axes) -> tuple[Tensor, float]:
        """Inner products over the channels, and 1 / channels."""
        channels = len(self.left[source])
        if channels > FEW:
            return self.products.gram(source, axes)[0].flatten(-2), 1 / channels
        left = at(self.left[source], axes, "left", first=1)
        right = at(self.right[source], axes, "right", first=1)
        return inner(left, right), 1 / channels

    def dual(self, node: int, dual: Dual, k: Tensor, axes: Axes, *, slope: bool) -> tuple[Tensor, ...]:
        """The expectations of a node's function."""
        sides = self.products.sides(node, dual)
        if sides.is_wide:
            found = self.products.dual(node, dual, k.unflatten(-1, self.shape), axes, slope=slope)
            return tuple(v.flatten(-2) for v in found)
        if node not in self._sides:
            self._sides[node] = self._repeated(sides.left, -1), self._repeated(sides.right, -2)
        left, right = self._sides[node]
        left, right = at(left, axes, "left", first=1), at(right, axes, "right", first=1)
        return sides(left, k, right, slope=slope)

    def variances(self, node: int, axes: Axes, mean_over: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
        """The variances on both sides of every pair."""
        left, right = self.products.variances(node, axes, mean_over)
        return tuple(v.expand(*v.shape[:-2], *self.shape).flatten(-2) for v in (left, right))  # pyright: ignore

    def mirror(self, values: Tensor) -> Tensor:
        """The values of the pairs (y, x)."""
        return values.unflatten(-1, self.shape).mT.flatten(-2)


def _square(k: Tensor, size: int, *, rest: int) -> Tensor:
    """All pairs of an axis as two axes (l, r), before the last `rest` axes."""
    return k.unflatten(-1 - rest, (size, size))


def inner(left: Tensor, right: Tensor) -> Tensor:
    """Σ_c left_c right_c over the first axis."""
    k = left[0] * right[0]
    for x, y in zip(left[1:], right[1:], strict=True):
        k = torch.addcmul(k, x, y)
    return k


def averaged(q: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The mean over some axes, in their old shape."""
    return q.mean(axes, keepdim=True).expand_as(q) if axes else q


def at(values: Tensor, axes: Axes, side: str, *, first: int = 0) -> Tensor:
    """Values at the "left" or "right" positions of pairs, axis by axis, beginning with the tensor's axis `first`."""
    for a, axis in enumerate(axes, start=first):
        if axis.is_same:
            continue
        positions = axis.left if side == "left" else axis.right
        if len(axis.offsets) == 1:
            values = values.narrow(a, int(positions[0]), len(positions))
        else:
            values = values.index_select(a, torch.as_tensor(positions, device=values.device))
    return values
