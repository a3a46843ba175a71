"""The study of wide networks: its arithmetic, the limit and the rates against plain formulas, and missing trials."""

import numpy as np
import pytest
import torch

from tangentkit.core.seeds import Key
from tangentkit.studies.infinite_width import width_concentration as study
from tangentkit.studies.trials.records import Records

CONFIG = study.Config(
    widths=(10, 100),
    depths=(1, 3),
    trained_widths=(10, 100),
    kappas=(1.0, 0.1),
    rates=(0.5, 0.9, 1.1, 2.0),
    seeds=(0, 1, 2),
)


def planted(
    *, rate: float, depth: float, width: float, kappa: float, kernel: float, mu: float, last: float
) -> list:
    """Rows that follow these powers and ratios, with a little noise that differs between seeds."""
    rows = []
    for seed in CONFIG.seeds:
        noise = 1 + 0.001 * seed
        rows += [
            {
                "depth": d,
                "width": w,
                "seed": seed,
                "error": w ** (rate * noise) * (depth * noise if d == 3 else 1),
            }
            for d in CONFIG.depths
            for w in CONFIG.widths
        ]
        rows += [
            {
                "kappa": k,
                "trained_width": w,
                "seed": seed,
                "distance": w ** (width * noise) * (kappa * noise if k == 1 else 1),
            }
            for k in CONFIG.kappas
            for w in CONFIG.trained_widths
        ]
        converged = [each <= last for each in CONFIG.rates]
        rows.append(
            {"seed": seed, "kernel_rate": kernel * noise, "eigenvalue_over_mu": mu, "converged": converged}
        )
    return rows


AS_PUBLISHED = planted(rate=-0.5, depth=2, width=-0.5, kappa=5, kernel=1, mu=1, last=0.9)


def test_what_is_planted_as_published_holds():
    assert {claim.verdict for claim in study.result(CONFIG, Records(AS_PUBLISHED)).claims} == {"holds"}


def test_the_reverse_of_what_is_published_does_not_hold():
    rows = planted(rate=-0.1, depth=0.5, width=0.1, kappa=0.2, kernel=1.1, mu=2, last=0.5)
    *claims, above = study.result(CONFIG, Records(rows)).claims
    assert {claim.verdict for claim in claims} == {"does not hold"}
    assert above.verdict == "holds"
    rows = planted(rate=-1, depth=2, width=-0.5, kappa=5, kernel=1, mu=1, last=2)
    claims = study.result(CONFIG, Records(rows)).claims
    assert claims[1].verdict == claims[-1].verdict == "does not hold"


def test_slopes_are_those_that_were_planted():
    claims = study.result(CONFIG, Records(AS_PUBLISHED)).claims
    np.testing.assert_allclose(claims[0].values, -0.5, rtol=0.01)
    np.testing.assert_allclose(claims[2].values, np.log10(2), rtol=0.01)


def test_missing_trials_leave_the_others():
    rows = [row for row in AS_PUBLISHED if row["seed"] != 1 or "kappa" not in row]
    claims = study.result(CONFIG, Records(rows, {"seed 1": "Error: lost"})).claims
    assert [len(claim.values) for claim in claims] == [3, 3, 3, 2, 2, 3, 3, 3, 3]
    for name in ("error", "distance", "kernel_rate"):
        study.result(CONFIG, Records([row for row in AS_PUBLISHED if name not in row]))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_limit_is_the_recursion_of_the_theorem(depth):
    """Σ^h = 2 E[relu relu], Θ^h = Θ^(h-1) 2 E[step step] + Σ^h, and L + 1 on the diagonal."""
    cosines = torch.linspace(-1, 1, 7, dtype=torch.float64)
    sigma = theta = cosines
    for _ in range(depth):
        angle = torch.arccos(sigma.clamp(-1, 1))
        slope = (torch.pi - angle) / torch.pi
        sigma = ((1 - sigma**2).clamp(min=0).sqrt() + sigma * (torch.pi - angle)) / torch.pi
        theta = theta * slope + sigma
    torch.testing.assert_close(study.limit(cosines, depth), theta, atol=1e-7, rtol=1e-7)
    assert float(study.limit(torch.ones(1, dtype=torch.float64), depth)) == pytest.approx(
        depth + 1, abs=1e-12
    )


def test_distances_are_those_known_for_four_points():
    """0.466 and 0.160 at widths 64 and 1,024 in the mean of 10 draws elsewhere; other points and draws here."""
    narrow, wide = (
        study.concentrate(depth=1, width=width, points=4, draws=6, seed=0)["error"] for width in (64, 1024)
    )
    assert 0.25 < narrow < 1
    assert 0.06 < wide < 0.3


def test_a_trained_network_is_near_kernel_regression():
    record = study.train_wide(kappa=0.1, trained_width=512, steps=3000, seed=1)
    assert record["loss"] < 1e-6
    assert 0.02 < record["distance"] < 0.4  # 0.15 to 0.18 in three draws before


def test_the_kernel_has_a_sharp_rate():
    rng = Key(0).numpy()
    features = torch.from_numpy(rng.normal(size=(6, 6)))
    K, y = features @ features.T, torch.from_numpy(rng.normal(size=6))
    bound = 6 / float(torch.linalg.eigvalsh(K)[-1])
    assert study.kernel_rate(K, y, 2 * bound) == pytest.approx(bound, rel=0.01)
    for factor, learns in ((0.99, True), (1.01, False)):
        f = torch.zeros(6, dtype=torch.float64)
        for _ in range(2000):
            f = f - factor * bound * 2 / 6 * K @ (f - y)
        assert bool((f - y).norm() < y.norm()) == learns


def test_networks_learn_at_small_rates_and_not_at_huge_ones():
    record = study.learning_rates(points=20, width=64, rates=(0.5, 50.0), seed=0)
    assert record["converged"] == [True, False]
    assert record["kernel_rate"] == pytest.approx(1, abs=0.01)
