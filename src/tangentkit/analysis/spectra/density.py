"""The density of a spectrum: of values that are known, or of an operator known by its products."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from scipy.special import ndtr
from scipy.stats import t as student

from tangentkit.analysis.spectra.operators import KernelProducts
from tangentkit.core.errors import InputError, NumericalError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.linalg import Spectrum, as_operator, check_symmetric, in_memory
from tangentkit.linalg.operators.checks import below_zero
from tangentkit.linalg.operators.matrices import DenseOperator
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.spectra.lanczos import lanczos_quadrature
from tangentkit.report.drawing import drawn
from tangentkit.report.figure import Lines, Series
from tangentkit.report.measured import Measured
from tangentkit.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Scale = Literal["linear", "log"]
SCALES = ("linear", "log")

ROUNDING = 100
"""Nodes up to so many ε of the largest may as well be zero."""
MERGED = 10
"""Nodes within so many ε of the largest may be one eigenvalue, seen by different vectors."""
TAILS = 4
"""Widths of the outermost Gaussians that the grid holds."""


@dataclass(frozen=True)
class Resolution:
    """What so many Lanczos steps can tell apart: 0.6 of the distance of nodes, which is largest in mid-range.

    Nodes lie about π √((λ - low)(high - λ)) / steps from each other. Narrower Gaussians would draw the nodes
    and not the density; from this width on, sums over nodes are the integral to within 0.1 %.

    Example:
        >>> Resolution(-1.0, 1.0, steps=100).width(np.array([-1.0, 0.0]))
        array([0.0006..., 0.02...])
    """

    low: float
    high: float
    steps: int
    rounding: float = 0.0
    """The least width: nearer nodes may be one eigenvalue."""

    def width(self, values: np.ndarray) -> np.ndarray:
        """The standard deviation of the Gaussian at each value."""
        half = (self.high - self.low) / 2
        # One eigenvalue alone has no range: any small width draws it.
        edge = max(3 * half / self.steps, 1e-6 * max(abs(self.high), abs(self.low)), 1e-300)
        # Two roots, since the product may leave the range of numbers.
        inside = np.sqrt((values - self.low).clip(min=0)) * np.sqrt((self.high - values).clip(min=0))
        return np.maximum(2 / self.steps * np.hypot(inside, edge), self.rounding)

    def bumps(self, values: np.ndarray, scale: Scale) -> tuple[np.ndarray, np.ndarray]:
        """Where the Gaussians stand on the axis of a scale, and their widths there."""
        if scale == "linear":
            return values, self.width(values)
        return np.log10(values), self.width(values) / (values * np.log(10))


@dataclass(frozen=True)
class EvenResolution:
    """One width for all values, of eigenvalues that are known: 2 / steps of half the range of the axis."""

    low: float
    high: float
    steps: int

    def bumps(self, values: np.ndarray, scale: Scale) -> tuple[np.ndarray, np.ndarray]:
        """Where the Gaussians stand on the axis of a scale, and their widths there."""
        log = scale == "log"
        low, high = np.log10([self.low, self.high]) if log else (self.low, self.high)
        size = 1.0 if log else max(abs(low), abs(high))
        width = max((high - low) / self.steps, 1e-6 * size, 1e-300)
        return np.log10(values) if log else values, np.full(values.shape, width)


@dataclass(frozen=True, eq=False, repr=False)
class SpectralDensity:
    """A density of eigenvalues on a grid, with its standard error.

    It is the mean of Σ_k w_k N(t; θ_k, width(θ_k)²) over random vectors, each with a Gauss rule (θ, w) of Lanczos.
    What it estimates, and what its errors are of, is (1/n) Σ_i N(t; λ_i, width(λ_i)²), both averaged over the cells
    of the grid: Gaussians that are narrower than a cell keep their mass.
    """

    grid: np.ndarray
    """Eigenvalues, (t,), evenly spaced in the scale."""
    density: np.ndarray
    """Per unit of eigenvalue, or of log10 eigenvalue, (t,). It integrates to 1 with `at_zero`."""
    error: np.ndarray
    """The standard error of the density over random vectors, (t,); 0 where all eigenvalues are known."""
    scale: Scale
    resolution: "Resolution | EvenResolution"
    """The width of the Gaussians."""
    floor: float
    """Eigenvalues up to this are too near zero for a place on a logarithmic axis."""
    count: int
    """The number n of eigenvalues."""
    nodes: np.ndarray
    """The nodes of the rules, (probes, steps)."""
    weights: np.ndarray
    """Their weights, (probes, steps), which sum to 1 over steps."""
    trace: float | None = None
    """The sum of all eigenvalues, where the diagonal of the operator is at hand."""

    def __repr__(self) -> str:
        probes, steps = self.nodes.shape
        how = "all known" if self.is_exact else f"{probes} probes of {steps} steps"
        ends = f"{self.nodes.min():.4g} to {self.nodes.max():.4g}"
        return f"SpectralDensity({self.count} eigenvalues, {ends}, {self.scale} scale, {how})"

    @property
    def is_exact(self) -> bool:
        """Whether it is made from all eigenvalues."""
        return self.nodes.shape[0] == 1

    def mean(self, f: Any) -> Measured:
        """(1/n) Σ_i f(λ_i) for a function of arrays, smooth on the range of the spectrum.

        Example:
            >>> import torch
            >>> density = spectral_density(torch.diag(torch.arange(1.0, 101.0, dtype=torch.float64)), seed=1)
            >>> mean = density.mean(lambda values: values)
            >>> abs(mean.value - 50.5) < 4 * mean.error
            True
        """
        return self._over_probes((self.weights * f(self.nodes)).sum(1))

    def share_below(self, value: float) -> Measured:
        """The share of eigenvalues up to a value, smoothed by the width in linear scale."""
        return self.mean(lambda nodes: ndtr((value - nodes) / self.resolution.bumps(nodes, "linear")[1]))

    @property
    def at_zero(self) -> Measured:
        """The share of eigenvalues up to `floor`, which a logarithmic axis has no place for."""
        return self.mean(lambda nodes: (nodes <= self.floor).astype(float))

    def band(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the interval around each point of the density, by Student's t."""
        probes = self.nodes.shape[0]
        half = 0.0 if self.is_exact else student.ppf((1 + level) / 2, probes - 1) * self.error
        return (self.density - half).clip(min=0), self.density + half

    def table(self) -> Table:
        """Ends, mean and spread of the eigenvalues, with their standard errors."""
        estimate = self.mean(lambda nodes: nodes)
        mean = estimate if self.trace is None else Measured(self.trace / self.count, 0.0)
        square = self.mean(np.square)
        rows = (
            ("eigenvalues", self.count),
            ("smallest node", float(self.nodes.min())),
            ("largest node", float(self.nodes.max())),
            ("mean", mean),
            ("mean square", square),
            ("trace", _times(mean, self.count)),
            (f"share up to {self.floor:.2g}", self.at_zero),
        )
        probes, steps = self.nodes.shape
        how = "all eigenvalues are known" if self.is_exact else f"Lanczos: {probes} vectors, {steps} steps"
        return Table("Spectral density", ("measure", "value"), rows, note=how)

    def figure(self) -> Lines:
        """The density with its 95 % band."""
        low, high = self.band()
        log = self.scale == "log"
        zero = self.at_zero.value
        caption = f"The density of {self.count} eigenvalues, smoothed, with its 95 % band."
        return Lines(
            title="Spectral density",
            caption=caption + (f" {zero:.1%} of them are zero or nearly so." if log and zero > 1e-3 else ""),
            x_label="eigenvalue",
            y_label="density of log10 eigenvalue" if log else "density",
            x_scale=self.scale,
            series={
                "density": Series(
                    self.grid, self.density, np.stack([self.density - low, high - self.density])
                )
            },
            markers=False,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws `figure()`."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {
            "scale": self.scale,
            "floor": self.floor,
            "resolution": {
                "low": self.resolution.low,
                "high": self.resolution.high,
                "steps": self.resolution.steps,
                "rounding": getattr(self.resolution, "rounding", 0.0),
            },
            "count": self.count,
            "grid": self.grid.tolist(),
            "density": self.density.tolist(),
            "error": self.error.tolist(),
        }

    def _over_probes(self, draws: np.ndarray) -> Measured:
        return Measured(float(draws[0]), 0.0) if self.is_exact else Measured.over(draws.tolist())


