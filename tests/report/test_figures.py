"""Figures hold numbers; drawing them changes nothing outside and gives the same bytes each time."""

import io
import itertools
import xml.etree.ElementTree as ET
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Canvas

from report.sample_page import sample_figures
from tangentkit.core.errors import UnknownNameError
from tangentkit.report import (
    DARK,
    LIGHT,
    Bars,
    Boxes,
    Claim,
    Dots,
    Figure,
    Heatmap,
    Histogram,
    Images,
    Lines,
    Ramp,
    Scatter,
    Series,
    drawing,
    image,
    save,
)

FIGURES = sample_figures()


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_a_light_and_a_dark_form(name):
    both = drawing.images(FIGURES[name], (LIGHT, DARK))
    # The dark one takes over the layout of the light one: it is the same as alone.
    assert both[1] == image(FIGURES[name], DARK)
    light, dark = (content.decode() for content in both)
    assert light.lstrip().startswith("<?xml")
    assert LIGHT.background in light
    assert DARK.background in dark
    assert DARK.background not in light


@pytest.mark.parametrize(("name", "format"), [*((name, "svg") for name in FIGURES), ("bars", "png")])
def test_files_are_those_that_matplotlib_itself_would_save(name, format):
    figure = FIGURES[name]
    with drawing._colors(LIGHT):
        canvas, content = Canvas(figsize=figure.size, layout="constrained"), io.BytesIO()
        figure.draw(canvas.add_subplot())
        metadata = {"Date": None} if format == "svg" else {"Software": None}
        canvas.savefig(content, format=format, dpi=drawing.PNG_DPI, metadata=metadata)
    assert image(figure, format=format) == content.getvalue()


@pytest.mark.parametrize(("format", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_same_numbers_give_the_same_file(format, start):
    first, second = (image(FIGURES["bars"], format=format) for _ in range(2))
    assert first == second
    assert first.startswith(start)


def test_drawing_leaves_matplotlib_as_it_was():
    before = dict(mpl.rcParams)
    image(FIGURES["bars"], DARK)
    assert dict(mpl.rcParams) == before


def test_a_users_style_does_not_reach_a_report():
    plain = image(FIGURES["bars"])
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30}):
        assert image(FIGURES["bars"]) == plain


def test_bars_show_means_runs_and_names():
    ax = Canvas().add_subplot()
    Bars(title="", caption="", values={"first": (0.5, 0.7), "second": (0.4,)}).draw(ax)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.6, 0.4])  # pyright: ignore
    assert [label.get_text() for label in ax.get_yticklabels()] == ["first", "second"]
    drawn = np.concatenate([line.get_xdata() for line in ax.lines if line.get_marker() == "o"])
    assert set(drawn) == {0.5, 0.7, 0.4}


def test_dots_show_intervals_on_an_axis_that_fits_them():
    ax = Canvas().add_subplot()
    runs = {"first": (0.85, 0.87, 0.86), "second": (0.8,)}
    Dots(title="", caption="", values=runs, level=0.7, x_label="tau").draw(ax)
    left, right = ax.get_xlim()
    assert 0.6 < left < 0.7
    assert 0.88 < right < 0.95
    assert "not from 0" in ax.get_xlabel()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["first", "second"]
    (ends,) = [line.get_xdata() for line in ax.lines if line.get_marker() == "|"]
    interval = Claim("", "", runs["first"]).interval
    assert np.asarray(ends).tolist() == [interval.low, interval.high]


def test_dots_around_zero_need_no_mark():
    ax = Canvas().add_subplot()
    Dots(title="", caption="", values={"a": (-1.0, 1.0)}, x_label="TAD").draw(ax)
    assert ax.get_xlabel() == "TAD"


def test_heatmap_names_its_groups_at_their_middle():
    ax = Canvas().add_subplot()
    Heatmap(title="", caption="", matrix=np.eye(6), groups={"cat": 4, "dog": 2}).draw(ax)
    assert list(ax.get_yticks()) == [1.5, 4.5]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cat", "dog"]


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_a_ramp_has_a_color_for_each_number_from_the_first_to_the_second_of_the_palette(palette):
    points = Series([1, 10, 100], [1, 2, 3])
    with drawing._colors(palette):
        ax = Canvas().add_subplot()
        Ramp(title="", caption="", curves=dict.fromkeys(range(28), points), x_scale="log").draw(ax)
    colors = [to_hex(line.get_color()) for line in ax.lines]
    assert len(set(colors)) == 28
    assert (colors[0], colors[-1]) == palette.series[:2]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["100", "10", "1"]


def test_save_knows_its_format_by_the_suffix(tmp_path):
    assert save(FIGURES["bars"], tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UnknownNameError, match="jpg"):
        save(FIGURES["bars"], tmp_path / "a.jpg")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


STRANGE = {
    "half a pair": "\ud800 and \udfff",
    "broken formula": r"$\frac{$",
    "formula": "$x^2$",
    "dollars": "$5 to $6, or \\$7",
    "markup": "<script> --> ]]> &amp;",
    "lines": "one\ntwo",
}


