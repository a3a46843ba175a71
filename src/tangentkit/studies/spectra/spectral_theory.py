"""Theory of spectra in linear-width networks: rates of drift over n, decay of the loss, smallest eigenvalue, tails.

The network is f(x) = h^{-1/2} Σ_i v_i σ(w_i·x/√d), with n : h : d fixed while n grows. Its first layer is trained by
gradient descent at a rate that does not grow with n, as Lemma 4.1 and Theorem 4.2 have it. Beside them stand what the
publication says of heavy tails: AdaGrad makes them, and heavy-tailed weights make them without generalizing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import eval_hermitenorm, factorial, roots_hermitenorm
from torch import Tensor, nn

from tangentkit.analysis.spectra.comparison import compare_spectra
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.data import random_teacher
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linalg.spectra.tails import Hill
from tangentkit.linearized import Stop, Training, train
from tangentkit.models import normalized_tanh, two_layer
from tangentkit.studies.spectra.spectral_evolution import NOISE, evolve
from tangentkit.studies.spectra.spectral_theory_result import report
from tangentkit.studies.trials.fields import check_rising
from tangentkit.studies.trials.per_seed import missing_trials
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial, sweep

DEGREES = 3
"""Hermite coefficients of σ' that the bound on the smallest eigenvalue leaves out: those of degrees 0, 1 and 2."""


@dataclass(frozen=True)
class Config:
    """Settings of the theory of spectra."""

    samples: tuple[int, ...] = (250, 500, 1000, 2000)
    """n, for the rates; n : h : d is fixed."""
    width_share: float = 0.75
    """h/n."""
    input_share: float = 0.5
    """d/n."""
    draws: int = 3
    """Data sets and networks at each n, for each seed."""
    rate: float = 1.0
    """Learning rate of gradient descent on the first layer, the same at every n."""
    moment: int = 10
    """The first t at which the drift is taken."""
    steps: int = 50
    """Of gradient descent, for the decay of the loss, and the last t of the drift."""
    trained: int = 2000
    """n of the networks whose both layers are trained, for the tails."""
    adagrad_rates: tuple[float, ...] = (0.092, 0.3, 1.0)
    """Learning rates of AdaGrad; the publication gives none, the first is that of its Adam."""
    sgd_rate: float = 2.0
    """Of SGD from Gaussian and from Cauchy weights."""
    batch: int = 40
    """Samples of a step of SGD."""
    epochs: int = 2000
    """Most passes over the data; training ends before at a loss of 1e-5."""
    test: int = 2000
    """Fresh samples with clean labels."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One teacher, one data set and one network for each."""

    def __post_init__(self) -> None:
        check_rising("samples", self.samples)
        if self.draws > 1000:
            raise InputError("bad draws", expected="at most 1,000", got=self.draws)
        if min(self.size(min(*self.samples, self.trained)).values()) < 1:
            raise InputError(
                "bad width_share or input_share",
                expected="a hidden unit and an input, or more, at the least n",
                got=(self.width_share, self.input_share),
            )
        if not 1 <= self.moment <= self.steps or self.steps < 2:
            raise InputError(
                "bad moment or steps",
                expected="1 <= moment <= steps, steps >= 2",
                got=(self.moment, self.steps),
            )

    def size(self, n: int) -> dict[str, int]:
        """n, h and d."""
        return {"samples": n, "width": round(self.width_share * n), "inputs": round(self.input_share * n)}


SCALES = {
    "quick": Config(samples=(100, 200, 400, 800), trained=400),
    "evening": Config(samples=(100, 200, 400, 800, 1600), trained=600, seeds=tuple(range(8))),
    "full": Config(),
}


