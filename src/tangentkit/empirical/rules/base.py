"""Layer rules: how each kind of autograd node turns an outgoing gradient into per-sample gradients.

A rule takes a `Site`, a node where samples meet a parameter-side tensor T, and says what the gradient of T is
for each sample:

* `Matrix`: Σ_s g_s ⊗ a_s over positions s, from the layer's inputs a and outgoing gradients g;
* `Lookup`: the same with one-hot a, kept as indices;
* `Vector`: small enough to be explicit.

`layer_rule("NameBackward0")` adds one; ours stand in the other modules of this package. A wrong rule is caught
by the verification and replaced by the generic route, so a rule can only make a kernel faster, never wrong.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentkit.empirical.reading.graph import MixedSamplesError, SampleAxis


@dataclass(frozen=True)
class Site:
    """Input `slot` of an autograd node, for a batch of n samples."""

    node: Any
    """The autograd node, with its `_saved_...` tensors."""
    slot: int
    """Which input of the forward operation the parameter-side tensor is."""
    shape: tuple[int, ...]
    """The shape of the parameter-side tensor."""
    axis: SampleAxis
    """Where the samples stand in the node's output, and so in the outgoing gradient."""
    n: int
    """The number of samples."""


@dataclass(frozen=True)
class Matrix:
    """Gradient T[h, q, p] = Σ_s g[h, s, q] a[h, s, p] for each sample."""

    inputs: Callable[[slice], Tensor]
    """Samples -> a (n, h, s, p)."""
    outgoing: Callable[[Tensor], Tensor]
    """Gradient of the node's output -> g (n, h, s, q)."""
    transposed: bool
    """Whether T is stored as (h, p, q)."""
    columns: Callable[[slice, slice], Tensor] | None = None
    """Samples and columns -> a[..., columns], where a is made on demand and some columns cost less than all."""
    summed: int = 0
    """Products that are summed for each sample to make a, where it is not merely copied."""

    def part(self, samples: slice, columns: slice) -> Tensor:
        """a (n, h, s, p) for some samples and some of the p columns."""
        if self.columns is None or columns == slice(None):
            return self.inputs(samples)[..., columns]
        return self.columns(samples, columns)


@dataclass(frozen=True)
class Lookup:
    """Gradient T[v, q] = Σ_s [index_s = v] g[s, q] for each sample."""

    indices: Tensor
    """(n, s); -1 where nothing is looked up."""
    outgoing: Callable[[Tensor], Tensor]
    """Gradient of the node's output -> g (n, 1, s, q)."""


@dataclass(frozen=True)
class Vector:
    """Gradient T (n, t) for each sample, at once."""

    gradient: Callable[[Tensor], Tensor]
    """Gradient of the node's output -> (n, t)."""


Rule = Callable[[Site], Matrix | Lookup | Vector]
RULES: dict[str, Rule] = {}


class NoRuleError(Exception):
    """No rule knows this use of a parameter."""


def layer_rule(*nodes: str) -> Callable[[Rule], Rule]:
    """Registers a rule for autograd nodes of these names.

    Example:
        A layer `x.pow(2) * w` needs none: it is a multiplication. For an operation of your own with an
        autograd node "ScaleBackward" that saves its input:

        >>> @layer_rule("ScaleBackward")
        ... def scale(site):
        ...     return Vector(lambda g: broadcast_gradient(g * site.node._saved_input, site))
        >>> _ = RULES.pop("ScaleBackward")
    """

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(nodes, rule))
        return rule

    return register


def apply_rule(site: Site) -> Matrix | Lookup | Vector:
    """What the rules say of a site.

    Raises:
        NoRuleError: nothing.
    """
    rule = RULES.get(site.node.name())
    if rule is None:
        raise NoRuleError(site.node.name())
    return rule(site)


def broadcast_gradient(local: Tensor, site: Site, *, shape: tuple[int, ...] | None = None) -> Tensor:
    """Per-sample gradient (n, t) of a tensor that was broadcast to the node's output.

    Args:
        local: outgoing gradient times the local derivative, in the shape of the node's output.
        site: where; its shape is that of the tensor.
        shape: the tensor's shape as it was broadcast, if that is not site.shape.
    """
    shape = site.shape if shape is None else shape
    axis = site.axis.axis
    padded = (1,) * (local.ndim - len(shape)) + tuple(shape)
    if len(padded) != local.ndim or padded[axis] != 1:
        raise MixedSamplesError(f"{shape} is not broadcast over samples")
    fronted = site.axis.front(local, site.n)
    # Axis k of `local` stands behind the samples; the sample axis left two axes of positions.
    place = [1 + k if k < axis else 2 + k for k in range(local.ndim)]
    summed = [place[k] for k in range(local.ndim) if padded[k] == 1] + [axis + 1]
    return fronted.sum(sorted(set(summed))).reshape(site.n, math.prod(shape))


def picked_gradient(g: Tensor, entries: Tensor, site: Site) -> Tensor:
    """Per-sample gradient (n, t) of a tensor of which entries were picked.

    Args:
        g: outgoing gradient, in the shape of the node's output.
        entries: for every entry of the output, which entry of the flattened tensor it is; -1 for none.
        site: where; its shape is that of the tensor.
    """
    t = math.prod(site.shape)
    values, places = (site.axis.front(each, site.n).reshape(site.n, -1) for each in (g, entries))
    # An entry more than wanted takes what comes from nowhere.
    out = g.new_zeros(site.n, t + 1)
    return out.scatter_add_(1, torch.where(places < 0, t, places), values)[:, :t]
