"""The spectra of a CNN: arithmetic of the claims on made-up records, and one small real training."""

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.models import cifar2_cnn
from tangentkit.reference import jacobian
from tangentkit.report import image
from tangentkit.studies.spectra import cnn_spectra as study
from tangentkit.studies.spectra import cnn_spectra_claims as claims_module
from tangentkit.studies.trials.data import whole
from tangentkit.studies.trials.records import Records

CONFIG = study.Config(seeds=(0, 1, 2, 3))


def planted(*, ways: tuple[str, str, str]) -> list[dict]:
    """Accuracy, tail and Hill exponent that get better, longer and smaller in this order of the ways."""
    rows = []
    for seed in CONFIG.seeds:
        for rank, way in enumerate(ways):
            values = np.concatenate([[100.0], np.geomspace(1, 0.9, 30)]) * (1 + seed)
            heavier = values.copy()
            risen = slice(1, 6 + 5 * rank + seed % 2)
            heavier[risen] = 2 * values[1] * (values[risen] / values[1]) ** (0.5 * 2**rank)
            rows.append(
                {
                    "way": way,
                    "seed": seed,
                    "data": "cifar10",
                    "diverged": False,
                    "accuracy": 75.0 + 3 * rank + 0.1 * seed,
                    "train_loss": 0.05,
                    "epochs_run": 40 - 10 * rank,
                    "beyond": 2 + 5 * rank + seed % 2,
                    "growth": 2.0,
                    "ks": 0.1,
                    "hill": [1.6, 1.6 + 0.1 - 0.1 * rank - 0.001 * seed],
                    "kta": [0.1, 0.2],
                    "spectra": np.stack([values, 2 * heavier]),
                }
            )
    return rows


def verdicts(rows: list[dict]) -> list[str]:
    return [claim.verdict for claim in study.result(CONFIG, Records(rows)).claims]


def test_the_published_order_holds_where_it_is_planted():
    assert set(verdicts(planted(ways=("GD", "SGD", "Adam")))) == {"holds"}


def test_the_reverse_order_does_not_hold():
    assert set(verdicts(planted(ways=("Adam", "SGD", "GD")))) == {"does not hold"}


def test_missing_and_diverged_trials_leave_the_others():
    rows = planted(ways=("GD", "SGD", "Adam"))
    lost = [row for row in rows if row["way"] != "SGD" or row["seed"] > 1]
    lost.append({"way": "SGD", "seed": 0, "data": "cifar10", "diverged": True})
    claims = study.result(CONFIG, Records(lost, {"seed 1": "Error: lost"})).claims
    assert [len(claim.values) for claim in claims] == [2, 2, 2, 2, 2, 2, 4]
    only = [row for row in rows if row["way"] == "GD"]
    assert study.result(CONFIG, Records(only)).claims[0].verdict == "not decided"


def test_another_data_set_is_named_as_a_stand_in():
    rows = [{**row, "data": "fashion-mini"} for row in planted(ways=("GD", "SGD", "Adam"))]
    names = [[one.what for one in study.result(CONFIG, Records(each)).stand_ins] for each in (rows, [])]
    assert "data" in names[0]
    assert "data" not in names[1]
    found = study.result(CONFIG, Records(rows)).claims
    assert found[0].published == "84 % against 79 % (published for CIFAR-10)"


@pytest.fixture(scope="module")
def record() -> dict:
    return study.spectra(
        way="Adam",
        data="fashion-mini",
        images=24,
        test=40,
        pool=2,
        width=1,
        optimizer="adam",
        rate=1e-2,
        batch=8,
        epochs=6,
        loss=0.01,
        seed=0,
    )


def test_the_initial_spectrum_is_that_of_all_gradients(record):
    key = Key(0).fold("cnn-spectra")
    chosen, _ = whole("fashion-mini", "train", study.CLASSES).partition(24, key=key.fold("data", "train"))
    x = chosen.inputs.reshape(24, 1, 14, 2, 14, 2).mean((3, 5))
    model = cifar2_cnn(1, channels=1, size=14, seed=key.fold("network"))
    J = jacobian(model, x)[:, 0]
    expected = torch.linalg.svdvals(J).square().numpy()
    np.testing.assert_allclose(record["spectra"][0], expected, rtol=1e-4, atol=1e-6 * expected[0])


