"""The study of pretrained kernels: its trial against the kernel itself, and its claims on records made by hand."""

import dataclasses

import numpy as np
import pytest
import torch

from tangentkit import reference
from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.studies.linearization.eigenspace import eigenspace, sign_accuracy, weigh
from tangentkit.studies.linearization.pretrained_kernel import (
    CLASSES,
    SCALES,
    Config,
    compare,
    mean_square_gradient,
    result,
    trials,
)
from tangentkit.studies.trials.records import Records

CONFIG = Config()
TINY = Config(
    data=("fashion-mini",),
    networks=("mlp",),
    indices=(2,),
    train=32,
    test=16,
    epochs=2,
    linear_epochs=3,
    batch=16,
    seeds=(3,),
)


def records(gain: float, pace: float, rescaled: float) -> list[dict]:
    """Two networks whose trained kernels have the loss of the first times exp(-pace), and another test accuracy."""
    return [
        {
            "data": "cifar10",
            "network": network,
            "index": index,
            "seed": seed,
            "network_test": 80.0,
            "growth": 10.0,
            "initial_losses": np.array([0.5, 0.25]),
            "trained_losses": np.array([0.5, 0.25]) * np.exp(-pace * (1 + seed / 100)),
            "rescaled_losses": np.array([0.5, 0.25]) * np.exp(-rescaled * (1 + seed / 100)),
            **{f"{name}_train": 90.0 for name in ("initial", "rescaled")},
            "trained_train": 90.0 + gain * (1 + seed / 100),
            "initial_test": 70.0,
            "trained_test": 70.0 + gain * (1 + seed / 100),
            "rescaled_test": 70.0,
        }
        for network in CONFIG.networks
        for seed in CONFIG.seeds
        for index in (CLASSES, *CONFIG.indices)
    ]


def verdicts(rows: list[dict]) -> dict[str, str]:
    return {claim.statement: claim.verdict for claim in result(CONFIG, Records(rows)).claims}


def test_claims_hold_where_trained_kernels_are_faster_and_better():
    found = verdicts(records(gain=5.0, pace=1.0, rescaled=0.5))
    assert set(found.values()) == {"holds"}
    assert len(found) == 14


def test_training_accuracy_without_room_above_decides_nothing():
    rows = [
        {**row, "initial_train": 100.0, "trained_train": 100.0}
        for row in records(5.0, pace=1.0, rescaled=0.5)
    ]
    claims = [c for c in result(CONFIG, Records(rows)).claims if "on training samples" in c.statement]
    assert claims
    assert all("--linear-epochs" in claim.remedy for claim in claims)


def test_claims_do_not_hold_where_trained_kernels_are_slower_and_worse():
    assert set(verdicts(records(gain=-5.0, pace=-1.0, rescaled=-0.5)).values()) == {"does not hold"}


def test_a_pace_that_is_due_to_the_size_of_the_kernel_is_told_apart():
    found = verdicts(records(gain=5.0, pace=1.0, rescaled=-0.5))
    assert {"does not hold"} == {verdict for name, verdict in found.items() if name.startswith("Its size")}
    assert {"holds"} == {verdict for name, verdict in found.items() if not name.startswith("Its size")}


def test_the_pace_is_the_ratio_of_mean_losses():
    faster = result(CONFIG, Records(records(5.0, pace=1.0, rescaled=0.5))).claims[0]
    assert faster.values == pytest.approx([1 + seed / 100 for seed in CONFIG.seeds])


def test_a_seed_without_one_of_its_labels_is_left_out():
    rows = [r for r in records(5.0, 1.0, 0.5) if (r["network"], r["seed"], r["index"]) != ("mlp", 1, 32)]
    claims = result(CONFIG, Records(rows, {"seed 1": "lost"})).claims
    sizes = {claim.statement: len(claim.values) for claim in claims}
    assert sizes["The kernel of the trained network learns faster (MLP, eigenfunctions)"] == 4
    assert sizes["The kernel of the trained network learns faster (MLP, classes)"] == 5
    assert sizes["The kernel of the trained network learns faster (LeNet, eigenfunctions)"] == 5


@pytest.mark.parametrize("rows", [[], records(1.0, 1.0, 1.0)[:1]])
def test_nearly_all_trials_may_be_missing(rows):
    assert result(CONFIG, Records(rows)).tables


def test_the_size_of_a_kernel_is_the_mean_square_of_gradients():
    space = eigenspace("fashion-mini", "mlp", 3, 32, 16, 2)
    J = reference.jacobian(space.network, space.x[:8])
    assert mean_square_gradient(space.network, space.x[:8]) == pytest.approx(
        float(J.square().sum((1, 2)).mean()), rel=1e-4
    )


def test_without_training_both_kernels_are_one_and_learn_alike():
    setting = {t.settings["index"]: t.settings for t in trials(TINY) if t.function is compare}[2]
    found = compare(**{**setting, "learning_rate": 1e-9})
    assert found["growth"] == pytest.approx(1.0, rel=1e-3)
    np.testing.assert_allclose(
        found["initial_losses"], np.log(2), rtol=1e-4
    )  # logits begin at 0: no constant
    np.testing.assert_allclose(found["trained_losses"], found["initial_losses"], rtol=1e-4)
    space = eigenspace("fashion-mini", "mlp", 3, 32, 16, 2)
    labels = (space.vectors[:, 1] >= 0).float()
    assert found["network_test"] == pytest.approx(
        sign_accuracy(space.network, space.x[32:], labels[32:]), abs=7
    )


