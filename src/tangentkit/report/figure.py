"""Figures that hold numbers and only draw: `draw(axes)` adds them to matplotlib axes.

Colors, fonts and sizes come from the surroundings (`drawing.Palette`), so that one figure has a light and a
dark form. matplotlib is imported only when something is drawn.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from tangentkit.core.text import visible
from tangentkit.report.ticks import ticks_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

AxisScale = Literal["linear", "log"]
Place = Literal["inside", "beside"]

MARKERS = "osD^vPX"
LONGEST = 24
"""Characters of a name in a figure."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Figure(ABC):
    """Something to look at."""

    title: str
    caption: str
    """What to see, in a sentence; it is also the text for readers who cannot see it."""
    size: tuple[float, float] = (4.8, 3.2)
    """Width and height in inches."""

    @abstractmethod
    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class _Plot(Figure, ABC):
    """A figure with labeled axes."""

    x_label: str = ""
    y_label: str = ""
    x_scale: AxisScale = "linear"
    y_scale: AxisScale = "linear"

    def _label(self, ax: "Axes") -> None:
        # Before any ticks: setting a scale puts matplotlib's own ticks in their place.
        ax.set(
            xlabel=words(self.x_label),
            ylabel=words(self.y_label),
            xscale=self.x_scale,
            yscale=self.y_scale,
        )


