"""The theory of spectra: its arithmetic on made-up records, and real trials against plain formulas."""

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data import random_teacher
from tangentkit.models import two_layer
from tangentkit.report import Claim, image
from tangentkit.studies.spectra import spectral_theory as study
from tangentkit.studies.trials.records import Records

CONFIG = study.Config(samples=(100, 200, 400), draws=2, adagrad_rates=(0.1, 1.0), seeds=(0, 1, 2, 3))
SIZE = {"samples": 60, "width": 45, "inputs": 30}


def planted(
    *,
    slope: float,
    decay: float,
    smallest: float,
    tail: float,
    exponent: float,
    error: float,
    later: float | None = None,
    samples: tuple[int, ...] = CONFIG.samples,
) -> list[dict]:
    """Rows with these slopes (another at the later moment), ratios, tails and differences; seeds differ a little."""
    bound, rows = study.smallest_eigenvalue_bound(), []
    for seed in CONFIG.seeds:
        noise = 0.01 * seed
        for n in samples:
            for draw in range(CONFIG.draws):
                distances = [
                    dict.fromkeys(("W", "CK", "NTK"), 5.0 * n ** (one + noise))
                    for one in (slope, slope if later is None else later)
                ]
                rows.append(
                    {
                        "samples": n,
                        "seed": seed,
                        "draw": draw,
                        "distances": distances,
                        "decay": decay + noise,
                        "smallest": bound * (smallest + noise if n == 400 else 0.5),
                        "residual": 0.5,
                    }
                )
        for rate in CONFIG.adagrad_rates:
            row = {"regime": "AdaGrad", "rate": rate, "seed": seed, "diverged": False, "loss": 9e-6}
            counts = {
                f"beyond_{name}": (tail if rate == 1.0 else 0) + seed % 2 for name in ("W", "CK", "NTK")
            }
            rows.append({**row, **counts, "final_alignment_CK": 0.5, "error": 0.3, "lazy_error": 0.3})
        for kind in ("Gaussian", "Cauchy"):
            heavy = kind == "Cauchy"
            hills = dict.fromkeys(
                ("initial_hill_W", "final_hill_W", "initial_hill_CK", "final_hill_CK"),
                4.0 - heavy * (exponent + noise),
            )
            rows.append(
                {
                    "weights": kind,
                    "seed": seed,
                    "weights_diverged": False,
                    "loss": 9e-6,
                    "error": 0.5 + heavy * (error + noise),
                    "r2": 0.5,
                    "beyond_gaussian_CK": 0.1,
                    "initial_CK": np.linspace(3, 1, 50),
                    **hills,
                }
            )
    return rows


AS_PUBLISHED = planted(slope=-1.1, decay=2.0, smallest=1.5, tail=6, exponent=2.0, error=1.0)
REVERSED = planted(slope=-0.5, decay=0.5, smallest=0.5, tail=0, exponent=-2.0, error=-0.2)


def test_what_is_planted_as_published_holds():
    assert {claim.verdict for claim in study.result(CONFIG, Records(AS_PUBLISHED)).claims} == {"holds"}


def test_the_reverse_does_not_hold():
    verdicts = [claim.verdict for claim in study.result(CONFIG, Records(REVERSED)).claims]
    # At n of 400 and less, 50 steps refute nothing; one eigenvalue in every other seed is too near to one to decide.
    assert verdicts[:3] + verdicts[6:8] + verdicts[10:] == ["does not hold"] * 8
    assert "holds" not in verdicts


@pytest.mark.parametrize(("slope", "verdict"), [(-1.05, "holds"), (-0.8, "does not hold")])
def test_a_drift_of_order_one_over_n_is_told_from_a_slower_one(slope, verdict):
    rows = planted(slope=slope, decay=2.0, smallest=1.5, tail=6, exponent=2.0, error=1.0)
    claims = study.result(CONFIG, Records(rows)).claims[:3]
    assert {claim.verdict for claim in claims} == {verdict}
    assert claims[0].interval.mean == pytest.approx(slope + 0.015 + 1)


