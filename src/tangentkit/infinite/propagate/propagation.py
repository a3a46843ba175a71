"""Covariances through the nodes of a network: only the pairs of positions that a later node asks for.

Fields are tensors of shape (pairs of axis 1, ..., pairs of axis k, samples): the positions first, so that a filter
adds whole rows of samples to each other. The samples are (n, m) pairs of two panels, or the n samples of one panel
with themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from tangentkit.infinite.propagate.network import (
    Arrange,
    Average,
    InputNode,
    Mix,
    Network,
    Node,
    Nonlinear,
    Normalize,
    Part,
    Weights,
)
from tangentkit.infinite.propagate.position_pairs import PairAxis, Window, identity, needed, pair_map
from tangentkit.infinite.propagate.sample_pairs import Pairing

Axes = tuple[PairAxis, ...]


@dataclass
class Field:
    """K and Θ on some pairs of positions, both still to be multiplied by a factor; no Θ means zero."""

    k: Tensor
    t: Tensor | None
    factor: float = 1.0

    def settled(self) -> "Field":
        """The same field with factor 1."""
        if self.factor == 1:
            return self
        return Field(self.k * self.factor, None if self.t is None else self.t * self.factor)


def same_positions(node: Node) -> Axes:
    """Only the pairs (p, p) of a node."""
    return tuple(PairAxis(size, (0,)) for size in node.positions)


@dataclass(frozen=True)
class Propagation:
    """Fields of a network for one set of pairs of samples.

    Args:
        network: whose fields.
        pairing: which samples meet which, with the variances of each.
        tangent: whether Θ is wanted as well as K.
        limit: numbers that a field should not exceed; sums over more pairs of positions are taken in parts.
        whole: whether such parts keep all pairs of the last axis together, for functions that like matrices.
    """

    network: Network
    pairing: Pairing
    tangent: bool
    limit: int
    whole: bool = False

    def output(self) -> Field:
        """The field of the last node."""
        last = len(self.network.nodes) - 1
        return self.field(last, same_positions(self.network.nodes[last]))

    def field(self, goal: int, axes: Axes) -> Field:
        """The field of a node on the pairs of positions asked for."""
        fields: dict[int, tuple[Field, Axes]] = {}
        for i, here, spent in program(self.network, goal, axes):
            fields[i] = self._compute(i, here, fields), here
            for j in spent:
                del fields[j]
        return fields[goal][0].settled()

    def _compute(self, i: int, axes: Axes, fields: dict[int, tuple[Field, Axes]]) -> Field:
        node = self.network.nodes[i]
        if isinstance(node, InputNode):
            k, factor = self.pairing.gram(i, axes)
            return Field(k, None, factor)
        if gathers_many(node, axes):
            return self._sum_of_parts(node, axes)  # pyright: ignore[reportArgumentType]
        if isinstance(node, Average):
            return _average(node, axes, *fields[node.inputs[0]])
        inputs = [_restricted(*fields[j], _wanted(node, axes)) for j in node.inputs]
        if isinstance(node, Weights):
            return _weights(node, inputs[0], tangent=self.tangent)
        if isinstance(node, Mix):
            return _mix(node, inputs)
        if isinstance(node, Part):
            return inputs[0]
        if isinstance(node, Nonlinear):
            return self._nonlinear(i, node, inputs[0].settled(), axes)
        if isinstance(node, Normalize):
            return self._normalize(i, node, inputs[0].settled(), axes)
        assert isinstance(node, Arrange)
        return _arrange(node, inputs[0], axes)

    def _nonlinear(self, i: int, node: Nonlinear, field: Field, axes: Axes) -> Field:
        self.pairing.note_variance(i, field.k, axes)
        if self.pairing.is_self and all(axis.is_same for axis in axes):
            t = None if field.t is None else field.t * node.dual.derivative_diag(field.k)
            return Field(node.dual.diag(field.k), t)
        if field.t is None:
            return Field(self.pairing.dual(i, node.dual, field.k, axes, slope=False)[0], None)
        k, slope = self.pairing.dual(i, node.dual, field.k, axes, slope=True)
        return Field(k, slope * field.t)

    def _normalize(self, i: int, node: Normalize, field: Field, axes: Axes) -> Field:
        self.pairing.note_variance(i, field.k, axes)
        xx, yy = self.pairing.variances(i, axes, mean_over=node.axes)
        scale = (xx + node.epsilon).rsqrt() * (yy + node.epsilon).rsqrt()
        return Field(field.k * scale, None if field.t is None else field.t * scale)

    def _sum_of_parts(self, node: Average, axes: Axes) -> Field:
        """An average over many pairs of positions: part by part, in double precision, half where that is enough."""
        j = node.inputs[0]
        wanted = _wanted(node, axes)
        mirrored = self.pairing.is_symmetric and all(axis.is_same for axis in axes)
        limit = max(1, self.limit // self.pairing.pairs)
        sums: list[Tensor | None] = [None, None]
        dtype = None
        for part, twice in _halves(wanted, whole=self.whole) if mirrored else ((wanted, False),):
            for piece in pieces(part, limit, whole=self.whole):
                got = _average(node, axes, self.field(j, piece), piece).settled()
                dtype = got.k.dtype
                for i, v in enumerate((got.k, got.t)):
                    if v is not None:
                        v = v.double() + self.pairing.mirror(v.double()) if twice else v.double()
                        before = sums[i]
                        sums[i] = v if before is None else before + v
        k, t = sums
        assert k is not None
        return Field(k.to(dtype), None if t is None else t.to(dtype))


def gathers_many(node: Node, axes: Axes) -> bool:
    """Whether a node sums over so many pairs of positions that they should not all be there at once."""
    if not isinstance(node, Average) or not any(isinstance(g, Window) for g in node.geometries):
        return False
    return prod(map(len, _wanted(node, axes))) >= 4 * prod(map(len, axes))


def _wanted(node: Node, axes: Axes) -> Axes:
    """The pairs of positions of a node's input from which its own follow."""
    if isinstance(node, Average):
        return tuple(needed(g, axis) for g, axis in zip(node.geometries, axes, strict=True))
    if isinstance(node, Arrange):
        found = {at: axis for at, axis in zip(node.order, axes, strict=True) if at is not None}
        rank = len(node.kept) + len(node.dropped)
        return tuple(found.get(at, PairAxis(1, (0,))) for at in range(rank))
    return axes