def spectral_density(
    operator: Any,
    *,
    steps: int = 80,
    probes: int = 10,
    scale: Scale = "linear",
    points: int = 1024,
    seed: int = 0,
    memory: Memory = None,
) -> SpectralDensity:
    """The density of the eigenvalues of a symmetric operator by stochastic Lanczos quadrature, with error bars.

    It takes steps x probes products and no decomposition: for operators of any size (Ubaru, Chen, Saad 2017). The
    error bars are of the density smoothed by its `resolution`, as fine as the steps allow.

    Args:
        operator: an operator, such as a stored Gram matrix or `KernelProducts`; a tensor or an array (n, n); or a
            whole `Spectrum`, whose density is exact.
        steps: Lanczos steps for each random vector; the more, the finer the density.
        probes: random vectors, at least 2; errors fall as 1 / √probes.
        scale: "log" for the density of log10 eigenvalue, of a positive semi-definite operator.
        points: of the grid.
        seed: of the random vectors.
        memory: the most bytes that the Lanczos vectors may take, and a dense form where it helps.

    Raises:
        InputError: the operator is not square, a spectrum is partial, or a number is out of range.
        UnknownNameError: there is no such scale.
        NumericalError: the operator is not symmetric or not finite, or zero.

    Example:
        >>> import torch
        >>> X = torch.randn(200, 400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> density = spectral_density(X @ X.T / 400)
        >>> density
        SpectralDensity(200 eigenvalues, 0.1... to 2.9..., linear scale, 10 probes of 80 steps)
    """
    if scale not in SCALES:
        raise UnknownNameError("scale of a density", scale, SCALES)
    _at_least("points of a grid", points, 2)
    if isinstance(operator, Spectrum):
        return _of_values(operator, steps, scale, points)
    operator = as_operator(operator)
    check_symmetric(operator, memory=memory)
    n = operator.shape[0]
    _at_least("eigenvalues", n, 2)
    _at_least("random vectors", probes, 2)
    _at_least("Lanczos steps", steps, 2)
    operator = in_memory(operator, memory)
    known = isinstance(operator, (DenseOperator, KernelProducts))
    nodes, weights = lanczos_quadrature(
        operator,
        probes=probes,
        steps=min(steps, n),
        key=Key(seed).fold("spectral density"),
        memory=memory,
    )
    seen = nodes[weights > 0]
    _check_not_zero(seen)
    if scale == "log":
        _check_logarithms(seen)
    rounding = MERGED * torch.finfo(operator.dtype).eps * float(np.abs(seen).max())
    resolution = Resolution(float(seen.min()), float(seen.max()), steps, rounding)
    floor = _floor(seen, resolution, operator.dtype)
    trace = float(operator.diagonal().double().sum()) if known else None
    return replace(_density(nodes, weights, n, resolution, floor, scale, points), trace=trace)


