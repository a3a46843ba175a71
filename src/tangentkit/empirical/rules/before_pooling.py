"""Convolutions seen from behind their pooling.

An activation and a pooling whose windows do not overlap often follow the first convolution of a network. There each
entry y_t of its output reaches one entry z_u only, so that outgoing gradients are g_t = d_t γ_u, with the gradient γ
of z and the local derivative d_t = ∂z_u/∂y_t (see `chains`). Then

    Σ_t g_t ⊗ a_t = Σ_u γ_u ⊗ (Σ_{t in u} d_t a_t).

The sum in brackets is made once; backward passes end at the pooling, whose output is smaller by the size of the
window, and so is the product. Every channel chooses its own inputs: they are heads of the layer, with one row each.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tangentkit.core.buffer_pool import empty
from tangentkit.empirical.reading.chains import follow, kept_with, local_derivative, start
from tangentkit.empirical.reading.graph import Graph, MixedSamplesError, SampleAxis, Use
from tangentkit.empirical.rules.base import Matrix, NoRuleError, Site, Vector, layer_rule
from tangentkit.empirical.rules.patches import Convolution, window_patches

POOLINGS = (
    "MaxPool2DWithIndicesBackward0",
    "MaxPool3DWithIndicesBackward0",
    "AvgPool2DBackward0",
    "AvgPool3DBackward0",
)


def from_behind(graph: Graph, side: Sequence[bool], use: Use) -> Use | None:
    """The use of a convolution's weight or bias as seen from behind its pooling, if there is one.

    None, too, where gradients have to pass through the convolution anyway, on their way to other parameters.

    Args:
        graph: of a few samples.
        side: for each node, whether it is made of parameters alone.
        use: of the parameter.
    """
    node = graph.nodes[use.node]
    passing = any(edge is not None and not side[edge[0]] for edge in graph.edges[use.node])
    if node.name() != "ConvolutionBackward0" or node._saved_transposed or passing:  # pyright: ignore
        return None
    _, user = follow(graph, use.node)
    pooled = user is not None and graph.nodes[user].name() in POOLINGS and _windows(graph.nodes[user])
    return replace(use, node=user) if pooled else None


def _windows(pooling: Any) -> tuple[int, ...] | None:
    """The size of the windows, if no two of them overlap and none reaches beyond the image."""
    window, stride, padding = (
        tuple(getattr(pooling, f"_saved_{name}")) for name in ("kernel_size", "stride", "padding")
    )
    dilated = any(step != 1 for step in getattr(pooling, "_saved_dilation", ()))
    entries, pooled = _below(pooling).shape[2:], pooling._input_metadata[0].shape[2:]
    inside = all(u * w <= t for u, w, t in zip(pooled, window, entries, strict=True))
    # torch notes no stride where it is the window's.
    apart = stride in ((), window) and not any(padding) and not dilated
    return window if apart and inside else None


def _below(node: Any) -> Any:
    """Shape and dtype of what a node takes in."""
    child, number = node.next_functions[0]
    return child._input_metadata[number]


@layer_rule(*POOLINGS)
def pooled(site: Site) -> Matrix | Vector:
    """A convolution, an activation or several, and a pooling."""
    pooling, convolution = site.node, start(site.node)
    if convolution is None or convolution.name() != "ConvolutionBackward0":
        raise NoRuleError("no convolution before the pooling")
    window, windows = _windows(pooling), tuple(pooling._input_metadata[0].shape[2:])
    if site.axis != SampleAxis(0) or window is None:
        raise MixedSamplesError("samples are not the first axis of the pooling, or its windows overlap")
    if site.slot == 2:
        weights = cache(lambda: _local(pooling, convolution).sum(2))
        return Vector(lambda g: (g.flatten(2) * weights()).sum(2))
    x, groups = convolution._saved_input, convolution._saved_groups
    geometry = Convolution(
        site.shape[2:],
        tuple(convolution._saved_stride),
        tuple(convolution._saved_padding),
        tuple(convolution._saved_dilation),
    )

    def inputs(samples: slice) -> Tensor:
        # (n, groups, channels of a group, ...) of the output, ahead of (input channels, *kernel, windows).
        a = window_patches(x[samples], geometry, window, windows).unflatten(1, (groups, 1, -1))
        d = _local(pooling, convolution)[samples].unflatten(1, (groups, -1))
        rank, total = len(window), None
        for k, place in enumerate(itertools.product(*map(range, window))):
            here = a[(..., *place, slice(None))]
            weight = d[:, :, :, k].unflatten(3, (*[1] * (rank + 1), -1))
            if total is None:
                out = empty(x, *torch.broadcast_shapes(here.shape, weight.shape))
                total = torch.mul(here, weight, out=out)
            else:
                total.addcmul_(here, weight)
        assert total is not None
        return total.flatten(3, -2).flatten(1, 2).mT

    summed = math.prod((*site.shape, *window, *windows))
    return Matrix(inputs, lambda g: g.flatten(2).unsqueeze(3), transposed=False, summed=summed)


def _local(pooling: Any, convolution: Any) -> Tensor:
    """d as (n, channels, places of a window, windows)."""
    return kept_with(pooling, _local, lambda: _by_window(local_derivative(pooling, convolution), pooling))


def _by_window(d: Tensor, pooling: Any) -> Tensor:
    window, windows = _windows(pooling) or (), pooling._input_metadata[0].shape[2:]
    for k, (count, size) in enumerate(zip(windows, window, strict=True)):
        # What is left over at the border reaches nothing.
        d = d.narrow(2 + 2 * k, 0, count * size).unflatten(2 + 2 * k, (count, size))
    rank = len(window)
    inside, across = range(3, 3 + 2 * rank, 2), range(2, 2 + 2 * rank, 2)
    return d.permute(0, 1, *inside, *across).flatten(2, 1 + rank).flatten(3)
