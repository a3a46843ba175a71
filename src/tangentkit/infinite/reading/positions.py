"""Averages, selections and other moves of positions and channels, as a forward pass writes them."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules import padding

from tangentkit.infinite.propagate.position_pairs import Geometry
from tangentkit.infinite.reading.calls import argument_of, axes_after, function_name, pool_module
from tangentkit.infinite.reading.fields import Hidden, Refusal
from tangentkit.infinite.reading.graph import Graph, Rule, hidden_input, other_arguments
from tangentkit.infinite.reading.windows import ADAPTIVE, POOLS, pool_windows

PADS = (
    padding._ConstantPadNd,
    padding._ReflectionPadNd,
    padding._ReplicationPadNd,
    padding._CircularPadNd,
)
MOVES = (*PADS, nn.Upsample)
"""Modules that repeat or move positions."""


def reshaped(graph: Graph, node: fx.Node) -> Hidden:
    """Another shape with the entries in the same order."""
    h, before = hidden_input(graph, node)
    return graph.builder.reshape(h, before, graph.seen[node.name])


def permuted(graph: Graph, node: fx.Node) -> Hidden:
    """The axes in another order."""
    h, before = hidden_input(graph, node)
    return graph.builder.permute(h, axes_after(function_name(node), node, len(before)))


def averaged(graph: Graph, node: fx.Node) -> Hidden:
    """The mean or sum over all positions of some axes."""
    h, before = hidden_input(graph, node)
    name = function_name(node)
    dims = argument_of(node, 1, "dim", node.kwargs.get("axis"))
    if dims is None:
        raise Refusal(f"it is a {name} over the samples")
    dims = [d % len(before) for d in (dims if isinstance(dims, (tuple, list)) else [dims])]
    for group in h.groups:
        if any({"c", "n"} & set(group.axes[d]) for d in dims):
            raise Refusal(f"it is a {name} over channels or samples")
    h = graph.builder.mean(h, dims)
    if name == "sum":
        h = graph.builder.scale(h, float(prod(before[d] for d in dims)))
    keep = argument_of(node, 2, "keepdim", False)
    return graph.builder.permute(h, [a for a in range(len(before)) if keep or a not in dims])


def pooled(graph: Graph, node: fx.Node) -> Hidden:
    """Averages over windows, by a module or a function."""
    h, before = hidden_input(graph, node)
    if node.op == "call_module":
        pool = graph.modules[str(node.target)]
    else:
        rest, options = other_arguments(graph, node)
        pool = pool_module(function_name(node))(*rest, **options)
    rank = next(i for i in (1, 2, 3) if f"{i}d" in type(pool).__name__)
    if any(group.axes[1] != ("c",) or len(group.axes) != rank + 2 for group in h.groups):
        raise Refusal("its channels are not the second axis")
    windows = pool_windows(pool, before[-rank:])
    geometries: dict[int, Geometry] = {a + 2: window for a, window in enumerate(windows)}
    return graph.builder.average(h, geometries)


def moved(graph: Graph, node: fx.Node) -> Hidden:
    """Whatever keeps, repeats or moves entries along the axes: indices, flips, padding, nearest neighbors."""
    h, before = hidden_input(graph, node)
    call = _call(graph, node)
    return _taken(graph, h, before, graph.seen[node.name], call)


def parted(graph: Graph, node: fx.Node) -> list[Hidden]:
    """The tensors into which chunk, split or unbind take one apart."""
    h, before = hidden_input(graph, node)
    call = _call(graph, node)
    return [
        _taken(graph, h, before, part.shape, lambda x, i=i: call(x)[i])
        for i, part in enumerate(graph.seen[node.name])
    ]


def padded(graph: Graph, node: fx.Node) -> Hidden:
    """Positions around the old ones: zeros, or copies."""
    mode, value = argument_of(node, 2, "mode", "constant"), argument_of(node, 3, "value", None)
    if mode == "constant" and value:
        raise Refusal("it pads with a number other than 0, which is a mean that is not zero")
    return moved(graph, node)


def interpolated(graph: Graph, node: fx.Node) -> Hidden:
    """Every position several times."""
    _check_nearest(argument_of(node, 3, "mode", "nearest"))
    return moved(graph, node)


def moved_by_module(graph: Graph, node: fx.Node) -> Hidden:
    """What a module of `MOVES` gives."""
    module: Any = graph.modules[str(node.target)]
    if isinstance(module, nn.Upsample):
        _check_nearest(module.mode)
    if getattr(module, "value", 0):
        raise Refusal("it pads with a number other than 0, which is a mean that is not zero")
    return moved(graph, node)


def _check_nearest(mode: str) -> None:
    if mode not in ("nearest", "nearest-exact"):
        raise Refusal(f"interpolation of mode {mode!r} is not covered, only that by nearest neighbors")


def _call(graph: Graph, node: fx.Node) -> Callable[[Tensor], Any]:
    """A call as a function of its first argument alone."""
    if node.op == "call_module":
        return graph.modules[str(node.target)]
    rest, options = other_arguments(graph, node)
    if isinstance(node.target, str):
        return lambda x: getattr(x, str(node.target))(*rest, **options)
    target: Any = node.target
    return lambda x: target(x, *rest, **options)


def _taken(
    graph: Graph, h: Hidden, before: Sequence[int], after: Sequence[int], call: Callable[[Tensor], Tensor]
) -> Hidden:
    """What a call makes of a hidden tensor, shown by what it makes of coordinates along each axis."""
    places = [_places(call, before, axis) for axis in range(len(before))]
    h = graph.builder.take(
        h, {a: kept for a, kept in enumerate(places) if kept != list(range(before[a]))}, before
    )
    return graph.builder.reshape(h, [len(kept) for kept in places], after)


def _places(call: Callable[[Tensor], Tensor], before: Sequence[int], axis: int) -> list[int]:
    """The entries of an axis that a call keeps, in its order; -1 for a zero."""
    behind = len(before) - axis - 1
    # From 1, so that 0 is what was not there before, along this axis or another.
    found = call(torch.arange(1.0, before[axis] + 1).reshape(-1, *(1,) * behind).expand(*before).contiguous())
    if not found.numel():
        raise Refusal("it leaves nothing")
    lines = [found.movedim(a, 0).reshape(found.shape[a], -1).amax(1) for a in range(found.ndim)]
    if found.ndim == len(before):
        along = axis
    else:
        along = next((a for a, line in enumerate(lines) if bool((line != line[0]).any())), None)
    line = found.max().reshape(1) if along is None else lines[along]
    shape = [1] * found.ndim if along is None else [-1 if a == along else 1 for a in range(found.ndim)]
    if bool(((found != line.reshape(shape)) & (found != 0)).any()):
        raise Refusal("it does not treat the axes one by one")
    return (line.long() - 1).tolist()


RESHAPES = (
    *("flatten", "view", "reshape", "squeeze", "unsqueeze", "unflatten", "contiguous", "clone", "view_as"),
    *("reshape_as", "ravel"),
)
POOL_FUNCTIONS = tuple(f"{kind}avg_pool{rank}d" for kind in ("", "adaptive_") for rank in (1, 2, 3))
POSITIONS: dict[str, Rule] = {
    **dict.fromkeys(RESHAPES, reshaped),
    **dict.fromkeys(("permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "t"), permuted),
    **dict.fromkeys(("mean", "sum"), averaged),
    **dict.fromkeys(POOL_FUNCTIONS, pooled),
    **dict.fromkeys(("getitem", "select", "narrow", "flip", "roll"), moved),
    "pad": padded,
    "interpolate": interpolated,
}
"""The rule for each function of this name."""
PARTS = ("chunk", "split", "tensor_split", "split_with_sizes", "unbind")
"""Functions that take a tensor apart."""
POSITION_MODULES: dict[tuple[type, ...], Rule] = {
    (nn.Flatten, nn.Unflatten): reshaped,
    (*POOLS, *ADAPTIVE): pooled,
    MOVES: moved_by_module,
}
"""The rule for each kind of module."""
