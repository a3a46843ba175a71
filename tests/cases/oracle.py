"""The kernel of a case, what `reference` says of it, and how far from it a result may be."""

import math
import warnings
from functools import cache

import torch
from torch import Tensor

from cases.catalog import CASES
from tangentkit import reference
from tangentkit.empirical import TangentKernel
from tangentkit.empirical.outputs import as_outputs
from tangentkit.empirical.trust.profiles import Profiles


@cache
def jacobians(name: str) -> tuple[Tensor, Tensor]:
    """The oracle (n, c, p) and (m, c, p) of a case, in float64; slow, so it is made once."""
    case = CASES[name]
    model, (x, y) = case.model(), case.batches()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(reference.jacobian(model, batch, **case.keywords) for batch in (x, y))  # pyright: ignore


def along(kernel: TangentKernel, outputs: str | int | Tensor) -> TangentKernel:
    """The kernel of other outputs of the same snapshot, with all that has been learned of it.

    Kernels of one model differ in their directions alone. To learn what a model is takes longer than many small
    matrices: once is enough.
    """
    return _twin(kernel, outputs=as_outputs(outputs))


def probed(kernel: TangentKernel, probes: int, seed: int) -> TangentKernel:
    """The kernel of the same snapshot by random signs, with all that has been learned of it."""
    return _twin(kernel, probes=probes, seed=seed)


def unlearned(kernel: TangentKernel) -> TangentKernel:
    """The kernel of the same snapshot, as it was before it saw a batch."""
    return _twin(kernel, _profiles=Profiles(kernel.function))


def _twin(kernel: TangentKernel, **changed: object) -> TangentKernel:
    other = object.__new__(TangentKernel)
    vars(other).update(vars(kernel), **changed)
    return other


def kernel_of(
    name: str, outputs: str | int | Tensor = "trace", dtype: torch.dtype = torch.float64
) -> TangentKernel:
    """The tangent kernel of a case; all laws share what has been learned of the model."""
    return along(_learned(name, dtype), outputs)


@cache
def _learned(name: str, dtype: torch.dtype) -> TangentKernel:
    return CASES[name].kernel(dtype=dtype)


def expected(name: str, outputs: str | int | Tensor, *, symmetric: bool) -> Tensor:
    """What `reference` says the kernel of a case is."""
    jx, jy = jacobians(name)
    return kernel_of_jacobians(jx, jx if symmetric else jy, outputs)


def kernel_of_jacobians(jx: Tensor, jy: Tensor, outputs: str | int | Tensor) -> Tensor:
    """The kernel that a choice of outputs means."""
    if isinstance(outputs, Tensor):
        return reference.vector_kernel(jx, jy, outputs.to(jx))
    if isinstance(outputs, int):
        return reference.vector_kernel(jx, jy, torch.eye(jx.shape[1], dtype=jx.dtype)[outputs])
    kinds = {
        "trace": reference.trace_kernel,
        "full": reference.full_kernel,
        "pseudo": reference.pseudo_kernel,
    }
    return kinds[outputs](jx, jy)


TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
"""Of a kernel, relative to its largest entry."""


def gap(found: Tensor, truth: Tensor) -> float:
    """The largest error relative to the largest entry; infinite where shapes differ or numbers are not finite."""
    if found.shape != truth.shape or not found.isfinite().all():
        return math.inf
    scale = truth.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
    return float((found.to(truth) - truth).abs().max() / scale)
