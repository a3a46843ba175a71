"""Random networks as tensor programs: averages over their entries against the law at infinite width.

Four programs (MLP, convolutional, residual and recurrent network, two samples each) are run at growing width. What
the master theorem says is compared with what comes out: (1/n) Σ_i ψ(g_i) -> E ψ(Z), Z Gaussian with the covariances
of the recursion.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentkit.core.seeds import Key
from tangentkit.infinite import InfiniteKernel, Program, convolutional, feedforward, recurrent, residual
from tangentkit.infinite.programs.program import Vector
from tangentkit.studies.infinite_width.tensor_programs_result import report
from tangentkit.studies.trials.fields import check_rising
from tangentkit.studies.trials.per_seed import missing_trials
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial, sweep

WEIGHTS, BIASES = 1.8, 0.2
"""Variances of all layers."""
DEPTH = 3
"""Hidden layers, convolutions after the first, residual blocks, steps in time after the first."""
BRANCH = 0.7
"""Factor of a residual branch."""
FEATURES, POSITIONS = 6, 5
"""Numbers of a sample (of each position of a signal, of each time of a sequence); positions of a signal."""

PSI: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "variance": lambda a, b: a * a + 0 * b,
    "covariance": torch.mul,
    "bounded": lambda a, b: torch.cos(a) * torch.sigmoid(b),
    "growing": lambda a, b: torch.exp((a + b) / 4),
}
"""Functions whose averages over the entries of two vectors are compared with the law."""


@dataclass(frozen=True)
class Config:
    """Settings of the study of tensor programs."""

    widths: tuple[int, ...] = (64, 256, 1024, 4096, 8192)
    """Entries of a vector; the last one is where agreement is judged."""
    draws: int = 32
    """Runs of each program at each width, for each seed."""
    seeds: tuple[int, ...] = tuple(range(10))
    """Two samples, and runs of all programs on them, for each."""

    def __post_init__(self) -> None:
        check_rising("widths", self.widths)


SCALES = {
    "quick": Config(widths=(64, 256, 1024, 2048), draws=16, seeds=tuple(range(5))),
    "evening": Config(widths=(64, 256, 1024, 4096), draws=16),
    "full": Config(),
}


def trials(config: Config) -> list[Trial]:
    """Every program at every width, the kernels of those that are layers, and recurrences with and without ties."""
    over = {"network": NETWORKS, "width": config.widths, "seed": config.seeds}
    ties = {"weights": ("same", "fresh"), "seed": config.seeds}
    return [
        *sweep(deviate, over, draws=config.draws),
        *sweep(compare_kernels, {"layers": tuple(MODULES), "seed": config.seeds}),
        *sweep(tie, ties, tied_width=config.widths[-1], draws=config.draws),
    ]


def result(config: Config, records: Records) -> Result:
    """Rates, agreement and the role of shared matrices."""
    lost = missing_trials(records.having("kernel_gap"), config.seeds, layers=tuple(MODULES))
    return report(records, config.widths, NETWORKS, lost_kernels=lost)


def deviate(*, network: str, width: int, draws: int, seed: int) -> dict[str, Any]:
    """(1/n) Σ_i ψ(g_i) minus E ψ(Z) for every run and ψ, in units of the standard deviation of ψ(Z)."""
    program, vectors = build(network, seed)
    key = Key(seed).fold("tensor-programs", network, width)
    runs = (program.sample(width, key.fold(draw)) for draw in range(draws))
    averages = np.array([[float(run.average(psi, *vectors)) for psi in PSI.values()] for run in runs])
    mean, deviation = moments(network, seed)
    return {
        "deviations": ((averages - mean) / deviation).astype(np.float32),
        "limits": mean.tolist(),
        "averages": averages.mean(0).tolist(),
    }


@cache
def moments(network: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """E ψ(Z) and the standard deviation of ψ(Z) for every ψ, from the recursion."""
    program, vectors = build(network, seed)
    law = program.limit()

    def expectation(psi: Callable[[Tensor, Tensor], Tensor]) -> float:
        return float(law.expectation(psi, *vectors))

    mean = np.array([expectation(psi) for psi in PSI.values()])
    square = np.array([expectation(lambda a, b, psi=psi: psi(a, b) ** 2) for psi in PSI.values()])
    return mean, np.sqrt(square - mean**2)


def compare_kernels(*, layers: str, seed: int) -> dict[str, Any]:
    """The largest relative difference of the program's covariances from the NNGP kernel of the same module."""
    program, vectors = build(layers, seed)
    K = program.limit().matrix(*vectors)
    kernel = InfiniteKernel(MODULES[layers](), kind="nngp", w_std=WEIGHTS**0.5, b_std=BIASES**0.5)
    reference = kernel(_samples(layers, seed))
    return {"kernel_gap": float(((K - reference) / reference).abs().max())}


