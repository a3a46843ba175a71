"""The last layer refitted: a copy of a network with the best last layer for its own features."""

import copy
import math
import warnings
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tangentkit.core.batches import Batch, as_batch, take
from tangentkit.core.errors import InputError, ModelError, UnknownNameError
from tangentkit.core.model.functions import Forward, call, snapshot
from tangentkit.empirical import ConjugateKernel
from tangentkit.linalg.operators.matrices import as_tensor
from tangentkit.machines.estimators.labels import label_weights
from tangentkit.machines.estimators.logistic import KernelLogistic
from tangentkit.machines.estimators.machine import sample_weights
from tangentkit.machines.estimators.regression import KernelRegression

Model = TypeVar("Model", bound=nn.Module)
Loss = Literal["squared", "logistic"]

RIDGES = [10.0**power for power in range(-12, 3)]
"""Ridges that are tried, relative to the mean square of the singular values of the features about their mean."""
ENOUGH = 4000
"""Samples on which a ridge is chosen, about."""
FOLDS = 3
"""Parts of the samples that are held out in turn where no formula gives the errors of samples left out."""
WEAKEST = RIDGES.index(1e-6)
"""Where that search ends if nothing has been learned, and the loss does not fall."""
WORTH_WHILE, PATIENCE = 0.01, 2
"""It ends after so many ridges in turn by which the loss is higher than the least by more than this share."""
ROUGHLY = 1e-4
"""How far above its minimum the mean cross-entropy may be where ridges are only compared."""
TRIAL = 8
"""Samples on which the refitted network is compared with what it should compute."""
TOLERANCE = 1e-3
"""How far its outputs may be off beyond rounding, relative to the largest."""


def refit_last_layer(
    model: Model,
    x: Batch,
    y: Any,
    *,
    loss: Loss | None = None,
    ridge: float | None = None,
    sample_weight: Any = None,
    layer: str | None = None,
    forward: Forward | None = None,
) -> Model:
    """A copy of a network whose last linear layer is the optimum for the features that come to it.

    With h(x) the input of that layer (and a 1, where it has a bias) and V its weights and bias, V minimizes

        Σ_i w_i |V h(x_i) - y_i|² + ridge |V|²                    "squared"
        Σ_i w_i cross-entropy(V h(x_i), y_i) + (ridge / 2) |V|²   "logistic"

    No other parameter changes, and the model itself is left as it is. A layer whose weight is tied to another one is
    untied in the copy. Where a network has been trained until it knows its training samples by heart, its features
    flatter them, and so does every error of samples left out: then refit on samples it has not seen, or with a ridge
    that does best on such.

    Args:
        model: ends in a linear layer; a log-softmax may follow where the loss is logistic.
        x: samples.
        y: targets (n,) or (n, c); or labels (n,), integers from 0 to c - 1 that name the model's outputs.
        loss: None takes "logistic" for integers and "squared" for other numbers. Labels under "squared" are
            targets 1 and 0.
        ridge: None takes the one with the least error of samples that are left out: for "squared" one by one, in
            closed form; for "logistic" a third at a time, from strong ridges down until it rises.
        sample_weight: (n,), not negative; samples of weight 0 count for nothing.
        layer: the name of the layer; by default the last linear layer that the model calls.
        forward: (model, batch) -> outputs (n, c), for models with other inputs or outputs.

    Raises:
        InputError: x, y or an option does not fit.
        ModelError: the outputs are not those of a linear layer that is called once.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 1))
        >>> x = torch.randn(200, 2)
        >>> y = x[:, 0] * x[:, 1]
        >>> better = refit_last_layer(model, x, y)
        >>> bool((better(x)[:, 0] - y).square().mean() < 0.01), torch.equal(better[0].weight, model[0].weight)
        (True, True)
    """
    x, y = as_batch(x), _numbers(y)
    is_label = not y.is_floating_point()
    loss = ("logistic" if is_label else "squared") if loss is None else loss
    if loss not in get_args(Loss):
        raise UnknownNameError("loss", str(loss), get_args(Loss))
    twin = _copied(model)
    name, head = _head(twin, x, layer, forward)
    kernel = ConjugateKernel(model, name, bias=head.bias is not None, forward=forward)
    features = kernel.features(x)
    if features.shape[1] != head.in_features + (head.bias is not None):
        raise ModelError(
            f"layer {name!r} is applied at several positions of a sample",
            expected=f"one input of {head.in_features} numbers for every sample",
            got=f"{features.shape[1] - (head.bias is not None)} numbers",
            hint=f"forward=lambda model, batch: ... that gives model.{name} only the position that counts",
        )
    Phi, c = features.double(), head.out_features
    if loss == "logistic":
        labels = _labels(y, len(Phi), c)
        weights = label_weights(sample_weight, labels, np.arange(max(c, 2)))
        counted = _counted(Phi, labels, weights)
        if ridge is None:
            ridge = _held_out_ridge(*counted, c, has_bias=head.bias is not None)
        V = _logistic(*counted, c, ridge)
    else:
        targets = nn.functional.one_hot(_labels(y, len(Phi), c), c) if is_label and c > 1 else y
        weights = sample_weights(sample_weight, n=len(Phi), like=Phi)
        counted = _counted(Phi, _targets(targets, len(Phi), c), weights)
        V = _squared(*counted, ridge, has_bias=head.bias is not None)
    _replace(head, V)
    rounding = torch.finfo(head.weight.dtype).eps * float((Phi[:TRIAL].abs() @ V.abs()).max())
    _check(twin, take(x, slice(TRIAL)), forward, Phi[:TRIAL] @ V, name, loss, rounding=rounding)
    return twin


