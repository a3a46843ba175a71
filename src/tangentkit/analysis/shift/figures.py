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
SIDE = 80
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Contours, as shares of the highest density."""
MARGIN = 0.08


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
        (low, high), *_ = _limits(self.samples)
        grid = np.linspace(low, high, POINTS)
        for name, points in self.samples.items():
            values = density(points, name)(grid)
            (line,) = ax.plot(grid, values, label=name)
            ax.fill_between(grid, values, alpha=0.2, linewidth=0, color=line.get_color())
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
        (left, right), (low, high) = _limits(self.samples)
        x, y = np.meshgrid(np.linspace(left, right, SIDE), np.linspace(low, high, SIDE))
        for name, points in self.samples.items():
            values = density(points, name)(np.stack([x.ravel(), y.ravel()])).reshape(x.shape)
            (line,) = ax.plot([], [], label=name)
            levels = [share * values.max() for share in LEVELS]
            ax.contour(x, y, values, levels=levels, colors=[line.get_color()], linewidths=1.2)
            ax.scatter(*points[:500].T, s=3, alpha=0.25, linewidths=0, color=line.get_color())
        ax.set(xlabel=self.x_label, ylabel=self.y_label, xlim=(left, right), ylim=(low, high))
        ax.legend(loc="best")


def _limits(samples: dict[str, NDArray[np.float64]]) -> list[tuple[float, float]]:
    everything = np.concatenate(list(samples.values()))
    low, high = everything.min(0), everything.max(0)
    margin = MARGIN * (high - low)
    return list(zip((low - margin).tolist(), (high + margin).tolist(), strict=True))
