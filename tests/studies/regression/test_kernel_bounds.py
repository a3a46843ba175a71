"""The study of kernel bounds: its arithmetic on made-up records, real trials against plain formulas."""

from decimal import Decimal

import numpy as np
import pytest
import torch

from tangentkit.report import image
from tangentkit.studies.regression import function_regression, kernel_inequalities, logistic_regression
from tangentkit.studies.regression import kernel_bounds as study
from tangentkit.studies.trials.data import whole
from tangentkit.studies.trials.records import Records

CONFIG = study.Config(functions=("f1", "f2"), boundaries=("F1",), ridges=(1e-8, 1e-3), seeds=(0, 1, 2))


def planted(
    *,
    ntk: float,
    inside: float,
    monotone: float,
    class_ntk: float,
    slope: float,
    class_test: float,
) -> list[dict]:
    """Errors where CK errs by 1 on the nodes and by `inside` on the test nodes, NTK `ntk` times that on the nodes."""
    rows = []
    for seed in CONFIG.seeds:
        noise = 1 + 0.01 * seed
        for activation in ("tanh", "relu"):
            route = {
                "tau": 3.0,
                "NTK_0": ntk * noise,
                "CK_0": 1.0,
                "NTK_1": inside * noise,
                "CK_1": 1.0,
                "apart_0": 0.5,
                "NTK_monotone": monotone,
                "CK_monotone": monotone + 0.001,
            }
            rows += [
                {
                    "function": name,
                    "activation": activation,
                    "seed": seed,
                    "routes": {"kernel": route, "features": route},
                }
                for name in CONFIG.functions
            ]
            ridged = {
                "tau": 6.0,
                "mesh": 0.1,
                "NTK_0": class_ntk * noise,
                "CK_0": 1.0,
                "NTK_1": class_test,
                "CK_1": 1.0,
                "NTK_lipschitz": slope,
                "CK_lipschitz": slope,
            }
            rows += [
                {"boundary": name, "activation": activation, "seed": seed, "ridged": [ridged, ridged]}
                for name in CONFIG.boundaries
            ]
    return rows


AS_PUBLISHED = planted(ntk=0.9, inside=0.8, monotone=1.0, class_ntk=0.5, slope=20.0, class_test=1.0)


def test_bounds_that_are_planted_hold():
    assert {claim.verdict for claim in study.result(CONFIG, Records(AS_PUBLISHED)).claims} == {"holds"}


def test_bounds_that_are_broken_do_not_hold():
    rows = planted(ntk=1.2, inside=3.0, monotone=0.5, class_ntk=2.0, slope=0.0, class_test=20.0)
    verdicts = [claim.verdict for claim in study.result(CONFIG, Records(rows)).claims]
    # CK then errs less than NTK, so that its own bounds, Theorems 4.2 and 5.2, hold.
    second = ["does not hold", "does not hold", "does not hold", "holds"]
    assert verdicts == [*["does not hold"] * 7, "holds", "holds", *["does not hold"] * 2, *second]
    rows = planted(ntk=0.9, inside=0.1, monotone=1.0, class_ntk=1.5, slope=0.0, class_test=0.01)
    verdicts = [claim.verdict for claim in study.result(CONFIG, Records(rows)).claims]
    assert verdicts[7:9] == ["does not hold"] * 2
    assert verdicts[-1] == "does not hold"


def test_the_sides_of_the_inequalities_are_those_of_the_formulas():
    row = {"tau": 3.0, "NTK_0": 1.2, "CK_0": 2.0, "NTK_1": 0.7, "CK_1": 1.1, "apart_0": 1.6}
    assert kernel_inequalities.theorem_4_1(row) == pytest.approx(np.log10(0.7 / (np.sqrt(6) * 1.1)))
    assert kernel_inequalities.theorem_4_2(row) == pytest.approx(np.log10(1.1 * 0.2 / (np.sqrt(6) * 0.7)))
    assert kernel_inequalities.lemma_4_1(row) == pytest.approx(np.log10(0.7 / 1.2 / np.sqrt(2)))
    row |= {"tau": 6.0, "mesh": 0.1, "NTK_lipschitz": 30.0, "CK_lipschitz": 20.0}
    assert kernel_inequalities.theorem_5_1(row) == pytest.approx(np.log10(0.7 / (6 * np.exp(3) * 1.1)))
    assert kernel_inequalities.theorem_5_2(row) == pytest.approx(np.log10(1.1 * 0.6 / (6 * np.exp(2) * 0.7)))
    assert kernel_inequalities.lemma_5_2(row) == pytest.approx(np.log10(1.1 / 2 / (6 * np.exp(2))))


def test_beta_is_right_to_the_last_digits_where_it_is_near_one():
    """For best fits β² = 1 - x², where x is what the NTK leaves of the error of CK on the nodes."""
    for x in (1e-6, 1e-3, 0.5, 1.0):
        exact = 1 - (1 - Decimal(x) ** 2).sqrt()
        assert kernel_inequalities.one_less_beta({"NTK_0": 3 * x, "CK_0": 3.0}) == pytest.approx(float(exact))
    assert kernel_inequalities.one_less_beta({"NTK_0": 1.1, "CK_0": 1.0}) == 1


