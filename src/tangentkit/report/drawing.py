"""Figures as image files, light or dark: the only module that talks to matplotlib's machinery.

No pyplot: nothing is registered globally, and no window system is needed.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from tangentkit.report.figure import Figure, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg

ImageFormat = Literal["svg", "png", "webp"]
"""Of which WebP is without loss, and about half as large as the same as SVG."""

PNG_DPI = 160


@dataclass(frozen=True)
class Palette:
    """The colors of a figure."""

    background: str
    ink: str
    grid: str
    series: tuple[str, ...]
    """Told apart by people who are color-blind, and by their lightness in print."""


LIGHT = Palette(
    background="#ffffff",
    ink="#1f2430",
    grid="#dfe3ea",
    series=("#1f5fa8", "#d9730d", "#1d8a6b", "#a8326b", "#6b5fc7", "#8a6d1a", "#5a6472"),
)
DARK = Palette(
    background="#171b22",
    ink="#e3e7ee",
    grid="#343b47",
    series=("#6fb1ff", "#ffa64d", "#4fd1a5", "#f07fb0", "#a99cff", "#d6b85a", "#a3adbb"),
)


def image(figure: Figure, palette: Palette = LIGHT, *, format: ImageFormat = "svg") -> bytes:
    """The figure as the content of an image file; the same numbers give the same bytes."""
    return images(figure, (palette,), format=format)[0]


def images(figure: Figure, palettes: Sequence[Palette], *, format: ImageFormat = "svg") -> list[bytes]:
    """The figure in several palettes, each as the content of an image file, with the same bytes as alone.

    To find the layout takes longer than to draw, and colors do not change it: it is found once.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    contents, places = [], []
    for palette in palettes:
        with _colors(palette):
            canvas = Canvas(figsize=figure.size, dpi=PNG_DPI, layout="constrained")
            writer = FigureCanvasSVG(canvas) if format == "svg" else FigureCanvasAgg(canvas)
            ax = canvas.add_subplot()
            figure.draw(ax)
            # savefig would draw everything once more, on nothing, to find the same layout.
            if not places:
                layout = canvas.get_layout_engine()
                assert layout is not None
                layout.execute(canvas)
                places = [ax.get_position(original=True) for ax in canvas.axes]
            canvas.set_layout_engine("none")
            for ax, place in zip(canvas.axes, places, strict=True):
                ax.set_position(place)
            # The layout of an SVG has put it to 72; pictures in it are as sharp as in a PNG.
            canvas.set_dpi(PNG_DPI)
            content = io.BytesIO()
            # Without a date, equal figures are equal files.
            if isinstance(writer, FigureCanvasSVG):
                writer.print_svg(content, metadata={"Date": None})
            elif format == "png":
                writer.print_png(content, metadata={"Software": None})
            else:
                _write_webp(writer, content)
        contents.append(content.getvalue())
    return contents


def _write_webp(writer: "FigureCanvasAgg", content: io.BytesIO) -> None:
    from PIL import Image

    writer.draw()
    # More effort than 2 takes half as long again and saves nothing.
    Image.fromarray(np.asarray(writer.buffer_rgba())).save(content, "WEBP", lossless=True, method=2)


def drawn(figure: Figure, ax: "Axes | None" = None) -> "Axes":
    """The axes that the figure was added to: those given, or new ones of its own size, which belong to no window."""
    if ax is None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=figure.size, layout="constrained")
        FigureCanvasAgg(canvas)
        ax = canvas.add_subplot()
        ax.set_title(words(figure.title))
    figure.draw(ax)
    return ax


def save(figure: Figure, path: str | Path, palette: Palette = LIGHT) -> Path:
    """Writes the figure to a file whose suffix, .png or .svg, is its format, and returns the path.

    Raises:
        UnknownNameError: another suffix.
    """
    from tangentkit.core.errors import UnknownNameError
    from tangentkit.core.files.safe import as_path, write_whole

    path = as_path(path)
    suffix = path.suffix.removeprefix(".")
    if suffix not in ("png", "svg"):
        raise UnknownNameError("image format", suffix, ["png", "svg"])
    content = image(figure, palette, format="png" if suffix == "png" else "svg")
    write_whole(path, [content], durable=False)
    return path


@contextmanager
def _colors(palette: Palette) -> Iterator[None]:
    from cycler import cycler
    from matplotlib import rc_context, rcParamsDefault

    style = {
        "axes.edgecolor": palette.grid,
        "axes.facecolor": palette.background,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.labelcolor": palette.ink,
        "axes.prop_cycle": cycler(color=list(palette.series)),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.facecolor": palette.background,
        "font.size": 10,
        "font.family": "DejaVu Sans",
        "grid.color": palette.grid,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.linewidth": 1.8,
        "savefig.facecolor": palette.background,
        "svg.fonttype": "path",
        "svg.hashsalt": "tangentkit",
        "text.color": palette.ink,
        "xtick.color": palette.ink,
        "ytick.color": palette.ink,
    }
    # Start from matplotlib's defaults: a user's own style must not leak into a report.
    base = {
        key: value for key, value in rcParamsDefault.items() if key not in ("backend", "backend_fallback")
    }
    with rc_context({**base, **style}):  # pyright: ignore[reportArgumentType]
        yield
