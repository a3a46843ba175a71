"""The study of function regression: its arithmetic, one tiny network against plain formulas, and missing trials."""

import numpy as np
import pytest
import torch
from torch import nn

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.models import mlp
from tangentkit.studies.regression import function_regression as study
from tangentkit.studies.trials.data import whole
from tangentkit.studies.trials.records import Records

CONFIG = study.Config(width=8, wide=16, epochs=100, moments=(0, 50, 100), seeds=(0, 1, 2))
KINDS = (("tanh", 8), ("relu", 8), ("tanh", 16))


def planted(tanh: dict[str, list[float]], relu: dict[str, list[float]]) -> list[dict]:
    """Rows whose errors are these powers of ten, up to a little noise that differs between seeds."""
    return [
        {
            "activation": activation,
            "width": width,
            "function": function,
            "seed": seed,
            "errors": {
                method: [10 ** (power + 0.01 * seed) for power in powers]
                for method, powers in (tanh if activation == "tanh" else relu).items()
            },
        }
        for activation, width in KINDS
        for function in CONFIG.functions
        for seed in CONFIG.seeds
    ]


AS_PUBLISHED = planted(
    {"NN": [0, -0.5, -2], "NTK": [-1, -3.9, -4], "CK": [-1, -4.2, -4.3], "CKJ": [-2, -8, -8]},
    {"NN": [0, -0.5, -2], "NTK": [-1, -1, -1], "CK": [-1, -2, -2.2], "CKJ": [-1, -2, -2.2]},
)
REVERSED = planted(
    {"NN": [0, -4, -4.1], "NTK": [-1, -1, -2], "CK": [-1, -2, -3.5], "CKJ": [0, -1, -3]},
    {"NN": [0, -3, -3], "NTK": [-1, -4, -4], "CK": [-1, -2, -2], "CKJ": [-1, -4, -5]},
)


def test_what_is_planted_as_published_holds():
    assert {claim.verdict for claim in study.result(CONFIG, Records(AS_PUBLISHED)).claims} == {"holds"}


def test_the_reverse_of_what_is_published_does_not_hold():
    assert {claim.verdict for claim in study.result(CONFIG, Records(REVERSED)).claims} == {"does not hold"}


def test_quantities_are_means_over_the_functions_in_orders_of_magnitude():
    first, alike, gap = study.result(CONFIG, Records(AS_PUBLISHED)).claims[:3]
    np.testing.assert_allclose(first.values, 2)
    np.testing.assert_allclose(alike.values, 0.3)
    np.testing.assert_allclose(gap.values, 3.7)


def test_a_failed_trial_leaves_its_seed_out():
    rows = [row for row in AS_PUBLISHED if (row["function"], row["seed"], row["width"]) != ("f2", 1, 8)]
    claims = study.result(CONFIG, Records(rows, {"f2": "Error: lost"})).claims
    assert [len(claim.values) for claim in claims[4:7]] == [2, 3, 3]
    study.result(CONFIG, Records([row for row in rows if row["activation"] == "tanh"]))


def test_predictions_are_those_of_the_plain_formulas():
    nodes, test = (whole("function-f1", split) for split in ("train", "test"))
    model = mlp((1, 6, 6, 1), activation=nn.Tanh, seed=Key(0)).double()
    found = study.predictions(model, nodes, test, 1e-10)

    def jacobian(x):
        rows = [torch.autograd.grad(model(one[None]).sum(), list(model.parameters())) for one in x]
        return torch.stack([torch.cat([part.flatten() for part in row]) for row in rows]).numpy()

    assert nodes.weights is not None
    roots, y = nodes.weights.sqrt().numpy(), nodes.targets.numpy()
    phi, psi = jacobian(nodes.inputs), jacobian(test.inputs)
    # The last layer has 6 weights and a bias.
    features = {"NTK": (phi, psi), "CK": (phi[:, -7:], psi[:, -7:])}
    for name, (phi, psi) in features.items():
        inverse = np.linalg.pinv(roots[:, None] * (phi @ phi.T) * roots, rcond=1e-10, hermitian=True)
        expected = psi @ phi.T @ (roots * (inverse @ (roots * y)))
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-4)
    gamma = np.linalg.lstsq(roots[:, None] * features["CK"][0], roots * y, rcond=1e-10)[0]
    np.testing.assert_allclose(found["CKJ"], features["CK"][1] @ gamma, rtol=1e-6, atol=1e-6)


def test_on_the_nodes_the_tangent_kernel_fits_no_worse_than_the_conjugate_kernel():
    nodes = whole("function-f3", "train")
    model = mlp((1, 16, 16, 1), activation=nn.Tanh, seed=Key(1)).double()
    found = study.predictions(model, nodes, nodes, 1e-12)
    assert study.distance(found["NTK"], nodes) < study.distance(found["CK"], nodes) * (1 + 1e-6)


def test_a_trained_network_and_its_kernels_show_the_published_order():
    record = study.fit_function(
        function="f1",
        activation="tanh",
        width=32,
        depth=3,
        moments=(0, 150),
        learning_rate=1e-3,
        cutoff=1e-15,
        seed=0,
    )
    before, after = ({name: each[i] for name, each in record["errors"].items()} for i in (0, 1))
    assert after["NN"] < before["NN"]
    assert after["CKJ"] < after["CK"] < after["NN"]
    assert after["NTK"] < after["NN"]
    assert [card["samples"] for card in record["data_cards"]] == [201, 601]


def test_training_minimizes_the_weighted_square_loss():
    """One step of Adam from the same weights, by hand."""
    nodes = whole("function-f2", "train")
    moments, key = (0, 1), Key(5).fold("function-regression")
    record = study.fit_function(
        function="f2",
        activation="tanh",
        width=4,
        depth=1,
        moments=moments,
        learning_rate=0.1,
        cutoff=1e-12,
        seed=5,
    )
    model = mlp((1, 4, 1), activation=nn.Tanh, seed=key.fold("weights")).double()
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    (nodes.weights * (model(nodes.inputs)[:, 0] - nodes.targets).square()).sum().backward()
    adam.step()
    test = whole("function-f2", "test")
    expected = study.distance(model(test.inputs).detach()[:, 0], test)
    assert record["errors"]["NN"][1] == pytest.approx(expected, rel=1e-12)


def test_moments_run_from_the_start_to_the_end():
    with pytest.raises(InputError, match="bad moments"):
        study.Config(epochs=100, moments=(0, 50))