@dataclass(frozen=True, eq=False)
class Series:
    """Points of one name."""

    x: ArrayLike
    y: ArrayLike
    error: ArrayLike | None = None
    """Half the height of the band or bar around y; or (2, n), how far it goes below and above."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Lines(_Plot):
    """Curves with error bands."""

    series: Mapping[str, Series]
    level: float | None = None
    """A horizontal line to compare with."""
    markers: bool = True
    """Whether each point has a marker; smooth curves of many points have none."""
    legend: Place = "inside"
    """Where the names of curves stand: inside the axes where there is most room, or beside them on the right."""

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        for (name, one), shape in zip(self.series.items(), _cycled(MARKERS, len(self.series)), strict=True):
            marker = shape if self.markers else None
            x, y = np.asarray(one.x, dtype=float), np.asarray(one.y, dtype=float)
            (line,) = ax.plot(x, y, label=short(name), marker=marker, markersize=4)
            if one.error is not None:
                error = np.asarray(one.error, dtype=float)
                below, above = error if error.ndim == 2 else (error, error)
                ax.fill_between(x, y - below, y + above, alpha=0.2, linewidth=0, color=line.get_color())
        _level(ax, self.level)
        self._label(ax)
        places = np.concatenate([[], *(np.ravel(np.asarray(one.x, float)) for one in self.series.values())])
        if self.x_scale == "log":
            ticks_at(ax, places)
        elif self.x_scale == "linear" and (places == places.round()).all():
            ax.locator_params("x", integer=True)  # of layers and epochs there is no 3.2
        _legend(ax, self.series, self.legend)


@dataclass(frozen=True, eq=False, kw_only=True)
class Ramp(_Plot):
    """Many curves in an order, such as one for each layer: each has a number, which its color tells."""

    curves: Mapping[float, Series]
    """Number -> curve."""
    value_label: str = ""
    """What the numbers are."""
    level: float | None = None
    """A horizontal line to compare with."""

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        # No points, but a color for each number, and what a color bar is made of.
        colors = ax.scatter([], [], c=[], cmap=_ramp(), vmin=min(self.curves), vmax=max(self.curves))
        inks = colors.to_rgba(np.array(list(self.curves), dtype=float))
        for one, ink in zip(self.curves.values(), inks, strict=True):
            ax.plot(np.asarray(one.x), np.asarray(one.y), color=ink, linewidth=1.4)
        bar = ax.figure.colorbar(colors, ax=ax, label=words(self.value_label))
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        _level(ax, self.level)
        self._label(ax)
        if self.x_scale == "log":
            ticks_at(ax, np.concatenate([np.asarray(one.x, dtype=float) for one in self.curves.values()]))


@dataclass(frozen=True, eq=False, kw_only=True)
class Scatter(_Plot):
    """Clouds of points."""

    series: Mapping[str, Series]
    diagonal: bool = False
    """Whether to draw the line y = x."""

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        for (name, one), marker in zip(self.series.items(), _cycled(MARKERS, len(self.series)), strict=True):
            ax.scatter(
                np.asarray(one.x),
                np.asarray(one.y),
                label=short(name),
                marker=marker,
                s=16,
                alpha=0.75,
                linewidths=0,
            )
        if self.diagonal:
            ax.axline(
                (0, 0), slope=1, color=ax.xaxis.label.get_color(), linewidth=1, linestyle="--", zorder=0
            )
        self._label(ax)
        _legend(ax, self.series)


@dataclass(frozen=True, eq=False, kw_only=True)
class Bars(_Plot):
    """One horizontal bar for each name, with an error bar and the single runs as points."""

    values: Mapping[str, Sequence[float]]
    """Name -> one value for each seed."""
    level: float | None = None
    """A vertical line to compare with."""

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        from tangentkit.report.measured import Measured

        ink = ax.xaxis.label.get_color()
        for row, runs in enumerate(self.values.values()):
            mean = Measured.over(runs)
            ax.barh(row, mean.value, xerr=mean.error, height=0.62, ecolor=ink, capsize=3, alpha=0.85)
            ax.plot(runs, [row] * len(runs), "o", color=ink, markersize=3.5, alpha=0.7, linestyle="none")
        if self.level is not None:
            ax.axvline(self.level, color=ink, linewidth=1, linestyle="--")
        self._label(ax)
        ax.set_yticks(range(len(self.values)), [short(name) for name in self.values])
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")


@dataclass(frozen=True, eq=False, kw_only=True)
class Dots(_Plot):
    """The mean of each name with its 95 % interval, and the single runs as small dots, on an axis that fits them.

    For values whose differences matter more than their distance from 0; an axis that leaves 0 out says so.
    """

    values: Mapping[str, Sequence[float]]
    """Name -> one value for each seed."""
    level: float | None = None
    """A vertical line to compare with."""

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        from tangentkit.report.claim import Interval

        ink = ax.xaxis.label.get_color()
        for row, (runs, marker) in enumerate(
            zip(self.values.values(), _cycled(MARKERS, len(self.values)), strict=True)
        ):
            interval = Interval.over(runs)
            (mean,) = ax.plot(interval.mean, row, marker, markersize=7, zorder=3)
            if len(runs) > 1:
                ends = [interval.low, interval.high]
                ax.plot(ends, [row, row], "|-", color=mean.get_color(), markersize=9, linewidth=2.4)
            ax.plot(runs, [row + 0.28] * len(runs), "o", color=ink, markersize=3, alpha=0.6, linestyle="none")
        if self.level is not None:
            ax.axvline(self.level, color=ink, linewidth=1, linestyle="--")
        self._label(ax)
        left, right = ax.get_xlim()
        if not left <= 0 <= right:
            ax.set_xlabel(f"{words(self.x_label)}\n(axis from {left:.2g} to {right:.2g}, not from 0)".strip())
        ax.set_yticks(range(len(self.values)), [short(name) for name in self.values])
        ax.set_ylim(len(self.values) - 0.4, -0.6)
        ax.grid(visible=False, axis="y")


@dataclass(frozen=True, eq=False, kw_only=True)
class Histogram(_Plot):
    """Distributions, each scaled to area 1."""

    samples: Mapping[str, ArrayLike]
    bins: int | ArrayLike = 40
    """Their number, or their edges."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """Name of a distribution -> a value to compare it with, as a vertical line of its color."""

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        everything = np.concatenate([np.ravel(np.asarray(values)) for values in self.samples.values()])
        edges = np.histogram_bin_edges(everything, bins=self.bins)  # pyright: ignore[reportArgumentType]
        for name, values in self.samples.items():
            ax.hist(
                np.ravel(np.asarray(values)), bins=edges.tolist(), density=True, alpha=0.55, label=short(name)
            )
            if name in self.levels:
                color = ax.patches[-1].get_facecolor()[:3]  # without its transparency
                ax.axvline(self.levels[name], color=color, linewidth=1.5, linestyle="--")
        self._label(ax)
        _legend(ax, self.samples)


@dataclass(frozen=True, eq=False, kw_only=True)
class Boxes(_Plot):
    """Box plots: median, quartiles, whiskers and outliers of each name, with the mean as a triangle."""

    samples: Mapping[str, ArrayLike]

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        ink = ax.xaxis.label.get_color()
        lines = {"color": ink}
        ax.boxplot(
            [np.ravel(np.asarray(values)) for values in self.samples.values()],
            showmeans=True,
            boxprops=lines,
            whiskerprops=lines,
            capprops=lines,
            flierprops={"markersize": 3, "markeredgecolor": ink},
        )
        self._label(ax)
        names = [short(name) for name in self.samples]
        ax.set_xticks(range(1, len(names) + 1), names, rotation=30, ha="right")


@dataclass(frozen=True, eq=False, kw_only=True)
class Heatmap(_Plot):
    """A matrix as colors, its first row at the top."""

    matrix: ArrayLike
    value_label: str = ""
    groups: Mapping[str, int] = field(default_factory=dict)
    """Names of consecutive runs of rows and columns, and their lengths."""
    size: tuple[float, float] = (4.8, 4.2)

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        shown = ax.imshow(np.asarray(self.matrix, dtype=float), cmap="viridis", interpolation="nearest")
        bar = ax.figure.colorbar(shown, ax=ax, label=words(self.value_label))
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        self._label(ax)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        if self.groups:
            lengths = np.array(list(self.groups.values()))
            ends = np.cumsum(lengths)
            centers = ends - (lengths + 1) / 2
            names = [short(name) for name in self.groups]
            ax.set_xticks(centers, names, rotation=45, ha="right", rotation_mode="anchor")
            ax.set_yticks(centers, names)
            ax.tick_params(length=0)
            for edge in ends[:-1] - 0.5:
                ax.axhline(edge, color="white", linewidth=0.4, alpha=0.6)
                ax.axvline(edge, color="white", linewidth=0.4, alpha=0.6)


@dataclass(frozen=True, eq=False, kw_only=True)
class Images(Figure):
    """A grid of images, each with a word below it."""

    images: ArrayLike
    """(rows, columns, height, width) or (..., 3), in [0, 1]."""
    labels: Sequence[Sequence[str]] = ()
    """The words, in the same grid."""
    headings: Sequence[str] = ()
    """A word above each column."""

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        grid = np.asarray(self.images, dtype=float)
        rows, columns = grid.shape[:2]
        gap = 0.3 if self.labels else 0.06
        for row in range(rows):
            for column in range(columns):
                left, top = column * 1.06, row * (1 + gap)
                ax.imshow(
                    grid[row, column], cmap="gray", vmin=0, vmax=1, extent=(left, left + 1, top + 1, top)
                )
                if self.labels:
                    word = short(self.labels[row][column])
                    ax.text(left + 0.5, top + 1.04, word, ha="center", va="top", size=7)
        for column, heading in enumerate(self.headings):
            ax.text(
                column * 1.06 + 0.5, -0.06, short(heading), ha="center", va="bottom", size=8, weight="bold"
            )
        ax.set(xlim=(-0.02, columns * 1.06 - 0.04), ylim=(rows * (1 + gap), -0.3 if self.headings else -0.02))
        ax.set_axis_off()


def words(text: str) -> str:
    r"""A text as matplotlib must get it to show it as it is: dollars would begin a formula.

    Example:
        >>> print(words("$5 and $6"))
        \$5 and \$6
    """
    return visible(text).replace("$", r"\$")


def short(name: str) -> str:
    r"""A name of one of many things, as matplotlib must get it, and no longer than a figure has room for.

    Example:
        >>> print(short("a name that goes on and on"), short("5 $"))
        a name that goes on and… 5 \$
    """
    seen = visible(name)
    # Matplotlib leaves whatever begins with an underscore out of a legend.
    start = "\u200b" if seen.startswith("_") else ""
    return start + words(seen if len(seen) <= LONGEST else seen[: LONGEST - 1] + "…")


def _cycled(items: Sequence[str], count: int) -> list[str]:
    return [items[i % len(items)] for i in range(count)]


def _ramp() -> "Colormap":
    """Through three colors of the palette, all of which are seen on its background."""
    from matplotlib import rcParams
    from matplotlib.colors import LinearSegmentedColormap

    first, last, middle = rcParams["axes.prop_cycle"].by_key()["color"][:3]
    return LinearSegmentedColormap.from_list("ramp", [first, middle, last])


def _level(ax: "Axes", level: float | None) -> None:
    if level is not None:
        ax.axhline(level, color=ax.xaxis.label.get_color(), linewidth=1, linestyle="--")


def _legend(ax: "Axes", names: Mapping[str, object], place: Place = "inside") -> None:
    if len(names) < 2:
        return
    if place == "beside":
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    else:
        ax.legend(loc="best")  # said, since by default a busy machine brings a warning
