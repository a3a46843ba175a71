"""Layer rules: how each kind of autograd node turns an outgoing gradient into per-sample gradients.

A rule takes a `Site`, a node where samples meet a parameter-side tensor T, and says what the gradient of T is
for each sample:

* `Matrix`: Σ_s g_s ⊗ a_s over positions s, from the layer's inputs a and outgoing gradients g;
* `Lookup`: the same with one-hot a, kept as indices;
* `Vector`: small enough to be written down at once.

`layer_rule("NameBackward0")` adds one. A wrong rule is caught by the verification and replaced by the generic
route, so a rule can only make a kernel faster, never wrong.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tangentkit.empirical.graph import MixedSamplesError, SampleAxis
from tangentkit.empirical.patches import Convolution, patches


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


@layer_rule("AddmmBackward0")
def addmm(site: Site) -> Matrix | Vector:
    """beta T + alpha mat1 @ mat2."""
    if site.slot == 0:
        return Vector(lambda g: broadcast_gradient(g * site.node._saved_beta, site))
    operand = site.node._saved_mat1 if site.slot == 2 else site.node._saved_mat2
    return _matmul(site, operand[None], scale=site.node._saved_alpha, right=site.slot == 2)


@layer_rule("MmBackward0")
def mm(site: Site) -> Matrix:
    """self @ mat2."""
    operand = site.node._saved_self if site.slot == 1 else site.node._saved_mat2
    return _matmul(site, operand[None], right=site.slot == 1)


@layer_rule("BmmBackward0")
def bmm(site: Site) -> Matrix:
    """self[h] @ mat2[h]."""
    return _matmul(
        site, site.node._saved_self if site.slot == 1 else site.node._saved_mat2, right=site.slot == 1
    )


def _matmul(site: Site, operand: Tensor, *, right: bool, scale: float = 1.0) -> Matrix:
    # T on the right: out[h, rows, q] = operand[h, rows, p] T[h, p, q], samples among the rows.
    # T on the left: out[h, q, rows] = T[h, q, p] operand[h, p, rows].
    batched = len(site.shape) == 3
    if site.axis.axis != batched + (not right):
        raise MixedSamplesError("samples are not among the rows of the product")
    rows = SampleAxis(0, site.axis.before, site.axis.after)

    def by_sample(tensor: Tensor) -> Tensor:
        # (h, rows, d) or (h, d, rows) -> (n, h, s, d)
        return rows.rows((tensor if right else tensor.mT).movedim(1, 0), site.n).movedim(2, 1)

    def outgoing(g: Tensor) -> Tensor:
        g = by_sample(g if batched else g[None])
        return g if scale == 1 else g * scale

    return Matrix(lambda samples: by_sample(operand)[samples], outgoing, transposed=right)


@layer_rule("ConvolutionBackward0")
def convolution(site: Site) -> Matrix | Vector:
    """Convolution or transposed convolution in any number of dimensions, with groups."""
    node = site.node
    if site.axis.axis != 0:
        raise MixedSamplesError("samples are not the first axis of a convolution")
    if site.slot == 2:
        return Vector(lambda g: site.axis.rows(g, site.n).movedim(2, 1).flatten(2).sum(2))
    x, groups = node._saved_input, node._saved_groups
    geometry = Convolution(
        site.shape[2:], tuple(node._saved_stride), tuple(node._saved_padding), tuple(node._saved_dilation)
    )
    frames = site.axis.before * site.axis.after

    def by_sample(entries: Tensor) -> Tensor:
        # (samples and frames, h, channels, s) -> (n, h, frames and s, channels)
        if frames == 1:
            return entries.mT
        n = len(entries) // frames
        return site.axis.rows(entries, n).permute(0, 2, 1, 4, 3).flatten(2, 3)

    def plain(tensor: Tensor) -> Tensor:
        return by_sample(tensor.unflatten(1, (groups, -1)).flatten(3))

    def unfolded(tensor: Tensor, positions: tuple[int, ...]) -> Tensor:
        return by_sample(patches(tensor, geometry, positions).unflatten(1, (groups, -1)).flatten(2, 3))

    def some(samples: slice) -> Tensor:
        if frames == 1:
            return x[samples]
        chosen = site.axis.front(x, site.n)[samples]
        return chosen.movedim(0, 1).flatten(0, 2)

    if node._saved_transposed:
        # Roles change: T[i, o k] = Σ_s x[s, i] patch(g)[s, o k].
        positions = tuple(x.shape[2:])
        return Matrix(lambda samples: plain(some(samples)), lambda g: unfolded(g, positions), transposed=True)
    positions = tuple(node._input_metadata[0].shape[2:])
    return Matrix(lambda samples: unfolded(some(samples), positions), plain, transposed=False)


@layer_rule("AddBackward0", "SubBackward0")
def add(site: Site) -> Vector:
    """self ± alpha other."""
    sign = -1 if site.node.name().startswith("Sub") else 1
    scale = sign * site.node._saved_alpha if site.slot == 1 else 1
    return Vector(lambda g: broadcast_gradient(g if scale == 1 else g * scale, site))


@layer_rule("MulBackward0")
def mul(site: Site) -> Vector:
    """self * other."""
    other = site.node._saved_other if site.slot == 0 else site.node._saved_self
    return Vector(lambda g: broadcast_gradient(g * other, site))


@layer_rule("DivBackward0")
def div(site: Site) -> Vector:
    """self / other."""
    other = site.node._saved_other
    if site.slot == 0:
        return Vector(lambda g: broadcast_gradient(g / other, site))
    return Vector(lambda g: broadcast_gradient(-g * site.node._saved_self / other.square(), site))


@layer_rule("WhereBackward0")
def where(site: Site) -> Vector:
    """torch.where(condition, self, other)."""
    condition = site.node._saved_condition
    return Vector(lambda g: broadcast_gradient(g * (condition if site.slot == 0 else ~condition), site))


@layer_rule("ExpandBackward0")
def expand(site: Site) -> Vector:
    """A tensor broadcast to the batch, such as a class token."""
    return Vector(lambda g: broadcast_gradient(g, site))


@layer_rule("RepeatBackward0")
def repeat(site: Site) -> Vector:
    """A tensor tiled over the batch, as instance normalization does with its scale."""
    axis, n = site.axis, site.n

    def gradient(g: Tensor) -> Tensor:
        padded = (1,) * (g.ndim - len(site.shape)) + site.shape
        if axis.after % padded[axis.axis]:
            raise MixedSamplesError("tiles and samples do not fit")
        # Every axis of the output is (copies, entry); the sample axis is (before, n, copies, entry).
        sizes, entries, sample = [], [], 0
        for k, size in enumerate(padded):
            if k == axis.axis:
                sample = len(sizes) + 1
                sizes += [axis.before, n, axis.after // size, size]
            else:
                sizes += [g.shape[k] // size, size]
            entries.append(len(sizes) - 1)
        kept = {sample, *entries}
        summed = [k for k in range(len(sizes)) if k not in kept]
        out = g.reshape(sizes).movedim(sample, 0)
        return out.sum([k + 1 if k < sample else k for k in summed]).reshape(n, -1)

    return Vector(gradient)


@layer_rule("NativeLayerNormBackward0")
def layer_norm(site: Site) -> Vector:
    """Layer normalization: weight and bias."""
    node = site.node
    if site.slot == 2:
        return Vector(lambda g: broadcast_gradient(g, site))
    return Vector(
        lambda g: broadcast_gradient(
            g * (node._saved_input - node._saved_result1) * node._saved_result2, site
        )
    )


@layer_rule("NativeGroupNormBackward0")
def group_norm(site: Site) -> Vector:
    """Group normalization: weight and bias, one number a channel."""
    node = site.node

    def normalized() -> Tensor:
        x = node._saved_input
        groups = x.reshape(node._saved_N, node._saved_group, -1)
        return ((groups - node._saved_result1[..., None]) * node._saved_result2[..., None]).view(x.shape)

    return _channelwise(site, normalized)


@layer_rule("NativeBatchNormBackward0")
def batch_norm(site: Site) -> Vector:
    """Batch normalization in evaluation: weight and bias, one number a channel."""
    node = site.node
    if node._saved_training:
        raise NoRuleError("batch statistics")

    def normalized() -> Tensor:
        x = node._saved_input
        shape = (1, -1) + (1,) * (x.ndim - 2)
        scale = (node._saved_running_var + node._saved_eps).rsqrt()
        return (x - node._saved_running_mean.view(shape)) * scale.view(shape)

    return _channelwise(site, normalized)


@layer_rule("PreluKernelBackward0")
def prelu(site: Site) -> Vector:
    """max(0, x) + T min(0, x)."""
    return Vector(lambda g: broadcast_gradient(g * site.node._saved_self.clamp(max=0), site))


def _channelwise(site: Site, normalized: Callable[[], Tensor]) -> Vector:
    def gradient(g: Tensor) -> Tensor:
        local = g * normalized() if site.slot == 1 else g
        return broadcast_gradient(local, site, shape=(*site.shape, *(1,) * (g.ndim - 2)))

    return Vector(gradient)
