"""Where a result draws itself: on the axes that it is given, or on new ones."""

from typing import TYPE_CHECKING

from tangentkit.report.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def drawn(figure: Figure, ax: "Axes | None" = None) -> "Axes":
    """The axes with a figure on them, titled; new ones, of its size and of no window, where None are given."""
    if ax is None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=figure.size, layout="constrained")
        FigureCanvasAgg(canvas)
        ax = canvas.add_subplot()
    figure.draw(ax)
    ax.set_title(figure.title)
    return ax