def named(*names: str) -> dict[str, Figure]:
    """Every kind of figure, with names in each place for one."""
    points, title = Series([1, 2], [1, 2], [0.1, 0.1]), names[0]
    words: dict[str, Any] = {"title": title, "caption": title}
    axes = {**words, "x_label": title, "y_label": title}
    grid = np.zeros((1, len(names), 2, 2))
    return {
        "lines": Lines(**axes, series=dict.fromkeys(names, points)),
        "ramp": Ramp(**axes, curves=dict(enumerate([points] * len(names))), value_label=title),
        "scatter": Scatter(**axes, series=dict.fromkeys(names, points)),
        "bars": Bars(**axes, values=dict.fromkeys(names, (0.5, 0.7))),
        "dots": Dots(**axes, values=dict.fromkeys(names, (0.5, 0.7))),
        "histogram": Histogram(**axes, samples=dict.fromkeys(names, (1, 2))),
        "boxes": Boxes(**axes, samples=dict.fromkeys(names, (1, 2))),
        "heatmap": Heatmap(
            **axes, matrix=np.eye(len(names)), groups=dict.fromkeys(names, 1), value_label=title
        ),
        "images": Images(**words, images=grid, labels=[names], headings=names),
    }


@pytest.mark.parametrize("kind", named("").keys())
def test_every_figure_takes_every_name(kind):
    """Controls, half a pair of surrogates, no character, a broken formula, a word that has no end."""
    names = ("\a\0\t\x9b$\\frac{$", "\x1b[31m\ud800\ufffe", "W" * 1000, "_a", "")
    assert ET.fromstring(image(named(*names)[kind])).tag.endswith("svg")


def test_names_are_shown_as_they_are():
    ax = Canvas().add_subplot()
    Bars(title="", caption="", values={name: (1.0,) for name in STRANGE.values()}).draw(ax)
    shown = [label._preprocess_math(label.get_text()) for label in ax.get_yticklabels()]  # pyright: ignore
    assert not any(is_formula for _, is_formula in shown)
    texts = dict(zip(STRANGE, (text for text, _ in shown), strict=True))
    assert texts == STRANGE | {"half a pair": r"\ud800 and \udfff"}


def test_values_beside_a_histogram_are_dashed_lines_of_its_color():
    ax = Canvas().add_subplot()
    samples = {"a": (0.1, 0.2), "b": (0.7, 0.8)}
    Histogram(title="", caption="", samples=samples, bins=[0, 0.5, 1], levels={"b": 0.6}).draw(ax)
    (line,) = ax.get_lines()
    assert (list(line.get_xdata()), line.get_linestyle()) == ([0.6, 0.6], "--")
    _, b = ax.containers
    assert line.get_color()[:3] == b[0].get_facecolor()[:3]  # pyright: ignore


def test_a_legend_has_every_name():
    ax = Canvas().add_subplot()
    Lines(title="", caption="", series={"_a": Series([1], [1]), "b": Series([1], [2])}).draw(ax)
    assert [text.get_text().strip("\u200b") for text in ax.get_legend().get_texts()] == ["_a", "b"]  # pyright: ignore


def test_a_logarithmic_axis_has_its_ticks_where_something_was_measured():
    def ticks(x: list[float]) -> list[str]:
        figure = Lines(title="t", caption="c", series={"a": Series(x, x)}, x_scale="log")
        return [label.get_text() for label in drawing.drawn(figure).get_xticklabels(which="both")]

    assert ticks([64, 16, 256]) == ["256", "64", "16"]
    assert ticks([0.0625, 0.125]) == ["0.125", "0.0625"]
    close = ticks([100, 101, 1000, 1010])
    assert close == ["1010", "100"], "labels would overlap"
    assert len(ticks(list(range(1, 100)))) > 2, "many values are a curve, with matplotlib's own ticks"


@pytest.mark.parametrize(("places", "whole"), [([3, 4], True), ([0.5, 1.0], False)])
def test_ticks_between_whole_numbers_are_whole(places, whole):
    ax = Canvas().add_subplot()
    Lines(title="", caption="", x_label="", y_label="", series={"a": Series(places, [1, 2])}).draw(ax)
    assert bool(np.all(ax.get_xticks() % 1 == 0)) == whole


@pytest.mark.parametrize(("low", "high"), [(0.05, 3.1), (1, 9.9), (0.7, 1.9), (1.0001, 1.0005), (3, 250)])
def test_ticks_of_a_short_logarithmic_axis_are_few_round_numbers_that_do_not_overlap(low, high):
    x = np.geomspace(low, high, 300)
    ax = drawing.drawn(
        Lines(title="t", caption="c", series={"a": Series(x, x)}, x_scale="log", markers=False)
    )
    ax.figure.draw_without_rendering()
    shown = [label for label in ax.get_xticklabels(which="both") if label.get_text()]
    ends = sorted((box.x0, box.x1) for box in (label.get_window_extent() for label in shown))
    assert len(ends) >= 2
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ends))
