"""Where and how a model uses its parameters, learned from a few samples."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge

from tangentkit.core.batches import Batch, take
from tangentkit.core.model.functions import ModelFunction
from tangentkit.core.model.hooks import hooks_made
from tangentkit.empirical.layers import (
    AssembledLayer,
    Layer,
    LookupLayer,
    MatrixLayer,
    TiedLayer,
    VectorLayer,
)
from tangentkit.empirical.reading.graph import (
    Graph,
    MixedSamplesError,
    SampleAxis,
    Use,
    find_uses,
    parameter_side,
    sample_axis,
    sample_layouts,
    walk,
)
from tangentkit.empirical.reading.independence import check_independence, spread
from tangentkit.empirical.reading.sample_moves import watch_samples
from tangentkit.empirical.rules import (
    before_head,
    before_pooling,
    distances,
    elementwise,
    in_place,
    lookup,
    matmul,
)
from tangentkit.empirical.rules.base import Lookup, Matrix, Site, Vector, apply_rule

OUR_RULES = (distances, elementwise, lookup, before_head, before_pooling, matmul, in_place)
"""The modules that register rules when they are imported."""
SMALL, LARGE = 2, 3
"""Batch sizes of the two passes from which the structure is learned."""
HOOKED = "hooks change its gradients"
"""Why parameters have no rule where there are hooks."""


@dataclass(frozen=True, eq=False)
class Structure:
    """What is known of a model for samples of one shape."""

    signature: tuple
    """The graph's, or () where it depends on the batch."""
    axes: dict[int, SampleAxis]
    """Index of a node with uses -> where the samples stand in its output."""
    layers: tuple[Layer, ...]
    generic: dict[str, str]
    """Parameters without a rule -> why."""
    unused: tuple[str, ...]
    """Parameters that do not reach the output."""
    counts: dict[str, int] = field(default_factory=dict)
    """Parameters -> the number of their uses, as far as the graph shows them."""
    unproven: frozenset[str] = frozenset()
    """Parameters whose rule is yet to be compared with autograd on samples that say something."""
    routed: bool = False
    """Whether operations act on several samples at once: then all samples of every batch are looked at."""
    path: tuple[bool, ...] = ()
    """The path that the first samples took through branches of the model (see `sample_moves.with_path`)."""
    custom: bool = False
    """Whether samples pass autograd functions of the user's own, whose backward may treat a batch as it likes."""
    hooked: bool = False
    """Whether hooks change gradients: then each comes from a backward pass of one output of one sample."""
    vmap: bool = True
    """Whether the generic route may use vmap."""

    @property
    def doubtful(self) -> bool:
        """Whether every batch is compared with autograd."""
        return self.routed or self.custom

    @property
    def views(self) -> "tuple[tuple[Layer, ...], ...]":
        """The layers, and where some can be seen from behind, all of them once more with those that are."""
        behind = tuple(view for layer in self.layers for view in layer.behind or (layer,))
        return (self.layers,) if behind == self.layers else (self.layers, behind)

    def names(self) -> list[str]:
        """The parameters with a rule."""
        return [name for layer in self.layers for name in layer.names]

    def without(self, reasons: dict[str, str]) -> "Structure":
        """The structure with some parameters moved to the generic route."""
        layers = []
        for layer in self.layers:
            if layer.weight not in reasons:
                kept = layer.bias is None or layer.bias not in reasons
                layers.append(layer if kept else MatrixLayer(layer.weight, layer.uses))
            elif layer.bias is not None and layer.bias not in reasons:
                layers.append(VectorLayer(layer.bias, layer.bias_uses))
        return replace(
            self,
            layers=tuple(layers),
            generic={**self.generic, **reasons},
            unused=tuple(name for name in self.unused if name not in reasons),
            unproven=self.unproven - set(reasons),
        )

    def all_generic(self, reason: str, *, hooked: bool = False) -> "Structure":
        """Nothing assumed of the graph, every parameter on the generic route, by loops of autograd."""
        names = (*self.names(), *self.generic, *self.unused)
        reasons = {name: self.generic.get(name, reason) for name in names}
        return Structure(
            (), {}, (), reasons, (), self.counts, routed=self.routed, vmap=False, hooked=self.hooked or hooked
        )