def test_one_step_of_a_differential_is_a_step_in_its_kernel():
    """The first full batch moves the outputs by rate · K (y - 1/2) / n, at trained weights as at the first ones."""
    setting = {t.settings["index"]: t.settings for t in trials(TINY) if t.function is compare}[CLASSES]
    whole = {**setting, "batch": 32, "epochs": 1, "linear_epochs": 1, "learning_rate": 1e-3}
    found = compare(**whole)
    assert found["initial_losses"].shape == (1,)
    space = eigenspace("fashion-mini", "mlp", 3, 32, 16, 2)
    labels = (space.classes < 5).float()
    J = reference.jacobian(space.network, space.x).flatten(1).double()
    moved = J[32:] @ J[:32].T @ (labels[:32].double() - 0.5)
    share = 100 * float(((moved > 0) == (labels[32:] > 0.5)).double().mean())
    assert found["initial_test"] == pytest.approx(share)


def test_training_on_labels_makes_the_kernel_grow():
    setting = {t.settings["index"]: t.settings for t in trials(TINY) if t.function is compare}[CLASSES]
    assert compare(**{**setting, "epochs": 20})["growth"] > 1.2


def test_labels_of_a_seed_follow_each_other():
    found = [t.settings["seed"] for t in trials(dataclasses.replace(TINY, seeds=(0, 1)))]
    assert found == [0, 0, 0, 1, 1, 1]


def test_accuracy_is_that_of_signs():
    x = torch.tensor([[1.0], [-2.0], [3.0], [-4.0]])
    assert sign_accuracy(torch.nn.Identity(), x, torch.tensor([1.0, 1.0, 1.0, 0.0])) == 75.0


@pytest.mark.parametrize(
    "wrong", [{"indices": (5, 1)}, {"indices": ()}, {"indices": (0,)}, {"networks": ("vgg",)}]
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises((InputError, UnknownNameError), match=r"bad|unknown value"):
        dataclasses.replace(TINY, **wrong)


def test_a_loss_that_rounds_to_zero_is_drawn_below_all_others():
    learned = records(gain=2.0, pace=1.0, rescaled=1.0)
    for record in learned:
        record["trained_losses"] = np.array([0.5, 0.0])
    curves = result(CONFIG, Records(learned)).figures["loss-mlp-classes"].series
    assert all(np.isfinite(series.y).all() for series in curves.values())
    assert curves["at trained weights"].y[1] < curves["trained, rescaled"].y[1]


def weighed(share: float) -> list[dict]:
    """The shares of labels: even ones for the first eigenfunction, another for the second of LeNet in one seed."""
    return [
        {
            "network": network,
            "seed": seed,
            "indices": CONFIG.indices,
            "shares": [0.5, share if network == "lenet" and seed == 2 else 0.5],
        }
        for network in CONFIG.networks
        for seed in CONFIG.seeds
    ]


@pytest.mark.parametrize("share", [0.0, 0.04, 0.96, 1.0])
def test_labels_of_nearly_one_class_are_no_task_and_the_page_says_so(share):
    rows = records(gain=5.0, pace=1.0, rescaled=0.5)
    for row in rows:
        if row["network"] == "lenet" and row["index"] == 32:
            row["trained_test"] = row["initial_test"]
    found = result(CONFIG, Records(rows + weighed(share)))
    gains = {c.statement: c.interval.mean for c in found.claims if "on test samples" in c.statement}
    assert max(gains.values()) == pytest.approx(min(gains.values()))
    assert "LeNet j = 32" in found.notes[0]
    assert "LeNet on j = 32" not in found.answer
    assert len(found.claims) == 14
    assert {len(claim.values) for claim in found.claims} == {5}


def test_labels_of_two_classes_are_all_counted():
    found = result(CONFIG, Records(records(5.0, 1.0, 0.5) + weighed(0.06)))
    assert "LeNet on j = 32" in found.answer
    assert "none here" in found.notes[0]


def test_shares_of_labels_are_those_that_models_are_trained_on():
    setting = next(trial.settings for trial in trials(TINY) if trial.function is weigh)
    (share,) = weigh(**setting)["shares"]
    space = eigenspace("fashion-mini", "mlp", 3, 32, 16, 2)
    assert share == pytest.approx(float((space.vectors[:, 1] >= 0).float().mean()))


def test_a_resnet_is_linearized_with_the_statistics_of_its_initialization():
    """A rate that float32 rounds to nothing leaves the weights: what training made of the statistics must be gone."""
    tiny = dataclasses.replace(TINY, networks=("resnet",), resnet_width=2)
    setting = next(t.settings for t in trials(tiny) if t.settings.get("index") == 2)
    still = compare(**{**setting, "epochs": 1, "linear_epochs": 1, "learning_rate": 1e-60})
    assert still["growth"] == 1.0
    assert compare(**setting)["growth"] != pytest.approx(1.0, rel=1e-2)


def test_the_width_of_the_resnet_makes_no_other_trials_of_the_others():
    wide, narrow = (
        trials(dataclasses.replace(TINY, networks=("mlp", "resnet"), resnet_width=width)) for width in (4, 2)
    )
    same = {trial.key for trial in wide} & {trial.key for trial in narrow}
    assert same == {trial.key for trial in trials(TINY)}


def test_what_is_as_published_has_no_reason():
    rows = Records(records(5.0, 1.0, 0.5))
    why = [one.why for one in result(SCALES["full"], rows).stand_ins]
    assert why == [""] * 4
    assert any("time" in one.why for one in result(CONFIG, rows).stand_ins)
