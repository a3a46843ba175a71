"""Both contenders in turns in one process: `python -m benchmarks.classifiers.contest WORKLOAD N ROUNDS`.

Prints one line of JSON: medians of the times of a fit, and how far each ended from the optimum.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import nn

from benchmarks.memory import peak_memory
from tangentkit.empirical import TangentKernel
from tangentkit.machines import KernelGLM, KernelLogistic

CLASSES, INPUTS, WIDTH = 10, 64, 32
RIDGE_FEATURES, RIDGE_KERNEL = 1e-2, 1e-4
TOL = {"on_features": 1e-7, "on_kernel": 1e-6}
"""Of LogisticRegression: where its gap is of the order of 1e-6 or less."""


def samples(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of a few directions, as images have, and labels that a teacher gives with noise."""
    draw = torch.Generator().manual_seed(0)
    spread = torch.linspace(0, -2, INPUTS).exp()
    x = torch.randn(n, INPUTS, generator=draw) * spread
    hidden, head = torch.randn(INPUTS, 64, generator=draw), torch.randn(64, CLASSES, generator=draw)
    scores = (x @ hidden / INPUTS**0.5).relu() @ head + 0.5 * torch.randn(n, CLASSES, generator=draw)
    return x, (scores - scores.mean(0)).argmax(1)  # every class has its share


def network() -> nn.Sequential:
    """The MLP whose kernel and features are used, at its initialization."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(INPUTS, 128), nn.ReLU(), nn.Linear(128, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)
    )


def on_features(n: int, rounds: int) -> dict:
    """KernelLogistic on the features before the head, with a one."""
    x, y = samples(n)
    with torch.no_grad():
        h = network()[:4](x).double()
    Phi, labels = torch.cat([h, h.new_ones(n, 1)], 1).numpy(), y.numpy()
    theirs = LogisticRegression(
        C=1 / RIDGE_FEATURES, fit_intercept=False, tol=TOL["on_features"], max_iter=20_000
    )
    ours = KernelLogistic("features", ridge=RIDGE_FEATURES)
    fits = {
        "ours": lambda: _answer(ours.fit(Phi, labels).coef_, None, ours.n_iter_),
        "scikit-learn": lambda: _answer(
            np.asarray(theirs.fit(Phi, labels).coef_).T, None, int(np.max(theirs.n_iter_))
        ),
    }
    return _in_turns(fits, torch.from_numpy(Phi), y, RIDGE_FEATURES / n, rounds)


def on_kernel(n: int, rounds: int) -> dict:
    """KernelGLM on a tangent kernel, at its default tolerance: a relative gradient of 1e-6."""
    x, y = samples(n)
    K = TangentKernel(network())(x).double()
    K = (K + K.T) / 2
    K /= K.diagonal().mean()
    rows, labels = K.numpy(), y.numpy()
    theirs = LogisticRegression(C=1 / (n * RIDGE_KERNEL), tol=TOL["on_kernel"], max_iter=20_000)
    ours = KernelGLM(ridge=RIDGE_KERNEL, scaling=None)
    fits = {
        "ours": lambda: _answer(ours.fit(rows, labels).dual_coef_, ours.intercept_, ours.n_iter_),
        "scikit-learn": lambda: _answer(
            np.asarray(theirs.fit(rows, labels).coef_).T, theirs.intercept_, int(np.max(theirs.n_iter_))
        ),
    }
    return _in_turns(fits, K, y, RIDGE_KERNEL, rounds)


def memory(n: int, rounds: int) -> dict:  # noqa: ARG001
    """KernelGLM on a large matrix: what the process grows by beside it."""
    x, y = samples(n)
    K = torch.empty(n, n, dtype=torch.float64)
    h = torch.cat([x, torch.ones(n, 1)], 1).double()
    for start in range(0, n, 500):  # an RBF kernel, in pieces that leave no peak
        K[start : start + 500] = torch.exp(-torch.cdist(h[start : start + 500], h).square() / INPUTS)
    before = peak_memory()
    machine = KernelGLM(ridge=RIDGE_KERNEL, memory="2GB")
    start = time.perf_counter()
    machine.fit(K, y)
    seconds, beside = time.perf_counter() - start, peak_memory() - before
    _, gradient = _objective(K / machine.scale_, y, _tensors(machine), RIDGE_KERNEL)
    return {
        "matrix": K.numel() * 8,
        "beside": beside,
        "seconds": seconds,
        "converged": bool(machine.converged_),
        "gradient": gradient,
    }


def _tensors(machine: KernelGLM) -> dict:
    return {"A": machine.dual_coef_ * machine.scale_, "b": machine.intercept_}


def _answer(A: Any, b: Any, steps: int) -> dict:
    return {
        "A": torch.as_tensor(np.asarray(A)),
        "b": None if b is None else torch.as_tensor(np.asarray(b)),
        "steps": steps,
    }


def _in_turns(
    fits: dict[str, Callable[[], dict]], X: torch.Tensor, y: torch.Tensor, ridge: float, rounds: int
) -> dict:
    seconds: dict[str, list[float]] = {name: [] for name in fits}
    answers: dict[str, dict] = {}
    for _ in range(rounds):
        for name, fit in fits.items():
            start = time.perf_counter()
            answers[name] = fit()
            seconds[name].append(time.perf_counter() - start)
    judged = {name: _objective(X, y, answer, ridge) for name, answer in answers.items()}
    lowest = min(value for value, _ in judged.values())
    return {
        name: {
            "seconds": median(seconds[name]),
            "all": seconds[name],
            "steps": answers[name]["steps"],
            "gap": (value - lowest) / lowest,
            "gradient": gradient,
        }
        for name, (value, gradient) in judged.items()
    }


def _objective(X: torch.Tensor, y: torch.Tensor, answer: dict, ridge: float) -> tuple[float, float]:
    """Mean cross-entropy + ridge/2 ‖A‖², and the norm of its gradient relative to that at zero."""
    norms, value = [], 0.0
    for start in (0.0, 1.0):
        A = (start * answer["A"]).requires_grad_()
        b = torch.zeros(CLASSES, dtype=A.dtype) if answer["b"] is None else start * answer["b"]
        b = b.requires_grad_(answer["b"] is not None)
        loss = nn.functional.cross_entropy(X @ A + b, y) + ridge / 2 * A.square().sum()
        gradients = torch.autograd.grad(loss, [A, b] if b.requires_grad else [A])
        norms.append(float(torch.cat([part.flatten() for part in gradients]).norm()))
        value = float(loss.detach())
    return value, norms[1] / norms[0]


def main(workload: str, n: str, rounds: str) -> None:
    """Measures one workload."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    work = {"on_features": on_features, "on_kernel": on_kernel, "memory": memory}[workload]
    print(json.dumps(work(int(n), int(rounds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