def test_both_moments_are_judged_and_small_n_refute_no_later_one():
    rest = {"decay": 2.0, "smallest": 1.5, "tail": 6, "exponent": 2.0, "error": 1.0}

    def later(slope: float, samples: tuple[int, ...]) -> list[Claim]:
        rows = planted(slope=-1.05, later=slope, samples=samples, **rest)
        claims = study.result(CONFIG, Records(rows)).claims
        assert {claim.verdict for claim in claims[:3]} == {"holds"}
        assert all("t = 10" in claim.quantity for claim in claims[:3])
        return list(claims[3:6])

    assert {claim.verdict for claim in later(-1.05, (100, 200, 400))} == {"holds"}
    small = later(-0.8, (100, 200, 400))
    assert {claim.verdict for claim in small} == {"not decided"}
    assert {claim.remedy for claim in small} == {"two n of 1000 or more: --samples"}
    assert small[0].interval.mean == pytest.approx(0.2 + 0.015)
    assert all("t = 50, n at least 200" in claim.quantity for claim in small)
    assert {claim.verdict for claim in later(-0.8, (200, 1000, 2000))} == {"does not hold"}


def test_notes_name_networks_below_the_bound_and_what_adagrad_does_at_each_rate():
    notes = " ".join(study.result(CONFIG, Records(AS_PUBLISHED)).notes)
    assert "below it: 8 of 8 networks at n = 100, 8 of 8 networks at n = 200." in notes
    assert "at rate 0.1 0 to 1 eigenvalues of W and 0 to 1 of the CK leave the edge" in notes
    assert "at rate 1 6 to 7 eigenvalues of W" in notes
    assert "lazy regression has 0.300" in notes


def test_sizes_below_the_limit_of_large_n_do_not_count():
    rows = [row for row in AS_PUBLISHED if row.get("samples", 100) == 100]
    assert "--samples" in study.result(CONFIG, Records(rows)).claims[0].remedy


def test_adagrad_is_judged_at_the_largest_rate_that_converges_in_every_seed():
    rows = [
        {**row, "loss": 1.0} if row.get("rate") == 1.0 and row["seed"] == 2 else row for row in AS_PUBLISHED
    ]
    claim = study.result(CONFIG, Records(rows)).claims[8]
    assert "at rate 0.1" in claim.quantity
    assert claim.values == (0, 1, 0, 1)


def test_missing_trials_leave_the_others():
    rows = [row for row in AS_PUBLISHED if row["seed"] != 1 or "weights" not in row]
    claims = study.result(CONFIG, Records(rows, {"seed 1": "Error: lost"})).claims
    assert [len(claim.values) for claim in claims] == [4] * 10 + [3] * 3
    for name in ("distances", "regime", "weights"):
        study.result(CONFIG, Records([row for row in AS_PUBLISHED if name not in row]))


@pytest.mark.parametrize(("n", "undecided"), [(100, 1), (400, 2)])
def test_a_claim_about_every_network_is_not_decided_without_one(n, undecided):
    lost = {"samples": n, "draw": 1, "seed": 2}
    rows = [row for row in AS_PUBLISHED if any(row.get(name) != value for name, value in lost.items())]
    every = study.result(CONFIG, Records(rows)).claims[6:8]
    remedies = [claim.remedy for claim in every if claim.verdict == "not decided"]
    assert len(remedies) == undecided
    assert all(f"samples {n}, draw 1 (seed 2) is missing" in remedy for remedy in remedies)


def test_a_constant_kernel_decays_at_least_twice_as_fast_as_guaranteed():
    eigenvalues, n, rate = np.array([0.3, 1.0, 4.0]), 10, 1.0
    residual = np.ones(3)
    norms = [np.linalg.norm(residual)]
    for _ in range(500):
        residual = (1 - rate * eigenvalues / n) * residual
        norms.append(np.linalg.norm(residual))
    found = study.decay_over_guarantee(np.array(norms), rate * 0.3 / n)
    assert 2 < found < 2.1
    assert study.decay_over_guarantee(np.full(5, 1.0), 0.1) == 0


