"""The kernels that the studies of surrogates compare, by their published names."""

from torch import nn

from tangentkit.compute.kernel import Kernel
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel
from tangentkit.models import Centered
from tangentkit.sketch import SketchedTangentKernel


def table_2_kernels(model: nn.Module, dim: int, seed: int) -> dict[str, Kernel]:
    """Name -> kernel of a trained network; `surrogate_report.KERNELS` says what each is.

    Args:
        model: the network, in evaluation mode.
        dim: features of the projected ones.
        seed: of the projections.
    """
    tangent = TangentKernel(model)
    # The frozen copy inside a centered network is no layer of it.
    own = _layers(model) if isinstance(model, Centered) else None
    last = [name for name in own if isinstance(model.get_submodule(name), nn.Linear)][-1] if own else None
    return {
        "trNTK": tangent.normalized(),
        "trNTK0": tangent,
        "proj-trNTK": SketchedTangentKernel(model, dim, seed=seed).normalized(),
        "proj-pNTK": SketchedTangentKernel(model, dim, "pseudo", seed=seed).normalized(),
        "Em": EmbeddingKernel(model, layers=own).normalized(),
        "CK": ConjugateKernel(model, layer=last).normalized(),
    }


def _layers(model: nn.Module) -> list[str]:
    """The modules without children of a centered network that pass on more than their input."""
    passive = (nn.Flatten, nn.Dropout, nn.Identity)
    return [
        name
        for name, part in model.named_modules()
        if name.startswith("model.") and not [*part.children()] and not isinstance(part, passive)
    ]