def tie(*, weights: str, tied_width: int, draws: int, seed: int) -> dict[str, Any]:
    """Cov(W φ(h_1), W' φ(h_2)) in a sample, over its value where W and W' are the same matrix."""
    key = Key(seed).fold("tensor-programs", "tie", weights)
    program, first, second = _two_products(same=True)
    expected = float(program.limit().covariance(first, second))
    program, first, second = _two_products(same=weights == "same")
    runs = (program.sample(tied_width, key.fold(draw)) for draw in range(draws))
    return {
        "share": float(np.mean([float(run.average(torch.mul, first, second)) for run in runs])) / expected
    }


def _two_products(*, same: bool) -> tuple[Program, Vector, Vector]:
    """A program of two correlated vectors, each times a matrix: the same one, or one of its own."""
    program = Program()
    h1, h2 = program.inputs([[1.0, 0.5], [0.5, 1.0]])
    W = program.matrix(WEIGHTS)
    other = W if same else program.matrix(WEIGHTS)
    return program, W @ program.apply(torch.erf, h1), other @ program.apply(torch.erf, h2)


def build(network: str, seed: int) -> tuple[Program, tuple[Vector, Vector]]:
    """A program and the vectors of its two samples."""
    program, x = Program(), _samples(network, seed)
    one, two = BUILDERS[network](program, x)
    return program, (one, two)


def _samples(network: str, seed: int) -> Tensor:
    """Two random samples: vectors (2, d), signals (2, d, positions) or sequences (2, d, times)."""
    inner = {"CNN": (POSITIONS,), "recurrent": (DEPTH + 1,)}.get(network, ())
    values = Key(seed).fold("tensor-programs", "samples", network).numpy().normal(size=(2, FEATURES, *inner))
    return torch.from_numpy(values)


def _mlp(program: Program, x: Tensor) -> tuple[Vector, ...]:
    return feedforward(
        program,
        x @ x.T / FEATURES,
        depth=DEPTH,
        activation=torch.relu,
        weight_variance=WEIGHTS,
        bias_variance=BIASES,
    )


def _cnn(program: Program, x: Tensor) -> list[Vector]:
    """Convolutions of reach 1, then the mean over positions."""
    patches = torch.cat([x.roll(-offset, 2) for offset in (-1, 0, 1)], 1).transpose(1, 2).flatten(0, 1)
    first = program.inputs(WEIGHTS * patches @ patches.T / patches.shape[1] + BIASES)
    samples = convolutional(
        program,
        [first[:POSITIONS], first[POSITIONS:]],
        depth=DEPTH - 1,
        reach=1,
        activation=torch.relu,
        weight_variance=WEIGHTS,
        bias_variance=BIASES,
    )
    return [(1 / POSITIONS) * sum(sample[1:], sample[0]) for sample in samples]


def _residual(program: Program, x: Tensor) -> tuple[Vector, ...]:
    first = program.inputs(WEIGHTS * x @ x.T / FEATURES + BIASES)
    return residual(
        program, first, blocks=DEPTH, activation=torch.tanh, weight_variance=WEIGHTS, branch=BRANCH
    )


def _recurrent(program: Program, x: Tensor) -> list[Vector]:
    times = x.transpose(1, 2).flatten(0, 1)
    u = program.inputs(times @ times.T / FEATURES)
    sequences = [u[: DEPTH + 1], u[DEPTH + 1 :]]
    states = recurrent(
        program, sequences, activation=torch.erf, weight_variance=WEIGHTS, bias_variance=BIASES
    )
    return [sequence[-1] for sequence in states]


BUILDERS: dict[str, Callable[[Program, Tensor], Any]] = {
    "MLP": _mlp,
    "CNN": _cnn,
    "residual": _residual,
    "recurrent": _recurrent,
}
NETWORKS = tuple(BUILDERS)


class _Residual(nn.Module):
    """The residual network as a module; its blocks have no biases."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(DEPTH))

    def forward(self, x: Tensor) -> Tensor:
        """The vector after the last block."""
        x = self.first(x)
        for block in self.blocks:
            x = x + BRANCH * block(torch.tanh(x))
        return x


def _mlp_module() -> nn.Module:
    hidden = [layer for _ in range(DEPTH) for layer in (nn.ReLU(), nn.Linear(8, 8))]
    return nn.Sequential(nn.Linear(FEATURES, 8), *hidden)


def _cnn_module() -> nn.Module:
    def convolution(channels: int) -> nn.Module:
        return nn.Conv1d(channels, 8, 3, padding=1, padding_mode="circular")

    hidden = [layer for _ in range(DEPTH - 1) for layer in (nn.ReLU(), convolution(8))]
    return nn.Sequential(convolution(FEATURES), *hidden, nn.AdaptiveAvgPool1d(1), nn.Flatten())


MODULES: dict[str, Callable[[], nn.Module]] = {"MLP": _mlp_module, "CNN": _cnn_module, "residual": _Residual}
"""The networks that are modules of layers, whose widths do not matter for their kernel at infinite width."""
