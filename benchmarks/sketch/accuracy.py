"""Relative Frobenius error of Grams: `python -m benchmarks.sketch.accuracy MODEL SEEDS DIM...` prints JSON."""

import json
import math
import sys
import time

import torch
from torch import nn

from benchmarks.sketch.workloads import trained
from tangentkit import TangentKernel
from tangentkit.core.seeds import Key
from tangentkit.sketch import SketchedTangentKernel

WAYS = {
    "count": ("count", False),
    "tensor": ("tensor", False),
    "auto": ("auto", False),
    "hybrid, calibrated": ("hybrid", True),
    "auto, calibrated": ("auto", True),
}


def gaussian_error(k: torch.Tensor, dim: int, draws: int = 50) -> float:
    """Of the dense Gaussian sketch. Its Gram has the law of L Z Zᵀ Lᵀ / dim with K = L Lᵀ, so that is drawn."""
    values, vectors = torch.linalg.eigh(k)
    root = vectors * values.clamp_min(0).sqrt()
    squares = 0.0
    for i in range(draws):
        z = torch.randn(len(k), dim, generator=Key(i).fold("dense Gaussian").torch(), dtype=k.dtype)
        features = root @ z / dim**0.5
        squares += float((features @ features.T - k).square().sum() / k.square().sum()) / draws
    return squares**0.5


@torch.no_grad()
def errors(kernel: SketchedTangentKernel, x: torch.Tensor, k: torch.Tensor, seeds: int) -> dict[str, float]:
    """True and told errors over seeds, root mean squares, and how often single seeds agree within 1.5."""
    pairs = []
    for seed in range(seeds):
        found = kernel.reseeded(seed)._sketched(x, with_norms=True)
        phi = found.features(torch.float64)
        pairs.append((float((phi @ phi.T - k).norm() / k.norm()), float(found.error())))
    true, told = torch.tensor(pairs, dtype=torch.float64).T
    return {
        "error": float(true.square().mean().sqrt()),
        "told": float(told.square().mean().sqrt()),
        "agree": float(((told / true).log().abs() <= math.log(1.5)).double().mean()),
    }


def table(model: nn.Module, calibration: torch.Tensor, x: torch.Tensor, dim: int, seeds: int) -> dict:
    """All methods at one dim."""
    k = TangentKernel(model)(x).double()
    found: dict[str, dict[str, float]] = {"gaussian": {"error": gaussian_error(k, dim)}}
    for way, (sketch, calibrated) in WAYS.items():
        batch = calibration if calibrated else None
        kernel = SketchedTangentKernel(model, dim, sketch=sketch, calibration=batch)
        start = time.process_time()
        plan = kernel.plan(x)
        made = time.process_time()
        kernel.features(x)
        cost = {"setup": made - start, "features": time.process_time() - made}
        found[way] = errors(kernel, x, k, seeds) | cost | {"exact": plan.coordinates[0]}
    return found


def main(name: str, seeds: str, *dims: str) -> None:
    """All methods and dims on one model."""
    torch.set_num_threads(1)
    model, calibration, x = trained(name)
    print(json.dumps({dim: table(model, calibration, x, int(dim), int(seeds)) for dim in dims}))


if __name__ == "__main__":
    main(*sys.argv[1:])
