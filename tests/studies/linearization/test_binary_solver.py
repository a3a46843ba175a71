"""The study of solvers: its trial against least squares on the Jacobian, and its claims on records made by hand."""

import dataclasses

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.studies.linearization.binary_solver import (
    Config,
    _task,
    compare,
    interpolate,
    result,
    solve,
    trials,
)
from tangentkit.studies.linearization.binary_solver_result import MODELS
from tangentkit.studies.trials.records import Records

CONFIG = Config(widths=(0.1, 0.2), curve=(100, 400, 1600))
TINY = Config(
    data=("fashion-mini",),
    train=40,
    test=40,
    widths=(0.1, 0.2),
    epochs=2,
    ridges=(0.01, 0.1),
    curve=(20, 40),
    seeds=(3,),
)


def models(test: dict[float, dict[str, float]], train_solver: float = 100.0) -> list[dict]:
    """Rows of every task, width and seed, with test accuracies of the models by width."""
    return [
        {
            "data": "mnist",
            "shift": shift,
            "width": width,
            "seed": seed,
            "train": 600,
            "parameters": 803,
            "train_linearized": 97.0,
            "train_solver": train_solver,
            **{f"test_{model}": scores.get(model, 95.0) + seed / 100 * i for i, model in enumerate(MODELS)},
            **{f"auc_{model}": 0.9 for model in MODELS},
        }
        for shift in (0, 7)
        for width, scores in test.items()
        for seed in CONFIG.seeds
    ]


def curve(errors: dict[int, float], rank: int) -> list[dict]:
    """Rows of the interpolation curve, with the solver's test error by the number of samples."""
    return [
        {
            "data": "mnist",
            "shift": shift,
            "samples": samples,
            "seed": seed,
            "parameters": 803,
            "rank": min(rank, samples),
            "train_solver": 100.0,
            "test_solver": 80.0,
            "test_ridge": 95.0,
            "error_solver": error,
            "error_ridge": 0.05,
        }
        for shift in (0, 7)
        for samples, error in errors.items()
        for seed in CONFIG.seeds
    ]


PUBLISHED_WAY = {0.1: {"linearized": 95.0, "solver": 86.0}, 0.2: {"linearized": 97.0, "solver": 97.5}}
PEAK = {100: 0.1, 400: 2.0, 1600: 0.05}


def verdicts(rows: list[dict]) -> set[str]:
    return {claim.verdict for claim in result(CONFIG, Records(rows)).claims}


def test_claims_hold_where_the_narrow_solver_overfits_and_the_wide_one_does_not():
    assert verdicts(models(PUBLISHED_WAY) + curve(PEAK, rank=400)) == {"holds"}


def test_claims_do_not_hold_where_it_is_the_other_way_round():
    reverse = {
        0.1: {"linearized": 95.0, "solver": 97.0, "ridge": 90.0},
        0.2: {"linearized": 93.0, "solver": 86.0},
    }
    rows = models(reverse, train_solver=99.0) + curve({100: 0.1, 400: 0.05, 1600: 2.0}, rank=400)
    assert verdicts(rows) == {"does not hold"}


def test_missing_trials_cost_their_seed_only_where_a_claim_is_not_about_every_width():
    rows = [
        row
        for row in models(PUBLISHED_WAY) + curve(PEAK, rank=400)
        if row["seed"] != 2 or row.get("width") == 0.2
    ]
    claims = result(CONFIG, Records(rows, {"seed 2": "lost"})).claims
    assert {len(claim.values) for claim in claims} == {4, 5}
    every = [claim for claim in claims if "every training image" in claim.statement]
    missing = [claim for claim in claims if "worst where samples" in claim.statement]
    assert {claim.verdict for claim in (*every, *missing)} == {"not decided"}
    assert all("width 0.1 (seed 2) is missing" in claim.remedy for claim in every)
    assert all("samples 400 (seed 2)" in claim.remedy for claim in missing)
    assert {claim.verdict for claim in claims if claim not in every + missing} == {"holds"}