LENGTHS = (
    "the graph depends on the lengths of packed sequences: padded ones avoid the loop, "
    "outputs[torch.arange(n), lengths - 1] being the last of each"
)


def trace(function: ModelFunction, batch: Batch) -> tuple[dict[str, Tensor], Tensor, Graph]:
    """A forward pass: parameters as leaves, outputs, and the graph between them."""
    parameters = function.leaves()
    made: list[int] = []

    def forward(module: nn.Module, batch: Batch) -> Tensor:
        made.append(hooks_made())
        outputs = function.forward(module, batch)
        made.append(hooks_made())
        return outputs

    with torch.enable_grad():
        outputs = replace(function, forward=forward)(parameters, batch)
    return parameters, outputs, replace(walk(outputs, parameters), hooked=made[0] < made[-1])


def learn_structure(function: ModelFunction, batch: Batch) -> Structure:
    """Where and how a model uses its parameters, from batches of two and three samples.

    Raises:
        ModelError: the output of a sample depends on the other samples of its batch, or on chance.
    """
    trial = spread(batch, LARGE)
    small_parameters, small_outputs, small = trace(function, take(trial, slice(0, SMALL)))
    large_parameters, large_outputs, large = trace(function, trial)
    check_independence(function, trial, large_outputs, chosen=torch.arange(LARGE), size=1)
    if small.hooked or large.hooked:
        return replace(_unread(function, HOOKED), vmap=False, hooked=True)
    if small.signature != large.signature:
        recurrent = any(isinstance(child, nn.RNNBase) for child in function.module.modules())
        return _unread(function, LENGTHS if recurrent else "the graph depends on the batch size")
    passes = (
        (function, small_parameters, small, small_outputs),
        (function, large_parameters, large, large_outputs),
    )
    try:
        moves = watch_samples(function, trial)
        return replace(_read(passes), routed=moves.mixes, path=moves.path)
    except Exception as error:
        # Whatever tensors the graph is of (nested ones have no shapes, say), autograd will manage.
        return _unread(function, f"the graph cannot be read: {type(error).__name__} {error}")


def _unread(function: ModelFunction, reason: str) -> Structure:
    """Nothing known of the graph."""
    return Structure((), {}, (), dict.fromkeys(_sized(function), reason), ())


def _sized(function: ModelFunction) -> list[str]:
    """The parameters that have entries: layers of width zero have none, and add nothing to a kernel."""
    return [name for name, p in function.params.items() if p.numel()]


def _read(passes: "tuple[Pass, Pass]") -> Structure:
    """The structure that two passes show."""
    (function, _, small, _), (_, _, large, _) = passes
    names = _sized(function)
    side = parameter_side(small, large)
    uses = {name: found for name, found in find_uses(small, side).items() if name in names}
    used = [use for found in uses.values() for use in found]
    pooled = {use: before_pooling.from_behind(large, side, use) for use in used}
    headed = {use: before_head.before_head(large, side, use) for use in used}
    nodes = sorted({use.node for use in (*used, *pooled.values(), *headed.values()) if use is not None})
    axes, mixed, guessed = _sample_axes(passes, nodes)
    kinds, generic = {}, {}
    for name, found in uses.items():
        try:
            kinds[name] = [_rule_kind(large, use, axes, mixed) for use in found]
        except Exception as error:
            # Where a rule fails, autograd will do.
            generic[name] = f"no rule: {type(error).__name__} {error}".strip()
    layers = _layers(large, [name for name in names if name in kinds], uses, kinds)
    return Structure(
        signature=large.signature,
        axes=axes,
        layers=tuple(
            replace(layer, behind=_pooled(large, layer, pooled, axes) or _merged(large, layer, headed, axes))
            if isinstance(layer, MatrixLayer)
            else layer
            for layer in layers
        ),
        generic=generic,
        unused=tuple(name for name in names if name not in uses),
        counts={name: len(found) for name, found in uses.items()},
        unproven=frozenset(name for name in kinds if any(use.node in guessed for use in uses[name])),
        custom=any(
            isinstance(node, BackwardCFunction)
            for node, made in zip(large.nodes, side, strict=True)
            if not made
        ),
    )


