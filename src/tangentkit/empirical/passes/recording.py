"""One forward pass of a batch, with every use of every parameter at hand.

`record` binds the uses that a model's structure knows to the tensors that the pass saved; `Recording.backward` gives
the outgoing gradients at all uses for output directions, without computing a single weight gradient.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.nn import functional as F

from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.model.functions import ModelFunction
from tangentkit.empirical.layers import Layer
from tangentkit.empirical.reading.graph import Graph, Use
from tangentkit.empirical.rules.base import Lookup, Matrix, Vector, apply_rule
from tangentkit.empirical.structure import HOOKED, Structure, site, trace


class AnotherGraphError(Exception):
    """A batch took another path through the model than the one whose structure is known, or has hooks on it."""

    def __init__(self, *, hooked: bool = False):
        super().__init__(HOOKED if hooked else "the graph depends on the data")
        self.hooked = hooked


@dataclass(frozen=True, eq=False)
class Recording:
    """A forward pass of n samples, ready for backward passes."""

    function: ModelFunction
    structure: Structure
    n: int
    """Number of samples."""
    outputs: Tensor
    """(n, c), or more rows than n where a lone sample passed beside a copy of it."""
    sites: dict[Use, Matrix | Lookup | Vector]
    graph: Graph
    parameters: dict[str, Tensor]

    def backward(
        self, directions: Tensor, layers: Iterable[Layer] | None = None
    ) -> list[dict[int, Tensor | None]]:
        """For each direction v_r, gradients of Σ_i v_r · f(x_i) with respect to the outputs of nodes with uses.

        Args:
            directions: (r, c).
            layers: whose uses; those of the structure if None.
        """
        nodes = dict.fromkeys(use.node for use in _uses(self.structure.layers if layers is None else layers))
        if not nodes:
            return [{} for _ in directions]
        edges = [GradientEdge(self.graph.nodes[i], 0) for i in nodes]

        def passes() -> list[tuple[Tensor | None, ...]]:
            return [
                torch.autograd.grad(
                    self.outputs, edges, v.expand_as(self.outputs), retain_graph=True, allow_unused=True
                )
                for v in directions
            ]

        found = self.function.held(self.parameters, passes)
        return [dict(zip(nodes, gradients, strict=True)) for gradients in found]

    def parameter_gradients(self, names: list[str], cotangent: Tensor) -> dict[str, Tensor]:
        """Plain autograd: gradients of Σ_i cotangent_i · f(x_i) with respect to parameters."""
        wanted = [self.parameters[name] for name in names]
        cotangent = F.pad(cotangent, (0, 0, 0, len(self.outputs) - self.n))  # copies do not count
        found = self.function.held(
            self.parameters,
            lambda: torch.autograd.grad(
                self.outputs, wanted, cotangent, retain_graph=True, allow_unused=True, materialize_grads=True
            ),
        )
        return {name: g.to_dense() if g.is_sparse else g for name, g in zip(names, found, strict=True)}

    def pull(self, use: Use, gradients: Tensor, name: str) -> Tensor:
        """From gradients (b, ...) of a use's parameter-side tensor to those of one of its parameters (b, p)."""
        if use.source[0] not in self.graph.leaves:
            edge = GradientEdge(self.graph.nodes[use.source[0]], use.source[1])
            (gradients,) = torch.autograd.grad(
                [edge], [self.parameters[name]], [gradients], retain_graph=True, is_grads_batched=True
            )
        return gradients.reshape(len(gradients), -1)


def record(function: ModelFunction, batch: Batch, structure: Structure) -> Recording:
    """Runs a batch and binds the known uses to it.

    Raises:
        AnotherGraphError: the model's graph depends on the data, and differs here.
    """
    n = batch_size(batch)
    try:
        return _bind(function, batch, structure, n)
    except AnotherGraphError:
        if n > 1:
            raise
    # An axis of one entry makes some operations (einsum, reshape) take another path: the sample passes beside a copy.
    return _bind(function, take(batch, [0, 0]), structure, n)


def _bind(function: ModelFunction, batch: Batch, structure: Structure, n: int) -> Recording:
    """A recording of the first n samples of a batch."""
    parameters, outputs, graph = trace(function, batch)
    if graph.hooked and not structure.hooked:
        raise AnotherGraphError(hooked=True)
    if structure.signature and graph.signature != structure.signature:
        raise AnotherGraphError
    rows = len(outputs)
    for i, axis in structure.axes.items():
        if graph.shapes(i)[0][axis.axis] != axis.before * rows * axis.after:
            raise AnotherGraphError
    uses = dict.fromkeys(use for layers in structure.views for use in _uses(layers))
    sites = {use: apply_rule(site(graph, use, structure.axes, rows)) for use in uses}
    if n < rows:
        sites = {use: _first(found, n) for use, found in sites.items()}
    return Recording(function, structure, n, outputs, sites, graph, parameters)


def _uses(layers: Iterable[Layer]) -> Iterator[Use]:
    for layer in layers:
        yield from (*layer.uses, *layer.bias_uses)


def _first(found: Matrix | Lookup | Vector, n: int) -> Matrix | Lookup | Vector:
    """What a rule says, for the first n samples only."""
    if isinstance(found, Vector):
        return Vector(lambda g: found.gradient(g)[:n])
    if isinstance(found, Lookup):
        return Lookup(found.indices[:n], lambda g: found.outgoing(g)[:n])
    return Matrix(
        lambda samples: found.inputs(slice(n))[samples],
        lambda g: found.outgoing(g)[:n],
        found.transposed,
        lambda samples, columns: found.part(slice(n), columns)[samples],
    )