def test_the_bound_is_the_energy_of_the_higher_degrees():
    """a_σ is the sum of all η_k², by Parseval, and η_0 = E σ'(z) = E z σ(z)."""
    coefficients = study.hermite_coefficients(40)
    assert study.smallest_eigenvalue_bound() == pytest.approx(float(np.sum(coefficients[3:] ** 2)), rel=1e-3)
    z = torch.linspace(-10, 10, 100_001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / (2 * torch.pi) ** 0.5
    expected = float(torch.trapezoid(z * torch.tanh(z) / 0.6279287 * density, z))
    assert coefficients[0] == pytest.approx(expected, rel=1e-6)
    assert coefficients[1] == pytest.approx(0, abs=1e-12)


def test_one_step_of_the_first_layer_is_that_of_the_formulas():
    """W_1 = W_0 + (η/n) Σ_i (y_i - f(x_i)) ∂f(x_i)/∂W, and NTK_0 = (XᵀX/d) ∘ (σ'ᵀ diag(v)² σ'/h)."""
    record = study.drift(**SIZE, rate=3.0, moment=1, steps=2, draw=0, seed=5)
    n, h, d = SIZE.values()
    key = Key(5).fold("spectral-theory", n, 0)
    data = random_teacher(d, key=key.fold("teacher")).sample(n, key=key.fold("train"))
    model = two_layer(d, h, seed=key.fold("network")).double()
    W, v = (model.get_parameter(f"fc{i}.weight").detach() for i in (1, 2))
    x, y, scale = data.inputs, data.targets, 0.6279287303491067

    def parts(W: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(x @ W.T / d**0.5)
        slope = (1 - hidden**2) / scale
        ntk = (x @ x.T / d) * ((slope * v[0] ** 2) @ slope.T / h)
        return hidden / scale, slope, ntk

    hidden, slope, ntk = parts(W)
    residual = y - (hidden @ v[0]) / h**0.5
    step = 3.0 / n * ((residual[:, None] * slope * v[0]).T @ x) / (h * d) ** 0.5
    moved, _, later = parts(W + step)
    first = record["distances"][0]
    assert first["W"] == pytest.approx(float(step.norm()) / d**0.5)
    assert first["CK"] == pytest.approx(float((moved @ moved.T - hidden @ hidden.T).norm()) / h)
    assert first["NTK"] == pytest.approx(float(torch.linalg.matrix_norm(later - ntk, 2)))
    assert record["smallest"] == pytest.approx(float(torch.linalg.eigvalsh(ntk)[0]), abs=1e-10)


def test_cauchy_weights_are_heavy_and_gaussian_ones_are_not():
    fixed = {**SIZE, "rate": 1.0, "batch": 20, "epochs": 3, "test": 50, "seed": 0}
    light, heavy = (study.descend(weights=kind, **fixed) for kind in ("Gaussian", "Cauchy"))
    assert heavy["initial_hill_W"] < 2 < light["initial_hill_W"]
    assert light["beyond_gaussian_CK"] == 0
    for record in (light, heavy):
        assert np.isfinite(record["error"])
        assert len(record["initial_CK"]) == min(SIZE["width"], SIZE["samples"])
        assert (np.diff(record["initial_CK"]) <= 0).all()


def test_moments_beyond_the_last_step_are_refused():
    with pytest.raises(InputError, match="bad moment"):
        study.Config(moment=51)
    with pytest.raises(InputError, match="bad moment"):
        study.Config(moment=1, steps=1)


def test_figures_are_drawn():
    for figure in study.result(CONFIG, Records(AS_PUBLISHED)).figures.values():
        assert image(figure, format="png")
