"""From the traced graph of a module to the nodes of its infinite-width limit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvNd

from tangentkit.core.errors import ModelError
from tangentkit.infinite.duals.registry import Dual, dual_of
from tangentkit.infinite.propagate.network import InputNode, Network
from tangentkit.infinite.reading.branches import BRANCHES, concatenated
from tangentkit.infinite.reading.builder import Builder
from tangentkit.infinite.reading.calls import argument_of, function_name, hidden_arguments, reason_against
from tangentkit.infinite.reading.fields import Hidden, Refusal, refuse
from tangentkit.infinite.reading.graph import hidden_input
from tangentkit.infinite.reading.norms import NORM_FUNCTIONS, NORMS, normalized
from tangentkit.infinite.reading.parameterization import Scales
from tangentkit.infinite.reading.positions import PARTS, POSITION_MODULES, POSITIONS, parted
from tangentkit.infinite.reading.scalars import SILENT, scalar_function, written_out
from tangentkit.infinite.reading.tracing import Rehearsed, Trace, is_layer, patches, rehearse

RULES = {**BRANCHES, **POSITIONS, **NORM_FUNCTIONS}
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
    def sources(self) -> dict[int, InputNode]:
        """The nodes that take such values."""
        return {i: node for i, node in enumerate(self.network.nodes) if isinstance(node, InputNode)}


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
        self.parts: dict[str, list[Hidden]] = {}
        self.plain: set[str] = set()
        self.used: dict[int, str] = {}
        self.dtype: torch.dtype | None = None

    def read(self) -> Reading:
        """Reads the whole graph, node by node."""
        for node in self.traced.graph.nodes:
            try:
                if node.op == "output":
                    return self._output(node)
                self._visit(node)
            except Refusal as reason:
                raise refuse(self._what(node), str(reason)) from None
        raise AssertionError("a graph without output")

    def _visit(self, node: fx.Node) -> None:
        sources = [source.name for source in node.all_input_nodes]
        touched = any(name in self.hidden for name in sources)
        if node.op == "get_attr":
            self._attribute(node)
        elif any(name in self.parts for name in sources):
            self._part(node)
        elif node.name not in self.dtypes:
            if not touched and all(name in self.plain for name in sources):
                self.plain.add(node.name)
            elif touched and _holds_tensors(self.seen[node.name]):
                if function_name(node) not in PARTS:
                    raise Refusal(reason_against(self._what(node)) or "it gives several tensors")
                self.parts[node.name] = parted(self, node)
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
        value = self._attribute_value(node)
        if isinstance(value, nn.Parameter) and value.requires_grad:
            raise Refusal("it is a parameter that is trained outside of linear and convolutional layers")
        self.plain.add(node.name)

    def _attribute_value(self, node: fx.Node) -> Any:
        value: Any = self.traced.model
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value

    def _part(self, node: fx.Node) -> None:
        name = function_name(node)
        if BRANCHES.get(name) is concatenated:
            self.hidden[node.name] = concatenated(self, node)
        elif name == "getitem" and isinstance(node.args[1], int):
            self.hidden[node.name] = self.parts[node.all_input_nodes[0].name][node.args[1]]
        else:
            raise Refusal("it takes several tensors")

    def _untouched(self, node: fx.Node) -> None:
        if any(n.name in self.varies and n.name not in self.plain for n in node.all_input_nodes):
            raise Refusal(
                "it takes the number of samples from a hidden tensor: take it from the input itself"
            )
        if node.op == "call_module":
            trained = [p for p in self.modules[str(node.target)].parameters() if p.requires_grad]
            if trained and not isinstance(self.modules[str(node.target)], NORMS):
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
        h = self.field(argument, channel)
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

    def field(self, argument: fx.Node, channel: int) -> Hidden:
        """A hidden tensor, or one that no weight touched as a source with that axis of channels."""
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
            return self._attribute_value(argument).detach().item()
        return None

    # Everything else -----------------------------------------------------------------------------------------

    def _operation(self, node: fx.Node) -> Hidden:
        if node.op == "call_module":
            return self._module(node, self.modules[str(node.target)])
        name = function_name(node)
        if name in RULES:
            return RULES[name](self, node)
        h, _ = hidden_input(self, node)
        if name in CASTS:
            return h
        if name.startswith(("dropout", "feature_dropout", "alpha_dropout")):
            if argument_of(node, 2, "training", True) and argument_of(node, 1, "p", 0.5):
                raise Refusal("it is random: pass training=self.training and call model.eval()")
            return h
        if len(hidden_arguments(node, self.hidden)) > 1:
            raise Refusal(reason_against(name) or "it joins branches in a way that is not a sum")
        return self._nonlinear(h, node, lambda: scalar_function(node.target, node.args[1:], node.kwargs))  # pyright: ignore

    def _module(self, node: fx.Node, module: Any) -> Hidden:
        h, _ = hidden_input(self, node)
        if isinstance(module, SILENT):
            return h
        if isinstance(module, NORMS):
            return normalized(self, node)
        for kinds, rule in POSITION_MODULES.items():
            if isinstance(module, kinds):
                return rule(self, node)
        own = getattr(module, "dual", None)
        return self._nonlinear(h, node, lambda: own if isinstance(own, Dual) else dual_of(module))

    def _nonlinear(self, h: Hidden, node: fx.Node, find: Callable[[], Dual]) -> Hidden:
        try:
            dual = find()
        except ModelError as problem:
            raise Refusal(reason_against(self._what(node)) or str(problem)) from problem
        return self.builder.nonlinear(h, dual)

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


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and any(isinstance(part, Tensor) for part in value)
