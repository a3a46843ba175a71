"""Densities of two samples along principal components, as curves or contours."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tangentkit.core.errors import NumericalError
from tangentkit.report import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from scipy.stats import gaussian_kde

POINTS = 200
SIDE = 120
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Contours, as shares of the highest density."""
MARGIN = 0.03
TAILS = 3
"""Widths of the outermost Gaussians of an estimate that are looked at."""
FAINT = 0.005
"""The share of the highest density down to which a curve is shown."""


def density(points: NDArray[np.float64], what: str) -> "gaussian_kde":
    """The kernel density estimate of points (n, d), by Scott's rule.

    Raises:
        NumericalError: they are on fewer than d dimensions.
    """
    from scipy.stats import gaussian_kde

    try:
        return gaussian_kde(points.T)
    except np.linalg.LinAlgError:
        raise NumericalError(
            f"{what} has no density on {points.shape[1]} component(s)",
            got="points on fewer dimensions",
            hint="other components",
        ) from None


@dataclass(frozen=True, eq=False, kw_only=True)
class DensityCurves(Figure):
    """Densities of samples along one axis."""

    samples: dict[str, NDArray[np.float64]]
    """Name -> (n, 1)."""
    x_label: str

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        estimates = {name: density(points, name) for name, points in self.samples.items()}
        ((low, high),) = _within_reach(estimates)
        grid, ends = np.linspace(low, high, POINTS), []
        for name, estimate in estimates.items():
            values = estimate(grid)
            (line,) = ax.plot(grid, values, label=name)
            ax.fill_between(grid, values, alpha=0.2, linewidth=0, color=line.get_color())
            ends.append(grid[values >= FAINT * values.max()])
        ax.set_xlim(_limits(np.concatenate([*ends, *(points[:, 0] for points in self.samples.values())])))
        ax.set(xlabel=self.x_label, ylabel="density", ylim=(0, None))
        ax.legend(loc="best")


@dataclass(frozen=True, eq=False, kw_only=True)
class DensityContours(Figure):
    """Densities of samples over a plane, a set of contours each."""

    samples: dict[str, NDArray[np.float64]]
    """Name -> (n, 2)."""
    x_label: str
    y_label: str
    size: tuple[float, float] = (4.8, 4.2)

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        estimates = {name: density(points, name) for name, points in self.samples.items()}
        (left, right), (low, high) = _within_reach(estimates)
        x, y = np.meshgrid(np.linspace(left, right, SIDE), np.linspace(low, high, SIDE))
        shown = list(self.samples.values())
        for name, points in self.samples.items():
            values = estimates[name](np.stack([x.ravel(), y.ravel()])).reshape(x.shape)
            (line,) = ax.plot([], [], label=name)
            levels = [share * values.max() for share in LEVELS]
            ax.contour(x, y, values, levels=levels, colors=[line.get_color()], linewidths=1.2)
            ax.scatter(*points[:500].T, s=3, alpha=0.25, linewidths=0, color=line.get_color())
            inside = values >= levels[0]
            shown.append(np.stack([x[inside], y[inside]], 1))
        xlim, ylim = (_limits(along) for along in np.concatenate(shown).T)
        ax.set(xlabel=self.x_label, ylabel=self.y_label, xlim=xlim, ylim=ylim)
        ax.legend(loc="best")


def _within_reach(estimates: "dict[str, gaussian_kde]") -> list[tuple[float, float]]:
    """Along each axis, the range of the points of all estimates with the tails of the outermost."""
    tails = [TAILS * estimate.covariance.diagonal()[:, None] ** 0.5 for estimate in estimates.values()]
    ends = [
        np.concatenate([estimate.dataset - tail, estimate.dataset + tail], 1)
        for estimate, tail in zip(estimates.values(), tails, strict=True)
    ]
    everything = np.concatenate(ends, 1)
    return list(zip(everything.min(1).tolist(), everything.max(1).tolist(), strict=True))


def _limits(shown: NDArray[np.float64]) -> tuple[float, float]:
    low, high = float(shown.min()), float(shown.max())
    margin = MARGIN * (high - low)
    return low - margin, high + margin
