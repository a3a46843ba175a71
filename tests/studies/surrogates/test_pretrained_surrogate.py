"""The study of surrogates of pre-trained networks: its arithmetic, real trials, and missing ones."""

import pytest

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data import is_here
from tangentkit.studies.surrogates import pretrained_surrogate as study
from tangentkit.studies.surrogates.pretrained_report import by_network
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.trial import Trial

CONFIG = study.Config(seeds=(0, 1, 2), dear_train=1_000)


def planted(tau: dict[str, float], *, difference: float = -0.3, exact: float = 0.0) -> Records:
    """Rows in which kernels have these taus on every network, with a little noise between seeds."""
    rows = []
    for seed in CONFIG.seeds:
        numbers = {
            kernel: {
                "tau": value + 0.001 * seed, "difference": difference + 0.01 * seed, "agreement": 98.0,
                "accuracy": 91.0, "r2": 0.9, "time": 1.0, "memory": 100.0,
            }
            for kernel, value in tau.items()
        }  # fmt: skip
        for depth in CONFIG.resnets:
            place = {"depth": depth, "seed": seed}
            rows += [{**place, "train": 300, "kernel": k, **numbers[k]} for k in study.CHEAP]
            rows += [{**place, "train": 1_000, "kernel": k, **numbers[k]} for k in tau if depth == 20]
        rows.append({"kernels": {k: numbers[k] for k in study.CHEAP}, "seed": seed, "matthews": 0.4})
        projected = numbers["proj-trNTK"]
        beside = {**projected, "tau": projected["tau"] + exact}
        rows.append({"depth": 20, "seed": seed, "exact": beside, "projected": projected, "error": 0.05})
    return Records(rows)


AS_PUBLISHED = planted({"proj-trNTK": 0.9, "proj-pNTK": 0.8, "Em": 0.75, "CK": 0.72})


def test_what_is_planted_as_published_holds():
    assert {claim.verdict for claim in study.result(CONFIG, AS_PUBLISHED).claims} == {"holds"}


def test_the_reverse_does_not_hold():
    found = planted({"proj-trNTK": 0.4, "proj-pNTK": 0.5, "Em": 0.55, "CK": 0.6}, difference=-9.0, exact=0.5)
    assert {claim.verdict for claim in study.result(CONFIG, found).claims} == {"does not hold"}


def test_every_network_has_its_kernels_in_the_table():
    assert {name: set(rows) for name, rows in by_network(AS_PUBLISHED).items()} == {
        "ResNet-20, 300 images": {"proj-pNTK", "CK"},
        "ResNet-20, 1,000 images": {"proj-trNTK", "proj-pNTK", "Em", "CK"},
        "ResNet-56, 300 images": {"proj-pNTK", "CK"},
        "MiniLM on CoLA": {"proj-pNTK", "CK"},
    }
    table = study.result(CONFIG, AS_PUBLISHED).tables["faithfulness"]
    assert len(table.ours) == 10


def test_few_images_decide_neither_the_level_of_the_trace_nor_its_rank():
    few = study.Config(seeds=(0, 1, 2), dear_train=100)
    verdicts = [claim.verdict for claim in study.result(few, AS_PUBLISHED).claims]
    assert verdicts.count("not decided") == 4
    assert set(verdicts) == {"holds", "not decided"}


@pytest.mark.parametrize("known", [{"matthews": 0.1}, {}])
def test_a_text_model_that_has_not_learned_is_not_judged(known):
    def unlearned(row):
        return row if "kernels" not in row else {"kernels": row["kernels"], "seed": row["seed"], **known}

    claims = study.result(CONFIG, Records([unlearned(row) for row in AS_PUBLISHED])).claims
    assert {claim.statement.partition(":")[0] for claim in claims if claim.verdict != "holds"} == {
        "MiniLM on CoLA"
    }


