"""From the traced graph of a module to the nodes of its infinite-width limit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from tangentkit.core.errors import ModelError
from tangentkit.infinite.building import Builder
from tangentkit.infinite.calls import (
    REASONS,
    argument_of,
    axes_after,
    bound_pool,
    depends_on_input,
    function_name,
    gain,
    hidden_arguments,
    is_norm,
    reason_against,
)
from tangentkit.infinite.duals import Dual, dual_of
from tangentkit.infinite.fields import Hidden, Refusal, refuse
from tangentkit.infinite.network import Network, Source
from tangentkit.infinite.pairs import Geometry
from tangentkit.infinite.parameterization import Scales
from tangentkit.infinite.scalars import SILENT, scalar_function, written_out
from tangentkit.infinite.tracing import Rehearsed, Trace, is_layer, patches, rehearse
from tangentkit.infinite.windows import ADAPTIVE, POOLS, pool_windows, selections

RESHAPES = {
    "flatten",
    "view",
    "reshape",
    "squeeze",
    "unsqueeze",
    "unflatten",
    "contiguous",
    "clone",
    "view_as",
}
CASTS = {"to", "float", "double", "type", "type_as"}


@dataclass(frozen=True)
class Reading:
    """What an input shape makes of a traced module."""

    network: Network
    plain: frozenset[str]
    """Values of the graph that no weight touches."""
    seen: Mapping[str, Any]
    """Shapes and numbers that the rehearsal saw."""

    dtype: torch.dtype
    """Of the values that the first layers take."""

    @property
    def sources(self) -> dict[int, Source]:
        """The nodes that take such values."""
        return {i: node for i, node in enumerate(self.network.nodes) if isinstance(node, Source)}


def read(traced: Trace, x: Tensor, scales: Scales) -> Reading:
    """The network that a module is for inputs of a shape.

    Raises:
        ModelError: an operation has no infinite-width limit in closed form; the message names it.
        InputError: the module does not take such inputs.
    """
    rehearsed = rehearse(traced, x)
    reading = Reader(traced, scales, rehearsed).read()
    if rehearsed.output_of_three[0] != 3:
        raise ModelError(
            "the model does not give one output for each sample",
            expected="(3, c) for three samples",
            got=tuple(rehearsed.output_of_three),
        )
    return reading


class Reader:
    """Goes through the graph once; a value is plain (no weight touches it), hidden, or a constant."""

    def __init__(self, traced: Trace, scales: Scales, rehearsed: Rehearsed):
        self.traced, self.scales = traced, scales
        self.seen, self.varies, self.dtypes = rehearsed.seen, rehearsed.varies, rehearsed.dtypes
        self.modules = traced.modules
        self.builder = Builder()
        self.hidden: dict[str, Hidden] = {}
        self.plain: set[str] = set()
        self.used: dict[int, str] = {}
        self.dtype: torch.dtype | None = None

    def read(self) -> Reading:
        """The whole graph."""
        for node in self.traced.graph.nodes:
            try:
                if node.op == "output":
                    return self._output(node)
                self._visit(node)
            except Refusal as reason:
                raise refuse(self._what(node), str(reason)) from None
        raise AssertionError("a graph without output")

    def _visit(self, node: fx.Node) -> None:
        touched = any(source.name in self.hidden for source in node.all_input_nodes)
        is_tensor = isinstance(self.seen[node.name], torch.Size)
        if node.op == "get_attr":
            self._attribute(node)
        elif not is_tensor:
            if not touched and all(source.name in self.plain for source in node.all_input_nodes):
                self.plain.add(node.name)
            if (
                touched
                and isinstance(self.seen[node.name], (tuple, list))
                and any(isinstance(part, Tensor) for part in self.seen[node.name])
            ):
                raise Refusal("it gives several tensors")
        elif node.op == "call_module" and is_layer(self.modules[str(node.target)]):
            self.hidden[node.name] = self._layer(node, self.modules[str(node.target)])
        elif not touched:
            self._untouched(node)
        else:
            try:
                self.hidden[node.name] = self._operation(node)
            except Refusal:
                # Several steps, entry by entry, may still be one scalar function of a Gaussian field.
                found = written_out(node, self)
                if found is None:
                    raise
                self.hidden[node.name] = self.builder.nonlinear(found.field, found.expression.dual())

    def _attribute(self, node: fx.Node) -> None:
        value: Any = self.traced.model
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, nn.Parameter) and value.requires_grad:
            raise Refusal("it is a parameter that is trained outside of linear and convolutional layers")
        self.plain.add(node.name)

    def _untouched(self, node: fx.Node) -> None:
        if node.op == "call_module":
            trained = [p for p in self.modules[str(node.target)].parameters() if p.requires_grad]
            if trained and not is_norm(self.modules[str(node.target)]):
                raise Refusal(reason_against(self._what(node)) or "it has trained parameters of another kind")
        self.plain.add(node.name)

    # Layers --------------------------------------------------------------------------------------------------

    def _layer(self, node: fx.Node, layer: Any) -> Hidden:
        name = self.traced.names[layer]
        for parameter in layer.parameters():
            if id(parameter) in self.used:
                other = self.used[id(parameter)]
                raise Refusal(
                    f"its weights are used twice (first by {other!r}), so its outputs depend on each other"
                )
        self.used |= dict.fromkeys(map(id, layer.parameters()), name)
        argument = node.args[0] if node.args else next(iter(node.kwargs.values()))
        assert isinstance(argument, fx.Node)
        shape = self.seen[argument.name]
        channel = 1 if isinstance(layer, _ConvNd) else len(shape) - 1
        h = self._field(argument, channel)
        if isinstance(layer, _ConvNd):
            if layer.groups > 1:
                raise Refusal("groups > 1 keep channels apart, which do not average out")
            if any(group.axes[1] != ("c",) for group in h.groups):
                raise Refusal("its channels are not the second axis")
            geometries = {a + 2: patch for a, patch in enumerate(patches(layer, shape[2:]))}
            width = layer.out_channels
        else:
            if any("c" not in group.axes[-1] for group in h.groups):
                raise Refusal("it mixes an axis that is not the channels")
            geometries, width = {}, layer.out_features
        return self.builder.weights(
            h,
            lambda inputs, positions: self.scales.weights(name, layer, inputs, positions),
            geometries,
            width,
        )

    def _field(self, argument: fx.Node, channel: int) -> Hidden:
        if argument.name in self.hidden:
            return self.hidden[argument.name]
        shape = self.seen[argument.name]
        if argument.name not in self.plain or len(shape) < 2 or shape[0] != 2:
            raise Refusal("its input does not have the samples first")
        dtype = self.dtypes[argument.name]
        if dtype not in (torch.float32, torch.float64) or dtype != (self.dtype or dtype):
            raise Refusal(f"it takes numbers of type {dtype}; the kernel is computed in float32 or float64")
        self.dtype = dtype
        return self.builder.source(argument.name, shape, channel)

    def gaussian(self, node: fx.Node) -> Hidden | None:
        """The field of a node, if it is hidden and Gaussian."""
        h = self.hidden.get(node.name)
        return h if h is not None and self.builder.is_gaussian(h) else None

    # Everything else -----------------------------------------------------------------------------------------

    def _operation(self, node: fx.Node) -> Hidden:
        if node.op == "call_module":
            return self._module(node, self.modules[str(node.target)])
        name = function_name(node)
        after = self.seen[node.name]
        if name in {"add", "iadd", "radd"}:
            return self._sum(node, 1.0)
        if name in {"sub", "isub", "rsub"}:
            return self._sum(node, -1.0)
        if name in {"mul", "imul", "multiply", "truediv", "itruediv", "div", "divide", "neg", "negative"}:
            return self._scaled(node, name)
        if name in {"cat", "concat", "concatenate"}:
            return self._concatenated(node)
        first = node.args[0] if node.args else node.kwargs.get("input")
        if not isinstance(first, fx.Node) or first.name not in self.hidden:
            raise Refusal(
                reason_against(name) or "its first argument does not depend on the weights, but another does"
            )
        h, before = self.hidden[first.name], self.seen[first.name]
        if name in RESHAPES:
            return self.builder.reshape(h, before, after)
        if name in CASTS:
            return h
        if name in {"permute", "transpose", "swapaxes", "movedim", "moveaxis", "t"}:
            return self.builder.permute(h, axes_after(name, node, len(before)))
        if name in ("mean", "sum"):
            return self._mean(node, h, before, total=name == "sum")
        if name == "getitem":
            return self._selected(node, h, before)
        if name.startswith(("avg_pool", "adaptive_avg_pool")):
            return self._pooled(h, before, bound_pool(name, node))
        if name.startswith(("dropout", "feature_dropout", "alpha_dropout")):
            if argument_of(node, 2, "training", True) and argument_of(node, 1, "p", 0.5):
                raise Refusal("it is random: pass training=self.training and call model.eval()")
            return h
        if name == "layer_norm":
            return self._layer_norm_function(node, h, before)
        if len(hidden_arguments(node, self.hidden)) > 1:
            raise Refusal(reason_against(name) or "it joins branches in a way that is not a sum")
        return self._nonlinear(h, node, lambda: scalar_function(node.target, node.args[1:], node.kwargs))  # pyright: ignore

    def _module(self, node: fx.Node, module: Any) -> Hidden:
        first = node.args[0]
        assert isinstance(first, fx.Node)
        h, before, after = self.hidden[first.name], self.seen[first.name], self.seen[node.name]
        if isinstance(module, SILENT):
            return h
        if isinstance(module, (nn.Flatten, nn.Unflatten)):
            return self.builder.reshape(h, before, after)
        if isinstance(module, (*POOLS, *ADAPTIVE)):
            return self._pooled(h, before, module)
        if isinstance(module, nn.LayerNorm):
            return self._norm(
                h, before, module, range(len(before) - len(module.normalized_shape), len(before))
            )
        if isinstance(module, nn.RMSNorm):
            return self._norm(
                h, before, module, range(len(before) - len(module.normalized_shape), len(before))
            )
        if isinstance(module, nn.GroupNorm):
            if module.num_groups == module.num_channels:
                raise Refusal(REASONS["InstanceNorm"])
            return self._norm(h, before, module, range(1, len(before)))
        if isinstance(module, _BatchNorm):
            return self._batch_norm(h, module)
        own = getattr(module, "dual", None)
        return self._nonlinear(h, node, lambda: own if isinstance(own, Dual) else dual_of(module))

    def _nonlinear(self, h: Hidden, node: fx.Node, find: Callable[[], Dual]) -> Hidden:
        try:
            dual = find()
        except ModelError as problem:
            raise Refusal(reason_against(self._what(node)) or str(problem)) from problem
        return self.builder.nonlinear(h, dual)

    def _sum(self, node: fx.Node, sign: float) -> Hidden:
        alpha = node.kwargs.get("alpha", 1)
        first, second = node.args[0], node.args[1] if len(node.args) > 1 else node.kwargs["other"]
        for one, other, factor in ((first, second, 1.0), (second, first, sign)):
            if self.number(other) == 0 and isinstance(one, fx.Node):
                return self.builder.scale(self.hidden[one.name], factor)
        if not isinstance(first, fx.Node) or not isinstance(second, fx.Node):
            raise Refusal("a constant that is added to a hidden layer shifts its mean")
        known = self.hidden.get(first.name) or self.hidden[second.name]
        channel = known.groups[0].axis_of("c")
        if len({self.seen[n.name] for n in (first, second)}) > 1 or channel is None:
            raise Refusal("its branches differ in shape: one would be stretched over the other")
        factor = sign * float(self.number(alpha) or 0)
        for n in (first, second):
            if n.name not in self.hidden and not depends_on_input(n):
                raise Refusal("a constant that is added to a hidden layer shifts its mean")
        return self.builder.sum(self._field(first, channel), self._field(second, channel), factor)

    def _scaled(self, node: fx.Node, name: str) -> Hidden:
        if name.startswith("neg"):
            return self.builder.scale(self.hidden[node.args[0].name], -1.0)  # pyright: ignore
        first, second = node.args[0], node.args[1] if len(node.args) > 1 else node.kwargs["other"]
        if node.kwargs.get("rounding_mode"):
            raise Refusal("it rounds")
        for one, other in ((first, second), (second, first)):
            number = self.number(other)
            if isinstance(one, fx.Node) and one.name in self.hidden and number is not None:
                if "div" in name and one is second:
                    raise Refusal("it divides by a hidden layer")
                return self.builder.scale(self.hidden[one.name], 1 / number if "div" in name else number)
        if len(hidden_arguments(node, self.hidden)) > 1:
            raise Refusal(
                "products of branches are not Gaussian (an activation that is written as a product can be a module "
                "with an attribute `dual`, such as tangentkit.infinite.Pointwise(function))"
            )
        raise Refusal("it scales a hidden layer by numbers that differ from entry to entry")

    def number(self, argument: Any) -> float | None:
        """A constant factor: a number, or a tensor of one entry that is not trained."""
        if isinstance(argument, (int, float)) and not isinstance(argument, bool):
            return float(argument)
        if not isinstance(argument, fx.Node) or argument.name in self.hidden:
            return None
        if argument.name in self.varies:
            raise Refusal("it depends on the number of samples")
        value = self.seen[argument.name]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if argument.op == "get_attr" and isinstance(value, torch.Size) and prod(value) == 1:
            found: Any = self.traced.model
            for part in str(argument.target).split("."):
                found = getattr(found, part)
            return found.detach().item()
        return None

    def _concatenated(self, node: fx.Node) -> Hidden:
        parts = node.args[0] if node.args else node.kwargs["tensors"]
        axis = argument_of(node, 1, "dim", node.kwargs.get("axis", 0)) % len(self.seen[node.name])
        assert isinstance(parts, Sequence)
        return self.builder.concatenate([self._field(part, axis) for part in parts], axis)  # pyright: ignore

    # Positions -----------------------------------------------------------------------------------------------

    def _mean(self, node: fx.Node, h: Hidden, before: torch.Size, *, total: bool) -> Hidden:
        dims = argument_of(node, 1, "dim", node.kwargs.get("axis"))
        if dims is None:
            raise Refusal(f"it is a {function_name(node)} over the samples")
        dims = [d % len(before) for d in (dims if isinstance(dims, (tuple, list)) else [dims])]
        keep = argument_of(node, 2, "keepdim", False)
        for group in h.groups:
            if any({"c", "n"} & set(group.axes[d]) for d in dims):
                raise Refusal(f"it is a {function_name(node)} over channels or samples")
        h = self.builder.mean(h, dims)
        if total:
            h = self.builder.scale(h, float(prod(before[d] for d in dims)))
        kept = [a for a in range(len(before)) if keep or a not in dims]
        return self.builder.permute(h, kept)

    def _pooled(self, h: Hidden, before: torch.Size, pool: Any) -> Hidden:
        rank = next(i for i in (1, 2, 3) if f"{i}d" in type(pool).__name__)
        sizes = before[-rank:]
        if any(group.axes[1] != ("c",) or len(group.axes) != rank + 2 for group in h.groups):
            raise Refusal("its channels are not the second axis")
        geometries: dict[int, Geometry] = {a + 2: g for a, g in enumerate(pool_windows(pool, sizes))}
        return self.builder.average(h, geometries)

    def _selected(self, node: fx.Node, h: Hidden, before: torch.Size) -> Hidden:
        geometries, kept = selections(node.args[1], before)
        return self.builder.permute(self.builder.average(h, geometries) if geometries else h, kept)

    # Normalization -------------------------------------------------------------------------------------------

    def _norm(self, h: Hidden, before: torch.Size, norm: Any, axes: range) -> Hidden:
        centered = not isinstance(norm, nn.RMSNorm)
        epsilon = norm.eps if norm.eps is not None else torch.finfo(torch.get_default_dtype()).eps
        h = self.builder.normalize(h, [a for a in axes if before[a] > 1], epsilon, centered=centered)
        return self.builder.scale(h, gain(norm.weight, getattr(norm, "bias", None)))

    def _layer_norm_function(self, node: fx.Node, h: Hidden, before: torch.Size) -> Hidden:
        shape = argument_of(node, 1, "normalized_shape", ())
        for i, name in ((2, "weight"), (3, "bias")):
            if argument_of(node, i, name, None) is not None:
                raise Refusal("its gain and shift are parameters outside of a layer")
        axes = range(len(before) - len(shape), len(before))
        epsilon = argument_of(node, 4, "eps", 1e-5)
        return self.builder.normalize(h, [a for a in axes if before[a] > 1], epsilon, centered=True)

    def _batch_norm(self, h: Hidden, norm: Any) -> Hidden:
        if norm.running_var is None:
            raise Refusal("without running statistics a sample's output depends on the others of its batch")
        scale = (norm.running_var + norm.eps).rsqrt()
        scale = scale if norm.weight is None else scale * norm.weight
        shift = -norm.running_mean * scale
        shift = shift if norm.bias is None else shift + norm.bias
        return self.builder.scale(h, gain(scale, shift))

    # The end -------------------------------------------------------------------------------------------------

    def _output(self, node: fx.Node) -> Reading:
        value = node.args[0]
        if not isinstance(value, fx.Node):
            raise ModelError(
                "the model's output is not one tensor",
                expected="(n, c)",
                got=type(value).__name__,
                hint="a module around the model that returns one of its outputs",
            )
        if value.name not in self.hidden:
            raise ModelError(
                "no linear or convolutional layer reaches the output",
                expected="weights between input and output",
                got="none",
            )
        h, shape = self.hidden[value.name], self.seen[value.name]
        if (
            len(shape) not in (1, 2)
            or any(group.axes[0] != ("n",) for group in h.groups)
            or (len(shape) == 2 and any("c" not in g.axes[1] for g in h.groups))
        ):
            raise ModelError(
                "bad output shape",
                expected="(n, c)",
                got=f"(n, {', '.join(map(str, shape[1:]))})",
                hint="a head: global pooling or nn.Flatten, and a linear layer",
            )
        network = self.builder.network(self.builder.output(h))
        assert self.dtype is not None
        return Reading(network, frozenset(self.plain), self.seen, self.dtype)

    def _what(self, node: fx.Node) -> str:
        if node.op == "call_module":
            module = self.modules[str(node.target)]
            name = self.traced.names.get(module, str(node.target))
            return f"{type(module).__name__} {name!r}"
        if node.op == "get_attr":
            return f"parameter {str(node.target)!r}"
        if node.op == "output":
            return "the output"
        return f"{function_name(node)}() (node {node.name!r} of the traced graph)"
