"""Other scores of training samples from the same kernel: influence, TRAK's and representer points.

All are of one form, a matrix between samples and training samples times a number for each training sample and output,

    A(x, x_i)^c = R_ic κ'(x, x_i),

so that an `Attribution` holds each of them. Positive ones speak for output c.
"""

from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from tangentkit.compute.sources import SampleSource, sources_of
from tangentkit.compute.terms import HasFeatures, Range
from tangentkit.core.errors import NumericalError
from tangentkit.core.memory import memory_budget
from tangentkit.linalg.operators.matrices import as_operator
from tangentkit.linalg.solvers.factor import Factor, factorize
from tangentkit.machines import KernelLogistic
from tangentkit.machines.estimators.machine import check_number
from tangentkit.surrogate.attribution import Attribution, both_sides
from tangentkit.surrogate.cross_matrix import CrossMatrix, OfFeatures
from tangentkit.surrogate.network import network_logits

if TYPE_CHECKING:
    from tangentkit.surrogate.surrogate import Surrogate

MOST_JITTER = 1e-6
"""What may be added to a kernel matrix, relative to its diagonal, so that it can be inverted."""


def influence(surrogate: "Surrogate", x: Any, *, damping: float = 1e-2, cross: Any = None) -> Attribution:
    """Influence of training samples on logits, by the damped inverse of the kernel.

    A(x, x_i)^c = [κ(x, X) (K + λ I)⁻¹]_i (1{y_i = c} - p_ic) with p the network's probabilities and λ = `damping`
    times the mean of K's diagonal: to first order what logit c of x gains by a step of the training that fits
    sample i to its label, after the others have answered. Its unit is that of a logit times a step.

    Args:
        surrogate: a fitted one; its kernel, training samples and network are used, not its coefficients.
        x: samples.
        damping: relative to the mean of the diagonal, above 0.
        cross: κ(x, train), where it is there already.

    Example:
        >>> from torch import nn
        >>> from tangentkit import ConjugateKernel, Surrogate
        >>> model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> fitted = Surrogate(model, ConjugateKernel(model)).fit(torch.randn(20, 2), torch.arange(20) % 2)
        >>> influence(fitted, torch.randn(3, 2)).top(5).indices.shape
        torch.Size([3, 5])
    """
    damping = check_number(damping, "damping", positive=True)
    p = _training_probabilities(surrogate)
    residual = one_hot(surrogate.labels_, p.shape[1]).to(p) - p
    return _damped(surrogate, x, residual, damping, cross)


def trak(surrogate: "Surrogate", x: Any, *, damping: float = 1e-6, cross: Any = None) -> Attribution:
    """Scores as TRAK computes them: φ(x)ᵀ (Φᵀ Φ + λ I)⁻¹ φ_i (1 - p_i), p_i the network's probability of y_i.

    TRAK's own features are projected gradients of the margin ln p/(1 - p); of another kernel these are scores in its
    style. There is one output, the margin. They are not rescaled (TRAK divides by a mean, so that its scores have no
    unit).

    Args:
        surrogate: a fitted one; its kernel, training samples and network are used, not its coefficients.
        x: samples.
        damping: relative to the mean of the diagonal of the kernel, above 0.
        cross: κ(x, train), where it is there already.
    """
    damping = check_number(damping, "damping", positive=True)
    p = _training_probabilities(surrogate)
    missing = 1 - p.gather(1, surrogate.labels_[:, None])
    return _damped(surrogate, x, missing, damping, cross, about="margin")


def representer_points(
    surrogate: "Surrogate", x: Any, *, ridge: float = 1e-2, cross: Any = None
) -> Attribution:
    """Representer points: A(x, x_i)^c = α_ic κ(x, x_i) with α = (Y - P) / λ of kernel logistic regression.

    At its optimum Σ ℓ(y_i, z_i) + (λ/2) αᵀ K α has α = (Y - P) / λ, P its probabilities, so that its logits are the
    sums of these scores exactly. λ is `ridge` times the mean of K's diagonal. Two classes have one logit z, and the
    scores of both sides of it: they add up to (-z, z).

    Args:
        surrogate: a fitted one; its kernel and training samples are used.
        x: samples.
        ridge: relative to the mean of the diagonal of the kernel, above 0.
        cross: κ(x, train), where it is there already.
    """
    surrogate._check_fitted()
    ridge = check_number(ridge, "ridge", positive=True) * _mean_diagonal(surrogate)
    given = surrogate.features_ if surrogate.features_ is not None else as_operator(surrogate.gram_)
    kind = "precomputed" if surrogate.features_ is None else "features"
    machine = KernelLogistic(kind, ridge=ridge).fit(given, surrogate.labels_)
    P = torch.as_tensor(machine.predict_proba(given)).double()
    alpha = (one_hot(surrogate.labels_, P.shape[1]).to(P) - P) / ridge
    one_logit = P.shape[1] == 2
    if one_logit:  # that of the second class
        alpha, _ = both_sides(alpha[:, 1:], alpha.new_zeros(1))
    source = sources_of(surrogate.kernel, x)["x"]
    return _attribution(surrogate, source, surrogate._cross(source, cross), alpha, one_logit=one_logit)


