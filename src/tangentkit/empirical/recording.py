"""One forward pass, with every use of every parameter written down.

`learn_structure` reads off two small passes where parameters meet samples and what each use is; `record` runs a
batch and binds those uses to its saved tensors; `Recording.backward` gives the outgoing gradients at all uses
for one output direction, without computing a single weight gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import ModelError
from tangentkit.core.functions import ModelFunction
from tangentkit.empirical.graph import (
    Graph,
    MixedSamplesError,
    SampleAxis,
    Use,
    find_uses,
    parameter_side,
    sample_axis,
    sample_layout,
    walk,
)
from tangentkit.empirical.rules import Lookup, Matrix, NoRuleError, Site, Vector, apply_rule

SMALL, LARGE = 2, 3
"""Batch sizes of the two passes from which the structure is learned."""


@dataclass(frozen=True)
class Layer:
    """Parameters whose gradients come from the same uses, and how.

    kind "matrix": the weight's gradient is Σ_s g_s ⊗ a_s over all positions of all uses; the bias, if the same
    uses have one, is Σ_s g_s. "lookup": the same with one-hot a. "vector": gradients small enough to be
    written down. "assembled": uses of different kinds, or of tensors made from the parameter.
    """

    kind: str
    weight: str
    uses: tuple[Use, ...]
    bias: str | None = None
    bias_uses: tuple[Use, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class Structure:
    """What is known of a model for samples of one shape."""

    signature: tuple
    axes: dict[int, SampleAxis]
    """Index of a node with uses -> where the samples stand in its output."""
    layers: tuple[Layer, ...]
    generic: dict[str, str]
    """Parameters without a rule -> why."""
    unused: tuple[str, ...]
    """Parameters that do not reach the output."""
    vmap: bool = True
    """Whether the generic route may use vmap."""

    def looped(self) -> "Structure":
        """The structure with the generic route by the loop of autograd."""
        return replace(self, vmap=False)

    def without(self, names: Sequence[str], reason: str) -> "Structure":
        """The structure with some parameters moved to the generic route."""
        layers = []
        for layer in self.layers:
            if layer.weight not in names:
                kept = layer.bias is not None and layer.bias not in names
                layers.append(layer if kept else Layer(layer.kind, layer.weight, layer.uses))
            elif layer.bias is not None and layer.bias not in names:
                layers.append(Layer("vector", layer.bias, layer.bias_uses))
        generic = {**self.generic, **dict.fromkeys(names, reason)}
        unused = tuple(name for name in self.unused if name not in names)
        return replace(self, layers=tuple(layers), generic=generic, unused=unused)


@dataclass(frozen=True, eq=False)
class Recording:
    """A forward pass of n samples, ready for backward passes."""

    structure: Structure
    outputs: Tensor
    """(n, c)"""
    sites: dict[Use, Matrix | Lookup | Vector]
    edges: dict[int, GradientEdge]
    graph: Graph
    parameters: dict[str, Tensor]
    n: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", self.outputs.shape[0])

    def backward(self, direction: Tensor) -> dict[int, Tensor | None]:
        """Gradients of Σ_i direction · f(x_i) with respect to the outputs of all nodes with uses.

        Args:
            direction: (c,), or (n, c) with a direction for each sample.
        """
        if not self.edges:
            return {}
        cotangent = direction.expand_as(self.outputs)
        edges = list(self.edges.values())
        gradients = torch.autograd.grad(self.outputs, edges, cotangent, retain_graph=True, allow_unused=True)  # pyright: ignore
        return dict(zip(self.edges, gradients, strict=True))

    def pull(self, use: Use, gradients: Tensor, name: str) -> Tensor:
        """From gradients (b, ...) of a use's parameter-side tensor to those of one of its parameters (b, p)."""
        if use.source[0] in self.graph.leaves:
            return gradients.flatten(1)
        edge = GradientEdge(self.graph.nodes[use.source[0]], use.source[1])
        (pulled,) = torch.autograd.grad(
            [edge], [self.parameters[name]], [gradients], retain_graph=True, is_grads_batched=True
        )
        return pulled.flatten(1)


