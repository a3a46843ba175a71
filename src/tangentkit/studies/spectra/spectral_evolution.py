"""Spectra of a two-layer network in four regimes of training, against the lazy benchmark (Table 8, Figures 19 to 21).

f(x) = h^{-1/2} Σ_i v_i σ(w_i·x/√d) with h, d and n of one order, both layers trained on a noisy single-index teacher.
What training does to the spectra of W, of the conjugate kernel (CK) and of the tangent kernel (NTK) is measured
against the same network before training; the lazy benchmark is kernel regression with its initial NTK.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentkit.analysis.alignment.angles import principal_angles
from tangentkit.analysis.alignment.kernel_target import kernel_target_alignment
from tangentkit.analysis.spectra.bulk import initial_bulk, spikes
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.data import random_teacher
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linearized import Stop, Training, train
from tangentkit.models import two_layer
from tangentkit.studies.spectra.spectral_evolution_report import report
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial

NOISE = 0.3
MOMENTS = 12
"""Times during training at which kernel and labels are compared."""
DIRECTIONS = 5
"""Of the multi-index teacher."""


@dataclass(frozen=True)
class Config:
    """Settings of the study of spectral evolution."""

    samples: tuple[int, ...] = (400, 600)
    """n: training samples, at each size of the network; the first size is for spectra, the last for the ranking."""
    widths: tuple[int, ...] = (300, 200)
    """h, at each size."""
    inputs: tuple[int, ...] = (200, 60)
    """d, at each size."""
    batch: int = 40
    """Samples of a step of SGD."""
    gd_rate: float = 5.0
    """Learning rate of gradient descent."""
    small_rate: float = 2.0
    """Of SGD with small steps."""
    large_rates: tuple[float, ...] = (40.0, 30.0)
    """Of SGD with large steps, at each size."""
    adam_rate: float = 0.092
    """Of Adam, on all samples at once."""
    rates: tuple[float, ...] = (2.0, 10.0, 22.0, 30.0, 35.0, 40.0)
    """Learning rates of SGD at the first size, for the transition."""
    epochs: int = 2_000
    """Most passes over the data; training ends before at a loss of 1e-5."""
    test: int = 2_000
    """Fresh samples with clean labels."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One teacher, one data set and one network for each."""

    def __post_init__(self) -> None:
        lists = (self.widths, self.inputs, self.large_rates)
        if any(len(one) != len(self.samples) for one in lists):
            raise InputError("sizes do not match", expected=f"{len(self.samples)} values each", got=lists)


PUBLISHED: dict[str, Any] = {
    "samples": (2_000,),
    "widths": (1_500,),
    "inputs": (1_000,),
    "small_rate": 0.1,
    "large_rates": (22.0,),
    "batch": 64,
    "test": 5_000,
}
SCALES = {
    "quick": Config(),
    "evening": Config(samples=(600, 600), widths=(450, 200), inputs=(300, 60), epochs=4_000),
    "full": Config(**PUBLISHED, rates=(0.1, 1.0, 5.0, 10.0, 16.0, 22.0, 30.0), epochs=100_000),
}


def trials(config: Config) -> list[Trial]:
    """The regimes at every size, the sweep over learning rates, and the multi-index teacher."""
    found = []
    common = {"epochs": config.epochs, "test": config.test}
    for i, (n, h, d) in enumerate(zip(config.samples, config.widths, config.inputs, strict=True)):
        size = {"samples": n, "width": h, "inputs": d, **common}
        regimes = {
            "GD": ("sgd", config.gd_rate, 0),
            "SGD, small steps": ("sgd", config.small_rate, config.batch),
            "SGD, large steps": ("sgd", config.large_rates[i], config.batch),
            "Adam": ("adam", config.adam_rate, 0),
        }
        runs = [(name, *settings, 1) for name, settings in regimes.items()]
        if i == 0:
            runs += [("sweep", "sgd", rate, config.batch, 1) for rate in config.rates]
            runs += [
                (f"{DIRECTIONS} directions: {name}", *regimes[name], DIRECTIONS)
                for name in ("GD", "SGD, large steps", "Adam")
            ]
        found += [
            Trial(
                evolve,
                {
                    "regime": name,
                    "seed": seed,
                    "optimizer": optimizer,
                    "rate": rate,
                    "batch": batch,
                    "directions": directions,
                    "shown": seed == config.seeds[0] and name in regimes,
                    **size,
                },
            )
            for name, optimizer, rate, batch, directions in runs
            for seed in config.seeds
        ]
    return found


def result(config: Config, records: Records) -> Result:
    """Tables, figures and claims."""
    sizes = list(zip(config.samples, config.widths, config.inputs, strict=True))
    return report(records, sizes[0], sizes[-1])


