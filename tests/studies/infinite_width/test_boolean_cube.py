"""The study of the Boolean cube: known spectra, brute force, its arithmetic, and missing trials."""

from itertools import product

import numpy as np
import pytest
import torch

from tangentkit.core.seeds import Key
from tangentkit.studies.infinite_width import boolean_cube as study
from tangentkit.studies.infinite_width import cube_trials
from tangentkit.studies.trials.records import Records

CONFIG = study.Config(dimensions=(16, 128), top=4, depth=20, seeds=(0, 1, 2))


def planted(
    *,
    constant: float,
    even: float,
    deep: float,
    order: float,
    best: list[int],
    above: list[float],
    ratio: float,
    gaussian: float,
    off: float,
) -> list[dict]:
    """Rows with these numbers, up to a little noise that differs between seeds."""
    odd = [even, 0.9, even, 0.1]
    rows: list[dict] = [
        {
            "shares": {
                f"{kind}, depth {depth}, {name}": [constant, 1 - constant, *[0.0] * 6]
                for kind in cube_trials.NETWORKS
                for depth in (1, 2)
                for name in ("CK", "NTK")
            },
            "eigenvalues": {"erf(4, 0), depth 32, CK": [0, 1, 0, 1, 0, 1, 0, deep]},
            "in_order": order,
        }
    ]
    rows += [
        {
            "activation": name,
            "best_depth": {"CK": best, "NTK": best},
            "ntk_above": above,
            "ntk_above_unfiltered": above,
        }
        for name in ("relu", "erf")
    ]
    rows += [
        {"dimension": d, "cube": [1, 1, 1, 1 + (0.5 if d == 16 else ratio)], "sphere": [1, 1, 1, 1]}
        for d in CONFIG.dimensions
    ]
    for seed in CONFIG.seeds:
        noise = 0.0001 * seed
        relu = {
            "network_shares": [constant - noise, 1 - constant + noise, 0, 0],
            "constant": 0.36 * constant / 0.84 + noise,
        }
        for kind in cube_trials.NETWORKS:
            shares = relu if kind.startswith("ReLU") else {"network_shares": odd, "constant": 0.0}
            rows.append(
                {"kind": kind, "seed": seed, **shares, "repeated": even, "frequencies": np.array([0.1, 0.01])}
            )
        rows.append({"seed": seed, "process_shares": [0.84, 0.16, 0, 0, 0, 0], "off": off + noise})
        rows += [{"dimension": d, "seed": seed, "gaussian": [gaussian, gaussian]} for d in CONFIG.dimensions]
    return rows


AS_PUBLISHED = planted(
    constant=0.84,
    even=0.0,
    deep=0.95,
    order=1.0,
    best=[5, 0, 1, 3, 4],
    above=[0, 0.5, 0.6, 0.7, 0.8],
    ratio=0.05,
    gaussian=1.02,
    off=0.001,
)


@pytest.fixture(scope="module")
def small():
    return cube_trials.small_cube()


def test_what_is_planted_as_published_holds():
    assert {claim.verdict for claim in study.result(CONFIG, Records(padded(AS_PUBLISHED))).claims} == {
        "holds"
    }


def test_the_reverse_of_what_is_published_does_not_hold():
    rows = planted(
        constant=0.5,
        even=0.2,
        deep=0.5,
        order=0.9,
        best=[0, 20, 10, 9, 8],
        above=[0.9, 0.8, 0.7, 0.6, 0.5],
        ratio=0.6,
        gaussian=1.5,
        off=0.2,
    )
    verdicts = {
        claim.statement: claim.verdict for claim in study.result(CONFIG, Records(padded(rows))).claims
    }
    # The size of an eigenspace is arithmetic.
    assert verdicts.pop("Eigenspaces of the cube have the size d^k / k!") == "holds"
    assert set(verdicts.values()) == {"does not hold"}


def padded(rows: list[dict]) -> list[dict]:
    """Shares of all degrees, zeros where none are planted."""
    names = ("network_shares", "process_shares")
    return [
        {key: [*value, *[0.0] * (8 - len(value))] if key in names else value for key, value in row.items()}
        for row in rows
    ]


def test_missing_trials_leave_the_others():
    rows = padded(AS_PUBLISHED)
    for name in ("shares", "best_depth", "sphere", "network_shares", "off", "gaussian"):
        result = study.result(
            CONFIG, Records([row for row in rows if name not in row], {name: "Error: lost"})
        )
        assert len(result.claims) == len(study.result(CONFIG, Records(rows)).claims)
        assert {claim.verdict for claim in result.claims} <= {"holds", "not decided"}