def test_a_correlation_that_was_not_noted_is_a_sentence():
    def without(row):
        return {name: value for name, value in row.items() if name != "matthews"}

    notes = " ".join(study.result(CONFIG, Records([without(row) for row in AS_PUBLISHED])).notes)
    assert "The Matthews correlation of MiniLM on CoLA was not noted for every seed of this run;" in notes
    assert "has a Matthews correlation of 0.40 ± 0.00 on" in " ".join(
        study.result(CONFIG, AS_PUBLISHED).notes
    )


def test_a_claim_names_what_was_published_of_the_same_two_kernels():
    rows = [
        claim for claim in study.result(CONFIG, AS_PUBLISHED).claims if "more faithful" in claim.statement
    ]
    assert [claim.published for claim in rows] == [
        "0.737 against 0.407 (ResNet18)",
        "0.737 against 0.63 (ResNet18)",
    ]


def test_all_images_have_a_table_and_a_claim_of_their_own():
    everything = {
        "tau": 0.8, "difference": -0.2, "agreement": 98.0, "accuracy": 91.7, "r2": 0.9, "tau_error": 0.003,
        "difference_error": 0.1, "fifths": [0.79, 0.8, 0.81, 0.8, 0.8], "written": 900.0, "time": 1800.0,
        "memory": 7_000.0, "disk": 8_000.0, "error": 0.01,
    }  # fmt: skip
    row = {"depth": 20, "kernel": "CK", "test": 10_000, "seed": 0, "everything": everything}
    found = study.result(CONFIG, Records([*AS_PUBLISHED, row]))
    assert found.claims[-1].verdict == "holds"
    assert "all 50,000 images" in found.claims[-1].statement
    assert found.tables["everything"].rows[0][0] == "CK, ResNet-20"
    assert found.tables["everything"].rows[0][-3:] == (0.5, 7.0, 8.0)
    assert by_network(Records([*AS_PUBLISHED, row])).keys() == by_network(AS_PUBLISHED).keys()


def test_missing_trials_leave_a_page():
    some = Records([row for row in AS_PUBLISHED if row.get("kernel") != "proj-trNTK"])
    assert study.result(CONFIG, some).tables
    assert {claim.verdict for claim in study.result(CONFIG, Records([])).claims} == {"not decided"}


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="bad depth"):
        study.Config(resnets=(18,))
    with pytest.raises(InputError, match="too few images"):
        study.Config(exact=2)


@pytest.mark.skipif(not is_here("cifar10"), reason="CIFAR-10 is not here: set TANGENTKIT_DATA")
def test_a_real_trial_of_a_resnet():
    row = study.of_resnet(depth=20, kernel="CK", train=60, test=40, dim=512, ridge=1e-4, seed=0)
    assert row["accuracy"] > 75
    assert row["tau"] > 0.3
    assert row["agreement"] > 75


@pytest.mark.skipif(not is_here("cifar10"), reason="CIFAR-10 is not here: set TANGENTKIT_DATA")
def test_a_surrogate_that_is_asked_through_the_disk_is_the_same_as_in_memory():
    fixed = {"dim": 512, "ridge": 1e-4, "seed": 0}
    row = study.of_all_images(depth=20, kernel="CK", images=60, test=40, checked=20, **fixed)["everything"]
    assert row["error"] < 1e-5
    assert row["disk"] > 4 * 100**2 / 2 / 1e6
    known, new = study.normalized(60, 40, Key(0).fold("pretrained-surrogate", "all", 20))
    network = study.load_cifar_resnet(20)
    same = study.measured(network, study.kernel_of("CK", network, 512, 0), known, new, 1e-4)
    assert row["tau"] == pytest.approx(same["tau"], abs=1e-6)
    assert len(row["fifths"]) == 5


def test_records_of_all_images_keep_their_keys():
    """That the matrix outlives a kill changed the statements, not what they record: hours of records stay valid."""
    settings = {"depth": 20, "kernel": "CK", "images": 50_000, "test": 10_000, "checked": 300, "seed": 0}
    assert (
        Trial(study.of_all_images, {**settings, "dim": 2048, "ridge": 1e-4}).key == "6c4548a87a21aeaaa7bd259f"
    )
