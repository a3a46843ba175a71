"""One piece of work in a process of its own: `python -m benchmarks.analysis.contender WORK NAME SIZE`.

Prints one line of JSON: seconds and processor seconds of the work, the peak resident memory of the process, and what
the work has found.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

import tangentkit as tk
from benchmarks.memory import peak_memory
from tangentkit.compute import Kernel

CLASSES, TESTS, DIM = 10, 1000, 4096
WORKING = "60MB"
"""What alignments may use beside samples and functions: a tenth of what the matrix of 10,000 samples takes."""
CHUNK = 100
"""Samples of which plain Jacobian rows are made together."""
Prepared = tuple[Callable[[], Any], Callable[[Any], dict]]
"""The work, and what is said of its result."""


def eigenvalues(name: str, size: int, dtype: torch.dtype) -> Prepared:
    """The top 50 of an RBF kernel matrix with a falling spectrum, or of a flat one (Marchenko-Pastur)."""
    contender, spectrum = name.split("-")
    if spectrum == "falling":
        x = torch.randn(size, 300, dtype=dtype) * torch.arange(1, 301, dtype=dtype) ** -0.7
        K = torch.exp(-torch.cdist(x, x).square() / 4)
        K = (K + K.T) / 2  # distances in float32 are not quite symmetric
    else:
        G = torch.randn(size, 2 * size, dtype=dtype)
        K = G @ G.T / (2 * size)

    def ours() -> tuple[Tensor, Tensor]:
        found = tk.spectrum(K, top=50)
        return found.values, found.vectors

    def full() -> tuple[Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(K)
        return values.flip(0)[:50], vectors.flip(1)[:, :50]

    def residual(found: tuple[Tensor, Tensor]) -> dict:
        values, vectors = found
        return {"residual": float((K @ vectors - vectors * values).norm(dim=0).max() / values[0])}

    return {"ours": ours, "eigh": full}[contender], residual


def alignment(name: str, size: int) -> Prepared:
    """Target alignment of size / 10 functions with the tangent kernel of a LeNet of one output.

    Ours, by the kernel matrix, and by the rows of the Jacobian as torch.func makes them. Each has seen a few samples
    before, so that what it imports is no memory of the work.
    """
    model = tk.models.lenet(outputs=1).eval()

    def ours(x: Tensor, f: Tensor) -> Tensor:
        return tk.target_alignment(model, x, f, memory=WORKING)

    def matrix(x: Tensor, f: Tensor) -> Tensor:
        K = tk.TangentKernel(model)(x)
        return ((K @ f) * f).sum(0) / len(x) ** 2

    def jacobian(x: Tensor, f: Tensor) -> Tensor:
        params = {name: p.detach() for name, p in model.named_parameters()}

        def output(params: dict[str, Tensor], one: Tensor) -> Tensor:
            return functional_call(model, params, (one[None],)).squeeze()

        rows = vmap(grad(output), in_dims=(None, 0), chunk_size=CHUNK)(params, x)
        parts = [(f.T @ part.flatten(1)).square().sum(1) for part in rows.values()]
        return torch.stack(parts).sum(0) / len(x) ** 2

    work = {"ours": ours, "matrix": matrix, "jacobian": jacobian}[name]
    work(torch.randn(8, 1, 28, 28), torch.randn(8, 2))
    x, functions = torch.randn(size, 1, 28, 28), torch.randn(size, size // 10)
    held = peak_memory()
    return lambda: work(x, functions), lambda found: {"grown": peak_memory() - held, "first": float(found[0])}


def tracker(name: str, size: int) -> Prepared:
    """An epoch of LeNet, or one measurement of the top 20 of the tangent kernel of 256 samples, after three."""
    x, y = torch.randn(size, 1, 28, 28), torch.randint(0, CLASSES, (size,))
    model = tk.models.lenet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def epoch() -> None:
        for rows in torch.randperm(size).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()

    epoch()
    follower = tk.Tracker(["ntk"], every=1, probe=(x[:256], y[:256]), top=20)
    for _ in range(3):
        follower.step(model)
    return {"training": epoch, "tracker": lambda: follower.step(model)}[name], lambda _: {}


class Given(Kernel):
    """A kernel whose features are the samples themselves."""

    def features(self, x: Tensor) -> Tensor:
        """The samples."""
        return x

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Their inner products."""
        return x @ (x if y is None else y).T

    def diag(self, x: Tensor) -> Tensor:
        """Their squared norms."""
        return x.square().sum(1)


def labeled_features(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features like gradients: of a falling spectrum, and different from class to class. Train, labels, test."""
    decay = torch.arange(1, DIM + 1) ** -0.7
    centers = 2 * decay * torch.randn(CLASSES, DIM)
    y = torch.arange(size + TESTS) % CLASSES
    x = F.normalize(decay * torch.randn(size + TESTS, DIM) + centers[y])
    return x[:size], y[:size], x[size:]


def attribution(name: str, size: int) -> Prepared:
    """From features that are there: a surrogate and its top 50; or the scores alone, ours and TRAK's."""
    train, y, test = labeled_features(size)
    surrogate = tk.Surrogate(nn.Linear(DIM, CLASSES), Given())
    if name == "fit":
        return lambda: surrogate.fit(train, y, progress=False).attribute(test).top(50), lambda _: {}
    if name == "ours":
        surrogate.fit(train, y, progress=False)
        return lambda: surrogate.attribute(test).of(0), lambda scores: {"scores": scores.numel()}
    # TRAK (Park et al. 2023, equation 13): φ(x)ᵀ (ΦᵀΦ)⁻¹ Φᵀ Q with Q = diag(1 - p); the inverse is made before.
    p = torch.rand(size)
    preconditioned = torch.linalg.solve(train.T @ train + 1e-4 * torch.eye(DIM), train.T).T.contiguous()
    return lambda: (test @ preconditioned.T) * (1 - p), lambda scores: {"scores": scores.numel()}


def overlap(name: str, size: int) -> Prepared:
    """How many of the top 10 of the exact tangent kernel a sketch of NAME features has, on clothes."""
    data = tk.data.load("fashion-mnist", "train", limit=size + 100)
    x, y = data.inputs.float(), data.targets
    model = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 64), nn.Tanh(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(model(x[:size]), y[:size]).backward()
        optimizer.step()

    def top(kernel: Kernel) -> Tensor:
        fitted = tk.Surrogate(model, kernel).fit(x[:size], y[:size], progress=False)
        return fitted.attribute(x[size : size + 100]).top(10).indices

    def share(found: Tensor) -> dict:
        same = (found[:, :, None] == top(tk.TangentKernel(model))[:, None]).any(2).float().mean(1)
        return {"overlap": float(same.mean()), "error": float(same.std() / len(same) ** 0.5)}

    return lambda: top(tk.SketchedTangentKernel(model, int(name))), share


WORKS: dict[str, Callable[[str, int], Prepared]] = {
    "eigenvalues-float32": lambda name, size: eigenvalues(name, size, torch.float32),
    "eigenvalues-float64": lambda name, size: eigenvalues(name, size, torch.float64),
    "alignment": alignment,
    "tracker": tracker,
    "attribution": attribution,
    "overlap": overlap,
}


def main(work: str, name: str, size: str) -> None:
    """Does one piece of work, and says what it took."""
    torch.manual_seed(0)
    do, told = WORKS[work](name, int(size))
    start, used = time.perf_counter(), time.process_time()
    found = do()
    took = {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - used,
        "peak": peak_memory(),
    }
    print(json.dumps(took | told(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
