"""The spectra of all weights of a module in one table, with the names that users of WeightWatcher know."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import jensenshannon
from scipy.special import logsumexp
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tangentkit.analysis.spectra.bulk import Bulk, bulk_variance, marchenko_pastur
from tangentkit.analysis.spectra.histogram import SpectrumHistogram, marchenko_pastur_density
from tangentkit.analysis.spectra.tails import (
    Null,
    rounding,
    shuffled,
    squared_singular_values,
    tail_of_values,
)
from tangentkit.core.errors import InputError, ModelError, UnknownNameError
from tangentkit.core.text import counted
from tangentkit.core.whole_numbers import as_count
from tangentkit.linalg import Tail, check_finite
from tangentkit.linalg.spectra.tails import DRAWS, LEAST_DRAWS, TailEstimator, gaussian_null
from tangentkit.report.drawing import drawn
from tangentkit.report.figure import Lines, Series
from tangentkit.report.table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST = 20
"""Fewer singular values than this have no tail to speak of."""
COLUMNS = (
    "name",
    "N",
    "M",
    "alpha",
    "alpha_null",
    "p_value",
    "alpha_weighted",
    "log_alpha_norm",
    "log_norm",
    "log_spectral_norm",
    "stable_rank",
    "stable_rank_null",
    "mp_softrank",
    "num_spikes",
    "rand_distance",
    "xmin",
    "D",
    "remark",
)


@dataclass(frozen=True, eq=False)
class WeightSpectrum:
    """The squared singular values λ of one weight W, and what is read off them."""

    name: str
    shape: tuple[int, int]
    """Rows and columns of W; a convolution is (out, in x height x width)."""
    values: np.ndarray
    """The eigenvalues λ of Wᵀ W in descending order, (min(shape),)."""
    tail: Tail | None
    """None where there are too few values for a tail."""
    num_spikes: int | None
    """Values beyond the bulk, by the law of Tracy and Widom at 5 %."""
    bulk_max: float | None
    """The upper edge of the bulk of Wᵀ W."""
    rand_distance: float | None
    """The Jensen-Shannon distance between the spectrum and that of the shuffled weight, in √M bins."""
    stable_rank_null: float
    """The median stable rank of Gaussian matrices of this shape."""
    remark: str
    """Why a number is missing."""

    @property
    def spectral_norm(self) -> float:
        """λ_1, the square of the operator norm."""
        return float(self.values[0])

    @property
    def norm(self) -> float:
        """Σ λ, the square of the Frobenius norm."""
        return float(self.values.sum())

    @property
    def stable_rank(self) -> float | None:
        """Σ λ / λ_1."""
        return self.norm / self.spectral_norm if self.spectral_norm > 0 else None

    @property
    def alpha(self) -> float | None:
        """The exponent of the tail."""
        return None if self.tail is None or math.isinf(self.tail.alpha) else self.tail.alpha

    @property
    def alpha_weighted(self) -> float | None:
        """alpha log10 λ_1, also known as alpha_hat."""
        return None if self.alpha is None else self.alpha * math.log10(self.spectral_norm)

    @property
    def log_alpha_norm(self) -> float | None:
        """log10 Σ λ^alpha."""
        if self.alpha is None:
            return None
        logs = self.alpha * np.log(self.values[self.values > 0])
        return float(np.asarray(logsumexp(logs))) / math.log(10)

    @property
    def mp_softrank(self) -> float | None:
        """The edge of the bulk over λ_1; below 1 where there are spikes."""
        return None if self.bulk_max is None else self.bulk_max / self.spectral_norm

    @cached_property
    def row(self) -> dict[str, Cell]:
        """One row of the table, as column -> cell."""
        return {
            "name": self.name,
            "N": max(self.shape),
            "M": min(self.shape),
            "alpha": self.alpha,
            "alpha_null": None if self.tail is None else self.tail.null_alpha,
            "p_value": None if self.tail is None else self.tail.p_value,
            "alpha_weighted": self.alpha_weighted,
            "log_alpha_norm": self.log_alpha_norm,
            "log_norm": _log10(self.norm),
            "log_spectral_norm": _log10(self.spectral_norm),
            "stable_rank": self.stable_rank,
            "stable_rank_null": self.stable_rank_null,
            "mp_softrank": self.mp_softrank,
            "num_spikes": self.num_spikes,
            "rand_distance": self.rand_distance,
            "xmin": None if self.tail is None else self.tail.fit.xmin,
            "D": None if self.tail is None else self.tail.fit.distance,
            "remark": self.remark,
        }

    def table(self) -> Table:
        """One row for each number; what is missing is said by the remark."""
        rows = tuple((name, cell) for name, cell in self.row.items() if name != "name")
        return Table(f"Spectrum of {self.name}", ("measure", "value"), rows)

    def figure(self) -> SpectrumHistogram:
        """The histogram of the eigenvalues, with the law of noise, xmin of the tail, and where spikes begin.

        Raises:
            InputError: the weight is zero.
        """
        shown = self.values[self.values > 1e-12 * self.values[0]]
        if not len(shown):
            raise InputError("nothing to draw", expected="a weight that is not zero", got=self.name)
        small, large = sorted(self.shape)
        lines, curve, said = {}, None, ""
        if self.tail is not None and self.alpha is not None:
            lines["xmin of the tail"] = self.tail.fit.xmin
        if self.num_spikes is not None:
            bulk = weight_bulk(self.values, self.shape)
            lines["spikes begin"] = bulk.threshold()
            curve = marchenko_pastur_density(
                max(bulk.low, shown[-1] / 2), bulk.high, small / large, 1 - self.num_spikes / len(shown)
            )
            said = f" {self.num_spikes} of them are spikes beyond the law of Marchenko and Pastur."
        return SpectrumHistogram(
            title=f"Spectrum of {self.name}",
            caption=f"{len(shown)} eigenvalues of Wᵀ W, {large} x {small}.{said}",
            values=shown,
            curve=curve,
            lines=lines,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws `figure()`."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists: the cells of the row, and the values."""
        return {**self.row, "values": self.values.tolist()}