def evolve(
    *,
    regime: str,  # noqa: ARG001
    seed: int,
    samples: int,
    width: int,
    inputs: int,
    optimizer: Any,
    rate: float,
    batch: int,
    directions: int,
    epochs: int,
    test: int,
    shown: bool,
) -> dict[str, Any]:
    """Trains the network in one regime and compares its spectra with those before; the regime is only a name."""
    key = Key(seed).fold("spectral-evolution", samples, width, inputs, directions)
    teacher = random_teacher(
        inputs, k=directions, tau=0.2 if directions == 1 else 0.0, key=key.fold("teacher")
    )
    data = teacher.sample(samples, noise=NOISE, key=key.fold("train"))
    fresh = teacher.sample(test, noise=0.0, key=key.fold("test"))
    x, y, z, clean = (tensor.float() for tensor in (data.inputs, data.targets, fresh.inputs, fresh.targets))
    initial = two_layer(inputs, width, seed=key.fold("network"))
    model = deepcopy(initial)
    curve: list[tuple[int, float]] = []
    # Our loss is the mean of squares, twice the published one: half the rate takes the same steps.
    settings = Training(
        epochs,
        rate / 2 if optimizer == "sgd" else rate,
        optimizer=optimizer,
        batch=batch or None,
        stop=Stop(loss=2e-5),
    )
    try:
        history = train(
            model, x, y[:, None], settings, key=key.fold("order"), watcher=_Alignments(x, y, epochs, curve)
        )
    except NumericalError:
        return {"diverged": True}
    before, after = _spectra(initial, x), _spectra(model, x)
    error = float((_outputs(model, z) - clean).square().mean())
    return {
        "diverged": False,
        "loss": history["train loss"][-1] / 2,
        "epochs_run": len(history.rows),
        "error": error,
        "r2": 1 - error / float(clean.var()),
        "lazy_error": _lazy_error(initial, x, y, z, clean),
        "variance": float(clean.var()),
        **_compared(before, after, teacher.directions.float(), y),
        "curve": curve,
        **({"spectra": _eigenvalues(before, after)} if shown else {}),
    }


class _Alignments:
    """Kernel-target alignment of the CK at a few epochs, spaced by logarithms."""

    def __init__(self, x: Tensor, y: Tensor, epochs: int, curve: list[tuple[int, float]]):
        self.x, self.y, self.curve = x, y, curve
        self.wanted = {0, *np.unique(np.geomspace(1, epochs, MOMENTS).astype(int)).tolist()}

    def __call__(self, model: nn.Module, row: dict[str, float]) -> None:
        if int(row["epoch"]) in self.wanted:
            kernel = ConjugateKernel(model)(self.x)
            self.curve.append((int(row["epoch"]), kernel_target_alignment(kernel, self.y)))


def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x)[:, 0]


def _spectra(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The three matrices whose spectra are followed, in float64."""
    weight = model.get_parameter("fc1.weight").detach().double()
    return {
        "W": weight.T @ weight / len(weight),
        "CK": ConjugateKernel(model)(x).double(),
        "NTK": TangentKernel(model)(x).double(),
    }


def _compared(
    before: dict[str, Tensor], after: dict[str, Tensor], directions: Tensor, y: Tensor
) -> dict[str, Any]:
    """Top eigenvalues, how many leave the initial bulk, and what the first eigenvector is aligned with."""
    found: dict[str, Any] = {}
    for name in after:
        target = directions[0].double() if name == "W" else y.double()
        spectra = {}
        for when, matrix in (("initial", before[name]), ("final", after[name])):
            values, vectors = torch.linalg.eigh(matrix)
            spectra[when] = values.numpy()[::-1].copy()
            found[f"{when}_top_{name}"] = float(values[-1])
            found[f"{when}_alignment_{name}"] = float((vectors[:, -1] @ target).abs() / target.norm())
        found[f"spikes_{name}"] = len(spikes(after[name], initial_bulk(spectra["initial"])))
        found[f"beyond_{name}"] = int((spectra["final"] > spectra["initial"][0]).sum())
    found["kta_initial"] = kernel_target_alignment(before["CK"], y)
    found["kta"] = kernel_target_alignment(after["CK"], y)
    top = max(len(directions), before["W"].shape[0] // 10)
    for when, matrix in (("initial", before["W"]), ("final", after["W"])):
        space = torch.linalg.eigh(matrix).eigenvectors[:, -top:]
        found[f"{when}_cosines"] = principal_angles(directions.T.double(), space).cos().tolist()
    return found


def _eigenvalues(before: dict[str, Tensor], after: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {
        f"{when} {name}": torch.linalg.eigvalsh(matrix).numpy().astype(np.float32)
        for when, matrices in (("initial", before), ("final", after))
        for name, matrix in matrices.items()
    }


def _lazy_error(model: nn.Module, x: Tensor, y: Tensor, z: Tensor, clean: Tensor) -> float:
    """Test error of f0(z) + k(z, X) K⁻¹ (y - f0(X)) with the initial NTK."""
    kernel = TangentKernel(model)
    weights = torch.linalg.solve(kernel(x).double(), (y - _outputs(model, x)).double())
    predicted = _outputs(model, z).double() + kernel(z, x).double() @ weights
    return float((predicted - clean).square().mean())
