"""Wide networks and their limit: the tangent kernel concentrates, training is kernel regression, rates have a bound.

All networks are those of Arora et al. (ReLU, no biases, weights N(0, 1)) on unit vectors, where the limit of the
tangent kernel is a function of the cosine.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentkit.core.errors import NumericalError
from tangentkit.core.seeds import Key
from tangentkit.empirical import TangentKernel
from tangentkit.infinite import boolean_cube_spectrum, mlp_kernel_function
from tangentkit.linearized import Stop, Training, train
from tangentkit.machines import KernelRegression, max_learning_rate
from tangentkit.models import arora_mlp
from tangentkit.models.layers import Scale
from tangentkit.report import Claim, Column, Dots, Figure, Lines, Measured, Series, StandIn, Table
from tangentkit.studies.trials.fields import check_rising
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial, sweep


@dataclass(frozen=True)
class Config:
    """Settings of the limits of width."""

    widths: tuple[int, ...] = (64, 256, 1024, 4096, 16384)
    """Of the networks whose kernel is compared with the limit."""
    depths: tuple[int, ...] = (1, 2, 3)
    """Hidden layers of these networks."""
    points: int = 4
    """Unit vectors in R^10 on whose pairs the kernels are compared."""
    draws: int = 10
    """Networks of each width, depth and seed."""
    trained_widths: tuple[int, ...] = (64, 512, 4096, 32768)
    """Of the trained networks, which have one hidden layer."""
    kappas: tuple[float, ...] = (1.0, 0.3, 0.1)
    """Factors of the output of the trained networks."""
    steps: int = 20000
    """Of gradient descent, at most; training ends at a mean square error of 1e-8."""
    rate_points: int = 200
    """Points of the cube {-1, 1}^32 on which the largest learning rate is looked for."""
    rate_width: int = 4096
    """Of the networks that are trained at several rates."""
    rates: tuple[float, ...] = (0.5, 0.7, 0.9, 1.1, 1.4, 2.0, 2.8, 4.0, 5.6)
    """Learning rates to try, in units of 1 / λ_max(K/n)."""
    seeds: tuple[int, ...] = tuple(range(10))
    """One draw of points and networks for each."""

    def __post_init__(self) -> None:
        check_rising("widths", self.widths)
        check_rising("trained_widths", self.trained_widths)
        check_rising("rates", self.rates, least=1)


SCALES = {
    "quick": Config(
        widths=(64, 256, 1024),
        draws=4,
        trained_widths=(64, 512, 4096),
        steps=4000,
        rate_points=100,
        rate_width=1024,
        seeds=tuple(range(5)),
    ),
    "evening": Config(
        widths=(64, 256, 1024, 4096),
        draws=4,
        trained_widths=(64, 512, 4096, 16384),
        steps=8_000,
        rate_width=2048,
        seeds=tuple(range(6)),
    ),
    "full": Config(),
}


def trials(config: Config) -> list[Trial]:
    """Kernels at random weights, trained networks, and learning rates."""
    over = {"depth": config.depths, "width": config.widths, "seed": config.seeds}
    trained = {"kappa": config.kappas, "trained_width": config.trained_widths, "seed": config.seeds}
    rates = {"points": config.rate_points, "width": config.rate_width, "rates": config.rates}
    return [
        *sweep(concentrate, over, points=config.points, draws=config.draws),
        *sweep(train_wide, trained, steps=config.steps),
        *sweep(learning_rates, {"seed": config.seeds}, **rates),
    ]


def limit(cosines: Tensor, depth: int) -> Tensor:
    """The tangent kernel at infinite width of unit vectors with these cosines; depth + 1 at cosine 1."""
    # The MLP has a factor √2 at its inputs too, which ReLU hands on to the output.
    return mlp_kernel_function(depth, "relu", weight_variance=2.0)(cosines) / 2


def concentrate(*, depth: int, width: int, points: int, draws: int, seed: int) -> dict[str, Any]:
    """The largest distance of the kernel of a random network from its limit over pairs of points, for each draw."""
    key = Key(seed).fold("width-concentration", "kernel")
    x = unit_vectors(points, 10, key.fold("points"))
    exact = limit(x @ x.T, depth)
    sizes = (10, *[width] * depth, 1)
    errors = [
        float((TangentKernel(network(sizes, key.fold(depth, width, draw)))(x) - exact).abs().max())
        for draw in range(draws)
    ]
    return {"error": float(np.mean(errors))}


def train_wide(*, kappa: float, trained_width: int, steps: int, seed: int) -> dict[str, Any]:
    """sup |κ f(x) - kernel regression| over 50 test points, for a network trained on 20 points to y = sin(3 x_1)."""
    key = Key(seed).fold("width-concentration", "training")
    x, z = (unit_vectors(n, 5, key.fold(name)) for name, n in (("points", 20), ("test", 50)))
    y = torch.sin(3 * x[:, 0])
    K = limit(x @ x.T, 1)
    expected = KernelRegression().fit(K, y).predict(limit(z @ x.T, 1))
    model = nn.Sequential(network((5, trained_width, 1), key.fold("weights", trained_width)), Scale(kappa))
    rate = max_learning_rate(kappa**2 * K, loss="sample_mean") / 2
    training = Training(steps, rate, batch=None, stop=Stop(loss=1e-8))
    history = train(model, x, y[:, None], training, key=key)
    with torch.no_grad():
        found = model(z)[:, 0]
    return {
        "distance": float((found - expected).abs().max()),
        "loss": history["train loss"][-1],
        "steps_taken": len(history.rows),
    }


def learning_rates(*, points: int, width: int, rates: tuple[float, ...], seed: int) -> dict[str, Any]:
    """The largest learning rates at which gradient descent converges on the loss (1/n) Σ (f - y)².

    In the kernel of infinite width by bisection, and of a network among the rates given; both in units of the bound
    1 / λ_max(K/n).
    """
    key = Key(seed).fold("width-concentration", "rates")
    x = torch.from_numpy(key.fold("points").numpy().choice([-1.0, 1.0], (points, 32))) / 32**0.5
    y = torch.from_numpy(key.fold("labels").numpy().choice([-1.0, 1.0], points))
    K = limit(x @ x.T, 1)
    bound = max_learning_rate(K, loss="sample_mean")
    mu = boolean_cube_spectrum(lambda t: limit(t, 1), 32, top=1)
    model = network((32, width, 1), key.fold("weights"))
    return {
        "kernel_rate": kernel_rate(K, y, bound) / bound,
        "eigenvalue_over_mu": 1 / (bound * float(mu[0])),
        "converged": [converges(model, x, y, rate * bound, key) for rate in rates],
    }


def kernel_rate(K: Tensor, y: Tensor, near: float, steps: int = 3000) -> float:
    """The rate above which f ← f - rate (2/n) K (f - y) leads away from y, by bisection between near/4 and 4 near."""
    low, high = near / 4, 4 * near
    while high - low > 1e-3 * near:
        rate = (low + high) / 2
        step = torch.eye(len(K), dtype=K.dtype) - rate * 2 / len(K) * K
        residual = torch.linalg.matrix_power(step, steps) @ y
        low, high = (rate, high) if residual.norm() < y.norm() else (low, rate)
    return (low + high) / 2


def converges(model: nn.Module, x: Tensor, y: Tensor, rate: float, key: Key) -> bool:
    """Whether 300 steps at this rate from the same weights end below the loss at their start."""
    try:
        history = train(deepcopy(model), x, y[:, None], Training(300, rate, batch=None), key=key)
    except NumericalError:
        return False
    return history["train loss"][-1] < history["train loss"][0]


def network(sizes: tuple[int, ...], key: Key) -> nn.Sequential:
    """The network of the trial, in float64."""
    return arora_mlp(sizes, seed=key).double()


def unit_vectors(n: int, d: int, key: Key) -> Tensor:
    """Uniform on the sphere, in float64."""
    x = torch.from_numpy(key.numpy().normal(size=(n, d)))
    return x / x.norm(dim=1, keepdim=True)


def result(config: Config, records: Records) -> Result:
    """Rates of concentration, distances from kernel regression, and learning rates."""
    kernels, trained, rates = (records.having(name) for name in ("error", "distance", "kernel_rate"))
    largest = [_largest(config, row) for row in rates]
    slopes = {depth: _slopes(kernels.where(depth=depth), "width", "error") for depth in config.depths}
    mean_slope = Measured.over([slope for each in slopes.values() for slope in each.values()])
    return Result(
        answer=(
            f"The distance of the tangent kernel from its limit falls like width^{mean_slope.value:.2f}. A trained "
            "network comes nearer to kernel regression as it grows wide and as its output is scaled down. In the "
            f"kernel the largest learning rate is {Measured.over(rates.column('kernel_rate')).value:.3f} of the "
            f"bound; networks of width {config.rate_width:,} learn up to {np.mean(largest or [np.nan]):.1f} times it."
        ),
        claims=_claims(config, kernels, trained, rates),
        tables={"distances": _distances(config, kernels), "training": _training(config, trained)},
        figures=_figures(config, kernels, trained, rates),
        stand_ins=(
            StandIn(
                "data", "unit vectors in general", "random unit vectors, random points of a cube", "theorems"
            ),
        ),
        terms={
            "κ": "factor of the output: the network is κ f(θ, x)",
            "L": "hidden layers",
            "λ_max(K/n)": "largest eigenvalue of the kernel matrix of n points, divided by n",
            "μ_0": "the same for all points of the cube: the mean of the kernel",
        },
        notes=(
            "The bound on the learning rate is 1 / λ_max(K/n) for the loss (1/n) Σ (f - y)², and twice that with a "
            "factor 1/2 in the loss. It is sharp in a fixed kernel. That networks learn above it is most likely the "
            "catapult of Lewkowycz et al. (2020), which reaches about twice the bound: their kernel shrinks in the "
            "first steps. We did not follow the kernel here. The theorem is about infinite width.",
            "One claim, that the largest rate of a network is within a factor of two of the bound, became two after "
            "a first trial run: learning below the bound, and none above it.",
        ),
    )


def _figures(config: Config, kernels: Records, trained: Records, rates: Records) -> dict[str, Figure]:
    largest = [_largest(config, row) for row in rates]
    return {
        "concentration": Lines(
            title="The tangent kernel concentrates",
            caption=(
                f"Largest distance over pairs of {config.points} unit vectors from the limit at infinite width, "
                "mean over seeds and draws with its standard error; L hidden layers."
            ),
            series={
                f"L = {depth}": Series(*kernels.where(depth=depth).curve("width", "error"))
                for depth in config.depths
            },
            x_label="width",
            y_label="largest distance",
            x_scale="log",
            y_scale="log",
            legend="beside",
        ),
        "training": Lines(
            title="Trained networks come near kernel regression",
            caption="Largest distance on 50 test points, mean over seeds with its standard error.",
            series={
                f"κ = {kappa:g}": Series(*trained.where(kappa=kappa).curve("trained_width", "distance"))
                for kappa in config.kappas
            },
            x_label="width",
            y_label="largest distance",
            x_scale="log",
            y_scale="log",
            legend="beside",
        ),
        "rates": Dots(
            title="Largest learning rates that converge",
            caption="In units of 1 / λ_max(K/n): kernel descent has a sharp threshold, a network may go beyond.",
            values={
                "kernel": rates.column("kernel_rate"),
                f"network, width {config.rate_width}": largest,
            },
            x_label="largest rate / bound",
            level=1.0,
        ),
    }


def _slopes(records: Records, x: str, y: str) -> dict[int, float]:
    """For each seed the slope of log y over log x, of the seeds that have at least two values of x."""
    return {
        seed: float(np.polyfit(np.log(rows.column(x)), np.log(rows.column(y)), 1)[0])
        for seed, rows in records.by("seed").items()
        if len(rows.by(x)) > 1
    }


def _largest(config: Config, row: Mapping[str, Any]) -> float:
    """The largest rate below which all converged."""
    fails = [rate for rate, good in zip(config.rates, row["converged"], strict=True) if not good]
    below = [rate for rate in config.rates if not fails or rate < fails[0]]
    return max(below, default=0.0)


def _ratios(records: Records, name: str, value: str, first: float, second: float) -> dict[int, float]:
    """For each seed log10 of the mean of a value at one setting over that at another."""
    ours, theirs = (
        {s: rows.mean(value) for s, rows in records.where(**{name: v}).by("seed").items()}
        for v in (first, second)
    )
    return {seed: float(np.log10(ours[seed] / theirs[seed])) for seed in ours if seed in theirs}


def _claims(config: Config, kernels: Records, trained: Records, rates: Records) -> tuple[Claim, ...]:
    slopes = tuple(_slopes(kernels, "width", "error").values())
    wide, small = max(config.trained_widths), min(config.kappas)
    deep, flat = max(config.depths), min(config.depths)
    return (
        Claim(
            "The kernel of a random network goes to its limit at least as fast as the theorem says",
            "slope of log distance over log width, all depths",
            slopes,
            high=-0.25,
            published="width^(-1/4) or faster",
        ),
        Claim(
            "It goes there like one over the square root of the width",
            "slope of log distance over log width, all depths",
            slopes,
            low=-0.65,
            high=-0.35,
            published="not stated; a mean over random weights does so",
        ),
        Claim(
            "Deeper networks are further from the limit",
            f"log10 of the distance with {deep} hidden layers over that with {flat}, mean over widths",
            tuple(_ratios(kernels, "depth", "error", deep, flat).values()),
            low=0,
            published="the bound grows with depth",
        ),
        Claim(
            "A trained network comes nearer to kernel regression as it grows wide",
            f"slope of log distance over log width at κ = {small:g}",
            tuple(_slopes(trained.where(kappa=small), "trained_width", "distance").values()),
            high=0,
            published="any distance is reached by width",
        ),
        Claim(
            "It comes nearer as its output is scaled down",
            f"log10 of the distance at κ = {max(config.kappas):g} over that at {small:g}, width {wide:,}",
            tuple(
                _ratios(
                    trained.where(trained_width=wide), "kappa", "distance", max(config.kappas), small
                ).values()
            ),
            low=0,
            published="any distance is reached by a small κ",
        ),
        *_rate_claims(config, rates),
    )


def _rate_claims(config: Config, rates: Records) -> tuple[Claim, ...]:
    largest = tuple(_largest(config, row) for row in rates)
    return (
        Claim(
            "Gradient descent in the kernel converges up to 1 / λ_max(K/n) and not beyond",
            "largest rate over the bound",
            tuple(rates.column("kernel_rate")),
            low=0.99,
            high=1.01,
            published="the inverse of the largest eigenvalue",
        ),
        Claim(
            "The largest eigenvalue of random points of the cube is the mean of the kernel",
            "λ_max(K/n) over μ_0",
            tuple(rates.column("eigenvalue_over_mu")),
            low=0.9,
            high=1.1,
            published="equal for all points of the cube",
        ),
        Claim(
            "A network learns at rates below the bound",
            "largest rate up to which all converged, over the bound",
            largest,
            low=0.8,
            published="converges below the inverse of the largest eigenvalue",
        ),
        Claim(
            "A network does not learn at rates above the bound",
            "largest rate up to which all converged, over the bound",
            largest,
            high=1.05,
            published="does not converge above it",
        ),
    )


def _distances(config: Config, kernels: Records) -> Table:
    return Table(
        "Largest distance of the tangent kernel from its limit",
        ("hidden layers", *(Column(f"width {width:,}", ".3f") for width in config.widths)),
        tuple(
            (
                str(depth),
                *(
                    Measured.over(kernels.where(depth=depth, width=width).column("error"))
                    for width in config.widths
                ),
            )
            for depth in config.depths
        ),
        note="Mean and standard error over seeds. The limit itself is L + 1 on the diagonal.",
        ours=tuple(range(len(config.depths))),
    )


def _training(config: Config, trained: Records) -> Table:
    return Table(
        "Largest distance of trained networks from kernel regression",
        ("κ", *(Column(f"width {width:,}", ".3f") for width in config.trained_widths)),
        tuple(
            (
                f"{kappa:g}",
                *(
                    Measured.over(trained.where(kappa=kappa, trained_width=width).column("distance"))
                    for width in config.trained_widths
                ),
            )
            for kappa in config.kappas
        ),
        note="Mean and standard error over seeds; targets are between -1 and 1.",
        ours=tuple(range(len(config.kappas))),
    )