class AnotherGraphError(Exception):
    """A batch took another path through the model than the one whose structure is known."""


def record(function: ModelFunction, batch: Batch, structure: Structure) -> Recording:
    """Runs a batch and binds the known uses to it.

    Raises:
        AnotherGraphError: the model's graph depends on the data, and differs here.
    """
    parameters, outputs, graph = _forward(function, batch)
    if structure.layers and graph.signature != structure.signature:
        raise AnotherGraphError
    n = outputs.shape[0]
    uses = [use for layer in structure.layers for use in (*layer.uses, *layer.bias_uses)]
    sites = {use: _site(graph, use, structure.axes, n) for use in uses}
    edges = {i: GradientEdge(graph.nodes[i], 0) for i in dict.fromkeys(use.node for use in sites)}
    return Recording(
        structure, outputs, {use: apply_rule(site) for use, site in sites.items()}, edges, graph, parameters
    )


def learn_structure(function: ModelFunction, batch: Batch) -> Structure:
    """Where and how a model uses its parameters, from batches of two and three samples.

    Raises:
        ModelError: the output of a sample depends on the other samples of its batch, or on chance.
    """
    trial = _trial_samples(batch)
    _, small_outputs, small = _forward(function, take(trial, slice(0, SMALL)))
    _, large_outputs, large = _forward(function, trial)
    _check_independent(small_outputs.detach(), large_outputs.detach())
    names = list(function.params)
    if small.signature != large.signature:
        return Structure((), {}, (), dict.fromkeys(names, "the graph depends on the batch size"), ())
    uses = find_uses(small, parameter_side(small, large))
    nodes = sorted({use.node for found in uses.values() for use in found})
    axes, mixed = _sample_axes((small, small_outputs), (large, large_outputs), nodes)
    kinds, generic = {}, {}
    for name, found in uses.items():
        try:
            kinds[name] = [type(_rule(large, use, axes, mixed)) for use in found]
        except (NoRuleError, MixedSamplesError, RuntimeError) as error:
            generic[name] = f"no rule: {error}"
    layers = _layers(large, [name for name in names if name in kinds], uses, kinds)
    return Structure(
        large.signature, axes, layers, generic, tuple(name for name in names if name not in uses)
    )


def _forward(function: ModelFunction, batch: Batch) -> tuple[dict[str, Tensor], Tensor, Graph]:
    parameters = {name: p.detach().requires_grad_() for name, p in function.params.items()}
    with torch.enable_grad():
        outputs = function(parameters, batch)
    return parameters, outputs, walk(outputs, parameters)


def _site(graph: Graph, use: Use, axes: dict[int, SampleAxis], n: int) -> Site:
    node, number = use.source
    return Site(graph.nodes[use.node], use.slot, graph.shapes(node)[number], axes[use.node], n)


def _rule(
    graph: Graph, use: Use, axes: dict[int, SampleAxis], mixed: dict[int, str]
) -> Matrix | Lookup | Vector:
    if use.node in mixed:
        raise MixedSamplesError(mixed[use.node])
    return apply_rule(_site(graph, use, axes, LARGE))


def _trial_samples(batch: Batch) -> Batch:
    # Fewer than three samples are repeated: the structure does not depend on their values.
    n = batch_size(batch)
    return take(batch, torch.arange(LARGE) % n)


def _check_independent(small: Tensor, large: Tensor) -> None:
    scale = large.abs().max().clamp_min(torch.finfo(large.dtype).tiny)
    gap = float((small - large[:SMALL]).abs().max() / scale)
    if gap > 1000 * torch.finfo(large.dtype).eps:
        raise ModelError(
            "the output of a sample depends on the other samples of its batch, or on chance: the same samples gave "
            f"other outputs (relative gap {gap:.1e}) in a batch of {LARGE} than in one of {SMALL}",
            hint="model.eval(), or a forward= that treats every sample alone",
        )


