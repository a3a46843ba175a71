"""What a tracker can measure: a registry of functions of a moment, to which users add their own.

=============  =========================================================================================
measure        what it gives
=============  =========================================================================================
"loss"         loss and, for classes, error of the probe; the same of the test set
"ntk", "ck"    top eigenvalues, trace, effective rank, participation ratio, spikes of the kernel
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

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.analysis.tracking.moment import Moment, device_of
from tangentkit.core.batches import move
from tangentkit.core.errors import InputError
from tangentkit.core.model.calls import read_outputs
from tangentkit.linalg.spectra.spectrum import effective_rank, spectrum
from tangentkit.linearized.losses import LOSSES, Loss

Value = float | list[float]
Measure = Callable[[Moment], float | Mapping[str, Any]]
"""A function of a moment that gives one number, or numbers and lists of numbers by name."""

MEASURES: dict[str, Measure] = {}
"""Name -> measure."""
BEYOND = 1.05
"""Values above so many times the largest of the start are spikes: beyond its edge, and beyond its jitter."""


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
            x, y = move((x, y), device_of(model))
            with torch.no_grad():
                outputs = read_outputs(probe.forward(model, x))
            value, error = _loss_and_error(loss_of(outputs, y), outputs, y)
            total, wrong = total + float(value) * len(y), wrong + float(error) * len(y)
            classes = not y.is_floating_point()
        n = len(probe.test)
        found |= _named("test ", total / n, wrong / n, classes)
    return found


def loss_of(outputs: Tensor, y: Tensor) -> Loss:
    """The loss that targets ask for: cross-entropy of classes, or of one logit; squared error of numbers."""
    if y.is_floating_point():
        return LOSSES["l2-mean"]
    return LOSSES["cross-entropy" if outputs.ndim > 1 and outputs.shape[1] > 1 else "bce"]


def _loss_and_error(kind: Loss, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return kind.value(outputs, y), 1 - kind.hits(outputs, y, 0.0).mean()


def _named(prefix: str, value: float, error: float, are_classes: bool) -> dict[str, float]:
    return {f"{prefix}loss": value} | ({f"{prefix}error": error} if are_classes else {})


def _kernel_spectrum(moment: Moment, name: str) -> dict[str, Value]:
    """λ_1 ... λ_top; tr K; exp of the entropy of λ / Σλ; (Σλ)² / Σλ²; how many are beyond the start's largest."""
    held, K = moment.spectrum(name), moment.kernel(name)
    first = moment.start.spectrum(name).values[0]
    trace = float(K.diagonal().sum())
    found: dict[str, Value] = {
        "values": held.values[: moment.probe.top].tolist(),
        "trace": trace,
        "participation ratio": trace**2 / float(K.square().sum()) if trace > 0 else 0.0,
        "spikes": int((held.values > BEYOND * first).sum()),
    }
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
    """Of every parameter of two axes or more, as a matrix (first axis, the rest): σ_1 ..., ‖W‖²/σ_1², spikes."""
    found: dict[str, Value] = {}
    for name, w in moment.weights.items():
        if w.ndim < 2 or not w.is_floating_point():
            continue
        values, first = singular_values(w, moment.probe.top), moment.start.weights[name]
        edge = float(values[0] if moment.is_start else singular_values(first, 1)[0])
        found |= {
            f"{name}/values": values.tolist(),
            f"{name}/stable rank": float(w.double().square().sum() / values[0].square())
            if values[0] > 0
            else 0.0,
            f"{name}/spikes": int((values > BEYOND * edge).sum()),
        }
    return found


def singular_values(w: Tensor, top: int) -> Float[Tensor, " r"]:
    """The largest singular values of a weight as a matrix, from the smaller of its two Gram matrices.

    Example:
        >>> singular_values(torch.diag(torch.tensor([3.0, 4.0])), 1)
        tensor([4.])
    """
    W = w.flatten(1).cpu()
    W = W.float() if W.dtype in (torch.float16, torch.bfloat16) else W
    gram = W @ W.T if W.shape[0] <= W.shape[1] else W.T @ W
    return spectrum((gram + gram.T) / 2, min(top, len(gram))).values.clamp(min=0).sqrt()


@measure("kta")
def kta(moment: Moment) -> dict[str, float]:
    """<K, Y Yᵀ> / (‖K‖ ‖Y Yᵀ‖) of both kernels, and the same of H K H with H = I - 1 1ᵀ/n."""
    Y = moment.probe.target_rows()
    found = {}
    for name in ("ntk", "ck"):
        K = moment.kernel(name).double()
        centered = K - K.mean(0) - K.mean(1, keepdim=True) + K.mean()
        aligned = {
            f"{name}/plain": cosine(K, Y @ Y.T),
            f"{name}/centered": cosine(centered, _outer(Y - Y.mean(0))),
        }
        found |= {key: value for key, value in aligned.items() if value is not None}
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
    """‖w - w₀‖ / ‖w₀‖ and ‖K - K₀‖ / ‖K₀‖: both stay near 0 in lazy training, the latter grows in rich training."""
    first = moment.start.weights
    moved = sum(float((w.cpu() - first[n].cpu()).double().square().sum()) for n, w in moment.weights.items())
    size = sum(float(w.double().square().sum()) for w in first.values())
    found = {"weight change": math.sqrt(moved / size)} if size > 0 else {}
    K, first_K = moment.ntk.double(), moment.start.ntk.double()
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


def _outer(Y: Tensor) -> Tensor:
    return Y @ Y.T