def _numbers(y: Any) -> Tensor:
    y = y if isinstance(y, Tensor) else np.asarray(y)
    if isinstance(y, np.ndarray) and y.dtype.kind not in "biuf":
        raise InputError(
            "targets are not numbers",
            expected="numbers, or labels that name the model's outputs by 0, 1, ...",
            got=f"{type(y.flat[0]).__name__} {y.flat[0]!s}" if y.size else "none",
            hint="classes, labels = np.unique(y, return_inverse=True), if outputs are in the order of the words",
        )
    return as_tensor(y, "targets")


def _copied(model: Model) -> Model:
    if not isinstance(model, nn.Module):
        raise InputError("not a model", expected="a torch module", got=type(model).__name__)
    try:
        return copy.deepcopy(model)
    except RuntimeError as error:
        raise ModelError(
            f"the model cannot be copied ({error})", hint="copy.deepcopy(model) must work"
        ) from error


def _head(model: nn.Module, x: Batch, layer: str | None, forward: Forward | None) -> tuple[str, nn.Linear]:
    """The last linear layer and its name."""
    name = ConjugateKernel(model, layer, forward=forward).layer_of(x)
    head = None if name is None else model.get_submodule(name)
    if not isinstance(head, nn.Linear) or parametrize.is_parametrized(head):
        found = "a product that no module makes" if name is None else f"{name!r}, a {type(head).__name__}"
        raise ModelError(
            "the last layer is no plain linear layer",
            expected="nn.Linear, without parametrizations",
            got=found,
            hint="layer=name of a linear layer that gives the outputs; or parametrize.remove_parametrizations",
        )
    assert name is not None
    return name, head


def _labels(y: Tensor, n: int, c: int) -> Int[Tensor, " n"]:
    """Labels that name the outputs, every one of them."""
    classes = max(c, 2)
    if y.shape != (n,) or y.is_floating_point():
        raise InputError(
            "bad labels", expected=f"integers of shape ({n},)", got=f"{y.dtype} {tuple(y.shape)}"
        )
    y = y.long().cpu()
    if y.min() < 0 or y.max() >= classes or len(y.unique()) < classes:
        raise InputError(
            f"labels do not fit a model of {c} output{'s' * (c > 1)}",
            expected=f"all of 0 to {classes - 1}",
            got=f"{y.unique().tolist()[:20]}",
            hint=f"y.float(), if they are no labels; one_hot(y, {c}).float() as targets, if a class has no samples",
        )
    return y


