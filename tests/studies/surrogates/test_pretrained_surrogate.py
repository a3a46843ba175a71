"""The study of surrogates of pre-trained networks: its arithmetic, real trials, and missing ones."""

from dataclasses import replace

import pytest

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data import is_here
from tangentkit.studies.surrogates import pretrained_surrogate as study
from tangentkit.studies.surrogates.pretrained_claims import ENOUGH
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
            cheap, dear = ({**place, "train": train, "test": 200} for train in (300, 1_000))
            rows += [{**cheap, "kernel": k, **numbers[k]} for k in study.CHEAP]
            rows += [{**dear, "kernel": k, **numbers[k]} for k in tau if depth == 20]
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
    claims = study.result(few, AS_PUBLISHED).claims
    assert {claim.verdict for claim in claims} == {"holds", "not decided"}
    open_ones = [claim for claim in claims if claim.verdict == "not decided"]
    assert len(open_ones) == 4
    assert all(claim.remedy.endswith("--dear-train 1000") for claim in open_ones)


def test_the_evening_has_images_enough_to_decide_the_order_of_the_kernels():
    evening = study.SCALES["evening"]
    assert evening.dear_train >= ENOUGH
    assert all(claim.verdict == "holds" for claim in study.result(evening, AS_PUBLISHED).claims)


def of_images(train: int, test: int, tau: dict[str, float]) -> list[dict]:
    """Rows of ResNet-20 of one size."""
    rest = {"difference": -0.3, "agreement": 98.0, "accuracy": 91.0, "r2": 0.9, "time": 1.0, "memory": 100.0}
    return [
        {"depth": 20, "train": train, "test": test, "kernel": kernel, "seed": seed, "tau": value, **rest}
        for kernel, value in tau.items()
        for seed in CONFIG.seeds
    ]


def test_as_many_training_images_with_other_test_images_are_another_row():
    cheap = of_images(1_000, 500, {"proj-pNTK": 0.8, "CK": 0.72})
    dear = of_images(1_000, 200, {"proj-trNTK": 0.9, "proj-pNTK": 0.6, "Em": 0.75, "CK": 0.5})
    # The claims must not take the values of the other test images, whichever come last.
    for rows in ([*cheap, *dear], [*dear, *cheap]):
        networks = by_network(Records(rows))
        assert {name: set(kernels) for name, kernels in networks.items()} == {
            "ResNet-20, 1,000 images, 500 test images": {"proj-pNTK", "CK"},
            "ResNet-20, 1,000 images, 200 test images": {"proj-trNTK", "proj-pNTK", "Em", "CK"},
        }
        assert all(len(of_kernel) == 3 for kernels in networks.values() for of_kernel in kernels.values())
        (claim,) = (
            claim
            for claim in study.result(CONFIG, Records(rows)).claims
            if "more faithful than CK" in claim.statement
        )
        assert claim.values == pytest.approx([0.4] * 3)


def test_kernels_on_the_same_images_are_one_network():
    rows = Records(of_images(2_000, 500, {"proj-trNTK": 0.9, "proj-pNTK": 0.8, "Em": 0.75, "CK": 0.72}))
    assert {name: set(kernels) for name, kernels in by_network(rows).items()} == {
        "ResNet-20, 2,000 images": {"proj-trNTK", "proj-pNTK", "Em", "CK"}
    }
    claims = study.result(study.SCALES["evening"], rows).claims
    assert [claim.quantity for claim in claims][:2] == ["tau of proj-trNTK", "TAD of proj-trNTK in points"]


def test_kernels_of_equal_sizes_are_asked_for_once(real_data):
    evening = study.SCALES["evening"]
    asked = [trial.settings for trial in study.trials(replace(evening, sentences=0))]
    of_20 = [(s["kernel"], s["seed"]) for s in asked if s.get("train") and s["depth"] == 20]
    assert len(of_20) == len(set(of_20)) == 4 * len(evening.seeds)


def test_the_projection_is_claimed_of_the_images_that_it_is_compared_on():
    (claim,) = (c for c in study.result(CONFIG, AS_PUBLISHED).claims if "the projection is" in c.statement)
    assert claim.statement.startswith(f"ResNet-20, {CONFIG.exact} images:")
    assert "too few to judge the level of either" in claim.quantity
    many = study.result(replace(CONFIG, exact=1_000), AS_PUBLISHED)
    assert not any("too few" in claim.quantity for claim in many.claims)


def test_published_networks_have_their_accuracy_and_table_1_its_rows():
    table = study.result(CONFIG, AS_PUBLISHED).tables["faithfulness"]
    texts = dict(zip([row[0] for row in table.rows], table.texts(), strict=True))
    assert texts["published (Table 1): trNTK, ResNet34 (CIFAR-10)"][1:4] == ["93.33", "0.786", "-0.29"]
    assert texts["published (Table 2): CK, ResNet18 (CIFAR-10)"][1:4] == ["93.07", "0.630", "-0.20"]
    assert texts["published (Table 2): CK, BERT-base (CoLA)"][1] == "83.40 ± 0.10"
    assert not any(row[1] is None for row in table.rows)


def test_every_table_shows_how_much_of_the_log_odds_a_surrogate_explains():
    tables = study.result(CONFIG, AS_PUBLISHED).tables
    for table in tables.values():
        (place,) = (i for i, column in enumerate(table.headings) if column.name == "R²")
        assert all(table.texts()[row][place].startswith("0.900") for row in table.ours)


def test_notes_say_what_kernels_would_need_on_disk():
    notes = " ".join(study.result(study.SCALES["evening"], AS_PUBLISHED).notes)
    assert "nothing on disk" in notes
    # 2,500 × 2,048 and 2,500 × 2,500 numbers of 4 bytes.
    assert (
        notes.count("for 2,500 images 20.5 MB of features of a projected kernel or a matrix of 25.0 MB") == 1
    )


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
    assert "over 5 fifths of the test images" in found.claims[-1].evidence
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