def test_no_network_is_left_out_where_rounding_moves_predictions_apart():
    """The measured ‖f_NTK - f_CK‖_0 may exceed ‖f - f_CK‖_0 by rounding."""
    rows = [
        {**row, "routes": {route: {**one, "apart_0": 1.08} for route, one in row["routes"].items()}}
        if row.get("function") == "f2"
        else row
        for row in AS_PUBLISHED
    ]
    found = study.result(CONFIG, Records(rows))
    claim = next(claim for claim in found.claims if claim.statement.startswith("Theorem 4.2"))
    assert claim.verdict == "holds"
    assert "Theorem 4.2 with tanh 0 of 6" in " ".join(found.notes)


def test_missing_trials_leave_the_others():
    rows = [row for row in AS_PUBLISHED if not (row["seed"] == 1 and row.get("function") == "f2")]
    claims = study.result(CONFIG, Records(rows, {"seed 1": "Error: lost"})).claims
    assert [len(claim.values) for claim in claims] == [2] * 11 + [3] * 4
    assert [claim.verdict for claim in claims] == ["not decided"] * 11 + ["holds"] * 4
    assert all("function f2 (seed 1) is missing" in claim.remedy for claim in claims[:11])
    for name in ("routes", "ridged"):
        study.result(CONFIG, Records([row for row in AS_PUBLISHED if name not in row]))


@pytest.fixture(scope="module")
def smooth() -> dict:
    fixed = {
        "function": "f1",
        "activation": "tanh",
        "width": 16,
        "depth": 2,
        "learning_rate": 1e-3,
        "cutoff": 1e-15,
    }
    errors = function_regression.fit_function(moments=(0, 30), seed=3, **fixed)["errors"]
    return {"routes": study.bound_regression(epochs=30, seed=3, **fixed)["routes"], "errors": errors}


def test_networks_are_those_of_the_study_of_functions(smooth):
    errors, routes = smooth["errors"], smooth["routes"]
    assert routes["kernel"]["NTK_1"] == pytest.approx(errors["NTK"][-1], rel=1e-6)
    assert routes["kernel"]["CK_1"] == pytest.approx(errors["CK"][-1], rel=1e-6)
    assert routes["features"]["CK_1"] == pytest.approx(errors["CKJ"][-1], rel=1e-6)


def test_what_is_exact_holds_exactly(smooth):
    """A larger space fits better, the nodes are test nodes too, and the difference of two fits is orthogonal."""
    route = smooth["routes"]["features"]
    assert route["NTK_0"] < route["CK_0"]
    for name in ("NTK", "CK"):
        assert route[f"{name}_0"] <= 3**0.5 * route[f"{name}_1"]
    assert route["apart_0"] ** 2 + route["NTK_0"] ** 2 == pytest.approx(route["CK_0"] ** 2, rel=1e-3)


def test_monotone_errors_obey_lemma_4_1():
    """‖g‖_1 ≤ √2 ‖g‖_0 for any g that rises or falls throughout every cell."""
    nodes, test = (whole("function-f1", split) for split in ("train", "test"))
    rng = np.random.default_rng(0)
    ends = rng.normal(size=201)
    g = torch.from_numpy(np.interp(np.arange(601) / 3, np.arange(201), ends))
    assert study.monotone_cells(g, 3) == 1
    found = study.compared(test.targets + g, test.targets + 2 * g, nodes, test)
    assert kernel_inequalities.lemma_4_1(found) < 0
    assert found["CK_0"] == pytest.approx(2 * found["NTK_0"])
    assert found["apart_0"] == pytest.approx(found["NTK_0"])
    between = torch.zeros(601, dtype=torch.float64)
    between[1::3] = 1.0  # an error that the nodes do not see
    assert study.monotone_cells(between, 3) == 0


def test_losses_are_those_of_the_study_of_classes():
    fixed = {"boundary": "F1", "activation": "tanh", "epochs": 40, "ridges": (1e-3,), "newton_steps": 20}
    shared = {"width": 16, "learning_rate": 1e-3, "seed": 2}
    (found,) = study.bound_classes(**fixed, **shared)["ridged"]
    trained = logistic_regression.classify(**fixed, **shared, depth=2, accuracy=0.85, moments=(0,))["trained"]
    for name in ("NTK", "CK"):
        assert found[f"{name}_1"] == pytest.approx(trained[name][0]["loss"], rel=1e-6)
    assert found["tau"] == 6
    assert found["mesh"] == pytest.approx(np.hypot(1 / 11, 2 / 21))


def test_slopes_and_lemma_5_2_are_right_for_a_plane():
    """Log-odds of slope L that fit the labels: each test loss is at most exp(hL) times one of six points."""
    points, test = (whole("grid-F1", split) for split in ("train", "test"))
    direction = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert study.steepness(test.inputs @ direction, test) == pytest.approx(5.0)
    assert study.refinement(points, test) == 6
    odds = {data.split: data.inputs @ direction for data in (points, test)}
    positive = [torch.nn.functional.softplus(-odds[data.split]).sum() for data in (points, test)]
    assert positive[1] <= 6 * np.exp(5 * study.mesh(points, test)) * positive[0]


def test_figures_are_drawn():
    for figure in study.result(CONFIG, Records(AS_PUBLISHED)).figures.values():
        assert image(figure, format="png")
