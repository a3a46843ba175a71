"""Tables print what they hold; claims are judged by an interval over seeds and never by one run."""

import csv
import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from tangentkit.core.errors import InputError
from tangentkit.report import Claim, Column, Measured, Table

numbers = st.floats(-1e6, 1e6)


@settings(deadline=None)
@given(st.lists(numbers, min_size=2, max_size=20))
def test_measured_is_mean_and_standard_error(samples):
    measured = Measured.over(samples)
    assert measured.value == pytest.approx(np.mean(samples), rel=1e-12, abs=1e-6)
    assert measured.error == pytest.approx(
        np.std(samples, ddof=1) / math.sqrt(len(samples)), rel=1e-9, abs=1e-6
    )


def test_equal_samples_have_no_error():
    """0.1 + 0.1 + 0.1 is not 3 times 0.1."""
    for value in (0.1, 0.838782252547177642, 1e300, -7.3e-12):
        assert Measured.over([value] * 5) == Measured(value, 0.0)


def test_one_run_has_no_error_and_no_run_no_value():
    assert Measured.over([2.0]) == Measured(2.0, None)
    assert math.isnan(Measured.over([]).value)


def test_cells_print_in_the_format_of_their_column():
    table = Table(
        "t",
        ("name", "count", Column("TAD", "+.2f")),
        (("a", 61706, Measured(-0.284, 0.031)), ("b", 3, None), ("c", 4, math.nan), ("d", 5, 0.5)),
    )
    assert table.texts() == [
        ["a", "61,706", "-0.28 ± 0.03"],
        ["b", "3", "–"],
        ["c", "4", "–"],
        ["d", "5", "+0.50"],
    ]
    assert [table.is_numeric(i) for i in range(3)] == [False, True, True]


def test_a_row_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="2 cells"):
        Table("t", ("a", "b"), ((1, 2), (3,)))


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(), numbers, numbers), max_size=5))
def test_csv_gives_back_every_number_exactly(rows):
    table = Table("t", ("name", "x, y", "z"), tuple((name, Measured(x, 1.5), z) for name, x, z in rows))
    read = list(csv.reader(io.StringIO(table.to_csv(), newline="")))
    if rows:
        assert read[0] == ["name", "x, y", "x, y (standard error)", "z"]
    for (name, x, z), line in zip(rows, read[1:], strict=True):
        assert line[0] == name
        assert [float(value) for value in line[1:]] == [x, 1.5, z]


def test_the_terminal_shows_markup_as_plain_text():
    table = Table("[red]title[/red]", ("name",), (("[bold]x[/bold]",),), ours=(0,))
    console = Console(file=io.StringIO(), width=80)
    console.print(table.to_rich())
    assert "[red]title[/red]" in console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "[bold]x[/bold]" in console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


@settings(deadline=None)
@given(st.lists(numbers, min_size=2, max_size=12))
def test_the_interval_is_students(values):
    interval = Claim("c", "x", tuple(values), low=0.0).interval
    error = stats.sem(values)
    if error < 1e-9:
        assert interval.low == pytest.approx(interval.high, abs=1e-6)
        return
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error)
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-6, abs=1e-6)


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=8), numbers, numbers)
def test_the_verdict_follows_from_the_interval(values, a, b):
    low, high = min(a, b), max(a, b)
    claim = Claim("c", "x", tuple(values), low=low, high=high)
    interval, verdict = claim.interval, claim.verdict
    inside = low < interval.low and interval.high < high
    outside = interval.high < low or high < interval.low
    assert verdict == ("holds" if inside else "does not hold" if outside else "not decided")
    if len(values) == 1:
        assert verdict == "not decided"


def test_equal_runs_at_the_bound_decide_nothing():
    assert Claim("strictly above", "difference", (0.0, 0.0, 0.0), low=0.0).verdict == "not decided"
    assert Claim("nan", "x", (0.1, math.nan), low=0.0).verdict == "not decided"


def test_the_evidence_names_numbers_and_needs():
    assert "95 % interval" in Claim("c", "tau", (0.8, 0.82), low=0.7).evidence
    assert "no interval from one seed" in Claim("c", "tau", (0.8,), low=0.7).evidence
    assert "x: 0.1000, the same for all 7 seeds; needed" in Claim("c", "x", (0.1,) * 7, high=3).evidence
    assert "between -2 and 2" in Claim("c", "TAD", (0.8, 0.9), low=-2, high=2).evidence
    assert "below 3" in Claim("c", "x", (0.8, 0.9), high=3).evidence


def test_values_of_other_things_than_seeds_are_said_to_be_and_ask_for_no_seeds():
    fifths = "fifths of the test images"
    assert Claim("c", "tau", (0.8, 0.82), low=0.7, over=fifths).evidence.endswith(
        "over 2 fifths of the test images; needed: above 0.7"
    )
    claim = Claim("c", "tau", (0.6, 0.9, 0.8), low=0.7, over=fifths)
    assert claim.seeds_needed is None
    assert claim.remedy == "there are no more fifths of the test images, but a larger --scale may decide it"


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.floats(-1, 1))
def test_as_many_seeds_as_a_claim_asks_for_are_the_fewest_that_decide_it(values, bound):
    claim = Claim("c", "x", tuple(values), low=bound)
    needed = claim.seeds_needed
    if claim.verdict != "not decided":
        assert (needed, claim.remedy) == (None, "")
        return
    mean, spread = np.mean(values), np.std(values, ddof=1)

    def decides(n: int) -> bool:
        return bool(stats.t.ppf(0.975, n - 1) * spread / math.sqrt(n) < abs(mean - bound))

    if needed is None:
        assert not decides(99)
        assert "seeds alone will not" in claim.remedy
    else:
        assert needed > len(values)
        assert decides(needed + 1)
        assert needed == len(values) + 1 or not decides(needed - 2)
        assert f"about {needed} seeds" in claim.remedy


def test_where_seeds_would_be_hundreds_a_larger_study_is_named():
    claim = Claim("c", "x", (0.1, -0.1, 0.02), low=0.0, larger="--train and --test")
    assert claim.seeds_needed is None
    assert claim.remedy.startswith("seeds alone will not at this size (about ")
    assert claim.remedy.endswith("but --train and --test may")
    assert "not even 1,000" in Claim("c", "x", (0.1, -0.1), low=0.0).remedy


def test_one_seed_asks_for_a_few():
    claim = Claim("c", "x", (1.0,), low=0.0)
    assert claim.seeds_needed == 5
    assert "one seed decides nothing" in claim.remedy
    assert Claim("c", "x", (0.1, math.nan), low=0.0).seeds_needed is None
