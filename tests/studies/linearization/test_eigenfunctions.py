"""The study of eigenfunctions: its trials against the Gram matrix, and its claims on records made by hand."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from tangentkit import reference
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linearized import History
from tangentkit.studies.linearization.eigenfunctions import (
    Config,
    _start,
    _steps_to,
    concentrate,
    learn,
    result,
    trials,
    watched_indices,
)
from tangentkit.studies.linearization.eigenfunctions_result import spike
from tangentkit.studies.linearization.eigenspace import weigh
from tangentkit.studies.trials.records import Records

CONFIG = Config(cases=("cifar10 mlp sgd", "cifar10 lenet sgd"), indices=(1, 10, 100))
WATCHED = (1, 5, 10, 50, 100)
TINY = Config(
    cases=("fashion-mini mlp sgd",),
    train=48,
    test=16,
    indices=(1, 4, 16),
    watched=3,
    epochs=2,
    batch=16,
    energy_samples=40,
    energy_top=5,
    seeds=(2,),
)


def learned(sign: float, advantage: float, lift: float) -> list[dict]:
    """Rows of two networks: accuracy falls with j, courses grow with j, and the alignment of j is lifted."""
    rows = []
    for network in ("mlp", "lenet"):
        for seed in CONFIG.seeds:
            for i, index in enumerate(CONFIG.indices):
                accuracy = 80 - sign * 10 * i + seed / 100
                before = 1 / np.array(WATCHED)
                rows.append(
                    {
                        "data": "cifar10",
                        "network": network,
                        "optimizer": "sgd",
                        "seed": seed,
                        "index": index,
                        "watched": WATCHED,
                        "test_network": accuracy,
                        "test_linearized": accuracy + advantage + seed / 100,
                        **{
                            name: 10 + sign * i + seed / 100
                            for name in ("iterations", "distance", "cosine_distance")
                        },
                        "reached": True,
                        "overlap": 0.78 + seed / 1000 - (sign < 0) * 0.5,
                        "alignment_before": before,
                        "alignment_after": before * np.where(np.array(WATCHED) == index, lift, 2.0),
                    }
                )
    return rows


def two_class(sign: float) -> list[dict]:
    """Rows of two networks whose kernels gain energy, the LeNet more, and that are better than linear."""
    return [
        {
            "data": "cifar10",
            "network": network,
            "optimizer": "sgd",
            "seed": seed,
            "energy_before": 0.5,
            "energy_after": 0.5 + sign * (0.1 + 0.1 * (network == "lenet")) + seed / 1000,
            "two_class_network": 70.0 + sign * (5 + seed / 100),
            "two_class_linearized": 70.0,
        }
        for network in ("mlp", "lenet")
        for seed in CONFIG.seeds
    ]


def verdicts(rows: list[dict]) -> set[str]:
    return {claim.verdict for claim in result(CONFIG, Records(rows)).claims}


def test_claims_hold_where_all_goes_the_published_way():
    assert verdicts(learned(1, 3.0, lift=20.0) + two_class(1)) == {"holds"}


def test_claims_do_not_hold_where_all_goes_the_other_way():
    assert verdicts(learned(-1, -3.0, lift=1.0) + two_class(-1)) == {"does not hold"}


def test_a_spike_is_measured_against_the_growth_of_others():
    (row, *_) = learned(1, 0.0, lift=20.0)
    assert spike(row) == pytest.approx(math.log(20 / 2))


def test_missing_trials_cost_their_seed_only():
    rows = [
        row
        for row in learned(1, 3.0, lift=20.0)
        if (row["seed"], row["index"], row["network"]) != (1, 100, "mlp")
    ]
    rows += [row for row in two_class(1) if (row["seed"], row["network"]) != (2, "lenet")]
    claims = result(CONFIG, Records(rows, {"seed 1": "lost"})).claims
    assert {len(claim.values) for claim in claims} == {4, 5}
    assert {claim.verdict for claim in claims} == {"holds"}


def test_published_energies_beside_other_images_say_for_which_they_were_published():
    other = [{**row, "data": "mnist"} for row in two_class(1)]
    for rows, named in ((two_class(1), 0), (other, 3)):
        found = result(CONFIG, Records(rows)).claims
        assert sum("(published for CIFAR-10)" in claim.published for claim in found) == named


@pytest.mark.parametrize("rows", [[], learned(1, 3.0, lift=20.0), two_class(1)])
def test_whole_kinds_of_trials_may_be_missing(rows):
    found = result(CONFIG, Records(rows))
    assert found.claims
    assert found.tables


def gram_matrix(network, x):
    J = reference.jacobian(network, x)
    return reference.trace_kernel(J, J).double()


def test_a_trial_learns_the_sign_of_an_eigenvector_of_the_gram_matrix():
    setting = trials(TINY)[-1].settings
    assert (setting["index"], setting["watched"]) == (16, (1, 4, 16))
    # Steps of no size: the network stays, so that its alignments are the eigenvalues.
    found = learn(**{**setting, "rate": 1e-12})
    network, x, _ = _start("fashion-mini", "mlp", 2, 48, 16)
    K = gram_matrix(network, x)
    values, vectors = (part.flip(-1) for part in torch.linalg.eigh(K))
    expected = (values / 64)[[0, 3, 15]]
    np.testing.assert_allclose(found["alignment_before"], expected, rtol=1e-3)
    np.testing.assert_allclose(found["alignment_after"], expected, rtol=1e-2)
    assert found["overlap"] == pytest.approx(float(vectors[:, 15].abs().sum()) / 8, rel=1e-3)
    assert found["distance"] < 1e-6
    with torch.no_grad():
        answers = network(x[48:]).flatten() > 0
    share = 100 * float((answers == (vectors[48:, 15] > 0)).double().mean())
    # The sign of an eigenvector is arbitrary.
    assert found["test_network"] == found["test_linearized"]
    assert min(abs(found["test_network"] - share), abs(found["test_network"] - (100 - share))) < 1e-6


def test_training_moves_the_weights_and_lifts_what_was_learned():
    found = learn(**{**trials(TINY)[-1].settings, "epochs": 30})
    assert found["distance"] > 0.1
    assert 0 < found["cosine_distance"] < 1
    assert found["alignment_after"][2] > 2 * found["alignment_before"][2]


def test_energy_is_that_of_the_labels_in_the_first_eigenvectors():
    setting = trials(TINY)[0].settings
    found = concentrate(**{**setting, "rate": 1e-12})
    network, x, classes = _start("fashion-mini", "mlp", 2, 48, 16)
    vectors = torch.linalg.eigh(gram_matrix(network, x[:40]))[1][:, -5:]
    y = torch.where(classes[:40] < 5, 1.0, -1.0).double()
    assert found["energy_before"] == pytest.approx(float((vectors.T @ y).norm() / y.norm()), rel=1e-3)
    assert found["energy_after"] == pytest.approx(found["energy_before"], rel=1e-3)


def test_iterations_end_with_the_first_epoch_that_is_good_enough():
    rows = tuple({"step": 8.0 * (i + 1), "train loss": loss} for i, loss in enumerate((0.5, 0.01, 0.02)))
    assert _steps_to(0.01, History(rows, "epochs")) == (16, True)
    assert _steps_to(0.001, History(rows, "epochs")) == (24, False)


def test_watched_indices_hold_the_learned_ones():
    assert set(CONFIG.indices) < set(watched_indices(CONFIG.indices, 8))
    assert watched_indices((1, 4), 0) == (1, 4)


def test_data_that_is_not_here_is_replaced_and_equal_trials_are_one(monkeypatch):
    monkeypatch.setattr("tangentkit.studies.trials.data.is_here", lambda name: name == "fashion-mini")
    found = trials(Config(cases=("cifar10 mlp sgd", "mnist mlp sgd")))
    assert {trial.settings["data"] for trial in found} == {"fashion-mini"}
    assert len(found) == len({trial.key for trial in found}) == 5 + 5 + 5 * 4


def test_divergence_fails_the_trial():
    with pytest.raises(NumericalError, match="diverged"):
        learn(**{**trials(TINY)[-1].settings, "rate": 1e30})


@pytest.mark.parametrize(
    "wrong", [{"indices": (5, 1)}, {"indices": (0, 1)}, {"energy_top": 600}, {"cases": ("cifar10 vgg sgd",)}]
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(InputError, match="bad"):
        dataclasses.replace(TINY, **wrong)


def weighed(share: float) -> list[dict]:
    """Shares of labels: in one seed another one for the first eigenfunction of LeNet."""
    return [
        {
            "data": "cifar10",
            "network": network,
            "seed": seed,
            "indices": CONFIG.indices,
            "shares": [share if network == "lenet" and seed == 1 else 0.4, 0.5, 0.5],
        }
        for network in ("mlp", "lenet")
        for seed in CONFIG.seeds
    ]


@pytest.mark.parametrize("share", [0.0, 0.04, 0.97])
def test_labels_of_nearly_one_class_are_no_task_and_the_page_says_so(share):
    rows = learned(1.0, 2.0, 3.0)
    for row in rows:
        if row["network"] == "lenet" and row["index"] == 1:
            row["test_network"] = row["test_linearized"] = 100.0
    found = result(CONFIG, Records(rows + weighed(share)))
    falls = {claim.quantity for claim in found.claims if "less well" in claim.statement}
    assert {"from j = 1 to 100" in fall for fall in falls} == {True, False}
    ahead = [claim.interval.mean for claim in found.claims if "better than the network" in claim.statement]
    assert ahead[0] == pytest.approx(ahead[1])
    assert "cifar10, LeNet, SGD, j = 1." in found.notes[0]
    assert "at j = 10, " in found.answer
    assert len(found.tables["eigenfunctions"].rows) == 6


def test_labels_of_two_classes_are_all_counted():
    found = result(CONFIG, Records(learned(1.0, 2.0, 3.0) + weighed(0.06)))
    assert "none here" in found.notes[0]
    assert "at j = 10, " not in found.answer


def test_shares_of_labels_are_those_of_the_eigenfunctions_that_are_learned():
    (trial,) = [trial for trial in trials(TINY) if trial.function is weigh]
    found = weigh(**trial.settings)
    assert len(found["shares"]) == len(TINY.indices)
    assert 0 < found["shares"][-1] < 1