def trials(config: Config) -> list[Trial]:
    """Drift at every size, AdaGrad at every rate, and SGD from two kinds of weights."""
    seeds = {"seed": config.seeds}
    networks = {"draw": range(config.draws), **seeds}
    fixed = {"rate": config.rate, "moment": config.moment, "steps": config.steps}
    size = config.size(config.trained)
    same = {"epochs": config.epochs, "test": config.test, **size}
    return [
        *(trial for n in config.samples for trial in sweep(drift, networks, **config.size(n), **fixed)),
        *sweep(
            evolve,
            {"rate": config.adagrad_rates, **seeds},
            regime="AdaGrad",
            optimizer="adagrad",
            batch=0,
            directions=1,
            shown=False,
            **same,
        ),
        *sweep(
            descend,
            {"weights": ("Gaussian", "Cauchy"), **seeds},
            rate=config.sgd_rate,
            batch=config.batch,
            **same,
        ),
    ]


def result(config: Config, records: Records) -> Result:
    """Slopes over n, bounds, and tails."""
    sizes = [tuple(config.size(n).values()) for n in config.samples]
    lost = [
        missing_trials(records.having("distances"), config.seeds, samples=samples, draw=range(config.draws))
        for samples in (config.samples, config.samples[-1:])
    ]
    return report(
        records, sizes, bound=smallest_eigenvalue_bound(), moments=(config.moment, config.steps), lost=lost
    )


def drift(
    *, samples: int, width: int, inputs: int, rate: float, moment: int, steps: int, draw: int, seed: int
) -> dict[str, Any]:
    """How far the first layer and its kernels have moved at the moment, and how the residual falls.

    The distances are ‖W_t - W_0‖_F/√d, ‖CK_t - CK_0‖_F and ‖NTK_t - NTK_0‖ (spectral), at the moment and at the
    last step.
    """
    key = Key(seed).fold("spectral-theory", samples, draw)
    data = random_teacher(inputs, key=key.fold("teacher")).sample(samples, noise=NOISE, key=key.fold("train"))
    x, y = data.inputs, data.targets
    model = two_layer(inputs, width, seed=key.fold("network")).double()
    model.get_parameter("fc2.weight").requires_grad = False
    before = _first_layer(model, x)
    distances: dict[int, dict[str, float]] = {}

    def look(current: nn.Module, row: dict[str, float]) -> None:
        if row["epoch"] in (moment, steps):
            distances[int(row["epoch"])] = _distances(before, _first_layer(current, x), inputs)

    # Our loss is the mean of squares, twice the published one: half the rate takes the same steps.
    history = train(
        model, x, y[:, None], Training(steps, rate / 2, batch=None), key=key.fold("order"), watcher=look
    )
    residuals = np.sqrt(history["train loss"])
    smallest = float(torch.linalg.eigvalsh(before["NTK"])[0])
    return {
        "smallest": smallest,
        "distances": [distances[moment], distances[steps]],
        "decay": decay_over_guarantee(residuals, rate * smallest / samples),
        "residual": float(residuals[-1] / residuals[0]),
    }


def decay_over_guarantee(residuals: np.ndarray, contraction: float) -> float:
    """The least ratio, over steps t, of log(‖r_0‖/‖r_t‖) to what is guaranteed, -t log(1 - contraction/2).

    Args:
        residuals: ‖y - f_t‖ for t = 0, 1, ..., up to a factor.
        contraction: η α²/n, with α² the smallest eigenvalue of the initial NTK.

    Example:
        >>> round(decay_over_guarantee(0.9 ** np.arange(5), 0.1), 3)
        2.054
    """
    t = np.arange(1, len(residuals))
    return float(np.min(np.log(residuals[0] / residuals[1:]) / (-t * np.log1p(-contraction / 2))))


def smallest_eigenvalue_bound() -> float:
    """a_σ - Σ_{k=0}^{2} η_k²: E σ'(z)² without the parts of the normalized Hermite polynomials up to degree 2."""
    coefficients = hermite_coefficients(DEGREES)
    z, weights = roots_hermitenorm(200)
    slope = _slope(torch.from_numpy(z)).numpy()
    return float(weights @ slope**2 / weights.sum() - np.sum(coefficients**2))


