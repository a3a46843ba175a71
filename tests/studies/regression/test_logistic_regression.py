"""The study of logistic regression: its arithmetic, kernels and fits against plain formulas, and missing trials."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from tangentkit.core.seeds import Key
from tangentkit.models import mlp
from tangentkit.studies.regression import logistic_regression as study
from tangentkit.studies.regression.logistic_regression_result import METHODS
from tangentkit.studies.trials.data import whole
from tangentkit.studies.trials.records import Records

CONFIG = study.Config(width=16, narrow=8, epochs=20, moments=(0, 10, 20), seeds=(0, 1, 2))


def scores(epoch, loss, accuracy):
    """What one look at a network gives: the same for both ridges."""
    return {
        "epoch": epoch,
        **{
            name: [{"loss": loss[name], "accuracy": accuracy[name], "converged": True}]
            * (1 if name == "NN" else 2)
            for name in METHODS
        },
    }


def planted(losses: dict, accuracies: dict) -> list[dict[str, Any]]:
    """Rows of these losses: (kind of network, epoch) -> powers of ten; little noise that differs between seeds."""
    return [
        {
            "boundary": boundary,
            "activation": activation,
            "width": width,
            "seed": seed,
            "trained": look(seed, kind, 15),
            "course": [look(seed, kind, epoch) for epoch in CONFIG.moments],
        }
        for kind, activation, width in (("tanh", "tanh", 16), ("narrow", "tanh", 8), ("relu", "relu", 16))
        for boundary in CONFIG.boundaries
        for seed in CONFIG.seeds
        for look in [
            lambda seed, kind, epoch: scores(
                epoch,
                {name: 10 ** (power + 0.001 * seed) for name, power in losses[kind, epoch].items()},
                {name: share - 0.001 * seed for name, share in accuracies.items()},
            )
        ]
    ]


def powers(**by_name):
    """The same at every look of every kind, but for those that are given."""
    return {
        (kind, epoch): by_name.get(f"{kind}{epoch}", by_name[kind])
        for kind in ("tanh", "narrow", "relu")
        for epoch in (15, *CONFIG.moments)
    }


AS_PUBLISHED = planted(
    powers(
        tanh={"NN": 2.5, "NTK": 1.5, "CK": 1.6},
        tanh0={"NN": 2.6, "NTK": 1.5, "CK": 1.9},
        narrow={"NN": 2.5, "NTK": 1.5, "CK": 1.6},
        relu={"NN": 2, "NTK": 2, "CK": 1.9},
    ),
    {"NN": 0.85, "NTK": 0.98, "CK": 0.97},
)
REVERSED = planted(
    powers(
        tanh={"NN": 1.5, "NTK": 2.5, "CK": 2.4},
        tanh0={"NN": 1.5, "NTK": 2.5, "CK": 2.5},
        narrow={"NN": 1.5, "NTK": 2.5, "CK": 2.4},
        relu={"NN": 2.5, "NTK": 1.5, "CK": 1.5},
    ),
    {"NN": 0.95, "NTK": 0.94, "CK": 0.9},
)


def test_what_is_planted_as_published_holds():
    assert {claim.verdict for claim in study.result(CONFIG, Records(AS_PUBLISHED)).claims} == {"holds"}


def test_the_reverse_of_what_is_published_does_not_hold():
    assert {claim.verdict for claim in study.result(CONFIG, Records(REVERSED)).claims} == {"does not hold"}


def test_a_failed_trial_leaves_its_seed_out():
    rows = [
        row for row in AS_PUBLISHED if (row["boundary"], row["seed"], row["activation"]) != ("F2", 1, "relu")
    ]
    claims = study.result(CONFIG, Records(rows, {"F2": "Error: lost"})).claims
    assert [len(claim.values) for claim in claims] == [3, 3, 3, 3, 2, 2, 3, 3]
    study.result(CONFIG, Records([row for row in rows if row["activation"] == "tanh"]))


def test_tanh_and_relu_are_compared_seed_by_seed():
    """A seed that one of them lacks must not shift the others."""
    rows: list[dict[str, Any]] = [row | {"trained": dict(row["trained"])} for row in AS_PUBLISHED]
    for row in rows:
        row["trained"]["NN"] = [{"loss": 10.0 ** (3 + row["seed"]), "accuracy": 0.5}]
    rows = [row for row in rows if (row["boundary"], row["seed"], row["activation"]) != ("F2", 0, "relu")]
    differences = study.result(CONFIG, Records(rows)).claims[5].values
    np.testing.assert_allclose(differences, 0.4, atol=0.01)


def test_machines_minimize_the_regularized_likelihood_of_the_kernels_of_the_log_odds():
    points, test = (whole("grid-F1", split) for split in ("train", "test"))
    model = mlp((2, 5, 5, 2), activation=nn.Tanh, seed=Key(0)).double()
    found = study.methods(model, points, test, (0.1, 1.0), 100)

    def jacobian(x):
        rows = [
            torch.autograd.grad(model(one[None])[0, 0] - model(one[None])[0, 1], list(model.parameters()))
            for one in x
        ]
        return torch.stack([torch.cat([part.flatten() for part in row]) for row in rows]).numpy()

    features, new = jacobian(points.inputs), jacobian(test.inputs)
    chi, truth = points.targets.numpy(), test.targets.numpy()
    for name, part in (
        ("NTK", slice(None)),
        ("CK", slice(-12, None)),
    ):  # the last layer: 2 x 5 weights, 2 biases
        for ridge, machine in zip((0.1, 1.0), found[name], strict=True):
            phi, psi = features[:, part], new[:, part]

            def objective(w, phi=phi, ridge=ridge):
                z = phi @ w
                p = 1 / (1 + np.exp(-z))
                value = np.logaddexp(0, z).sum() - chi @ z + ridge / 2 * w @ w
                return value, phi.T @ (p - chi) + ridge * w

            w = minimize(
                objective,
                np.zeros(phi.shape[1]),
                jac=True,
                method="L-BFGS-B",
                options={"gtol": 1e-9, "ftol": 0},
            )
            z = psi @ w.x
            assert machine["loss"] == pytest.approx(np.logaddexp(0, z).sum() - truth @ z, rel=1e-4)
            assert machine["accuracy"] == pytest.approx(((z > 0) == truth).mean(), abs=0.005)


def test_the_first_output_learns_the_class_positive():
    record = study.classify(
        boundary="F1",
        activation="tanh",
        width=16,
        depth=1,
        epochs=60,
        accuracy=0.85,
        moments=(0, 60),
        learning_rate=3e-2,
        ridges=(1e-3, 1e-2),
        newton_steps=50,
        seed=0,
    )
    first, last = record["course"]
    assert (first["epoch"], last["epoch"]) == (0, 60)
    assert last["NN"][0]["accuracy"] > 0.9  # labels the wrong way round would end below 0.1
    assert last["NN"][0]["loss"] < first["NN"][0]["loss"]
    assert 0 < record["trained"]["epoch"] < 60
    assert [card["samples"] for card in record["data_cards"]] == [96, 506]