class Damped(CrossMatrix):
    """κ(x, X) (K + λ I)⁻¹ of a matrix κ(x, X)."""

    def __init__(self, base: CrossMatrix, factor: Factor):
        self.base, self.factor = base, factor
        self.shape, self.side = base.shape, max(base.shape[1], 1)

    def tile(self, rows: Range, columns: Range) -> Float[Tensor, "r c"]:
        """A tile of whole rows, for which the system is solved."""
        whole = self.base.tile(rows, columns)
        return self.factor.solve(whole.to(self.factor.L).T).T


def _damped(
    surrogate: "Surrogate",
    x: Any,
    weights: Float[Tensor, "m c"],
    damping: float,
    cross: Any,
    about: Literal["classes", "margin"] = "classes",
) -> Attribution:
    shift = damping * _mean_diagonal(surrogate)
    source = sources_of(surrogate.kernel, x)["x"]
    features = surrogate.features_
    if features is not None and cross is None and features.shape[1] < len(features):
        # φ(x)ᵀ (Φᵀ Φ + λ I)⁻¹ φ_i: the same numbers, with a matrix of the size of the features.
        double = features.double()
        solved = _factor(double.T @ double, shift).solve(double.T).T
        assert isinstance(surrogate.kernel, HasFeatures)
        matrix: CrossMatrix = OfFeatures(surrogate.kernel.features, source, solved)
        return _attribution(surrogate, source, matrix, weights, about, predicts=False)
    K = (features.double() @ features.double().T) if features is not None else _dense(surrogate)
    matrix = Damped(surrogate._cross(source, cross), _factor(K, shift))
    return _attribution(surrogate, source, matrix, weights, about, predicts=False)


def _dense(surrogate: "Surrogate") -> Float[Tensor, "m m"]:
    G = as_operator(surrogate.gram_)
    memory_budget().check(
        8 * G.shape[0] ** 2,
        "the inverse of the kernel matrix is",
        of=f"{G.shape[0]:,} training samples",
        hint="a kernel with features, such as tk.SketchedTangentKernel(model)",
        copies=2,
    )
    return G.dense().double()


def _factor(matrix: Float[Tensor, "n n"], shift: float) -> Factor:
    found = factorize(matrix + shift * torch.eye(len(matrix)).to(matrix), most=MOST_JITTER)
    if found is None:
        raise NumericalError(
            "the damped kernel matrix cannot be inverted", expected="a positive one", hint="a larger damping"
        )
    return found


def _mean_diagonal(surrogate: "Surrogate") -> float:
    surrogate._check_fitted()
    if surrogate.features_ is not None:
        return float(surrogate.features_.double().square().sum(1).mean())
    return float(as_operator(surrogate.gram_).diagonal().double().mean())


def _training_probabilities(surrogate: "Surrogate") -> Float[Tensor, "m c"]:
    surrogate._check_fitted()
    return network_logits(surrogate.network, surrogate.train_).softmax(1)


def _attribution(
    surrogate: "Surrogate",
    source: SampleSource,
    matrix: CrossMatrix,
    weights: Float[Tensor, "m c"],
    about: Literal["classes", "margin"] = "classes",
    *,
    predicts: bool = True,
    one_logit: bool = False,
) -> Attribution:
    offset: Float[Tensor, " c"] = weights.new_zeros(weights.shape[1])
    labels: Int[Tensor, " m"] = surrogate.labels_
    network = network_logits(surrogate.network, source)
    return Attribution(
        matrix,
        weights,
        offset,
        labels=labels,
        network=network,
        about=about,
        predicts=predicts,
        one_logit=one_logit,
    )