def hermite_coefficients(degrees: int) -> np.ndarray:
    """η_k = E[σ'(z) He_k(z)] / √(k!) for z ~ N(0, 1), k below `degrees`, of the normalized tanh."""
    z, weights = roots_hermitenorm(200)
    slope = _slope(torch.from_numpy(z)).numpy()
    polynomials = [eval_hermitenorm(k, z) / np.sqrt(factorial(k)) for k in range(degrees)]
    return np.array([weights @ (slope * one) / weights.sum() for one in polynomials])


def _slope(z: Tensor) -> Tensor:
    """σ'(z)."""
    z = z.requires_grad_()
    (slope,) = torch.autograd.grad(normalized_tanh()(z).sum(), z)
    return slope


def _first_layer(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """W, the conjugate kernel, and the tangent kernel of the parameters that are trained."""
    return {
        "W": model.get_parameter("fc1.weight").detach().clone(),
        "CK": ConjugateKernel(model)(x),
        "NTK": TangentKernel(model)(x),
    }


def _distances(before: dict[str, Tensor], after: dict[str, Tensor], inputs: int) -> dict[str, float]:
    change = {name: after[name] - before[name] for name in before}
    return {
        "W": float(change["W"].norm()) / inputs**0.5,
        "CK": float(change["CK"].norm()),
        "NTK": float(torch.linalg.eigvalsh(change["NTK"]).abs().max()),
    }


def descend(
    *,
    weights: str,
    samples: int,
    width: int,
    inputs: int,
    rate: float,
    batch: int,
    epochs: int,
    test: int,
    seed: int,
) -> dict[str, Any]:
    """Trains both layers by SGD from Gaussian or from Cauchy weights W: tails of spectra before and after, error."""
    key = Key(seed).fold("spectral-theory", "tails", samples)
    teacher = random_teacher(inputs, key=key.fold("teacher"))
    data = teacher.sample(samples, noise=NOISE, key=key.fold("train"))
    fresh = teacher.sample(test, noise=0.0, key=key.fold("test"))
    x, y, z, clean = (tensor.float() for tensor in (data.inputs, data.targets, fresh.inputs, fresh.targets))
    model = two_layer(inputs, width, seed=key.fold("network"))
    gaussian = _spectra(model, x)
    if weights == "Cauchy":
        draws = key.fold("cauchy").numpy().standard_cauchy((width, inputs))
        with torch.no_grad():
            model.get_parameter("fc1.weight").copy_(torch.from_numpy(draws))
    initial = _spectra(model, x)
    settings = Training(epochs, rate / 2, batch=batch, stop=Stop(loss=2e-5))
    try:
        history = train(model, x, y[:, None], settings, key=key.fold("order"))
    except NumericalError:
        return {"weights_diverged": True}
    with torch.no_grad():
        error = float((model(z)[:, 0] - clean).square().mean())
    final = _spectra(model, x)
    return {
        "weights_diverged": False,
        "loss": history["train loss"][-1] / 2,
        "epochs_run": len(history.rows),
        "error": error,
        "r2": 1 - error / float(clean.var()),
        **{f"initial_hill_{name}": Hill().alpha(values) for name, values in initial.items()},
        **{f"final_hill_{name}": Hill().alpha(values) for name, values in final.items()},
        "beyond_gaussian_CK": compare_spectra(gaussian["CK"], initial["CK"]).beyond,
        "initial_CK": initial["CK"].astype(np.float32),
    }


def _spectra(model: nn.Module, x: Tensor) -> dict[str, np.ndarray]:
    """Eigenvalues of WᵀW/h and of the conjugate kernel beyond rounding, from the largest."""
    weight = model.get_parameter("fc1.weight").detach().double()
    kernel = ConjugateKernel(model)(x).double()
    found = {
        "W": torch.linalg.svdvals(weight).square() / len(weight),
        "CK": torch.linalg.eigvalsh(kernel).flip(0),
    }
    rank = min(len(weight), len(x))  # the kernel of h units has no more eigenvalues than that
    return {name: values[:rank].numpy() for name, values in found.items()}