def _targets(y: Tensor, n: int, c: int) -> Float[Tensor, "n c"]:
    if y.shape != (n, c) and not (c == 1 and y.shape == (n,)):
        expected = f"shape ({n}, {c})" + (f" or ({n},)" if c == 1 else "")
        raise InputError("targets do not fit the model", expected=expected, got=tuple(y.shape))
    return y.double().reshape(n, c)


def _counted(Phi: Float[Tensor, "m d"], y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The samples whose weight is above zero, and their weights: the others decide nothing."""
    if weights is None:
        return Phi, y, Phi.new_ones(len(Phi))
    keep = weights > 0
    return Phi[keep.to(Phi.device)], y[keep.to(y.device)], weights[keep]


def _squared(
    Phi: Float[Tensor, "n d"],
    Y: Float[Tensor, "n c"],
    weights: Float[Tensor, " n"],
    ridge: float | None,
    *,
    has_bias: bool,
) -> Float[Tensor, "d c"]:
    if ridge is not None:
        return torch.as_tensor(KernelRegression("features", ridge=ridge).fit(Phi, Y.to(Phi), weights).coef_)
    machine = KernelRegression("features", solver="features").fit(Phi, Y.to(Phi), weights)

    def loss(machine: KernelRegression) -> float:
        return float(weights.to(Phi) @ machine.leave_one_out().square().sum(1))

    return min(machine.ridge_path(_ridges(Phi, weights, has_bias=has_bias)), key=loss).coef_


def _ridges(Phi: Float[Tensor, "n d"], weights: Float[Tensor, " n"], *, has_bias: bool) -> list[float]:
    """Ridges to choose from, ascending, for the sizes of features; their mean is no size where there is a bias."""
    w = weights.to(Phi)
    scale = float(w @ Phi.square().sum(1))
    if has_bias:
        mean = w @ Phi / w.sum()
        scale = max(float(w @ (Phi - mean).square().sum(1)), torch.finfo(Phi.dtype).eps * scale)
    return [scale / min(Phi.shape) * share for share in RIDGES]


def _held_out_ridge(
    Phi: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    weights: Float[Tensor, " n"],
    c: int,
    *,
    has_bias: bool,
) -> float:
    """The ridge with the least cross-entropy of samples held out: from the strongest down, until that rises."""
    some = _spread(labels)
    share = float(weights[some].sum() / weights.sum())
    Phi, labels, weights = Phi[some.to(Phi.device)], labels[some], weights[some]
    folds, ridges = _folds(labels), _ridges(Phi, weights, has_bias=has_bias)
    nothing_learned = sum(_share_loss(labels, weights, held) for held in folds)
    best, least, before, risen = 1.0, math.inf, math.inf, 0
    for ridge in reversed(ridges):
        loss = sum(_held_out_loss(Phi, labels, weights, c, ridge, held) for held in folds)
        is_falling, before = loss <= (1 - WORTH_WHILE) * before, loss
        # What is as good as the best so far is no reason to stop: the small features may still be left out.
        risen = risen + 1 if loss > (1 + WORTH_WHILE) * least else 0
        if loss < least:
            best, least = ridge, loss
        has_learned = least <= (1 - WORTH_WHILE) * nothing_learned
        # Large features may tell nothing, and noise in them raises the loss before the small ones come in.
        is_done = risen >= PATIENCE if has_learned else ridge <= ridges[WEAKEST] and not is_falling
        if is_done:
            break
    else:
        if is_falling:
            _warn_of_small_features()
    return best / share  # losses are summed over samples, and so are ridges


def _warn_of_small_features() -> None:
    warnings.warn(
        f"refit_last_layer: weaker ridges than {RIDGES[0]:.0e} of the size of the features might do better still; "
        "features of such different sizes, or so far from zero, had better be scaled (or give a ridge)",
        ConvergenceWarning,
        stacklevel=4,
    )


def _spread(labels: Int[Tensor, " n"]) -> Int[Tensor, " m"]:
    """About `ENOUGH` samples, with a share of every class."""
    step = -(-len(labels) // ENOUGH)
    return torch.cat([(labels == label).nonzero()[::step, 0] for label in labels.unique()])


def _held_out_loss(
    Phi: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    weights: Float[Tensor, " n"],
    c: int,
    ridge: float,
    held: Bool[Tensor, " n"],
) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # the ridge that is chosen is fitted again, and tells
        V = _logistic(Phi[~held], labels[~held], weights[~held], c, ridge, tol=ROUGHLY)
    logits = (Phi[held] @ V).cpu()
    logits = torch.cat([torch.zeros_like(logits), logits], 1) if c == 1 else logits
    losses = nn.functional.cross_entropy(logits, labels[held], reduction="none")
    return float(weights[held].to(losses) @ losses)


def _share_loss(labels: Int[Tensor, " n"], weights: Float[Tensor, " n"], held: Bool[Tensor, " n"]) -> float:
    """The cross-entropy of samples held out by the shares of the classes among the others."""
    counts = torch.bincount(labels[~held], weights[~held].cpu(), minlength=int(labels.max()) + 1)
    return float(-weights[held].cpu() @ (counts / counts.sum()).log()[labels[held]])


def _folds(labels: Int[Tensor, " n"]) -> list[Bool[Tensor, " n"]]:
    """Masks of samples to hold out, in turn within each class; the only sample of a class stays."""
    fold = torch.full_like(labels, FOLDS)
    for label in labels.unique():
        members = (labels == label).nonzero()[:, 0]
        if len(members) > 1:
            fold[members] = torch.arange(len(members)) % FOLDS
    return [fold == i for i in range(FOLDS) if (fold == i).any()]


def _logistic(
    Phi: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    weights: Float[Tensor, " n"],
    c: int,
    ridge: float,
    *,
    tol: float = 1e-10,
) -> Float[Tensor, "d c"]:
    # With two outputs the optimum is V = (-γ/2, γ/2) of one logit γ, whose norm counts half.
    machine = KernelLogistic("features", ridge=ridge / 2 if c == 2 else ridge, tol=tol).fit(
        Phi, labels, weights
    )
    V = machine.logits(torch.eye(Phi.shape[1]).to(Phi)).to(
        Phi
    )  # linear: those of unit vectors are the coefficients
    return torch.cat([-V / 2, V / 2], 1) if c == 2 else V


def _replace(head: nn.Linear, V: Float[Tensor, "d c"]) -> None:
    """New parameters, not new values in the old ones, which another layer may share."""
    d = head.in_features
    for name, values in (("weight", V[:d].T), ("bias", V[d:].flatten())):
        old = getattr(head, name)
        if old is not None:
            setattr(head, name, nn.Parameter(values.contiguous().to(old), requires_grad=old.requires_grad))


def _check(
    model: nn.Module,
    x: Batch,
    forward: Forward | None,
    expected: Float[Tensor, "n c"],
    name: str,
    loss: Loss,
    *,
    rounding: float,
) -> None:
    """Refuses a model that does something else with what the layer gives than to return it."""
    function = snapshot(model, params=lambda *_: True, forward=forward or call)
    with torch.no_grad():
        outputs = function(function.params, x).to(expected)
    if outputs.shape == expected.shape:
        gap = outputs - expected
        if loss == "logistic":  # a log-softmax takes the same from all outputs of a sample
            gap = gap - gap.mean(1, keepdim=True) * (expected.shape[1] > 1)
        if gap.abs().max() <= TOLERANCE * expected.abs().max() + rounding:
            return
    raise ModelError(
        f"the outputs are not those of layer {name!r}",
        expected="a model that returns what its last linear layer gives, which it calls once",
        got=f"outputs of shape {tuple(outputs.shape)} that differ from it",
        hint="forward=lambda model, batch: ... to return what the layer gives, or layer= another name",
    )