@dataclass(frozen=True, eq=False, repr=False)
class WeightSpectra:
    """One `WeightSpectrum` for each weight of a module."""

    weights: tuple[WeightSpectrum, ...]
    null: Null
    draws: int

    def __repr__(self) -> str:
        heavy = sum(one.tail is not None and one.tail.is_heavy for one in self.weights)
        return f"WeightSpectra({len(self.weights)} weights, {heavy} with a heavy tail)"

    def __getitem__(self, name: str) -> WeightSpectrum:
        known = {one.name: one for one in self.weights}
        if name not in known:
            raise UnknownNameError("weight", name, known)
        return known[name]

    def __iter__(self):
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def table(self) -> Table:
        """One row for each weight."""
        note = (
            f"λ are the eigenvalues of Wᵀ W, not divided by N; logarithms to base 10. p_value: how often {self.null} "
            f"matrices ({self.draws} draws) have an alpha as small; 5 % of light-tailed weights are at 0.05."
        )
        rows = tuple(tuple(one.row[column] for column in COLUMNS) for one in self.weights)
        return Table("Weight spectra", COLUMNS, rows, note=note)

    def figure(self) -> Lines:
        """The exponent of each weight, beside the middle 95 % of the null model."""
        seen = [(i, one.tail) for i, one in enumerate(self.weights) if one.tail is not None and one.alpha]
        if not seen:
            raise InputError(
                "nothing to draw", expected="a weight with a tail", got=f"{len(self.weights)} without"
            )
        x = [i + 1 for i, _ in seen]
        low, high = np.array([np.quantile(tail.null_alphas, [0.025, 0.975]) for _, tail in seen]).T
        return Lines(
            title="Exponents of weight spectra",
            caption="Below the band a weight has a heavier tail than random matrices of its shape.",
            x_label="weight, in the order of the module",
            y_label="alpha",
            y_scale="log",
            legend="beside",
            size=(6.0, 3.2),
            series={
                "weights": Series(x, [tail.alpha for _, tail in seen]),
                "null model": Series(x, (low + high) / 2, (high - low) / 2),
            },
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws `figure()`."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists: the cells of every row, and its values."""
        return {
            "null": self.null,
            "draws": self.draws,
            "weights": [one.to_dict() for one in self.weights],
        }


def weight_spectra(
    model: nn.Module,
    *,
    estimator: TailEstimator | None = None,
    null: Null = "gaussian",
    draws: int = DRAWS,
    seed: int = 0,
) -> WeightSpectra:
    """The spectra of all parameters with two or more axes, each beside its null model.

    A convolution (out, in, height, width) is the matrix (out, in height width) that it multiplies patches with.

    Args:
        model: any module; it is only read.
        estimator: `Hill(m)` or `PowerLaw()`, which chooses xmin as WeightWatcher does and needs `powerlaw`; None is
            Hill with a tenth of the values.
        null: "gaussian" or "shuffled", see `matrix_tail`.
        draws: matrices of the null model.
        seed: of all random numbers.

    Raises:
        InputError: it is no module, or there are too few draws.
        ModelError: there is no such parameter, or one is empty or has no values yet.
        NumericalError: a weight is not finite.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> found = weight_spectra(nn.Sequential(nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 3)))
        >>> found
        WeightSpectra(2 weights, 0 with a heavy tail)
        >>> found["2.weight"].remark
        'no tail: 3 singular values, fewer than 20'
    """
    if not isinstance(model, nn.Module):
        raise InputError(
            "no module",
            expected="an nn.Module",
            got=type(model).__name__,
            hint="matrix_tail(W) of one matrix",
        )
    draws = as_count(draws, "number of draws", least=LEAST_DRAWS)
    named = [(name, p) for name, p in model.named_parameters() if is_lazy(p) or p.ndim >= 2]
    if not named:
        raise ModelError("no weights", expected="a parameter with two axes", got=type(model).__name__)
    found = []
    for name, parameter in named:
        if is_lazy(parameter):
            raise ModelError(f"{name} has no values yet", hint="run the model on a batch first")
        if not parameter.numel():
            raise ModelError(f"{name} is empty", expected="entries", got=tuple(parameter.shape))
        if not parameter.is_floating_point():
            raise ModelError(f"the spectrum of {name}", expected="real numbers", got=parameter.dtype)
        W = (
            parameter.detach().flatten(1).float()
            if parameter.dtype.itemsize < 4
            else parameter.detach().flatten(1)
        )
        check_finite(W, f"parameter {name}")
        found.append(_spectrum_of(name, W, estimator, null=null, draws=draws, seed=seed))
    return WeightSpectra(tuple(found), null, draws)


def _spectrum_of(
    name: str, W: Float[Tensor, "n d"], estimator: TailEstimator | None, *, null: Null, draws: int, seed: int
) -> WeightSpectrum:
    n, d = W.shape
    values = squared_singular_values(W)
    count = int((values > rounding(values, W)).sum())
    random = gaussian_null(n, d, draws, seed)
    remarks, tail, edge, spikes = [], None, None, None
    if count >= LEAST:
        tail = tail_of_values(values, W, estimator, null=null, draws=draws, seed=seed)
    else:
        remarks.append(f"no tail: {counted(count, 'singular value')}, fewer than {LEAST}")
    if tail is not None and math.isinf(tail.alpha):
        remarks.append("no alpha: the largest singular values are all equal")
    if count > min(n, d) // 2 and count >= 2:
        bulk = weight_bulk(values, (n, d))
        edge, spikes = bulk.high, bulk.count(values)
    elif count >= 2:
        remarks.append(f"no bulk: rank {count} of {min(n, d)}, no more than half")
    return WeightSpectrum(
        name=name,
        shape=(n, d),
        values=values,
        tail=tail,
        num_spikes=spikes,
        bulk_max=edge,
        rand_distance=_distance(values, squared_singular_values(shuffled(W, seed))) if count else None,
        stable_rank_null=float(np.median(random.sum(1) / random[:, 0])),
        remark="; ".join(remarks),
    )


def weight_bulk(values: np.ndarray, shape: tuple[int, int]) -> Bulk:
    """The bulk of Wᵀ W for a weight of this shape, of independent entries but for spikes, from its eigenvalues.

    Raises:
        NumericalError: the median is zero, as of a weight whose rank is less than half of its size.
    """
    large, small = max(shape), min(shape)
    variance = bulk_variance(np.asarray(values) / large, large, small)
    return marchenko_pastur(large, small, variance * large)


def _distance(values: np.ndarray, others: np.ndarray) -> float:
    edges = np.histogram_bin_edges(np.concatenate([values, others]), math.ceil(len(values) ** 0.5))
    p, q = (np.histogram(one, edges)[0] for one in (values, others))
    return float(jensenshannon(p, q))


def _log10(value: float) -> float | None:
    return math.log10(value) if value > 0 else None
