"""Trust, then verify: structured contributions against plain autograd, the first time a model is seen.

Every parameter's part of the kernel of two samples, in one random output direction, is computed by its layer
rule within a batch of five and by plain autograd on each sample alone. A parameter that disagrees takes the
generic route from then on. The verdict is remembered for the structure of the model.
"""

import torch
from torch import Tensor

from tangentkit.core.batches import Batch, batch_size, describe, take
from tangentkit.core.functions import ModelFunction
from tangentkit.core.seeds import Key
from tangentkit.empirical.contraction import Side, lookup_gradients, matrix_gradients
from tangentkit.empirical.generic import loop_gradients, vmap_gradients
from tangentkit.empirical.recording import AnotherGraphError, Layer, Structure, record
from tangentkit.empirical.rules import RULES

BATCH = 5
"""Another size than the passes that the structure was learned from."""
CHECKED = (1, 4)
"""Samples of that batch that are compared: not the first, where a wrong order of samples would not show."""
TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-3}
ROUGH = 5e-2

_verdicts: dict[object, tuple[tuple[str, ...], bool]] = {}
"""What is known of model structures in this process: (parameters that disagree, whether vmap is right)."""


def verified(function: ModelFunction, batch: Batch, structure: Structure) -> Structure:
    """The structure, with parameters whose rule disagrees with autograd moved to the generic route."""
    shapes = tuple((name, tuple(p.shape)) for name, p in function.params.items())
    key = (structure.signature, shapes, function.dtype, describe(batch), tuple(RULES.items()))
    if key not in _verdicts:
        _verdicts[key] = _verify(function, batch, structure)
    wrong, vmap_is_right = _verdicts[key]
    structure = structure.without(wrong, "its rule disagrees with autograd") if wrong else structure
    return structure if vmap_is_right else structure.looped()


def _verify(function: ModelFunction, batch: Batch, structure: Structure) -> tuple[tuple[str, ...], bool]:
    trial = take(batch, torch.arange(BATCH) % batch_size(batch))
    checked = take(trial, list(CHECKED))
    outputs = function(function.params, checked)
    generator = Key(0).fold("verification").torch()
    direction = torch.randn(1, outputs.shape[1], generator=generator).to(outputs)
    names = [name for layer in structure.layers for name in layer.names]
    truth = {
        name: _gram(f)
        for name, f in _loop(function, [*names, *structure.generic], checked, direction).items()
    }
    scale = (
        torch.stack([k.diagonal().max() for k in truth.values()]).sum() if truth else outputs.new_zeros(())
    )
    wrong = []
    try:
        recording = record(function, trial, structure)
        side = Side(recording, [recording.backward(direction[0])] if structure.layers else [{}], {})
    except AnotherGraphError:
        return tuple(names), _vmap_agrees(
            function, [*names, *structure.generic], checked, direction, truth, scale
        )
    for layer in structure.layers:
        for name, gradients in _structured(side, layer).items():
            if not _agree(_gram(gradients[list(CHECKED)]), truth[name], scale):
                wrong.append(name)
    generic = [*wrong, *structure.generic]
    return tuple(wrong), _vmap_agrees(function, generic, checked, direction, truth, scale)


def _loop(function: ModelFunction, names: list[str], batch: Batch, direction: Tensor) -> dict[str, Tensor]:
    return loop_gradients(function, names, batch, direction) if names else {}


def _structured(side: Side, layer: Layer) -> dict[str, Tensor]:
    """Gradients (n, 1, p), up to an order of the entries, as the layer's rule has them."""
    try:
        if layer.kind == "matrix":
            g = side.outgoing(layer)[:]
            found = {layer.weight: matrix_gradients(side, layer, g, slice(0, side.n)).flatten(2)}
        elif layer.kind == "lookup":
            rows = side.recording.parameters[layer.weight].shape[0]
            found = {
                layer.weight: lookup_gradients(side.indices(layer), side.outgoing(layer)[:], rows).flatten(2)
            }
        elif layer.kind == "vector":
            found = {layer.weight: side.vectors(layer.uses)}
        else:
            found = {layer.weight: side.assembled(layer)}
        if layer.bias is not None:
            found[layer.bias] = side.outgoing(layer)[:].sum(3).transpose(1, 2).flatten(2)
        return found
    except Exception:
        # A rule that raises is a wrong rule; autograd has already shown that the model is sound.
        return {name: side.recording.outputs.new_full((side.n, 1, 1), torch.nan) for name in layer.names}


def _gram(gradients: Tensor) -> Tensor:
    flat = gradients.flatten(1)
    return flat @ flat.T


def _agree(found: Tensor, truth: Tensor, scale: Tensor) -> bool:
    tolerance = TOLERANCE.get(truth.dtype, ROUGH)
    size = (truth.diagonal()[:, None] * truth.diagonal()[None, :]).sqrt()
    # Contributions far below the kernel's own rounding need not agree in every digit.
    return bool(((found - truth).abs() <= tolerance * size + tolerance**2 * scale).all())


def _vmap_agrees(
    function: ModelFunction,
    names: list[str],
    batch: Batch,
    direction: Tensor,
    truth: dict[str, Tensor],
    scale: Tensor,
) -> bool:
    if not names:
        return True
    try:
        found = vmap_gradients(function, names, batch, direction)
    except Exception:
        return False
    return all(_agree(_gram(found[name]), truth[name], scale) for name in names)