@pytest.mark.parametrize(
    ("kernel", "shares"),
    [
        ("ReLU(2, 2), depth 2, CK", [0.8388, 0.1300, 0.0245, 0.0046, 0.0015, 0.0005]),
        ("ReLU(2, 2), depth 2, NTK", [0.6269, 0.2327, 0.0747, 0.0332, 0.0200, 0.0094]),
        ("erf(1, 0), depth 2, CK", [0, 0.9181, 0, 0.0762, 0, 0.0057]),
        ("erf(4, 0), depth 2, CK", [0, 0.7654, 0, 0.1919, 0, 0.0415]),
    ],
)
def test_shares_are_the_known_ones(small, kernel, shares):
    np.testing.assert_allclose(small["shares"][kernel][:6], shares, atol=6e-5)


def test_eigenvalues_are_those_of_the_whole_gram_matrix(small):
    x = torch.tensor(list(product((-1.0, 1.0), repeat=7)), dtype=torch.float64)
    c = x @ x.T / 7

    def expected(activation, w, b):
        q, K = w + b, w * c + b
        for _ in range(2):
            if activation == "relu":
                rho = (K / q).clamp(-1, 1)
                K = q / (2 * torch.pi) * ((1 - rho**2).sqrt() + rho * (torch.pi - torch.arccos(rho)))
                q = q / 2
            else:
                K, q = (
                    2 / torch.pi * torch.asin(2 * K / (1 + 2 * q)),
                    2 / np.pi * np.arcsin(2 * q / (1 + 2 * q)),
                )
            K, q = w * K + b, w * q + b
        return torch.linalg.eigvalsh(K / 128)

    for kind, (activation, w, b) in cube_trials.NETWORKS.items():
        mu = small["eigenvalues"][f"{kind}, depth 2, CK"]
        repeated = np.sort(np.repeat(mu, [1, 7, 21, 35, 35, 21, 7, 1]))
        np.testing.assert_allclose(expected(activation, w, b), repeated, atol=1e-8 * max(mu))


def test_best_depths_are_the_known_ones():
    record = cube_trials.depths(activation="relu", d=128, top=8, depth=16, relu_biases=41, erf_grid=2)
    assert record["best_depth"]["CK"][1:] == [0, 1, 3, 4, 5, 6, 7, 7]
    assert record["best_depth"]["NTK"][1:] == [0, 1, 3, 4, 6, 7, 8, 9]
    assert record["ntk_above"][0] == 0


def test_cube_and_sphere_have_the_known_ratios():
    record = cube_trials.three_spaces(dimension=16)
    ratios = np.divide(record["cube"], record["sphere"])
    np.testing.assert_allclose(ratios, [1.000, 1.002, 1.140, 1.507], atol=6e-4)


def test_gaussian_points_have_about_the_eigenvalues_of_the_sphere():
    sphere = cube_trials.three_spaces(dimension=64)["sphere"]
    gaussian = cube_trials.gaussian_points(dimension=64, points=1500, seed=0)["gaussian"]
    assert gaussian[0] == pytest.approx(sphere[0], rel=0.05)
    assert gaussian[1] == pytest.approx(sphere[1], rel=0.2)


def test_random_networks_are_those_of_the_formula():
    """Layer by layer, the outputs of one network on one point from the same numbers."""
    f = cube_trials.draw_networks("ReLU(2, 2)", 3, Key(4), width=5)
    rng = Key(4).torch()
    x = cube_trials.cube_points(7)[9]
    h = [x] * 3
    for n, m in ((7, 5), (5, 5), (5, 1)):
        W = torch.randn(3, n, m, generator=rng, dtype=torch.float64)
        b = torch.randn(3, 1, m, generator=rng, dtype=torch.float64)
        h = [(2 / n) ** 0.5 * one @ W[i] + 2**0.5 * b[i, 0] for i, one in enumerate(h)]
        if m == 5:
            h = [torch.relu(one) for one in h]
    torch.testing.assert_close(f[:, 9], torch.cat(h))


def test_random_networks_follow_the_kernel(small):
    record = cube_trials.random_networks(kind="ReLU(2, 2)", networks=800, seed=0)
    exact = small["shares"]["ReLU(2, 2), depth 2, CK"]
    np.testing.assert_allclose(record["network_shares"], exact, atol=0.04)
    assert record["frequencies"][:2].sum() == pytest.approx(record["constant"], abs=1e-6)
    assert 0.3 < record["constant"] < 0.42
    assert record["repeated"] >= record["constant"]


def test_draws_of_the_process_have_the_exact_shares():
    assert cube_trials.gaussian_process(draws=3000, seed=0)["off"] < 0.03
