"""Layer rules of products: matrix products and convolutions."""

import math

from torch import Tensor

from tangentkit.empirical.reading.graph import MixedSamplesError, SampleAxis
from tangentkit.empirical.rules.base import Matrix, NoRuleError, Site, Vector, broadcast_gradient, layer_rule
from tangentkit.empirical.rules.patches import Convolution, patches


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
    operand = site.node._saved_self if site.slot == 1 else site.node._saved_mat2
    return _matmul(site, operand, right=site.slot == 1)


@layer_rule("BaddbmmBackward0")
def baddbmm(site: Site) -> Matrix | Vector:
    """beta T + alpha batch1[h] @ batch2[h]."""
    if site.slot == 0:
        return Vector(lambda g: broadcast_gradient(g * site.node._saved_beta, site))
    operand = site.node._saved_batch1 if site.slot == 2 else site.node._saved_batch2
    return _matmul(site, operand, scale=site.node._saved_alpha, right=site.slot == 2)


@layer_rule("MvBackward0")
def mv(site: Site) -> Matrix:
    """self @ vec, for a vector that is a parameter."""
    if site.slot == 0:
        raise MixedSamplesError("samples are in the vector of a product")
    return _matmul(site, site.node._saved_self[None], right=True)


def _matmul(site: Site, operand: Tensor, *, right: bool, scale: float = 1.0) -> Matrix:
    # T on the right: out[h, rows, q] = operand[h, rows, p] T[h, p, q], samples among the rows.
    # T on the left: out[h, q, rows] = T[h, q, p] operand[h, p, rows].
    # A vector on the right is a matrix of one column.
    batched = len(site.shape) == 3
    if site.axis.axis != batched + (not right):
        raise MixedSamplesError("samples are not among the rows of the product")
    rows = SampleAxis(0, site.axis.before, site.axis.after)

    def by_sample(tensor: Tensor) -> Tensor:
        # (h, rows, d) or (h, d, rows) -> (n, h, s, d)
        return rows.rows((tensor if right else tensor.mT).movedim(1, 0), site.n).movedim(2, 1)

    def outgoing(g: Tensor) -> Tensor:
        g = by_sample(g if batched else g.reshape(1, len(g), -1))
        return g if scale == 1 else g * scale

    return Matrix(lambda samples: by_sample(operand.conj())[samples], outgoing, transposed=right)


@layer_rule("TrilinearBackward0")
def bilinear(site: Site) -> Matrix:
    """The product of two inputs through a weight: T[o, i, j] = Σ_s g[s, o] x1[s, i] x2[s, j]."""
    node = site.node
    axes = [list(getattr(node, f"_saved_{name}")) for name in ("expand1", "expand2", "expand3", "sumdim")]
    if site.slot != 1 or axes != [[1, 3], [0], [1, 2], [2, 3]]:
        raise NoRuleError("only the weight of a bilinear layer is known")

    def by_sample(rows: Tensor) -> Tensor:
        return site.axis.rows(rows, site.n)

    def inputs(samples: slice) -> Tensor:
        left, right = by_sample(node._saved_i1)[samples], by_sample(node._saved_i3)[samples]
        return (left[..., :, None] * right[..., None, :]).flatten(2)[:, None]

    return Matrix(inputs, lambda g: by_sample(g)[:, None], transposed=False)


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

    def columns(samples: slice, wanted: slice) -> Tensor:
        # Whole channels are unfolded: those that the columns touch.
        entries = math.prod(geometry.kernel)
        start, stop, _ = wanted.indices(x.shape[1] // groups * entries)
        channels = slice(start // entries, -(-stop // entries))
        chosen = some(samples).unflatten(1, (groups, -1))[:, :, channels].flatten(1, 2)
        first = start - channels.start * entries
        return unfolded(chosen, positions)[..., first : first + stop - start]

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
    return Matrix(
        lambda samples: unfolded(some(samples), positions), plain, transposed=False, columns=columns
    )
