"""The head of a model: its last product with a weight, found in the graph where no module makes it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from tangentkit.core.batches import Batch, batch_size, take, tensors
from tangentkit.core.errors import ModelError
from tangentkit.core.model.functions import ModelFunction
from tangentkit.empirical.activations.watching import watch, watching
from tangentkit.empirical.passes.recording import AnotherGraphError, Recording, record
from tangentkit.empirical.reading.graph import Graph, Use
from tangentkit.empirical.reading.independence import spread
from tangentkit.empirical.reading.weights_behind import behind, mixing_behind
from tangentkit.empirical.rules.base import Matrix
from tangentkit.empirical.structure import SMALL, Structure, learn_structure, trace
from tangentkit.empirical.trust.verification import verified

CONVOLUTION = "ConvolutionBackward0"


@dataclass(frozen=True, eq=False)
class HeadProduct:
    """A product of samples with a weight, `x @ w` say, somewhere in a model's code."""

    function: ModelFunction
    structure: Structure
    use: Use

    def inputs(self, x: Batch) -> Tensor:
        """What the weight is multiplied by: (n, d).

        Raises:
            ModelError: the model takes another path for these samples.
        """

        def inputs() -> Tensor:
            site = record(self.function, x, self.structure).sites[self.use]
            assert isinstance(site, Matrix)
            return site.inputs(slice(None)).flatten(1).detach()

        try:
            return self.function.within(self.function.params, inputs)
        except AnotherGraphError:
            raise ModelError(
                "the last product with a weight depends on the data",
                expected="the same operations for all samples",
                hint="layer=name of a module whose input is meant",
            ) from None


def last_product(
    function: ModelFunction, x: Batch, modules: dict[str, nn.Module]
) -> HeadProduct | str | None:
    """The last product with a weight: the name of the module that makes it, or the product where none does.

    A module that is called before the last product of all is not meant if that product works on what the module gave;
    a product beside a module, such as a low-rank correction, is its correction.

    Args:
        function: the model, of all its parameters.
        x: some samples.
        modules: the linear layers by name.

    Raises:
        ModelError: what was found is not the head: a weight meets its output in a convolution, say.
    """
    # Saved tensors of checkpointed blocks are computed when they are looked at: all must see the snapshot.
    return function.within(function.params, lambda: _found(function, x, modules))


def _found(function: ModelFunction, x: Batch, modules: dict[str, nn.Module]) -> HeadProduct | str | None:
    flat, calls, trial = _with_flat_outputs(function), [], spread(x, 3)

    def traced() -> Recording:
        with watching(modules, lambda name, _, output: calls.append((name, _node(output)))):
            return record(flat, trial, structure)

    try:
        structure = learn_structure(flat, x)
        recording = flat.within(flat.params, traced)
    except (ModelError, RuntimeError, AnotherGraphError):
        # Whatever makes the graph unreadable, the modules are called all the same.
        return _last_called(function, trial, modules)
    product, graph = _latest(recording), recording.graph
    name, made = calls[-1] if calls else (None, None)
    module = graph.nodes.index(made) if made in graph.nodes else None
    if product is None or (
        made is not None and (module is None or product.node not in behind(graph, module))
    ):
        if module is not None:
            _check_last(flat, trial, graph, module, f"layer {name!r}")
        return name
    _check_last(flat, trial, graph, product.node, "the last product of a matrix with samples")
    structure = verified(flat, x, structure)
    trusted = any(product in layer.uses for layer in structure.layers)
    return HeadProduct(flat, structure, product) if trusted else name


def _check_last(function: ModelFunction, trial: Batch, graph: Graph, node: int, found: str) -> None:
    """Refuses a layer whose output meets a weight again, in an operation that is no product of a matrix.

    Raises:
        ModelError: the network's head is of another kind.
    """
    *_, small = function.within(function.params, lambda: trace(function, take(trial, slice(0, SMALL))))
    if small.signature != graph.signature:
        return
    operation = mixing_behind(small, graph, node)
    if operation is not None:
        raise ModelError(
            "the last layer is no product of samples with a matrix",
            expected="a linear layer (or h @ w) after which weights only shift or scale",
            got=f"{operation} with a weight, after {found}",
            hint="layer=name of the module whose input is meant",
        )


def _last_called(function: ModelFunction, x: Batch, modules: dict[str, nn.Module]) -> str | None:
    names: list[str] = []
    watch(function, x, modules, lambda name, *_: names.append(name))
    return names[-1] if names else None


def _latest(recording: Recording) -> Use | None:
    """The use that was run last, of those that are products of matrices."""
    products = [
        use
        for layer in recording.structure.layers
        for use in (*layer.uses, *layer.bias_uses)
        if isinstance(recording.sites[use], Matrix) and recording.graph.nodes[use.node].name() != CONVOLUTION
    ]
    return max(products, key=lambda use: recording.graph.nodes[use.node]._sequence_nr(), default=None)


def _node(output: object) -> Node | None:
    found = tensors(output)
    return found[0].grad_fn if found else None


def _with_flat_outputs(function: ModelFunction) -> ModelFunction:
    """The same model, whatever it returns flattened to (n, c)."""

    def forward(model: nn.Module, x: Batch) -> Tensor:
        n = batch_size(x)
        outputs = tensors(function.forward(model, x))
        fitting = [
            leaf.reshape(n, -1) for leaf in outputs if leaf.is_floating_point() and leaf.shape[:1] == (n,)
        ]
        if not fitting:
            raise ModelError("no output has the samples first")
        return torch.cat(fitting, 1)

    return replace(function, forward=forward)
