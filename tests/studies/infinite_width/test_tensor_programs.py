"""The study of tensor programs: its arithmetic on made-up runs, real runs against plain torch, missing trials."""

import numpy as np
import pytest
import torch

from tangentkit.core.seeds import Key
from tangentkit.report import image
from tangentkit.studies.infinite_width import tensor_programs as study
from tangentkit.studies.infinite_width.tensor_programs_result import STATISTICS
from tangentkit.studies.trials.records import Records

CONFIG = study.Config(widths=(100, 400, 1600), draws=12, seeds=(0, 1, 2, 3, 4))


def planted(
    *, rate: float = -0.5, bias: float = 0.0, gap: float = 1e-9, same: float = 1.0, fresh: float = 0.0
) -> list[dict]:
    """Runs whose scatter falls like width^rate, with a bias at every width, and the other trials' values."""
    rng, rows = np.random.default_rng(0), []
    for seed in CONFIG.seeds:
        for network in study.NETWORKS:
            for width in CONFIG.widths:
                noise = rng.normal(size=(CONFIG.draws, len(STATISTICS)))
                rows.append(
                    {
                        "network": network,
                        "width": width,
                        "seed": seed,
                        "deviations": (width**rate * noise + bias).astype(np.float32),
                        "limits": [1.0] * len(STATISTICS),
                        "averages": [1.0] * len(STATISTICS),
                    }
                )
        rows += [{"layers": layers, "seed": seed, "kernel_gap": gap * (1 + seed)} for layers in study.MODULES]
        for kind, share in (("same", same), ("fresh", fresh)):
            rows.append({"weights": kind, "seed": seed, "share": share + 0.001 * seed})
    return rows


def verdicts(**changes: float) -> list[str]:
    return [claim.verdict for claim in study.result(CONFIG, Records(planted(**changes))).claims]


def test_a_law_that_is_planted_holds():
    assert set(verdicts()) == {"holds"}


def test_another_rate_does_not_hold():
    assert verdicts(rate=-0.2)[:4] == ["does not hold"] * 4


def test_a_bias_is_no_agreement():
    assert verdicts(bias=0.1)[4:8] == ["does not hold"] * 4


def test_a_bias_that_no_single_seed_shows_is_seen_in_all_together():
    """1.5 standard errors of the mean of a seed, at the largest width."""
    error = (CONFIG.widths[-1] * CONFIG.draws) ** -0.5
    assert verdicts(bias=1.5 * error)[4:8] == ["does not hold"] * 4


def test_deviations_of_seeds_that_point_both_ways_are_chance():
    """Each seed alone is 2.5 standard errors off, three one way and two the other."""
    rows = planted()
    for row in rows:
        if "deviations" in row:
            off = 2.5 * (row["width"] * CONFIG.draws) ** -0.5 * (-1) ** row["seed"]
            row["deviations"] = row["deviations"] - row["deviations"].mean(0) + off
    claims = study.result(CONFIG, Records(rows)).claims[4:8]
    assert all(claim.interval.mean == pytest.approx(2.5 / 5**0.5, rel=0.2) for claim in claims)


def test_other_kernels_and_other_ties_do_not_hold():
    assert verdicts(gap=1e-2, same=0.0, fresh=1.0)[8:] == ["does not hold"] * 3


def test_missing_trials_leave_the_others():
    rows = [row for row in planted() if not (row["seed"] == 1 and row.get("network") == "CNN")]
    found = study.result(CONFIG, Records(rows, {"seed 1": "Error: lost"}))
    assert [len(claim.values) for claim in found.claims] == [5, 4, 5, 5, 5, 4, 5, 5, 5, 5, 5]
    for name in ("deviations", "kernel_gap", "share"):
        study.result(CONFIG, Records([row for row in planted() if name not in row]))


def test_agreement_of_all_kernels_is_not_decided_without_one():
    rows = [row for row in planted() if (row.get("layers"), row["seed"]) != ("CNN", 1)]
    (claim,) = [c for c in study.result(CONFIG, Records(rows)).claims if "NNGP kernel" in c.statement]
    assert claim.verdict == "not decided"
    assert "layers CNN (seed 1) is missing" in claim.remedy


def test_the_statistics_are_told_apart_alike_everywhere():
    assert tuple(study.PSI) == STATISTICS


@pytest.mark.parametrize("layers", study.MODULES)
def test_programs_have_the_kernel_of_their_layers(layers):
    assert study.compare_kernels(layers=layers, seed=3)["kernel_gap"] < 1e-9


@pytest.mark.parametrize("network", study.NETWORKS)
def test_runs_have_the_mean_and_spread_of_the_law(network):
    """Deviations are of order width^-1/2: independent entries have the spread 1 in that unit, layers add to it."""
    record = study.deviate(network=network, width=256, draws=10, seed=0)
    scaled = np.asarray(record["deviations"], dtype=float) * 256**0.5
    assert scaled.shape == (10, len(STATISTICS))
    assert 0.5 < np.sqrt(np.mean(scaled**2)) < 5


def test_averages_are_those_of_the_network_written_out():
    """The recurrent program with the program's own draws, step by step in torch."""
    width, key = 50, Key(2).fold("tensor-programs", "recurrent", 50)
    program, (one, _) = study.build("recurrent", 2)
    run = program.sample(width, key.fold(0))
    W = torch.randn(width, width, generator=key.fold(0, "matrix", 0).torch(), dtype=torch.float64)
    W *= (study.WEIGHTS / width) ** 0.5
    inputs, (bias,) = run.values[: 2 * (study.DEPTH + 1)], [run.values[2 * (study.DEPTH + 1)]]
    h = inputs[0] + bias
    for u in inputs[1 : study.DEPTH + 1]:
        h = W @ torch.erf(h) + u + bias
    torch.testing.assert_close(run[one], h)
    record = study.deviate(network="recurrent", width=width, draws=1, seed=2)
    assert record["averages"][0] == pytest.approx(float(h.square().mean()))


def test_only_a_shared_matrix_correlates():
    shares = {
        kind: study.tie(weights=kind, tied_width=200, draws=20, seed=0)["share"] for kind in ("same", "fresh")
    }
    assert shares["same"] == pytest.approx(1, abs=0.2)
    assert shares["fresh"] == pytest.approx(0, abs=0.2)


def test_figures_are_drawn():
    for figure in study.result(CONFIG, Records(planted())).figures.values():
        assert image(figure, format="png")
