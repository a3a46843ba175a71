"""Relative Frobenius error of Grams: `python -m benchmarks.sketch.accuracy MODEL DIM SEEDS` prints JSON."""

import json
import math
import sys
import time

import torch
from torch import Tensor

from benchmarks.sketch.workloads import trained
from tangentkit import TangentKernel
from tangentkit.core.seeds import Key
from tangentkit.sketch import SketchedTangentKernel

WAYS = {
    # name of the column: sketch, whether it is calibrated, whether it is asked for its error
    "count": ("count", False, False),
    "tensor": ("tensor", False, False),
    "auto": ("auto", False, True),
    "hybrid, calibrated": ("hybrid", True, False),
    "auto, calibrated": ("auto", True, True),
}


def gaussian_error(k: Tensor, dim: int, draws: int = 50) -> float:
    """Of the dense Gaussian sketch. Its Gram has the law of L Z Zᵀ Lᵀ / dim with K = L Lᵀ, so that is drawn."""
    values, vectors = torch.linalg.eigh(k)
    root = vectors * values.clamp_min(0).sqrt()
    squares = 0.0
    for i in range(draws):
        z = torch.randn(len(k), dim, generator=Key(i).fold("dense Gaussian").torch(), dtype=k.dtype)
        features = root @ z / dim**0.5
        squares += float((features @ features.T - k).square().sum() / k.square().sum()) / draws
    return squares**0.5


def true_error(kernel: SketchedTangentKernel, x: Tensor, k: Tensor) -> float:
    """‖φ(x) φ(x)ᵀ - K‖ / ‖K‖."""
    phi = kernel.features(x).double()
    return float((phi @ phi.T - k).norm() / k.norm())


def root_mean_square(values: Tensor) -> float:
    """Over seeds."""
    return float(values.square().mean().sqrt())


def row(kernel: SketchedTangentKernel, x: Tensor, k: Tensor, seeds: int, *, told: bool) -> dict[str, float]:
    """Errors over seeds, CPU seconds, and how well single seeds tell their own error."""
    start = time.process_time()
    plan = kernel.plan(x)
    made = time.process_time()
    kernel.features(x)
    found: dict[str, float] = {"setup": made - start, "features": time.process_time() - made}
    twins = [kernel.reseeded(seed) for seed in range(seeds)]
    true = torch.tensor([true_error(twin, x, k) for twin in twins])
    found |= {"error": root_mean_square(true), "exact": plan.coordinates[0]}
    if told:
        says = torch.tensor([float(twin.error(x)) for twin in twins])
        agree = (says / true).log().abs() <= math.log(1.5)
        found |= {"told": root_mean_square(says), "agree": float(agree.double().mean())}
    return found


def main(name: str, dim: str, seeds: str) -> None:
    """All methods on one model, at one dim."""
    torch.set_num_threads(1)
    model, calibration, x = trained(name)
    k = TangentKernel(model)(x).double()
    found = {"gaussian": {"error": gaussian_error(k, int(dim))}}
    for way, (sketch, calibrated, told) in WAYS.items():
        batch = calibration if calibrated else None
        kernel = SketchedTangentKernel(model, int(dim), sketch=sketch, calibration=batch)
        found[way] = row(kernel, x, k, int(seeds), told=told)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
