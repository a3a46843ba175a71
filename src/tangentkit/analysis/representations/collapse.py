"""Neural collapse: how far the features of each class have shrunk to one point, and these points to a simplex."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentkit.analysis.features import read_features
from tangentkit.core.errors import InputError, NumericalError, TangentkitError
from tangentkit.linalg.operators.matrices import as_tensor
from tangentkit.machines.estimators.labels import check_one_label_each, read_labels
from tangentkit.report import Bars, Column, Table, drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Number = float | None


@dataclass(frozen=True)
class NeuralCollapse:
    """NC1 to NC4 of Papyan, Han and Donoho (2020); each is 0 at full collapse."""

    nc1: float
    """tr(Σ_W Σ_B⁺): variation within classes, measured by that between them."""
    nc2_norms: float
    """Standard deviation over mean of ‖μ_c - μ‖."""
    nc2_angles: float
    """Mean over pairs of classes of |cos(μ_c - μ, μ_d - μ) + 1/(C - 1)|."""
    nc3: Number
    """‖Wᵀ/‖W‖ - M/‖M‖‖², M the columns μ_c - μ; None without the weight of the last layer."""
    nc4: Number
    """Share of samples whose nearest class center is not the network's class; None without a network."""
    rank: int
    """The rank of Σ_B: C - 1, unless class centers stand on fewer dimensions."""

    @property
    def nc2(self) -> float:
        """The larger of both: the centers are a simplex only where norms and angles are right."""
        return max(self.nc2_norms, self.nc2_angles)

    def table(self) -> Table:
        """The four numbers as a table."""
        rows = (
            ("NC1", "variation within classes", self.nc1),
            ("NC2, norms", "spread of the norms of class centers", self.nc2_norms),
            ("NC2, angles", "distance from the angles of a simplex", self.nc2_angles),
            ("NC3", "last layer against class centers", self.nc3),
            ("NC4", "nearest center against the network", self.nc4),
        )
        return Table(
            "Neural collapse", ("", "what", Column("value", ".3g")), rows, note="0 is full collapse."
        )

    def figure(self) -> Bars:
        """NC1 to NC4 as bars from 0, which is full collapse."""
        values = {
            "NC1, within": self.nc1,
            "NC2, norms": self.nc2_norms,
            "NC2, angles": self.nc2_angles,
            "NC3, last layer": self.nc3,
            "NC4, nearest center": self.nc4,
        }
        known = {name: [value] for name, value in values.items() if value is not None}
        return Bars(
            title="Neural collapse",
            caption="0 is full collapse. "
            + "; ".join(f"{name} {value:.3g}" for name, [value] in known.items())
            + ".",
            values=known,
            x_label="0 is full collapse",
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws `figure()`."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """The results as plain numbers."""
        return {**asdict(self), "nc2": self.nc2}


def neural_collapse(
    features: Any,
    labels: Any,
    weight: Any = None,
    *,
    bias: Any = None,
    predictions: Any = None,
) -> NeuralCollapse:
    """How far features of labeled samples have collapsed, by the definitions of the authors' code.

    With class means μ_c and their mean μ, Σ_W = (1/n) Σ_i (h_i - μ_c(i))(h_i - μ_c(i))ᵀ and
    Σ_B = (1/C) Σ_c (μ_c - μ)(μ_c - μ)ᵀ, NC1 is tr(Σ_W Σ_B⁺), without the factor 1/C of the paper. No d × d matrix is
    formed.

    Args:
        features: (n, d), usually the input of the last layer for the training samples.
        labels: (n,), of two classes or more.
        weight: (C, d) of the last layer, a row for each class in sorted order: for NC3 and NC4.
        bias: (C,) of the last layer.
        predictions: (n,) the network's classes, where there is no weight to compute them with: for NC4.

    Raises:
        InputError: shapes or labels do not match, or no class has two samples.
        NumericalError: features are not finite, or a class center is the mean of all centers.

    Example:
        >>> frame = torch.eye(3) - 1 / 3  # a simplex
        >>> found = neural_collapse(frame.repeat(4, 1), torch.arange(3).repeat(4), weight=2 * frame)
        >>> [round(abs(x), 6) for x in (found.nc1, found.nc2, found.nc3, found.nc4)]
        [0.0, 0.0, 0.0, 0.0]
    """
    h, names, y = _labeled(features, labels)
    centers = class_centers(h, y, len(names))
    offsets = centers - centers.mean(0)
    norms = offsets.norm(dim=1)
    _check_apart(norms, centers, names)
    cosines = (offsets @ offsets.T) / torch.outer(norms, norms)
    pairs = ~torch.eye(len(names), dtype=torch.bool)
    nc1, rank = _within_by_between(h, y, centers, offsets)
    W = None if weight is None else _weight(weight, offsets)
    return NeuralCollapse(
        nc1=nc1,
        nc2_norms=float(norms.std(correction=0) / norms.mean()),
        nc2_angles=float((cosines + 1 / (len(names) - 1))[pairs].abs().mean()),
        nc3=None if W is None else float((W / W.norm() - offsets / offsets.norm()).square().sum()),
        nc4=_disagreement(h, centers, _network_classes(h, names, W, bias, predictions)),
        rank=rank,
    )


def class_centers(h: Float[Tensor, "n d"], y: Int[Tensor, " n"], classes: int) -> Float[Tensor, "c d"]:
    """The mean of each class, in float64."""
    return torch.stack([h[y == c].mean(0, dtype=torch.float64) for c in range(classes)])


def nearest_centers(h: Float[Tensor, "n d"], centers: Float[Tensor, "c d"]) -> Int[Tensor, " n"]:
    """The class of the nearest center of each sample."""
    # Of |h - μ|² only what depends on the class, about the mean of the centers, where no digits cancel.
    middle = centers.mean(0)
    offsets = centers - middle
    rows = max(1, 2**24 // h.shape[1])
    scores = [2 * (part.double() - middle) @ offsets.T - offsets.square().sum(1) for part in h.split(rows)]
    return torch.cat(scores).argmax(1)


def _within_by_between(
    h: Float[Tensor, "n d"], y: Int[Tensor, " n"], centers: Tensor, offsets: Tensor
) -> tuple[float, int]:
    """tr(Σ_W Σ_B⁺) = (C/n) Σ_i ‖S⁻¹ Uᵀ (h_i - μ_c(i))‖², U S the thin decomposition of the centers; and its rank."""
    _, S, Uh = torch.linalg.svd(offsets, full_matrices=False)
    rounding = max(offsets.shape) * torch.finfo(S.dtype).eps * centers.abs().max()
    r = min(int((max(float(rounding), 1e-12 * float(S[0])) < S).sum()), len(centers) - 1)
    measured = Uh[:r].T / S[:r]
    total = sum(
        float((((h[y == c].double() - mean) @ measured).square()).sum()) for c, mean in enumerate(centers)
    )
    return len(centers) * total / len(h), r


def _disagreement(h: Tensor, centers: Tensor, network: Tensor | None) -> Number:
    if network is None:
        return None
    return float((nearest_centers(h, centers) != network).double().mean())


def _network_classes(
    h: Tensor, names: np.ndarray, W: Tensor | None, bias: Any, predictions: Any
) -> Tensor | None:
    """The network's class of every sample as an index; -1 for a class that no label has."""
    if predictions is not None:
        found = np.asarray(predictions.cpu() if isinstance(predictions, Tensor) else predictions)
        if found.shape != (len(h),):
            raise InputError("bad predictions", expected=f"({len(h)},) classes", got=found.shape)
        places = np.searchsorted(names, found).clip(max=len(names) - 1)
        return torch.from_numpy(np.where(names[places] == found, places, -1))
    if W is None:
        return None
    b = torch.zeros(len(W)) if bias is None else as_tensor(bias, "bias").cpu()
    if b.shape != (len(W),):
        raise InputError("bad bias", expected=f"({len(W)},)", got=tuple(b.shape))
    return torch.cat([(part.double() @ W.T + b).argmax(1) for part in h.split(max(1, 2**24 // h.shape[1]))])


def read_classes(labels: Any, *, name: str) -> tuple[np.ndarray, Int[Tensor, " n"]]:
    """The classes in order, and the index of every sample's class.

    Raises:
        InputError: labels are missing, of one class, or of a kind that names no classes.
    """
    try:
        return read_labels(labels, name=name)
    except TangentkitError:
        raise
    except ValueError as error:  # scikit-learn's own words, which its estimators must raise as they are
        raise InputError("labels name no classes", expected="integers or words", got=error) from error


def _labeled(features: Any, labels: Any) -> tuple[Float[Tensor, "n d"], np.ndarray, Int[Tensor, " n"]]:
    h = read_features(features)
    names, y = read_classes(labels, name="neural_collapse")
    check_one_label_each(y, len(h))
    if len(h) == len(names):
        raise InputError(
            "too few samples to see variation within classes",
            expected="two samples of a class, or more",
            got=f"one sample of each of {len(names)} classes",
        )
    return h, names, y


def _weight(weight: Any, offsets: Tensor) -> Tensor:
    W = as_tensor(weight, "weight").cpu().double()
    if W.shape != offsets.shape:
        raise InputError(
            "the weight does not fit features and labels",
            expected=f"{tuple(offsets.shape)}, a row for each class of the labels",
            got=tuple(W.shape),
            hint="samples of every class, and the features that the last layer takes in",
        )
    if not float(W.norm()) > 0 or not W.isfinite().all():
        raise NumericalError("the weight is zero or not finite")
    return W


def _check_apart(norms: Tensor, centers: Tensor, names: np.ndarray) -> None:
    """Refuses centers that are where the mean of all centers is, to rounding: they have no direction."""
    rounding = 8 * torch.finfo(centers.dtype).eps * float(centers.abs().max()) * centers.shape[1] ** 0.5
    same = (norms <= max(rounding, 0.0)).nonzero().flatten().tolist()
    if same:
        which = ", ".join(repr(names[c].item()) for c in same[:5])
        raise NumericalError(
            "class centers have no direction from their mean",
            expected="centers apart from each other",
            got="the same center for all classes"
            if len(same) == len(names)
            else f"the mean for class {which}",
            hint="features that are not constant",
        )
