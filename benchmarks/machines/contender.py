"""One regression in a process of its own: `python -m benchmarks.machines.contender NAME WORKLOAD N M REPEATS`.

Prints one line of JSON: the best time of a fit, the peak resident memory of the process with its data, and the
error on test samples. scikit-learn's contenders import no torch, so that their memory is theirs.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.machines.workloads import GAMMA, RIDGE, TESTS, random_features, samples
from benchmarks.memory import peak_memory


def ours_landmarks(n: int, m: int) -> tuple[Callable[[], Any], Callable[[Any], np.ndarray], np.ndarray]:
    """tangentkit's Nyström machine with a kernel function of two batches."""
    import torch

    from tangentkit.machines import NystromRegression

    def rbf(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        squares = torch.addmm(x.square().sum(1, keepdim=True), x, y.T, alpha=-2)
        return squares.add_(y.square().sum(1)).clamp_(min=0).mul_(-GAMMA).exp_()

    x, y = samples(n + TESTS)
    train = torch.from_numpy(x[:n])
    # The landmarks that Nystroem draws with random_state=0, so that both solve the same problem.
    landmarks = np.random.RandomState(0).permutation(n)[:m]
    machine = NystromRegression(rbf, landmarks=landmarks, ridge=RIDGE, memory="1.7GB")
    return (
        lambda: machine.fit(train, torch.from_numpy(y[:n])),
        lambda fitted: fitted.predict(torch.from_numpy(x[n:])).numpy(),
        y[n:],
    )


def sklearn_landmarks(n: int, m: int) -> tuple[Callable[[], Any], Callable[[Any], np.ndarray], np.ndarray]:
    """scikit-learn's Nystroem, then Ridge."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    x, y = samples(n + TESTS)
    machine = make_pipeline(
        Nystroem("rbf", gamma=GAMMA, n_components=m, random_state=0), Ridge(alpha=RIDGE, fit_intercept=False)
    )
    return lambda: machine.fit(x[:n], y[:n]), lambda fitted: fitted.predict(x[n:]), y[n:]


def ours_features(n: int, m: int) -> tuple[Callable[[], Any], Callable[[Any], np.ndarray], np.ndarray]:
    """tangentkit's kernel regression on features that are there already."""
    import torch

    from tangentkit.machines import KernelRegression

    Phi, y = (torch.from_numpy(part) for part in random_features(n + TESTS, m))
    machine = KernelRegression("features", ridge=RIDGE)
    return lambda: machine.fit(Phi[:n], y[:n]), lambda fitted: fitted.predict(Phi[n:]).numpy(), y[n:].numpy()


def sklearn_features(n: int, m: int) -> tuple[Callable[[], Any], Callable[[Any], np.ndarray], np.ndarray]:
    """scikit-learn's Ridge on the same features."""
    from sklearn.linear_model import Ridge

    Phi, y = random_features(n + TESTS, m)
    machine = Ridge(alpha=RIDGE, fit_intercept=False)
    return lambda: machine.fit(Phi[:n], y[:n]), lambda fitted: fitted.predict(Phi[n:]), y[n:]


CONTENDERS = {
    ("ours", "landmarks"): ours_landmarks,
    ("scikit-learn", "landmarks"): sklearn_landmarks,
    ("ours", "features"): ours_features,
    ("scikit-learn", "features"): sklearn_features,
}


def main(name: str, workload: str, n: str, m: str, repeats: str) -> None:
    """Measures one contender."""
    fit, predict, expected = CONTENDERS[name, workload](int(n), int(m))
    seconds, fitted = [], None
    for _ in range(int(repeats)):
        start = time.perf_counter()
        fitted = fit()
        seconds.append(time.perf_counter() - start)
    peak = peak_memory()  # of the fit; predictions of so few samples add nothing
    error = float(np.sqrt(np.mean((predict(fitted) - expected) ** 2)))
    solver = getattr(fitted, "solver_", "")
    print(json.dumps({"seconds": min(seconds), "peak": peak, "error": error, "solver": solver}))


if __name__ == "__main__":
    main(*sys.argv[1:])
