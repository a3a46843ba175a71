"""The study of spectral evolution: its arithmetic on made-up records, and real trials of toy size."""

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError
from tangentkit.report import DARK, image
from tangentkit.studies.spectra.spectral_evolution import Config, evolve, result, trials
from tangentkit.studies.spectra.spectral_evolution_report import TABLE_8, report
from tangentkit.studies.trials.records import Records

SIZE = (60, 40, 20)
TINY = Config(
    samples=(60,),
    widths=(40,),
    inputs=(20,),
    large_rates=(8.0,),
    rates=(1.0, 4.0),
    batch=10,
    epochs=6,
    seeds=(0,),
)


def made_up(*, reverse: bool = False) -> Records:
    """Four regimes as published, or the other way round."""
    order = list(TABLE_8)[:: -1 if reverse else 1]
    rng, rows = np.random.default_rng(0), []
    names = [*TABLE_8, "5 directions: GD", "5 directions: Adam", "sweep", "sweep"]
    for place, regime in enumerate(names):
        rank = order.index(regime.split(": ")[-1]) if regime != "sweep" else 3 * (place % 2 != reverse)
        for seed in range(4):
            rich = rank >= 2
            noise = rng.normal(0, 1e-3)
            row = {
                "regime": regime,
                "seed": seed,
                "samples": SIZE[0],
                "width": SIZE[1],
                "inputs": SIZE[2],
                "rate": float(place),
                "diverged": False,
                "error": 0.45 - 0.05 * rank + noise,
                "lazy_error": 0.375,
                "variance": 1.0,
                "r2": 0.5,
                "epochs_run": 10,
                "kta": 0.1 + 0.1 * rank + noise,
                "curve": [[0, 0.1], [5, 0.1 + 0.1 * rank]],
                "final_cosines": [0.3 + 0.1 * rank + noise],
            }
            for name in ("W", "CK", "NTK"):
                row |= {
                    f"spikes_{name}": rank if rich else 0,
                    f"beyond_{name}": 5 * rank,
                    f"initial_alignment_{name}": 0.1,
                    f"final_alignment_{name}": 0.8 + noise if rich else 0.1 + noise,
                    f"initial_top_{name}": 2.0,
                    f"final_top_{name}": 3.0,
                }
            rows.append(row)
    return Records(rows)


def test_the_published_picture_holds_where_it_is_planted():
    found = report(made_up(), SIZE, SIZE)
    assert {claim.verdict for claim in found.claims} == {"holds"}


def test_the_reverse_picture_does_not_hold():
    found = report(made_up(reverse=True), SIZE, SIZE)
    assert {claim.verdict for claim in found.claims} == {"does not hold"}


@pytest.fixture(scope="module")
def records() -> Records:
    return Records(
        [{**trial.settings, **trial.function(**trial.settings), "seconds": 1.0} for trial in trials(TINY)]
    )


def test_real_trials_are_reported_and_drawn(records):
    found = result(TINY, records)
    assert len(found.claims) == 14
    for figure in found.figures.values():
        assert image(figure, DARK, format="png")
    assert "table-8" in found.tables


def test_the_numbers_of_a_trial_are_those_of_its_network(records):
    for row in records.where(diverged=False):
        assert row["r2"] == pytest.approx(1 - row["error"] / row["variance"])
        assert row["loss"] >= 0
        for name in ("W", "CK", "NTK"):
            assert 0 <= row[f"final_alignment_{name}"] <= 1 + 1e-6
        assert 0 < row["kta"] <= 1
        assert row["curve"][0][0] == 0
        assert row["curve"][0][1] == pytest.approx(row["kta_initial"], rel=1e-5)


def test_spectra_are_those_of_the_formulas(records):
    """CK = X1ᵀX1 and NTK = (XᵀX/d) ∘ (σ'ᵀ diag(v)² σ'/h) + CK, at initialization."""
    from tangentkit.core.seeds import Key
    from tangentkit.data import random_teacher
    from tangentkit.models import two_layer

    (row,) = records.where(regime="GD", seed=0)
    key = Key(0).fold("spectral-evolution", *SIZE[:1], *SIZE[1:], 1)
    n, h, d = SIZE
    x = random_teacher(d, key=key.fold("teacher")).sample(n, key=key.fold("train")).inputs
    model = two_layer(d, h, seed=key.fold("network")).double()
    weight, v = model.get_submodule("fc1").weight, model.get_submodule("fc2").weight[0]
    scale = 0.627928
    pre = x @ weight.T / d**0.5
    ck = torch.tanh(pre) @ torch.tanh(pre).T / scale**2 / h
    slope = (1 - torch.tanh(pre) ** 2) / scale
    ntk = (x @ x.T / d) * ((slope * v**2) @ slope.T / h) + ck
    for name, matrix in (("W", weight.T @ weight / h), ("CK", ck), ("NTK", ntk)):
        expected = torch.linalg.eigvalsh(matrix).detach().numpy()
        np.testing.assert_allclose(row["spectra"][f"initial {name}"], expected, rtol=1e-3, atol=1e-4)


def test_a_rate_beyond_all_bounds_diverges_and_says_so():
    (trial,) = trials(
        Config(samples=(60,), widths=(40,), inputs=(20,), large_rates=(8.0,), rates=(1e4,), seeds=(0,))
    )[4:5]
    assert evolve(**{**trial.settings, "epochs": 20}) == {"diverged": True}


def test_lists_of_sizes_must_match():
    with pytest.raises(InputError, match="sizes do not match"):
        Config(widths=(300,))