@lru_cache(maxsize=1024)
def program(network: Network, goal: int, axes: Axes) -> tuple[tuple[int, Axes, tuple[int, ...]], ...]:
    """The nodes to compute for a goal, each with its pairs and the fields that nobody needs after it."""
    asked: dict[int, Axes] = {goal: axes}
    for i in range(goal, -1, -1):
        if i not in asked or gathers_many(network.nodes[i], asked[i]):
            continue
        for j in network.nodes[i].inputs:
            wanted = _wanted(network.nodes[i], asked[i])
            asked[j] = _union(asked[j], wanted) if j in asked else wanted
    order = sorted(asked)
    last = {}
    for i in order:
        if not gathers_many(network.nodes[i], asked[i]):
            last |= dict.fromkeys(network.nodes[i].inputs, i)
    return tuple((i, asked[i], tuple(j for j, k in last.items() if k == i)) for i in order)


def _union(first: Axes, second: Axes) -> Axes:
    return tuple(
        a if a == b else PairAxis.of(a.size, {*a.offsets, *b.offsets})
        for a, b in zip(first, second, strict=True)
    )


def _halves(axes: Axes, *, whole: bool) -> Iterator[tuple[Axes, bool]]:
    """Boxes of offsets that cover one of δ and -δ, the pairs (p, p) first; and whether to count them twice."""
    halved = axes[:-1] if whole else axes
    zeros = (*(PairAxis(axis.size, (0,)) for axis in halved), *axes[len(halved) :])
    yield zeros, False
    for a, axis in enumerate(halved):
        if positive := tuple(d for d in axis.offsets if d > 0):
            yield (*zeros[:a], PairAxis(axis.size, positive), *axes[a + 1 :]), True