def _of_values(spectrum: Spectrum, steps: int, scale: Scale, points: int) -> SpectralDensity:
    if spectrum.is_partial:
        n, r = spectrum.vectors.shape
        raise InputError(
            "the density needs all values",
            expected=f"{n} values",
            got=f"the largest {r}",
            hint="spectral_density of the operator itself",
        )
    values = spectrum.eigenvalues.double().cpu().numpy()[None]
    _check_not_zero(values)
    seen = values[values > spectrum.noise] if scale == "log" else values
    if scale == "log":
        _check_logarithms(values)
    resolution = EvenResolution(float(seen.min()), float(seen.max()), steps)
    return _density(
        values, np.full_like(values, 1 / values.size), values.size, resolution, spectrum.noise, scale, points
    )


def _density(
    nodes: np.ndarray,
    weights: np.ndarray,
    n: int,
    resolution: "Resolution | EvenResolution",
    floor: float,
    scale: Scale,
    points: int,
) -> SpectralDensity:
    kept = weights > 0
    if scale == "log":
        kept &= nodes > floor
    grid = _grid(*resolution.bumps(nodes[kept], scale), points)
    draws = np.array(
        [
            _smooth(grid, *resolution.bumps(t[k], scale), w[k])
            for t, w, k in zip(nodes, weights, kept, strict=True)
        ]
    )
    size = draws.max()  # of small eigenvalues so large that its square is beyond the range of numbers
    error = (draws / size).std(0, ddof=1) / len(draws) ** 0.5 * size if len(draws) > 1 else np.zeros(points)
    return SpectralDensity(
        grid=grid if scale == "linear" else 10**grid,
        density=draws.mean(0),
        error=error,
        scale=scale,
        resolution=resolution,
        floor=floor,
        count=n,
        nodes=nodes,
        weights=weights,
    )


def _floor(nodes: np.ndarray, resolution: Resolution, dtype: torch.dtype) -> float:
    """The largest value that rounding, or the width of its Gaussian, keeps from being told from zero."""
    blurred = nodes[resolution.width(nodes) > nodes]
    return max(ROUNDING * torch.finfo(dtype).eps * np.abs(nodes).max(), blurred.max(initial=0.0))


def _check_not_zero(nodes: np.ndarray) -> None:
    if not np.abs(nodes).max() > 0:
        raise NumericalError(
            "the operator is zero, and has no density",
            expected="an eigenvalue that is not zero",
            got="0 for all that were seen",
        )


def _check_logarithms(nodes: np.ndarray) -> None:
    largest = nodes.max()
    if not largest > 0:
        raise NumericalError("no logarithms", expected="a positive eigenvalue", got=f"largest {largest:.3g}")
    if nodes.min() < -below_zero(torch.float32) * largest:
        raise NumericalError(
            "a logarithmic density is of positive semi-definite operators",
            expected="no negative eigenvalue",
            got=f"{nodes.min():.3g}",
            hint='scale="linear"',
        )


def _grid(places: np.ndarray, widths: np.ndarray, points: int) -> np.ndarray:
    """Evenly spaced points about all Gaussians, with an empty cell at either end where there are enough points."""
    low, high = (places - TAILS * widths).min(), (places + TAILS * widths).max()
    margin = (high - low) / max(points - 3, 1)
    return np.linspace(low - margin, high + margin, points)


def _smooth(grid: np.ndarray, places: np.ndarray, widths: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Σ_k masses_k N(t; places_k, widths_k²), averaged over the cell of each grid point."""
    step = (grid[-1] - grid[0]) / (len(grid) - 1)
    ends = np.append(grid - step / 2, grid[-1] + step / 2)
    inside = np.diff(ndtr((ends[:, None] - places) / widths), axis=0).clip(min=0)
    return inside @ masses / step


def _times(number: Measured, factor: float) -> Measured:
    return Measured(number.value * factor, None if number.error is None else number.error * factor)


def _at_least(what: str, count: int, least: int) -> None:
    if count < least:
        raise InputError(f"too few {what}", expected=f"at least {least}", got=count)
