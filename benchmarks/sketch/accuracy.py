"""Relative Frobenius error of Gram matrices: `python -m benchmarks.sketch.accuracy MODEL DIM SEEDS` prints JSON."""

import json
import sys
import time

import torch

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


def main(name: str, dim: str, seeds: str) -> None:
    """All methods on one model."""
    torch.set_num_threads(1)
    model, calibration, x = trained(name)
    k = TangentKernel(model)(x).double()
    found: dict[str, dict[str, float]] = {"gaussian": {"error": gaussian_error(k, int(dim))}}
    for way, (sketch, calibrated) in WAYS.items():
        kernel = SketchedTangentKernel(
            model, int(dim), sketch=sketch, calibration=calibration if calibrated else None
        )
        start = time.process_time()
        kernel.plan(x)
        made = time.process_time()
        kernel.features(x)
        done = time.process_time()
        errors, told = [], []
        for seed in range(int(seeds)):
            gram, entries = kernel.reseeded(seed).with_error(x)
            errors.append(float((gram.double() - k).norm() / k.norm()))
            told.append(float(entries.double().norm() / k.norm()))
        found[way] = {
            "error": sum(e * e for e in errors) ** 0.5 / len(errors) ** 0.5,
            "told": sum(e * e for e in told) ** 0.5 / len(told) ** 0.5,
            "setup": made - start,
            "features": done - made,
            "exact": kernel.plan(x).coordinates[0],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