def pieces(axes: Axes, limit: int, *, whole: bool = False) -> Iterator[Axes]:
    """Boxes of offsets of at most `limit` pairs each, where one offset has no more; (0, ..., 0) is in the first.

    The last axis can be kept `whole`.
    """
    splittable = [a for a, axis in enumerate(axes[:-1] if whole else axes) if len(axis.offsets) > 1]
    if prod(map(len, axes)) <= limit or not splittable:
        yield axes
        return
    a = splittable[0]
    # Offsets by size: neighbors δ and -δ have as many pairs, and 0 comes first.
    ordered = sorted(axes[a].offsets, key=lambda d: (abs(d), d))
    for half in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
        yield from pieces((*axes[:a], PairAxis.of(axes[a].size, half), *axes[a + 1 :]), limit, whole=whole)


def largest_field(network: Network, *, whole: bool = False) -> int:
    """The most numbers that one pair of samples needs in a field, when sums are taken offset by offset.

    The last axis can be kept `whole`.
    """
    goals = [(len(network.nodes) - 1, same_positions(network.nodes[-1]))]
    largest, seen = 1, set()
    while goals:
        goal, axes = goals.pop()
        for i, here, _ in program(network, goal, axes):
            largest = max(largest, prod(map(len, here)))
            node = network.nodes[i]
            if gathers_many(node, here) and i not in seen:
                seen.add(i)
                wanted = _wanted(node, here)
                one = tuple(PairAxis(axis.size, (0,)) for axis in wanted)
                goals.append((node.inputs[0], (*one[:-1], wanted[-1]) if whole else one))
    return largest


def _average(node: Average, axes: Axes, field: Field, inputs: Axes) -> Field:
    k, t, factor = field.k, field.t, field.factor
    for a, (geometry, out, here) in enumerate(zip(node.geometries, axes, inputs, strict=True)):
        step = pair_map(geometry, out, here)
        k, t = step.apply(k, a), None if t is None else step.apply(t, a)
        factor *= step.factor
    return Field(k, t, factor)


def _restricted(field: Field, here: Axes, wanted: Axes) -> Field:
    for a, (axis, part) in enumerate(zip(here, wanted, strict=True)):
        if axis != part:
            choice = pair_map(identity(axis.size), part, axis)
            field = Field(
                choice.apply(field.k, a), None if field.t is None else choice.apply(field.t, a), field.factor
            )
    return field


def _weights(node: Weights, field: Field, *, tangent: bool) -> Field:
    w = node.weight * field.factor
    k = field.k * w if w != 1 else field.k
    if node.bias:
        k = k + node.bias
    if not tangent:
        return Field(k, None)
    g, h = node.weight_gain * field.factor, node.bias_gain
    if (g, h) == (w, node.bias):
        # All of it is trained in the NTK parameterization: Θ <- w² Θ + K.
        return Field(k, k if field.t is None else torch.add(k, field.t, alpha=w))
    if field.t is None:
        t = field.k * g + h if g or h else None
    else:
        t = torch.add(field.t * w, field.k, alpha=g)
        t = t + h if h else t
    return Field(k, t)


def _mix(node: Mix, fields: list[Field]) -> Field:
    if len(fields) == 1:
        return Field(fields[0].k, fields[0].t, fields[0].factor * node.factors[0])
    k = t = None
    for factor, field in zip(node.factors, fields, strict=True):
        a = factor * field.factor
        k = field.k * a if k is None else torch.add(k, field.k, alpha=a)
        if field.t is not None:
            t = field.t * a if t is None else torch.add(t, field.t, alpha=a)
    assert k is not None
    return Field(k, t)


def _arrange(node: Arrange, field: Field, axes: Axes) -> Field:
    def arranged(v: Tensor) -> Tensor:
        rank = len(node.kept) + len(node.dropped)
        samples = v.shape[rank:]
        v = v.permute(*node.kept, *node.dropped, *range(rank, v.ndim))
        return v.reshape(*(len(axis) for axis in axes), *samples)

    return Field(arranged(field.k), None if field.t is None else arranged(field.t), field.factor)
