"""Layer rules of small parameters: biases, scales, norms, and what is broadcast over samples."""

from collections.abc import Callable

import torch
from torch import Tensor

from tangentkit.empirical.reading.graph import MixedSamplesError
from tangentkit.empirical.rules.base import NoRuleError, Site, Vector, broadcast_gradient, layer_rule


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
    return Vector(lambda g: broadcast_gradient(g * other.conj(), site))


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


@layer_rule("PowBackward1")
def power(site: Site) -> Vector:
    """self ** exponent."""
    x, exponent = site.node._saved_self, site.node._saved_exponent
    if site.slot == 0:
        local, flat = exponent * x ** (exponent - 1), exponent == 0
    else:
        local, flat = site.node._saved_result * x.log(), (x == 0) & (exponent >= 0)
    # Where the function is flat the formula may be 0 times infinity.
    return Vector(lambda g: broadcast_gradient(g * local.masked_fill(flat, 0), site))


@layer_rule("MaximumBackward0", "MinimumBackward0")
def extremum(site: Site) -> Vector:
    """The larger or the smaller of two; equal ones share."""
    a, b = site.node._saved_self, site.node._saved_other
    a, b = (a, b) if site.slot == 0 else (b, a)
    taken = (a > b if site.node.name().startswith("Max") else a < b) + (a == b) / 2
    return Vector(lambda g: broadcast_gradient(g * taken, site))


@layer_rule(*(f"Clamp{bounds}Backward{version}" for bounds in ("", "Min", "Max") for version in (0, 1)))
def clamp(site: Site) -> Vector:
    """self between bounds that are tensors, or beyond one; the upper one counts where they cross."""
    x, low, high = site.node._saved_self, *(getattr(site.node, f"_saved_{k}", None) for k in ("min", "max"))
    below = x < low if low is not None else torch.zeros_like(x, dtype=torch.bool)
    beyond = x > high if high is not None else torch.zeros_like(x, dtype=torch.bool)
    if low is not None and high is not None:
        below, beyond = below & (low < high), beyond | (high < low)
    shares = {0: ~(below | beyond), 1: beyond if low is None else below, 2: beyond}
    return Vector(lambda g: broadcast_gradient(g * shares[site.slot], site))


@layer_rule("MaskedFillBackward0", "MaskedFillBackward1")
def masked_fill(site: Site) -> Vector:
    """value where a mask is set, else self."""
    mask = site.node._saved_mask
    return Vector(lambda g: broadcast_gradient(g * (~mask if site.slot == 0 else mask), site))


@layer_rule("AddcmulBackward0", "AddcdivBackward0")
def add_product(site: Site) -> Vector:
    """self + value * first * second, or value * first / second."""
    node = site.node
    if site.slot == 0:
        return Vector(lambda g: broadcast_gradient(g, site))
    first, second, value = node._saved_tensor1, node._saved_tensor2, node._saved_value
    if node.name().startswith("Addcmul"):
        local = second if site.slot == 1 else first
    else:
        local = 1 / second if site.slot == 1 else -first / second.square()
    return Vector(lambda g: broadcast_gradient(g * value * local, site))


FUNCTIONS = {
    "LogaddexpBackward0": torch.logaddexp,
    "Logaddexp2Backward0": torch.logaddexp2,
    "Atan2Backward0": torch.atan2,
}
"""Functions of two tensors, entry by entry."""


@layer_rule(*FUNCTIONS)
def function(site: Site) -> Vector:
    """f(self, other), whose derivative autograd knows."""

    def gradient(g: Tensor) -> Tensor:
        pair = list(torch.broadcast_tensors(site.node._saved_self.detach(), site.node._saved_other.detach()))
        own = pair[site.slot] = pair[site.slot].clone().requires_grad_()
        with torch.enable_grad():
            value = FUNCTIONS[site.node.name()](*pair)
        return broadcast_gradient(torch.autograd.grad(value, own, g)[0], site)

    return Vector(gradient)


@layer_rule("LerpBackward0", "LerpBackward1")
def lerp(site: Site) -> Vector:
    """self + weight (end - self)."""
    weight = site.node._saved_weight
    if site.slot == 2:
        gap = site.node._saved_end - site.node._saved_self
        return Vector(lambda g: broadcast_gradient(g * gap, site))
    return Vector(lambda g: broadcast_gradient(g * (weight if site.slot == 1 else 1 - weight), site))


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
