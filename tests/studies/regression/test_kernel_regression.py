"""The study of kernel regression: its arithmetic, kernels and fits against plain formulas, and missing trials."""

from typing import Any

import numpy as np
import pytest
import torch

from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data
from tangentkit.studies.regression import kernel_regression as study
from tangentkit.studies.trials.records import Records

CONFIG = study.Config(seeds=(0, 1, 2), images=1)
SETTINGS = {
    "data": "fashion-mini",
    "train_samples": 30,
    "test_samples": 20,
    "hidden": (16, 16),
    "epochs": 200,
    "learning_rate": 1e-2,
    "seed": 0,
}


def planted(
    mlp: float, inf: float, exact: float, tr: float, growth: float, own: float, fit: float
) -> list[dict]:
    """Rows with these accuracies, up to a little noise that differs between seeds."""
    rows: list[dict[str, Any]] = []
    for seed in CONFIG.seeds:

        def pair(accuracy: float, seed=seed) -> list[float]:
            return [accuracy + 0.001 * seed**2 * accuracy, fit]

        rows += [
            {
                "seed": seed,
                "accuracies": {"MLP": pair(mlp), "NTK_tr": pair(tr)},
                "largest": [10.0, 10.0 * growth * (1 + seed / 100)],
                "diagonal_over_others": [own * (1 + seed / 100), 1.0],
                "data_cards": [{"name": "coins"}],
                **({"before": np.eye(2), "after": np.eye(2)} if seed == 0 else {}),
            },
            {
                "seed": seed,
                "accuracies": {"NTK_inf": pair(inf)},
                "noise": 0.1,
                "off_limit": 0.1,
                "data_cards": [],
            },
            {"seed": seed, "accuracies": {"NTK_inf, exact": pair(exact)}, "data_cards": []},
        ]
    return rows


AS_PUBLISHED = planted(0.85, 0.74, 0.75, 0.81, growth=1000, own=4, fit=1.0)


def test_what_is_planted_as_published_holds():
    assert {claim.verdict for claim in study.result(CONFIG, Records(AS_PUBLISHED)).claims} == {"holds"}


def test_published_accuracies_beside_other_images_say_for_which_they_were_published():
    found = study.result(CONFIG, Records(AS_PUBLISHED))
    assert found.claims[1].published == "0.848 and 0.81 (published for MNIST)"
    assert "(published for MNIST)" in found.tables["accuracies"].note


def test_the_reverse_of_what_is_published_does_not_hold():
    rows = planted(0.7, 0.9, 0.9, 0.8, growth=2, own=0.5, fit=0.9)
    assert {claim.verdict for claim in study.result(CONFIG, Records(rows)).claims} == {"does not hold"}


@pytest.mark.parametrize("method", ["MLP", "NTK_inf", "NTK_inf, exact"])
def test_missing_trials_leave_the_other_claims(method):
    rows = [row for row in AS_PUBLISHED if row["seed"] != 1 or method not in row["accuracies"]]
    result = study.result(CONFIG, Records(rows, {"seed 1": "Error: lost"}))
    fit, *others = result.claims
    assert (len(fit.values), fit.verdict) == (2, "not decided")
    assert f"method {method} (seed 1)" in fit.remedy
    assert {claim.verdict for claim in others} == {"holds"}
    none = [row for row in AS_PUBLISHED if method not in row["accuracies"]]
    study.result(CONFIG, Records(none))


def test_regression_is_adam_on_the_cross_entropy_of_coupled_outputs():
    rng = Key(0).numpy()
    features = rng.normal(size=(9, 3, 5))  # 6 samples to train, 3 to test; 3 outputs

    def kernel(x, y=None):
        y = x if y is None else y
        return torch.from_numpy(np.einsum("icp,jdp->icjd", features[x], features[y]))

    x, y = torch.arange(6), torch.tensor([0, 1, 2, 0, 1, 2])
    samples = Data(x, y, "toy", "train", ("a", "b", "c"))
    test = Data(torch.arange(6, 9), torch.tensor([0, 1, 2]), "toy", "test", ("a", "b", "c"))
    found = study.regress(kernel, samples, test, 50, 0.1)

    K = kernel(x) / kernel(x).reshape(18, 18).diagonal().mean()
    alpha = torch.zeros(6, 3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([alpha], lr=0.1)
    for _ in range(50):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(torch.einsum("icjd,jd->ic", K, alpha), y).backward()
        adam.step()
    with torch.no_grad():
        logits = [torch.einsum("icjd,jd->ic", kernel(z, x), alpha) for z in (test.inputs, x)]
    expected = [
        float((z.argmax(1) == t).double().mean()) for z, t in zip(logits, (test.targets, y), strict=True)
    ]
    assert found == expected


def test_diagonals_of_blocks_are_told_from_the_rest():
    blocks = torch.ones(2, 3, 2, 3)
    for c in range(3):
        blocks[:, c, :, c] = -4
    assert study.diagonal_over_others(blocks.reshape(6, 6), 3) == pytest.approx(4)


def test_a_network_learns_and_its_kernel_grows():
    record = study.network(**SETTINGS, images=2, shown=True)
    assert record["accuracies"]["MLP"][1] > 0.9
    assert record["before"].shape == record["after"].shape == (20, 20)
    assert record["largest"][0] == pytest.approx(np.abs(record["before"]).max())
    assert record["largest"][1] > record["largest"][0]


def test_the_mean_over_networks_goes_to_the_closed_form():
    narrow, wide = (
        study.estimated(**{**SETTINGS, "epochs": 2}, wide=wide, networks=networks)
        for wide, networks in ((8, 2), (128, 8))
    )
    assert wide["off_limit"] < 0.15 < narrow["off_limit"]
    assert wide["noise"] < narrow["noise"] / 2
    exact = study.closed_form(**SETTINGS, wide=128)["accuracies"]["NTK_inf, exact"]
    assert exact[0] > 0.3  # ten classes