def site(graph: Graph, use: Use, axes: dict[int, SampleAxis], n: int) -> Site:
    """A use, bound to a graph."""
    node, number = use.source
    return Site(graph.nodes[use.node], use.slot, graph.shapes(node)[number], axes[use.node], n)


def _rule_kind(
    graph: Graph, use: Use, axes: dict[int, SampleAxis], mixed: dict[int, str]
) -> tuple[type, bool | None]:
    if use.node in mixed:
        raise MixedSamplesError(mixed[use.node])
    found = apply_rule(site(graph, use, axes, LARGE))
    return type(found), found.transposed if isinstance(found, Matrix) else None


Pass = tuple[ModelFunction, dict[str, Tensor], Graph, Tensor]


def _sample_axes(
    passes: tuple[Pass, Pass], nodes: list[int]
) -> tuple[dict[int, SampleAxis], dict[int, str], set[int]]:
    """Where samples stand in the outputs of nodes; nodes where that is not known; nodes where it is a guess."""
    found, mixed = {}, {}
    for i in nodes:
        shapes = [graph.shapes(i)[0] for _, _, graph, _ in passes]
        try:
            found[i] = sample_axis(shapes[0], shapes[1], (SMALL, LARGE))
        except MixedSamplesError as error:
            mixed[i] = str(error)
    flattened = [i for i, (_, positions) in found.items() if positions > 1]
    masks = [_touched(one, flattened, found) for one in passes] if flattened else []
    axes, guessed = {}, set()
    for i, (axis, positions) in found.items():
        fitting = sample_layouts(axis, positions, [mask[i] for mask in masks if i in mask])
        if not fitting:
            mixed[i] = "no order of samples and positions fits"
            continue
        axes[i] = fitting[0]
        if len(fitting) > 1:
            guessed.add(i)
    return axes, mixed, guessed


def _touched(one: Pass, nodes: list[int], found: dict[int, tuple[int, int]]) -> dict[int, Tensor]:
    """For each node, which entries of its sample axis each sample's outputs reach: (n, entries)."""
    function, parameters, graph, outputs = one
    edges = [GradientEdge(graph.nodes[i], 0) for i in nodes]
    # No gradient may cancel by symmetry: the outputs of a sample get unequal weights.
    weights = 1 + torch.arange(outputs.shape[1], dtype=outputs.dtype, device=outputs.device) / 7
    rows: dict[int, list[Tensor]] = {i: [] for i in nodes}
    for sample in range(outputs.shape[0]):
        cotangent = torch.zeros_like(outputs)
        cotangent[sample] = weights
        gradients = function.within(
            parameters,
            lambda cotangent=cotangent: torch.autograd.grad(
                outputs, edges, cotangent, retain_graph=True, allow_unused=True, materialize_grads=False
            ),
        )
        for i, g in zip(nodes, gradients, strict=True):
            shape, axis = graph.shapes(i)[0], found[i][0]
            mask = torch.zeros(shape, dtype=torch.bool, device=outputs.device) if g is None else g != 0
            rows[i].append(mask.movedim(axis, 0).reshape(shape[axis], -1).any(1))
    return {i: torch.stack(masks) for i, masks in rows.items()}


