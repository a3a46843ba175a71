"""What a tracker can measure: a registry of functions of a moment, to which users add their own.

=============  =========================================================================================
measure        what it gives
=============  =========================================================================================
"loss"         loss and, for classes, error of the probe; the same of the test set
"ntk", "ck"    top eigenvalues, trace, effective rank, participation ratio, spikes beyond the start's bulk
"weights"      of every matrix: top singular values, stable rank, spikes
"kta"          kernel-target alignment of both kernels, plain and centered
"alignment"    target alignment, and how much of the targets lies in the first and the top eigenvectors
"distance"     of both kernels: distance to the start 1 - cos(K, K₀), and velocity
"lazy"         relative change of the weights and of the tangent kernel since the start
=============  =========================================================================================
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentkit.analysis.alignment.kernel_target import kernel_target_alignment
from tangentkit.analysis.half_precision import float32_batch
from tangentkit.analysis.spectra.bulk import initial_bulk
from tangentkit.analysis.spectra.tails import rounding, squared_singular_values
from tangentkit.analysis.spectra.weights import weight_bulk
from tangentkit.analysis.tracking.moment import Moment, device_of
from tangentkit.core.batches import move
from tangentkit.core.errors import InputError
from tangentkit.core.model.calls import read_outputs
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.spectra.spectrum import effective_rank
from tangentkit.linearized.losses import LOSSES, Loss

Value = float | list[float]
Measure = Callable[[Moment], float | Mapping[str, Any]]
"""A function of a moment that gives one number, or numbers and lists of numbers by name."""

MEASURES: dict[str, Measure] = {}
"""Name -> measure."""
LOSS_NAMES = ("loss", "error", "test loss", "test error")
"""What the measure "loss" gives."""
FEWEST = 4
"""Values of a spectrum that an edge can be read from."""
ZERO = 1e-6
"""A share below which what centering leaves is rounding."""


def measure(name: str) -> Callable[[Measure], Measure]:
    """Adds a measure under a name, for `tk.Tracker(what=[name])`.

    Example:
        >>> @measure("largest weight")
        ... def largest_weight(moment):
        ...     return max(float(w.abs().max()) for w in moment.weights.values())
        >>> MEASURES.pop("largest weight") is largest_weight
        True
    """

    def add(function: Measure) -> Measure:
        MEASURES[name] = function
        return function

    return add


@measure("loss")
def loss(moment: Moment) -> dict[str, float]:
    """Loss, and for classes the share of wrong answers, on the probe and on the test set."""
    probe, model = moment.probe, moment.model
    if probe.y is None and probe.test is None:
        raise InputError("no targets for a loss", expected="probe=(x, y), or test=(x, y)", got="x alone")
    found: dict[str, float] = {}
    if probe.y is not None:
        kind = loss_of(moment.outputs, probe.y)
        value, error = _loss_and_error(kind, moment.outputs, probe.y.to(moment.outputs.device))
        found |= _named("", float(value), float(error), probe.are_classes)
    if probe.test is not None and model is not None:
        total, wrong, classes = 0.0, 0.0, True
        for x, y in probe.test:
            x, y = move((float32_batch(x), y), device_of(model))
            with torch.no_grad():
                outputs = read_outputs(probe.forward(model, x))
            value, error = _loss_and_error(loss_of(outputs, y), outputs, y)
            total, wrong = total + float(value) * len(y), wrong + float(error) * len(y)
            classes = not y.is_floating_point()
        n = len(probe.test)
        found |= _named("test ", total / n, wrong / n, classes)
    return found


def loss_of(outputs: Tensor, y: Tensor) -> Loss:
    """The loss that targets ask for: cross-entropy of classes, or of one logit; squared error of numbers.

    Raises:
        InputError: of one logit, classes are others than 0 and 1.
    """
    if y.is_floating_point():
        return LOSSES["l2-mean"]
    if outputs.ndim > 1 and outputs.shape[1] > 1:
        return LOSSES["cross-entropy"]
    check_two_classes(y)
    return LOSSES["bce"]


def check_two_classes(y: Tensor) -> None:
    """Refuses whole numbers that one logit does not tell apart.

    Raises:
        InputError: one is neither 0 nor 1.
    """
    least, most = int(y.long().min()), int(y.long().max())
    if least < 0 or most > 1:
        raise InputError(
            "one logit tells two classes apart",
            expected="classes 0 and 1",
            got=f"{least} to {most}",
            hint="(y > 0).long() of classes -1 and 1; an output for each of more classes; where a tracker follows "
            "a regression, y.float()",
        )


def _loss_and_error(kind: Loss, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    value, error = kind.value(outputs, y), 1 - kind.hits(outputs, y, 0.0).double().mean()
    # The largest of outputs that are no numbers is no answer.
    return value, error if outputs.isfinite().all() else error * torch.nan


def _named(prefix: str, value: float, error: float, are_classes: bool) -> dict[str, float]:
    return {f"{prefix}loss": value} | ({f"{prefix}error": error} if are_classes else {})


def _kernel_spectrum(moment: Moment, name: str) -> dict[str, Value]:
    """λ_1 ... λ_top; tr K; exp of the entropy of λ / Σλ; (Σλ)² / Σλ²; how many are beyond the bulk of the start."""
    held, K = moment.spectrum(name), moment.kernel(name)
    start = moment.start.spectrum(name).values
    trace = float(K.diagonal().sum())
    found: dict[str, Value] = {
        "values": held.values[: moment.probe.top].tolist(),
        "trace": trace,
        "participation ratio": trace**2 / float(K.square().sum()) if trace > 0 else 0.0,
    }
    if (
        len(start) >= FEWEST and start[0] > start[FEWEST - 1]
    ):  # others, such as those of a dead network, have no edge
        found["spikes"] = initial_bulk(start).count(held.values.numpy())
    if not held.is_partial:
        found["effective rank"] = effective_rank(held.values) if trace > 0 else 0.0
    return found


@measure("ntk")
def ntk(moment: Moment) -> dict[str, Value]:
    """The spectrum of the tangent kernel of the probe."""
    return _kernel_spectrum(moment, "ntk")


@measure("ck")
def ck(moment: Moment) -> dict[str, Value]:
    """The spectrum of the conjugate kernel of the probe."""
    return _kernel_spectrum(moment, "ck")


@measure("weights")
def weights(moment: Moment) -> dict[str, Value]:
    """Of trained parameters of two axes or more, as matrices (first axis, the rest): σ_1 ..., ‖W‖²/σ_1², spikes.

    Spikes are those of `tk.weight_spectra`: squared singular values beyond the law of Marchenko and Pastur.
    """
    found: dict[str, Value] = {}
    for name, w in moment.trained_weights.items():
        if w.ndim < 2 or not w.is_floating_point():
            continue
        W = w.flatten(1)
        check_finite(W, name)
        values = squared_singular_values(W)
        found[f"{name}/values"] = np.sqrt(values[: moment.probe.top]).tolist()
        found[f"{name}/stable rank"] = float(values.sum() / values[0]) if values[0] > 0 else 0.0
        if (values > rounding(values, W)).sum() > max(
            1, len(values) // 2
        ):  # of less than half rank there is no bulk
            found[f"{name}/spikes"] = weight_bulk(values, (W.shape[0], W.shape[1])).count(values)
    return found


@measure("kta")
def kta(moment: Moment) -> dict[str, float]:
    """`tk.kernel_target_alignment` of both kernels with the targets, plain and centered."""
    Y = moment.probe.target_rows()
    found = {}
    for name in ("ntk", "ck"):
        K = moment.kernel(name).double()
        forms = {"plain": (K, Y), "centered": (K - K.mean(0), Y - Y.mean(0))}
        for form, (left, right) in forms.items():
            # A dead network has a kernel without direction, and its training goes on.
            if left.norm() > ZERO * K.norm() and right.norm() > ZERO * Y.norm():
                found[f"{name}/{form}"] = kernel_target_alignment(K, Y, center=form == "centered")
    return found


@measure("alignment")
def alignment(moment: Moment) -> dict[str, float]:
    """Of both kernels: tr(Yᵀ K Y) / n², ‖v_1ᵀ Y‖ / ‖Y‖ and ‖V_topᵀ Y‖ / ‖Y‖."""
    Y, n = moment.probe.target_rows(), len(moment.probe)
    found = {}
    for name in ("ntk", "ck"):
        held = moment.spectrum(name)
        top = min(moment.probe.top, len(held.values))
        found |= {
            f"{name}/target": float((Y * (moment.kernel(name).double() @ Y)).sum()) / n**2,
            f"{name}/energy in the first": held.energy(Y, 1),
            f"{name}/energy in the top": held.energy(Y, top),
        }
    return found


@measure("distance")
def distance(moment: Moment) -> dict[str, float]:
    """Of both kernels 1 - cos(K, K₀), and the velocity (1 - cos(K, K_before)) / steps (Fort et al. 2020)."""
    found = {}
    for name in ("ntk", "ck"):
        K, first = moment.kernel(name), moment.start.kernel(name)
        similar = 1.0 if moment.is_start else cosine(K, first)
        if similar is not None:
            found[f"{name}/to the start"] = max(0.0, 1 - similar)
        if moment.before is None:
            continue
        similar = cosine(K, moment.before.kernel(name))
        if similar is not None:
            found[f"{name}/velocity"] = max(0.0, 1 - similar) / (moment.step - moment.before.step)
    return found


@measure("lazy")
def lazy(moment: Moment) -> dict[str, float]:
    """‖w - w₀‖ / ‖w₀‖ of what is trained, and ‖K - K₀‖ / ‖K₀‖.

    Both stay near 0 in lazy training, the latter grows in rich training.
    """
    first, now = moment.start.weights, moment.trained_weights
    moved = sum(float((w.cpu() - first[n].cpu()).double().square().sum()) for n, w in now.items())
    size = sum(float(first[n].double().square().sum()) for n in now)
    found = {"weight change": math.sqrt(moved / size)} if size > 0 else {}
    K, first_K = moment.kernel("ntk").double(), moment.start.kernel("ntk").double()
    if first_K.any():
        found["kernel change"] = float((K - first_K).norm() / first_K.norm())
    return found


def cosine(A: Tensor, B: Tensor) -> float | None:
    """<A, B> / (‖A‖ ‖B‖); None where one is zero.

    Example:
        >>> cosine(torch.eye(2), torch.ones(2, 2)), cosine(torch.eye(2), torch.zeros(2, 2))
        (0.70710..., None)
    """
    A, B = A.double(), B.double()
    size = float(A.norm() * B.norm())
    return float((A * B).sum()) / size if size > 0 else None