def test_the_numbers_of_a_trial_are_those_of_its_spectra(record):
    before, after = np.asarray(record["spectra"], dtype=float)
    assert (np.diff(before) <= 0).all()
    assert (np.diff(after) <= 0).all()
    assert record["growth"] == pytest.approx(after.sum() / before.sum(), rel=1e-5)
    assert record["beyond"] == (after[1:] > before[1]).sum()
    assert 0 < record["ks"] <= 1
    assert 0 <= record["accuracy"] <= 100
    assert all(0 < value <= 1 for value in record["kta"])


def test_pools_below_one_are_refused():
    with pytest.raises(InputError, match="bad pool"):
        study.Config(pool=0)


def test_figures_are_drawn():
    for figure in study.result(CONFIG, Records(planted(ways=("GD", "SGD", "Adam")))).figures.values():
        assert image(figure, format="png")


def test_a_kernel_that_only_grows_has_no_heavier_tail():
    rows = planted(ways=("GD", "SGD", "Adam"))
    for row in rows:
        before = row["spectra"][0]
        row["spectra"] = np.stack([before, {"GD": 1, "SGD": 2, "Adam": 100}[row["way"]] * before])
    claims = study.result(CONFIG, Records(rows)).claims
    found = {claim.statement: claim.verdict for claim in claims if "Adam than after SGD" in claim.statement}
    assert found["The tail of the NTK is heavier after Adam than after SGD"] != "holds"
    assert found["More eigenvalues pass the initial edge after Adam than after SGD"] == "holds"


def test_networks_that_have_not_come_equally_far_are_not_compared():
    """A GD of a loss of 0.49 has learned something, but less than networks at 0.05."""
    rows = planted(ways=("GD", "SGD", "Adam"))
    for row in rows:
        if row["way"] == "GD" and row["seed"]:
            row["train_loss"] = 0.49
    claims = study.result(CONFIG, Records(rows)).claims
    assert [claim.verdict for claim in claims] == [*["not decided", "holds"] * 3, "holds"]
    for claim in claims[:6:2]:
        assert len(claim.values) == 4
        assert "all seeds" in claim.quantity
        assert "a training loss of 0.1 or less: more --gd-epochs" in claim.remedy


def test_a_tail_is_judged_where_all_measures_agree():
    rows = planted(ways=("GD", "SGD", "Adam"))
    lighter = [{**row, "hill": [1.6, 3.3 - row["hill"][1]]} for row in rows]
    claims = study.result(CONFIG, Records(lighter)).claims
    assert [claim.verdict for claim in claims] == [
        *["holds"] * 2,
        *["not decided"] * 2,
        *["holds"] * 2,
        "not decided",
    ]
    assert "by Hill exponent it does not hold" in claims[2].remedy
    assert "the first eigenvalue it holds" in claims[3].remedy
    table = study.result(CONFIG, Records(lighter)).tables["tails"]
    assert [row[-1] for row in table.rows] == ["holds", "holds", "does not hold"] * 2


def test_a_first_eigenvalue_that_shrinks_alone_is_no_heavier_tail():
    rows = planted(ways=("GD", "SGD", "Adam"))
    for row in rows:
        shrunk = row["spectra"][0].copy()
        shrunk[0] *= {"GD": 0.9, "SGD": 0.5, "Adam": 0.2}[row["way"]]
        row["spectra"] = np.stack([row["spectra"][0], shrunk])
    claims = study.result(CONFIG, Records(rows)).claims
    assert all(claim.verdict == "not decided" for claim in claims[2:4])
    assert claims_module.beyond_rescaled(rows[2]) > 0
    assert claims_module.beyond_rescaled(rows[2], first=1) == 0


def test_networks_that_died_or_hardly_learned_are_named():
    rows = planted(ways=("GD", "SGD", "Adam"))

    def notes() -> tuple[str, ...]:
        return study.result(CONFIG, Records(rows)).notes

    assert notes()[0] == "Of 12 trainings none diverged."
    assert notes()[1].count("none") == 2
    assert "GD ended at 0.05 after 40 passes; SGD ended at 0.05 after 30 passes" in notes()[2]
    rows[0] = {**rows[0], "train_loss": 0.69}
    assert "a training loss above 0.1, 2 times the one that is asked for: GD with seed 0." in notes()[1]
    assert "GD ended at 0.05 to 0.69" in notes()[2]
    before, after = rows[4]["spectra"]
    rows[4] = {**rows[4], "spectra": np.stack([before, np.where(after < after[0], 1e-9, after)])}
    assert "died in training: SGD with seed 1." in notes()[1]
    rows[8] = {"way": "Adam", "seed": 0, "data": "cifar10", "diverged": True}
    assert "1 diverged: Adam with seed 0." in notes()[0]