def _layers(
    graph: Graph,
    names: list[str],
    uses: dict[str, list[Use]],
    kinds: dict[str, list[tuple[type, bool | None]]],
) -> tuple[Layer, ...]:
    layers = {name: _layer(name, uses[name], kinds[name]) for name in names}
    weights = {
        tuple(use.node for use in layer.uses): name
        for name, layer in layers.items()
        if isinstance(layer, MatrixLayer)
    }
    # A bias that is added at exactly the uses of a weight rides along with it.
    for name, layer in list(layers.items()):
        weight = weights.get(tuple(use.node for use in layer.uses))
        added = isinstance(layer, VectorLayer) and all(_is_bias(graph, use) for use in layer.uses)
        if weight is not None and added:
            layers[weight] = MatrixLayer(weight, layers[weight].uses, name, layer.uses)
            del layers[name]
    return tuple(layers.values())


def _layer(name: str, uses: list[Use], kinds: list[tuple[type, bool | None]]) -> Layer:
    """The layer of a parameter whose uses are of some kinds: the class of a rule, and whether it is transposed."""
    alike = len({use.chain for use in uses}) == len(set(kinds)) == 1 and uses[0].chain is not None
    (kind, _), types = kinds[0], {kind for kind, _ in kinds}
    if alike and kind is Matrix:
        return MatrixLayer(name, tuple(uses))
    if alike and kind is Vector:
        return VectorLayer(name, tuple(uses))
    if types == {Lookup} and all(use.chain == () for use in uses):
        return LookupLayer(name, tuple(uses))
    if types == {Lookup, Matrix} and all(map(_is_tied, uses, kinds)):
        lookups = tuple(use for use, (rule, _) in zip(uses, kinds, strict=True) if rule is Lookup)
        return TiedLayer(name, tuple(uses), lookups)
    return AssembledLayer(name, tuple(uses))


def _pooled(
    graph: Graph, layer: MatrixLayer, behind: dict[Use, Use | None], axes: dict[int, SampleAxis]
) -> tuple[Layer, ...]:
    """The parameters of a convolution that is used once, each on its own, seen from behind its pooling."""
    seen = _seen(graph, layer, behind, axes)
    parts = zip((MatrixLayer, VectorLayer), layer.names, seen, strict=False)  # there may be no bias
    return tuple(kind(name, (use,)) for kind, name, use in parts)


def _merged(
    graph: Graph, layer: MatrixLayer, behind: dict[Use, Use | None], axes: dict[int, SampleAxis]
) -> tuple[Layer, ...]:
    """A layer that is used once, before a linear head, seen from there."""
    seen = _seen(graph, layer, behind, axes)
    return (replace(layer, uses=seen[:1], bias_uses=seen[1:], merges=True),) if seen else ()


def _seen(
    graph: Graph, layer: MatrixLayer, behind: dict[Use, Use | None], axes: dict[int, SampleAxis]
) -> tuple[Use, ...]:
    """The uses of a layer, the weight's and the bias', as seen from behind; none if it is not possible for all."""
    found = []
    for use, rule in zip((*layer.uses, *layer.bias_uses), (Matrix, Vector), strict=False):
        view = behind[use]
        try:
            fits = view is not None and isinstance(apply_rule(site(graph, view, axes, LARGE)), rule)
        except Exception:
            fits = False  # a view more or less: the layer itself has a rule
        if view is None or not fits:
            return ()
        found.append(view)
    return tuple(found) if len(layer.uses) == 1 else ()


def _is_bias(graph: Graph, use: Use) -> bool:
    node = graph.nodes[use.node]
    if use.chain != () or len(graph.shapes(use.source[0])[0]) != 1:
        return False
    if node.name() == "AddmmBackward0":
        return use.slot == 0 and node._saved_alpha == node._saved_beta == 1  # pyright: ignore
    return node.name() == "ConvolutionBackward0" and use.slot == 2 and not node._saved_transposed  # pyright: ignore


def _is_tied(use: Use, kind: tuple[type, bool | None]) -> bool:
    """Whether a use looks up rows of a table, or multiplies by the transposed table."""
    rule, transposed = kind
    if rule is Lookup:
        return use.chain == ()
    if not transposed or use.chain is None or len(use.chain) != 1:
        return False
    (step,) = use.chain
    return step.startswith("TBackward0") or (step.startswith("PermuteBackward0") and "(1, 0)}" in step)
