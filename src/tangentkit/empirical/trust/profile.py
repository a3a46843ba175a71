"""The profile of a model: all that is learned of it from a few samples, before the engine starts."""

import time
from dataclasses import dataclass, replace

from tangentkit.core.batches import Batch, describe
from tangentkit.core.errors import ModelError
from tangentkit.core.model.functions import ModelFunction
from tangentkit.empirical.layers import Layer, MatrixLayer
from tangentkit.empirical.passes.batching import Footprint, footprint
from tangentkit.empirical.passes.flops import pass_flops
from tangentkit.empirical.passes.layer_gradients import Size, size_of
from tangentkit.empirical.passes.recording import AnotherGraphError, record
from tangentkit.empirical.reading.independence import distinct, spread
from tangentkit.empirical.structure import Structure, learn_structure, trace
from tangentkit.empirical.trust.verification import BATCH, verified


@dataclass(frozen=True, eq=False)
class Profile:
    """What is known of a model for samples of one shape: its structure, verified, and its sizes."""

    samples: str
    """The shape of the samples in words, see `describe`."""
    structure: Structure
    outputs: int
    sizes: dict[Layer, Size]
    footprint: Footprint
    independent: int
    """Samples of the largest batch whose samples were seen not to depend on each other."""
    latency: float
    """Seconds of a pass of two samples: what a pass takes, however small."""
    flops: tuple[float, float]
    """Of one sample in a forward and in a backward pass."""

    @property
    def names(self) -> list[str]:
        """All parameters; those that do not reach the output of these samples may reach that of others."""
        return [*self.structure.names(), *self.structure.generic, *self.structure.unused]

    @property
    def factored(self) -> dict[str, Size]:
        """Weights whose gradients are Σ_s g_s ⊗ a_s -> their sizes."""
        layers = self.structure.layers
        return {layer.weight: self.sizes[layer] for layer in layers if isinstance(layer, MatrixLayer)}


def profile(function: ModelFunction, x: Batch) -> Profile:
    """Learns what a model is from a few of some samples, and verifies its rules against plain autograd.

    Raises:
        ModelError: samples see each other, or no selected parameter reaches the output.
    """
    # Saved tensors of checkpointed blocks are computed when they are looked at: all must see the snapshot.
    found = function.held(
        function.leaves(),
        lambda: profile_of(function, x, verified(function, x, learn_structure(function, x))),
    )
    if found.structure.unused and not found.structure.names() and not found.structure.generic:
        raise _no_gradient(function, spread(x, 2))
    return found


def profile_of(function: ModelFunction, x: Batch, structure: Structure) -> Profile:
    """The profile of a model whose structure is known: what its passes and layers take."""
    trial, independent = spread(x, 2), distinct(spread(x, BATCH))
    item = next(iter(function.params.values())).element_size()
    layers = dict.fromkeys(layer for view in structure.views for layer in view)
    sizes = {layer: Size(1, 1, 1, function.params[layer.weight].numel()) for layer in layers}
    generic = sum(function.params[name].numel() for name in structure.generic)
    start = time.perf_counter()
    outputs = function(function.params, trial).shape[1]
    latency = time.perf_counter() - start
    try:
        recording = record(function, trial, structure)
        sizes = {layer: size_of(recording, layer) for layer in layers}
        foot = footprint(recording, sizes, generic)
    except AnotherGraphError:
        foot = Footprint(0, generic * item, generic * item, generic * item)
    flops = pass_flops(function, trial, structure, generic)
    return Profile(describe(x), structure, outputs, sizes, foot, independent, latency, flops)


def _no_gradient(function: ModelFunction, batch: Batch) -> ModelError:
    """None of the selected parameters reaches the output: because of the selection, or of the forward pass."""
    state = function.params | function.frozen
    everything = {name: p for name, p in state.items() if p.is_floating_point()}
    _, outputs, graph = trace(replace(function, params=everything, frozen=state), batch)
    reached = list(dict.fromkeys(graph.leaves.values()))
    if reached:
        shown = ", ".join(reached[:5]) + (", ..." if len(reached) > 5 else "")
        return ModelError(
            "none of the selected parameters reaches the output: the kernel would be zero",
            expected=f"one of those that do ({shown})",
            got=", ".join(list(function.params)[:5]) + (", ..." if len(function.params) > 5 else ""),
            hint="params=None for all that require grad",
        )
    cut = "inference mode" if outputs.is_inference() else "torch.no_grad, .detach() or NumPy"
    return ModelError(
        f"no parameter reaches the output: the forward pass runs under {cut}, so that the kernel would be zero",
        expected="outputs with a gradient, as a loss would need them",
        got="outputs without one",
        hint="remove it from the model's forward, or from forward=; what must stay fixed is left out by params=",
    )