def test_published_numbers_beside_other_images_say_for_which_they_were_published():
    def published(data: str) -> tuple[set, set]:
        rows = [{**row, "data": data} for row in models(PUBLISHED_WAY) + curve(PEAK, rank=400)]
        found = result(CONFIG, Records(rows))
        in_table = {row[1] for row in found.tables["accuracy"].rows if row[0] == "published"}
        return {"(published for MNIST)" in claim.published for claim in found.claims}, in_table

    assert published("mnist") == ({False}, {"mnist", "mnist, shifted"})
    assert published("fashion-mini") == ({True}, {"MNIST", "MNIST, shifted"})


@pytest.mark.parametrize("rows", [[], models(PUBLISHED_WAY), curve(PEAK, rank=400)])
def test_whole_kinds_of_trials_may_be_missing(rows):
    found = result(CONFIG, Records(rows))
    assert found.claims
    assert found.tables


def test_the_solver_is_least_squares_of_least_norm_on_the_jacobian():
    task = _task("fashion-mini", 0, 3, 0.2, 3, 60, 20)
    network = task.network.double()
    x, x_test = (one.double() for one in task.x)

    def jacobian(inputs):
        rows = []
        for one in inputs:
            gradients = torch.autograd.grad(network(one[None]).sum(), list(network.parameters()))
            rows.append(torch.cat([g.flatten() for g in gradients]))
        return torch.stack(rows).numpy()

    with torch.no_grad():
        f0, f0_test = network(x).flatten().numpy(), network(x_test).flatten().numpy()
    J = jacobian(x)
    u, _, rank, _ = np.linalg.lstsq(J, task.y[0].numpy() - f0, rcond=1e-7)
    found = solve(task, (1e-3, 1e-1))
    assert found.facts["rank"] == rank == 60
    np.testing.assert_allclose(found.outputs["solver"][0], task.y[0], atol=1e-5)
    np.testing.assert_allclose(found.outputs["solver"][1], f0_test + jacobian(x_test) @ u, atol=1e-4)

    K = J @ J.T
    ridge = found.facts["chosen_ridge"] * K.diagonal().mean()
    fitted = f0 + K @ np.linalg.solve(K + ridge * np.eye(60), task.y[0].numpy() - f0)
    np.testing.assert_allclose(found.outputs["ridge"][0], fitted, atol=1e-5)


def test_a_trial_of_models_scores_all_of_them():
    setting = trials(TINY)[-1].settings
    assert (setting["width"], setting["shift"]) == (0.2, 7)
    found = compare(**setting)
    assert {f"{kind}_{model}" for kind in ("train", "test", "auc") for model in MODELS} < set(found)
    assert found["train_solver"] == 100.0
    assert found["chosen_ridge"] in (pytest.approx(0.01), pytest.approx(0.1))


def test_a_trial_of_the_curve_has_the_mean_squared_error():
    setting = trials(TINY)[0].settings
    found = interpolate(**setting)
    task = _task("fashion-mini", 0, 0, 0.1, 3, 20, 40)
    outputs = solve(task, (0.01, 0.1)).outputs["solver"][1]
    assert found["error_solver"] == pytest.approx(
        np.mean((outputs.numpy() - task.y[1].numpy()) ** 2), rel=1e-5
    )
    assert found["test_solver"] == pytest.approx(
        100 * np.mean((outputs.numpy() > 0.5) == (task.y[1].numpy() == 1))
    )


def test_divergence_fails_the_trial():
    with pytest.raises(NumericalError, match="diverged"):
        compare(**{**trials(TINY)[-1].settings, "learning_rate": 1e30})


@pytest.mark.parametrize("name", ["widths", "curve"])
def test_widths_and_samples_must_rise(name):
    with pytest.raises(InputError, match=f"bad {name}"):
        dataclasses.replace(TINY, **{name: (2, 1)})
