"""Trust, then verify: rules against plain autograd.

The first time a model is seen, every parameter's part of the kernel of two samples, in a random output direction, is
computed by its rule within a batch of five and by autograd on each sample alone. A parameter that disagrees takes the
generic route.

Samples may say nothing (a closed gate, dead units), and where tokens and samples are flattened together their order
may be a guess. Such parameters stay unproven, and are compared on the real batches until one says something: with
random weights w_i, the sum Σ_i w_i ∇(v · f(x_i)) of per-sample gradients must be what autograd gives for it.

Half precision rounds by percents and would let a rule pass that is wrong by as much: its rules are also compared in a
copy of the model in single precision.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tangentkit.core.batches import Batch, take
from tangentkit.core.model.functions import ModelFunction
from tangentkit.core.seeds import Key
from tangentkit.empirical.layers import (
    AssembledLayer,
    Layer,
    LookupLayer,
    MatrixLayer,
    TiedLayer,
    VectorLayer,
)
from tangentkit.empirical.passes.generic import loop_gradients, vmap_gradients
from tangentkit.empirical.passes.layer_gradients import (
    LayerGradients,
    Merged,
    layer_indices,
    layer_inputs,
    lookup_gradients,
    matrix_gradients,
)
from tangentkit.empirical.passes.recording import AnotherGraphError, Recording, record
from tangentkit.empirical.reading.independence import (
    HALVES,
    check_independence,
    distinct,
    in_single_precision,
    spread,
)
from tangentkit.empirical.rules.base import Matrix
from tangentkit.empirical.structure import Structure, learn_structure

BATCH = 5
"""Another size than the passes that the structure was learned from."""
CHECKED = [1, 4]
"""Samples of that batch that are compared: not the first, where a wrong order of samples would not show."""
TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-3}
ROUGH = 5e-2


@dataclass(frozen=True)
class Verdict:
    """What autograd says of a structure."""

    wrong: dict[str, str]
    """Parameters whose rule disagrees -> how."""
    silent: frozenset[str]
    """Parameters of which the samples said nothing."""
    vmap: bool
    """Whether vmap is right."""


def verified(function: ModelFunction, batch: Batch, structure: Structure) -> Structure:
    """The structure, with parameters whose rule disagrees with autograd moved to the generic route.

    A verdict is of this snapshot alone: a model of the same classes and graph may differ in what neither shows, such
    as the attributes of a function, or the number that an activation was made with.
    """
    trial = spread(batch, BATCH)
    verdict = _verify(function, trial, structure)
    if function.dtype in HALVES:
        verdict = _also_in_single(function, trial, structure, verdict)
    # What repeated samples let pass is proven of nothing.
    silent = frozenset(structure.names()) if distinct(trial) < BATCH else verdict.silent
    proven = structure.without(verdict.wrong) if verdict.wrong else structure
    unproven = proven.unproven | (silent - set(verdict.wrong))
    return replace(proven, vmap=verdict.vmap, unproven=unproven)


def _verify(function: ModelFunction, trial: Batch, structure: Structure) -> Verdict:
    checked = take(trial, CHECKED)
    directions = _directions(function(function.params, take(checked, slice(0, 1))))
    names = [*structure.names(), *structure.generic, *structure.unused]
    truth = {name: _gram(f) for name, f in loop_gradients(function, names, checked, directions[:1]).items()}
    scale = (
        torch.stack([k.diagonal().max() for k in truth.values()]).sum() if truth else directions.new_zeros(())
    )
    wrong = {
        name: "autograd finds a gradient that the graph does not show"
        for name in structure.unused
        if truth[name].diagonal().max() > 0
    }
    try:
        recording = record(function, trial, structure)
        check_independence(function, trial, recording.outputs, chosen=torch.tensor(CHECKED), size=1)
        for layers in structure.views:
            side = LayerGradients(recording, recording.backward(directions[:1], layers), {})
            wrong |= _disagreements(side, layers, truth, scale)
    except AnotherGraphError:
        wrong |= dict.fromkeys(structure.names(), "the graph depends on the data")
    generic = [*wrong, *structure.generic]
    # What hooks do within vmap is nowhere promised.
    vmap = not structure.hooked and _vmap_agrees(function, generic, checked, directions, scale)
    silent = frozenset(name for name in structure.names() if not truth[name].diagonal().max() > 0)
    return Verdict(wrong, silent, vmap)


def _also_in_single(function: ModelFunction, trial: Batch, structure: Structure, verdict: Verdict) -> Verdict:
    """A verdict together with what a copy of the model in single precision says.

    Its graph may be another (there is no cast where nothing is to be cast), so its structure is learned anew.
    """

    def both(model: ModelFunction, samples: Batch) -> Verdict:
        single = _verify(model, samples, learn_structure(model, samples))
        wrong = {name: how for name, how in single.wrong.items() if name in structure.names()}
        return replace(verdict, wrong=wrong | verdict.wrong, vmap=verdict.vmap and single.vmap)

    return in_single_precision(function, trial, both, otherwise=lambda: verdict)


def _directions(outputs: Tensor) -> Tensor:
    generator = Key(0).fold("verification").torch()
    return torch.randn(2, outputs.shape[1], generator=generator).to(outputs)


def _disagreements(
    side: LayerGradients, layers: tuple[Layer, ...], truth: dict[str, Tensor], scale: Tensor
) -> dict[str, str]:
    wrong = {}
    for layer in layers:
        try:
            for name, gradients in (found for one in _ways(side, layer) for found in _structured(one, layer)):
                if not _agree(_gram(gradients.reshape(side.n, 1, -1)[CHECKED]), truth[name], scale):
                    wrong[name] = "its rule disagrees with autograd"
        except Exception as error:
            # A rule that raises is a wrong rule: autograd has already shown that the model is sound.
            wrong |= dict.fromkeys(layer.names, f"its rule raised {type(error).__name__}: {error}")
    return wrong


def _ways(side: LayerGradients, layer: Layer) -> list[LayerGradients]:
    """The side, and where directions merge, also the direction in their place: here of one direction."""
    if not layer.merges:
        return [side]
    merged = Merged()
    merged.add(side, [layer])
    return [side, merged.side(side.recording)]


def _structured(side: LayerGradients, layer: Layer) -> list[tuple[str, Tensor]]:
    """Gradients (n, 1, ...), up to an order of the entries, in every form in which they are used."""
    if not isinstance(layer, (MatrixLayer, LookupLayer)):
        return [(layer.weight, side.explicit(layer))]
    g = side.outgoing(layer)[:]
    if isinstance(layer, LookupLayer):
        rows = side.recording.parameters[layer.weight].shape[0]
        return [(layer.weight, lookup_gradients(layer_indices(side.recording, layer), g, rows))]
    found = [(layer.weight, matrix_gradients(g, a)) for a in _inputs(side.recording, layer)]
    if layer.bias is not None:
        found += [(layer.bias, g.sum(3)), (layer.bias, side.vectors(layer.bias_uses))]
    return found


def _inputs(recording: Recording, layer: Layer) -> list[Tensor]:
    """The inputs of a layer, at once and put together from two parts of their columns."""
    whole = layer_inputs(recording, layer, slice(None))
    middle = whole.shape[-1] // 2
    parts = (slice(0, middle), slice(middle, whole.shape[-1]))
    return [whole, torch.cat([layer_inputs(recording, layer, slice(None), part) for part in parts], -1)]


def _gram(gradients: Tensor) -> Tensor:
    flat = gradients.flatten(1)
    return flat @ flat.T


def _agree(found: Tensor, truth: Tensor, scale: Tensor) -> bool:
    tolerance = TOLERANCE.get(truth.dtype, ROUGH)
    size = (truth.diagonal()[:, None] * truth.diagonal()[None, :]).sqrt()
    # Contributions far below the kernel's own rounding need not agree in every digit.
    return bool(((found - truth).abs() <= tolerance * size + tolerance**2 * scale).all())


def _vmap_agrees(
    function: ModelFunction, names: list[str], batch: Batch, directions: Tensor, scale: Tensor
) -> bool:
    if not names:
        return True
    try:
        found = vmap_gradients(function, names, batch, directions)
    except Exception:
        return False
    # Both directions: some batching rules are right for one and wrong for several.
    truth = loop_gradients(function, names, batch, directions)
    return all(_agree(_gram(found[name]), _gram(truth[name]), scale) for name in names)


# -- on real batches -----------------------------------------------------------------------------------------------


def prove(recording: Recording, batch: Batch, wanted: set[str]) -> tuple[frozenset[str], dict[str, str]]:
    """Compares the rules of some parameters with autograd on a recorded batch.

    Returns:
        The parameters that are proven now, and those that are wrong -> how.
    """
    structure = recording.structure
    # Weights of all sizes: two samples that changed places show, whichever they are.
    weights = torch.randn(recording.n, 1, generator=Key(0).fold("proof").torch()).to(recording.outputs)
    direction = _directions(recording.outputs)[:1]
    truth = recording.parameter_gradients(structure.names(), weights * direction)
    # Gradients far below the others are rounding: those of the biases of attention keys, say, which are zero.
    rounding = float(torch.stack([g.norm() for g in truth.values()]).norm())
    proven, wrong = set(), {}
    for layers in structure.views:
        side = LayerGradients(recording, recording.backward(direction, layers), {})
        for name, layer in [(name, one) for one in layers for name in wanted.intersection(one.names)]:
            try:
                found = _weighted_sum(side, layer, name, weights[:, 0]).detach()
            except Exception as error:
                wrong[name] = f"its rule raised {type(error).__name__}: {error}"
                continue
            tolerance, size = TOLERANCE.get(found.dtype, ROUGH), float(truth[name].norm())
            gap = float((found - truth[name].flatten()).norm())
            if not gap <= tolerance * max(size, float(found.norm()), rounding):
                wrong[name] = "its rule disagrees with autograd on a batch"
            elif size > 0:
                proven.add(name)
    # Weights tell only different samples apart.
    proven -= wrong.keys()
    return frozenset(proven) if 2 * distinct(batch) > recording.n > 1 else frozenset(), wrong


def _weighted_sum(side: LayerGradients, layer: Layer, name: str, weights: Tensor) -> Tensor:
    """Σ_i w_i gradient_i (p,), as the layer's rule has the gradients."""
    if name == layer.bias:
        return weights @ side.vectors(layer.bias_uses)[:, 0]
    if isinstance(layer, VectorLayer):
        use = layer.uses[0]
        shape = side.recording.graph.shapes(use.source[0])[use.source[1]]
        total = (weights @ side.vectors(layer.uses)[:, 0]).view(1, *shape)
        return side.recording.pull(use, total, name)[0]
    if isinstance(layer, (AssembledLayer, TiedLayer)):
        return weights @ side.assembled(layer)[:, 0]
    g = side.outgoing(layer)[:] * weights.view(-1, 1, 1, 1, 1)
    if isinstance(layer, LookupLayer):
        rows = side.recording.parameters[name].shape[0]
        flat = (
            layer_indices(side.recording, layer).reshape(1, -1),
            g.permute(1, 2, 0, 3, 4).flatten(2, 3)[None],
        )
        return lookup_gradients(*flat, rows).flatten()
    use = layer.uses[0]
    shape = side.recording.graph.shapes(use.source[0])[use.source[1]]
    site = side.recording.sites[use]
    total = matrix_gradients(g, layer_inputs(side.recording, layer, slice(None))).sum(0)
    total = total.mT if isinstance(site, Matrix) and site.transposed else total
    return side.recording.pull(use, total.reshape(1, *shape), name)[0]