def _sample_axes(
    small: tuple[Graph, Tensor], large: tuple[Graph, Tensor], nodes: list[int]
) -> tuple[dict[int, SampleAxis], dict[int, str]]:
    found, mixed = {}, {}
    for i in nodes:
        shapes = small[0].shapes(i)[0], large[0].shapes(i)[0]
        try:
            if len(shapes[0]) != len(shapes[1]):
                raise MixedSamplesError(f"shapes {shapes[0]} and {shapes[1]}")
            found[i] = sample_axis(*shapes, (SMALL, LARGE))
        except MixedSamplesError as error:
            mixed[i] = str(error)
    flattened = [i for i, (_, positions) in found.items() if positions > 1]
    masks = [_touched(*pass_, flattened, found) for pass_ in (small, large)] if flattened else []
    axes = {}
    for i, (axis, positions) in found.items():
        try:
            axes[i] = sample_layout(axis, positions, [mask[i] for mask in masks if i in mask])
        except MixedSamplesError as error:
            mixed[i] = str(error)
    return axes, mixed


def _touched(
    graph: Graph, outputs: Tensor, nodes: list[int], found: dict[int, tuple[int, int]]
) -> dict[int, Tensor]:
    """For each node, which entries of its sample axis each sample's outputs reach: (n, entries)."""
    edges = [GradientEdge(graph.nodes[i], 0) for i in nodes]
    # No gradient may cancel by symmetry: the outputs of a sample get unequal weights.
    weights = 1 + torch.arange(outputs.shape[1], dtype=outputs.dtype, device=outputs.device) / 7
    rows: dict[int, list[Tensor]] = {i: [] for i in nodes}
    for sample in range(outputs.shape[0]):
        cotangent = torch.zeros_like(outputs)
        cotangent[sample] = weights
        gradients = torch.autograd.grad(outputs, edges, cotangent, retain_graph=True, allow_unused=True)  # pyright: ignore
        for i, g in zip(nodes, gradients, strict=True):
            if g is not None:
                rows[i].append((g != 0).movedim(found[i][0], 0).flatten(1).any(1))
    return {i: torch.stack(masks) for i, masks in rows.items() if masks}


def _layers(
    graph: Graph, names: list[str], uses: dict[str, list[Use]], kinds: dict[str, list[type]]
) -> tuple[Layer, ...]:
    layers = {name: Layer(_kind(uses[name], kinds[name]), name, tuple(uses[name])) for name in names}
    weights = {
        tuple(use.node for use in layer.uses): name
        for name, layer in layers.items()
        if layer.kind == "matrix"
    }
    # A bias that is added at exactly the uses of a weight rides along with it.
    for name, layer in list(layers.items()):
        weight = weights.get(tuple(use.node for use in layer.uses))
        if layer.kind == "vector" and weight is not None and all(_is_bias(graph, use) for use in layer.uses):
            layers[weight] = Layer("matrix", weight, layers[weight].uses, name, layer.uses)
            del layers[name]
    return tuple(layers.values())


def _is_bias(graph: Graph, use: Use) -> bool:
    node = graph.nodes[use.node]
    if use.chain != () or len(graph.shapes(use.source[0])[0]) != 1:
        return False
    if node.name() == "AddmmBackward0":
        return use.slot == 0 and node._saved_alpha == node._saved_beta == 1  # pyright: ignore
    return node.name() == "ConvolutionBackward0" and use.slot == 2 and not node._saved_transposed  # pyright: ignore


def _kind(uses: list[Use], kinds: list[type]) -> str:
    alike = len({use.chain for use in uses}) == 1 and uses[0].chain is not None
    if alike and set(kinds) == {Matrix}:
        return "matrix"
    if alike and set(kinds) == {Vector}:
        return "vector"
    if set(kinds) == {Lookup} and all(use.chain == () for use in uses):
        return "lookup"
    return "assembled"
