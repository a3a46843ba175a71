"""What the infinite-width limit of a network is made of: a few operations on covariances.

Every activation of the network is a field: z_c(x, p) with a channel c, a sample x and positions p (none, or one
number per axis). As the widths grow, channels become independent and alike, and all that matters is

    K(x, p; y, q) = E z_c(x, p) z_c(y, q)            and            Θ(x, p; y, q) = <∇_θ z_c(x, p), ∇_θ z_c(y, q)>.

A network is a list of nodes; each names the nodes before it whose fields it takes.
"""

from dataclasses import dataclass
from functools import cached_property

from tangentkit.infinite.duals.registry import Dual
from tangentkit.infinite.propagate.position_pairs import Geometry


@dataclass(frozen=True)
class Node:
    """An operation on fields; its inputs are places in the list of nodes."""

    inputs: tuple[int, ...]
    positions: tuple[int, ...]
    """How many positions each axis of the result has."""


@dataclass(frozen=True)
class InputNode(Node):
    """Numbers that do not depend on weights, one vector per position: K = <x_p, y_q> / d, Θ = 0."""

    name: str
    """Of the value in the traced graph."""
    order: tuple[int, ...]
    """The axes of the value that are positions."""
    channel: int
    """The axis that is the channels."""


@dataclass(frozen=True)
class Average(Node):
    """Sums over positions, K <- M K and Θ <- M Θ, with one geometry for each axis."""

    geometries: tuple[Geometry, ...]


@dataclass(frozen=True)
class Weights(Node):
    """Random weights and biases on what an `Average` gathered, with trained ones adding to the tangent kernel.

    K <- w² K + b²,  Θ <- w² Θ + g K + h.  In the NTK parameterization g = w² and h = b²; in the standard one
    g = fan_in and h = 1 (the scale that depends on the width). Frozen weights have g = 0, biases h = 0.
    """

    name: str
    weight: float
    bias: float
    weight_gain: float
    bias_gain: float


@dataclass(frozen=True)
class Mix(Node):
    """K <- Σ_i a_i K_i and Θ <- Σ_i a_i Θ_i: sums of uncorrelated fields, scaled fields, concatenated channels."""

    factors: tuple[float, ...]


@dataclass(frozen=True)
class Part(Node):
    """Some of the channels: K and Θ stay, for channels are alike, but other channels are another field."""

    channels: tuple[int, ...]


@dataclass(frozen=True)
class Nonlinear(Node):
    """A scalar function φ: K <- E[φ(u) φ(v)], Θ <- Θ E[φ'(u) φ'(v)]."""

    dual: Dual


@dataclass(frozen=True)
class Normalize(Node):
    """Division by the root mean square over channels and some axes: K <- K / (s(x) s(y)), Θ likewise."""

    axes: tuple[int, ...]
    """The position axes over which the mean is taken, beside the channels."""
    epsilon: float


@dataclass(frozen=True)
class Arrange(Node):
    """The position axes in another order; None is a new axis of one position, dropped axes had one position."""

    order: tuple[int | None, ...]
    dropped: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes of the input that stay."""
        return tuple(at for at in self.order if at is not None)


@dataclass(frozen=True)
class Network:
    """Nodes in the order of their computation; the last is the output, without positions."""

    nodes: tuple[Node, ...]

    @cached_property
    def needs_variance(self) -> tuple[int, ...]:
        """The nodes that look at the variances of their input."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node, (Nonlinear, Normalize)))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.nodes)
