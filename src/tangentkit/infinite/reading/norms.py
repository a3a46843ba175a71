"""Normalizations: which of them divide by something that no longer is random at infinite width."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tangentkit.infinite.reading.calls import REASONS, argument_of
from tangentkit.infinite.reading.fields import Hidden, Refusal
from tangentkit.infinite.reading.graph import Graph, Rule, hidden_input

NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _BatchNorm)
"""Modules whose gain and shift count as constants."""


def normalized(graph: Graph, node: fx.Node) -> Hidden:
    """What a module of `NORMS` gives."""
    h, shape = hidden_input(graph, node)
    norm: Any = graph.modules[str(node.target)]
    if isinstance(norm, _BatchNorm):
        return graph.builder.scale(h, _gain_of_statistics(norm))
    if isinstance(norm, nn.GroupNorm):
        if norm.num_groups == norm.num_channels:
            raise Refusal(REASONS["InstanceNorm"])
        axes = range(1, len(shape))
    else:
        axes = range(len(shape) - len(norm.normalized_shape), len(shape))
    centered = not isinstance(norm, nn.RMSNorm)
    h = _divided(graph, node, axes, norm.eps, centered=centered)
    return graph.builder.scale(h, gain(norm.weight, getattr(norm, "bias", None)))


def layer_norm(graph: Graph, node: fx.Node) -> Hidden:
    """F.layer_norm(h, shape) without gain and shift."""
    return _function(graph, node, epsilon=argument_of(node, 4, "eps", 1e-5), centered=True)


def rms_norm(graph: Graph, node: fx.Node) -> Hidden:
    """F.rms_norm(h, shape) without gain."""
    return _function(graph, node, epsilon=argument_of(node, 3, "eps", None), centered=False)


def gain(scale: Tensor | None, shift: Tensor | None) -> float:
    """The factor of a normalization, if it is the same for all channels and nothing is added."""
    if shift is not None and bool((shift != 0).any()):
        raise Refusal("it shifts the channels, so that their mean is not zero")
    if scale is None:
        return 1.0
    if bool((scale != scale.flatten()[0]).any()):
        raise Refusal("its gains differ from channel to channel")
    return scale.flatten()[0].item()


def _function(graph: Graph, node: fx.Node, *, epsilon: float | None, centered: bool) -> Hidden:
    _, shape = hidden_input(graph, node)
    kept = argument_of(node, 1, "normalized_shape", ())
    for i, name in ((2, "weight"), (3, "bias"))[: 1 + centered]:
        if argument_of(node, i, name, None) is not None:
            raise Refusal("its gain and shift are parameters outside of a layer")
    axes = range(len(shape) - len(kept), len(shape))
    return _divided(graph, node, axes, epsilon, centered=centered)


def _divided(
    graph: Graph, node: fx.Node, axes: Iterable[int], epsilon: float | None, *, centered: bool
) -> Hidden:
    """Without an epsilon torch takes that of the numbers' dtype."""
    h, shape = hidden_input(graph, node)
    epsilon = torch.finfo(graph.dtypes[node.name]).eps if epsilon is None else epsilon
    return graph.builder.normalize(h, [a for a in axes if shape[a] > 1], epsilon, centered=centered)


def _gain_of_statistics(norm: Any) -> float:
    """Evaluation mode: the affine map that the running statistics make of it."""
    if norm.running_var is None:
        raise Refusal("without running statistics a sample's output depends on the others of its batch")
    scale = (norm.running_var + norm.eps).rsqrt()
    scale = scale if norm.weight is None else scale * norm.weight
    shift = -norm.running_mean * scale
    return gain(scale, shift if norm.bias is None else shift + norm.bias)


NORM_FUNCTIONS: dict[str, Rule] = {"layer_norm": layer_norm, "rms_norm": rms_norm}
"""The rule for each function of this name."""
