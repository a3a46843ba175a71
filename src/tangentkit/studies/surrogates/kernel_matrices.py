"""The kernels that the studies of surrogates compare, by their published names, each computed once for all uses."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentkit.compute.kernel import Kernel
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel
from tangentkit.machines import KernelGLM
from tangentkit.models import Centered
from tangentkit.sketch import SketchedTangentKernel
from tangentkit.surrogate.surrogate import Surrogate


@dataclass(frozen=True, eq=False)
class Matrices:
    """A kernel between training samples, and between test and training samples."""

    kernel: Kernel
    train: Float[Tensor, "m m"]
    test: Float[Tensor, "n m"]
    seconds: float
    """Of one core, to compute both."""

    def surrogate(self, model: nn.Module, x: Tensor, labels: Tensor, ridge: float) -> Surrogate:
        """The surrogate of a network on this kernel, fitted to its training samples."""
        fresh = Surrogate(model, self.kernel, machine=KernelGLM(ridge=ridge))
        return fresh.fit(x, labels, gram=self.train, progress=False)


def kernel_matrices(
    model: nn.Module, train: Tensor, test: Tensor, dim: int, seed: int
) -> dict[str, Matrices]:
    """Name -> matrices of a trained network; `surrogate_report.KERNELS` says what each is.

    Args:
        model: the network, in evaluation mode.
        train: its training samples.
        test: other samples.
        dim: features of the projected kernels.
        seed: of the projections.
    """
    x, m = torch.cat([train, test]), len(train)
    tangent = TangentKernel(model)
    exact, seconds = _timed(lambda: tangent(x))
    found = {
        "trNTK": Matrices(tangent.normalized(), *_parts(_cosine(exact), m), seconds),
        "trNTK0": Matrices(tangent, *_parts(exact, m), seconds),
    }
    # The frozen copy inside a centered network is no layer of it.
    own = _layers(model) if isinstance(model, Centered) else None
    last = [name for name in own if isinstance(model.get_submodule(name), nn.Linear)][-1] if own else None
    others: dict[str, Kernel] = {
        "proj-trNTK": SketchedTangentKernel(model, dim, seed=seed),
        "proj-pNTK": SketchedTangentKernel(model, dim, "pseudo", seed=seed),
        "Em": EmbeddingKernel(model, layers=own),
        "CK": ConjugateKernel(model, layer=last),
    }
    for name, kernel in others.items():
        whole, seconds = _timed(lambda kernel=kernel: kernel(x))
        found[name] = Matrices(kernel.normalized(), *_parts(_cosine(whole), m), seconds)
    return found


def _timed(compute: Callable[[], Tensor]) -> tuple[Tensor, float]:
    start = time.process_time()
    found = compute().double()
    return found, time.process_time() - start


def _parts(whole: Tensor, m: int) -> tuple[Tensor, Tensor]:
    return whole[:m, :m], whole[m:, :m]


def _cosine(whole: Float[Tensor, "k k"]) -> Float[Tensor, "k k"]:
    """k(x, y) / √(k(x, x) k(y, y))."""
    norms = whole.diagonal().sqrt()
    return whole / norms[:, None] / norms


def _layers(model: nn.Module) -> list[str]:
    """The modules without children of a centered network that do more than pass on their input."""
    passive = (nn.Flatten, nn.Dropout, nn.Identity)
    return [
        name
        for name, part in model.named_modules()
        if name.startswith("model.") and not [*part.children()] and not isinstance(part, passive)
    ]
