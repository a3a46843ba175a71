"""A page with everything that is hard to show: all kinds of figures, wide tables, long words, hostile text."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tangentkit.report import (
    Bars,
    Boxes,
    Claim,
    Column,
    Dots,
    Figure,
    Heatmap,
    Histogram,
    Images,
    Lines,
    Measured,
    Page,
    Ramp,
    Scatter,
    Series,
    StandIn,
    Table,
)

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> & 'quotes'"


def sample_figures() -> dict[str, Figure]:
    rng = np.random.default_rng(0)
    x = np.arange(1.0, 9.0)
    words: dict[str, Any] = {"title": "A title", "caption": "What to see."}
    return {
        "lines": Lines(
            **words, series={"a": Series(x, x**2, x), "b": Series(x, 60 - x)}, level=20.0, x_scale="log"
        ),
        "ramp": Ramp(
            **words, curves={k / 9: Series(x, x**2 + k) for k in range(10)}, value_label="depth", level=20.0
        ),
        "scatter": Scatter(
            **words, series={"a": Series(x, x), "b": Series(x, -x)}, diagonal=True, x_label="here"
        ),
        "bars": Bars(**words, values={"first": (0.5, 0.7), "second": (0.4,)}, level=0.6, x_label="tau"),
        "dots": Dots(
            **words, values={"first": (0.85, 0.87, 0.86), "second": (0.8,)}, level=0.7, x_label="tau"
        ),
        "histogram": Histogram(**words, samples={"a": rng.normal(size=100), "b": rng.normal(size=50)}),
        "boxes": Boxes(**words, samples={"a": rng.normal(size=100), "b": rng.normal(size=50)}),
        "heatmap": Heatmap(**words, matrix=rng.random((6, 6)), groups={"cat": 4, "dog": 2}),
        "images": Images(
            **words, images=rng.random((2, 3, 4, 4)), labels=[["a", "b", "c"]] * 2, headings=["x", "y", "z"]
        ),
    }


def sample_page(text: str = "Plain words", figures: Mapping[str, Figure] | None = None) -> Page:
    columns = tuple(Column(f"column {i}", ".3f") for i in range(12))
    wide = Table(
        f"Wide {text}", ("name", *columns), ((text, *[Measured(0.5, 0.01)] * 12),), note=text, ours=(0,)
    )
    return Page(
        title=text,
        source=text,
        question=text,
        answer=text,
        terms={text: text},
        claims=(
            Claim(f"holds {text}", text, (1.0, 1.1, 1.2), low=0.5, published=text),
            Claim("does not hold", "x", (1.0, 1.1, 1.2), low=5.0),
            Claim("not decided", "x", (1.0,), low=0.5),
        ),
        tables={"wide": wide, "long": Table("Long", ("name", "value"), (("a", 1),) * 30)},
        figures=sample_figures() if figures is None else figures,
        stand_ins=(StandIn(text, text, "w" * 120, text),),
        command=f"tangentkit run {'long ' * 40}{text}",
        settings=Table("Settings", ("field", "value"), (("seeds", text),)),
        command_with=lambda seeds: f"tangentkit run toy --seeds 0-{seeds - 1}",
        files=("tables/wide.csv", "figures/dots.png", "figures/dots.svg", "numbers.json"),
        facts={"fingerprint": "0123456789abcdef" * 4, "note": text},
    )
