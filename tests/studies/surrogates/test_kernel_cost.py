"""The study of costs: its slopes and ratios on made-up times, and one real trial."""

import numpy as np
import pytest

from tangentkit.core.errors import InputError
from tangentkit.studies.surrogates.kernel_cost import KERNELS, Config, result, trials
from tangentkit.studies.trials.records import Records

SIZES = (1000, 4000, 8000)
CONFIG = Config(samples=SIZES)


def made_up(laws: dict[str, tuple[float, float]]) -> Records:
    """Times a N^b for each kernel's (a, b), with noise."""
    rng = np.random.default_rng(0)
    return Records(
        [
            {
                "kernel": kernel,
                "samples": n,
                "seed": seed,
                "data": "cifar10",
                "parameters": 1000,
                "time": factor * n**power * np.exp(rng.normal(0, 0.01)),
                "products": 10 * n,
                "seconds": 1.0,
            }
            for kernel, (factor, power) in laws.items()
            for n in SIZES
            for seed in range(4)
        ]
    )


def test_the_published_order_and_growth_hold_where_they_are_planted():
    found = result(CONFIG, made_up({"trNTK": (1.0, 2.0), "proj-trNTK": (0.1, 1.0), "proj-pNTK": (0.01, 1.0)}))
    assert {claim.verdict for claim in found.claims} == {"holds"}
    slopes = found.tables["times"].rows[len(SIZES)]
    assert [cell.value for cell in slopes[1:]] == pytest.approx([2, 1, 1], abs=0.05)


def test_the_reverse_does_not_hold():
    found = result(CONFIG, made_up({"trNTK": (0.01, 1.0), "proj-trNTK": (0.1, 2.0), "proj-pNTK": (1.0, 2.0)}))
    assert {claim.verdict for claim in found.claims} == {"does not hold"}


def test_small_sizes_do_not_decide_what_is_claimed_of_large_ones():
    rows = [{**row, "samples": row["samples"] // 10} for row in made_up(dict.fromkeys(KERNELS, (1.0, 1.0)))]
    found = result(Config(samples=tuple(n // 10 for n in SIZES)), Records(rows))
    assert found.claims[0].verdict == "not decided"
    assert "8,000 images or more" in found.claims[0].remedy


def test_a_size_whose_trials_failed_is_left_out():
    rows = [row for row in made_up(dict.fromkeys(KERNELS, (1.0, 1.0))) if row["samples"] != 4000]
    found = result(CONFIG, Records(rows, {"samples 4000": "MemoryError"}))
    assert found.tables["times"].texts()[1][1] == "–"


def test_real_trials_take_time():
    for trial in trials(
        Config(data=("fashion-mini",), samples=(10, 20), width=0.5, dim=512, repeats=1, seeds=(0,))
    ):
        assert trial.function(**trial.settings)["time"] > 0


def test_one_size_has_no_slope():
    with pytest.raises(InputError, match="bad samples"):
        Config(samples=(100,))
