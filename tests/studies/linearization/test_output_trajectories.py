"""The study of output trajectories: distances against slow versions and laws, and claims on records made by hand."""

import dataclasses
from itertools import permutations

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.models import lenet
from tangentkit.studies.linearization.images import drawn_images
from tangentkit.studies.linearization.output_trajectories import (
    SCALES,
    Config,
    compared,
    follow,
    moments,
    result,
    trials,
)
from tangentkit.studies.trials.records import Records

CONFIG = Config(widths=(1, 2, 4))
TINY = Config(data=("fashion-mini",), train=64, watched=20, widths=(0.5, 1), epochs=2, seeds=(1,))


def random_paths(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = Key(seed).numpy()
    own = np.eye(3, dtype=bool)[rng.integers(0, 3, 5)]
    return rng.standard_normal((4, 5, 3)), rng.standard_normal((4, 5, 3)) + 0.5, own


@pytest.mark.parametrize("seed", range(3))
def test_distances_are_those_of_the_best_pairing_and_of_the_same_image(seed):
    f, g, own = random_paths(seed)
    found = compared(f, g, own)
    best, same = [], []
    for t in (1, 2, 3):
        a, b = f[t][own], g[t][own]
        best.append(min(np.abs(a - b[list(order)]).mean() for order in permutations(range(5))))
        # Of ten outputs the best pairing is that of the sorted ones.
        best.append(np.abs(np.sort(f[t][~own]) - np.sort(g[t][~own])).mean())
        same += [np.abs(a - b).mean(), np.abs(f[t][~own] - g[t][~own]).mean()]
    assert found["distribution_distance"] == pytest.approx(np.mean(best))
    assert found["path_distance"] == pytest.approx(np.mean(same))
    assert found["distribution_distance"] <= found["path_distance"]


def test_exchanged_images_have_one_distribution_and_other_paths():
    f, _, own = random_paths(0)
    own = np.zeros_like(own)
    own[:, 0] = True
    found = compared(f, f[:, ::-1], own)
    assert found["distribution_distance"] == pytest.approx(0, abs=1e-12)
    assert found["path_distance"] > 0.1
    assert found["steps_ratio"] == pytest.approx(1)


def test_steps_are_compared_by_their_length():
    f, _, own = random_paths(1)
    assert compared(3 * f, f, own)["steps_ratio"] == pytest.approx(3)


def test_moments_are_those_of_each_kind_of_output():
    f, _, own = random_paths(2)
    found = moments(f, own)
    assert found.shape == (2, 2, 4)
    mean, deviation = f[3][~own].mean(), f[3][~own].std()
    np.testing.assert_allclose(found[1, :, 3], [mean, deviation], rtol=1e-5)


def records(distributions: float, paths: float, steps: float) -> Records:
    """Distances that change by exp(...) from one width to the next, and steps that differ by `steps` of before."""
    return Records(
        [
            {
                "data": "mnist",
                "width": width,
                "seed": seed,
                "parameters": 61_706,
                "distribution_distance": 0.1 * np.exp(i * distributions * (1 + seed / 100)),
                "path_distance": 0.3 * np.exp(i * paths),
                "steps_ratio": np.exp(-0.5 * steps**i * (1 + seed / 100)),
                **{f"{name}_accuracy": 90.0 for name in ("network", "linearized")},
                **{f"{name}_moments": np.ones((2, 2, 4)) for name in ("network", "linearized")},
                **{f"{name}_shown": np.ones((4, 2)) for name in ("network", "linearized")},
            }
            for i, width in enumerate(CONFIG.widths)
            for seed in CONFIG.seeds
        ]
    )


def verdicts(rows: Records) -> list[str]:
    return [claim.verdict for claim in result(CONFIG, rows).claims]


def test_claims_hold_where_statistics_alone_come_together():
    assert verdicts(records(-0.5, 0.0, 0.5)) == ["holds"] * 4


def test_claims_do_not_hold_where_statistics_go_apart():
    assert verdicts(records(0.5, 0.0, 2.0)) == ["does not hold", "does not hold", "holds", "does not hold"]


def test_paths_that_come_together_as_fast_are_not_taken_for_statistics():
    assert verdicts(records(-0.5, -0.9, 0.5)) == ["holds", "holds", "does not hold", "does not hold"]


def test_paths_that_come_together_with_the_statistics_refute_that_they_do_not():
    """As in the evening run: paths shrink to 0.63, distributions to 0.59."""
    found = {claim.statement: claim.verdict for claim in result(CONFIG, records(-0.26, -0.23, 0.5)).claims}
    assert found["The paths do not come together with width"] == "does not hold"
    assert found["The statistics come together more than the paths do"] == "holds"


def test_what_is_as_published_has_no_reason():
    rows = records(-0.5, 0.0, 0.5)
    assert [one.why for one in result(SCALES["full"], rows).stand_ins] == [""] * 3
    assert [one.why for one in result(CONFIG, rows).stand_ins] == ["", "time", ""]


def test_missing_trials_cost_their_seed_only():
    rows = Records([row for row in records(-0.5, 0.0, 0.5) if (row["width"], row["seed"]) != (4, 2)])
    assert {len(claim.values) for claim in result(CONFIG, rows).claims} == {4}


@pytest.mark.parametrize("rows", [Records([]), records(-0.5, 0.0, 0.5)[:2]])
def test_nearly_all_trials_may_be_missing(rows):
    assert result(CONFIG, rows).tables


def test_a_trial_follows_both_models_from_the_same_start():
    setting = trials(TINY)[0].settings
    still = follow(**{**setting, "learning_rate": 1e-6})
    assert still["path_distance"] < 1e-4
    key = Key(1).fold("output-trajectories")
    _, watched = drawn_images("fashion-mini", 64, 20, 0, key.fold("images"))
    network = lenet(0.5, seed=key.fold("network"))
    with torch.no_grad():
        outputs = network(watched.inputs)
    own = outputs[torch.arange(20), watched.targets]
    for name in ("network", "linearized"):
        np.testing.assert_allclose(still[f"{name}_shown"], own[:2].expand(3, 2), atol=1e-4)
        assert still[f"{name}_moments"][0, 0, 2] == pytest.approx(float(own.mean()), abs=1e-4)
    right = 100 * float((outputs.argmax(1) == watched.targets).double().mean())
    assert still["network_accuracy"] == still["linearized_accuracy"] == pytest.approx(right)


def test_models_that_learn_leave_each_other():
    found = follow(**{**trials(TINY)[0].settings, "epochs": 4})
    assert 0 < found["distribution_distance"] <= found["path_distance"]
    np.testing.assert_array_equal(found["network_shown"][0], found["linearized_shown"][0])


def test_divergence_fails_the_trial():
    with pytest.raises(NumericalError, match="diverged"):
        follow(**{**trials(TINY)[0].settings, "learning_rate": 1e30})


@pytest.mark.parametrize("wrong", [{"widths": (2, 1)}, {"widths": (1,)}, {"watched": 1}])
def test_bad_settings_are_refused(wrong):
    with pytest.raises(InputError, match="bad"):
        dataclasses.replace(TINY, **wrong)
