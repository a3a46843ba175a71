"""The surrogate study: its arithmetic on made-up records, and one real trial of toy size."""

import re

import numpy as np
import pytest

from report.surrogate_sample import surrogate_page, surrogate_records, surrogate_result
from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.report import DARK, image
from tangentkit.studies.surrogates.surrogate import Config, result, trials
from tangentkit.studies.surrogates.surrogate_cases import KERNELS
from tangentkit.studies.surrogates.surrogate_report import report
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.store import TrialStore
from tangentkit.studies.trials.trial import perform

TINY = Config(cases=("mlp-mnist2", "lenet"), train=20, test=20, passes=0.02, dim=512, seeds=(0, 1))


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> Records:
    store = TrialStore(tmp_path_factory.mktemp("trials"))
    wanted = trials(TINY)
    for trial in wanted:
        store.write(perform(trial))
    return store.records(trial.key for trial in wanted)


def verdicts(found) -> dict[str, str]:
    return {claim.statement: claim.verdict for claim in found.claims}


def test_a_planted_gain_holds_and_its_reverse_does_not():
    for gain, verdict in ((0.05, "holds"), (-0.05, "does not hold")):
        found = verdicts(surrogate_result(gain=gain))
        assert found["trNTK has the highest tau of all kernels"] == verdict
        assert found["Normalization helps: tau of trNTK is above that of trNTK0"] == verdict
    assert found["The class with the largest mean attribution is the predicted one"] == "holds"


def test_real_trials_give_numbers_in_their_ranges(records):
    assert not records.failures
    assert len(records) == 4
    for row in records:
        assert set(row["kernels"]) == set(KERNELS)
        for numbers in row["kernels"].values():
            assert -1 <= numbers["tau"] <= 1
            assert 0 <= row["accuracy"] + numbers["difference"] <= 100 + 1e-9
            # A difference cannot exceed the share of points on which the two differ.
            assert abs(numbers["difference"]) <= 100 - numbers["agreement"] + 1e-9
        assert 0.01 <= row["mass"] <= 1
        assert all(0 <= share <= 1 for share in row["overlap"].values())
    seeds = [row["kernels"]["trNTK"]["tau"] for row in records.where(case="lenet")]
    assert seeds[0] != seeds[1]


def test_one_output_has_one_trace_and_pseudo_kernel(records):
    row = records.where(case="mlp-mnist2", seed=0)[0]
    assert row["kernels"]["proj-trNTK"]["tau"] == pytest.approx(row["kernels"]["proj-pNTK"]["tau"])


def test_the_same_trial_gives_the_same_numbers(records):
    again = perform(trials(TINY)[0])
    stored = records.where(case="mlp-mnist2", seed=0)[0]["kernels"]["trNTK"]
    assert again.values["kernels"]["trNTK"]["tau"] == stored["tau"]


def test_the_report_of_real_trials_is_drawn(records):
    found = result(TINY, records)
    for figure in found.figures.values():
        assert image(figure, DARK, format="png")
    gram = np.asarray(records.where(case="lenet", seed=0)[0]["gram"], dtype=float)
    np.testing.assert_allclose(gram.diagonal(), 1, atol=1e-3)
    assert found.tables["networks"].ours


def test_networks_on_other_data_than_published_are_told_apart_and_their_numbers_named():
    found = surrogate_result()
    taus = [claim for claim in found.claims if claim.quantity.startswith("tau of trNTK, ")]
    assert len({claim.statement for claim in taus}) == 5
    assert "CNN as for CIFAR-10 (fashion-mini, 2 classes)" in taus[3].statement
    assert taus[3].published == "0.711 ± 0.003 (CNN (CIFAR-10, 2 classes))"
    own = Records([{**row, "data": "cifar10"} for row in surrogate_records()])
    claims = report(own, train=500, test=300, passes=0.2, dim=2048).claims
    assert "0.711 ± 0.003" in {claim.published for claim in claims}
    assert any(claim.statement.startswith("CNN (cifar10, 2 classes): ") for claim in claims)


def test_a_case_whose_trials_all_failed_is_left_out(records):
    found = result(TINY, Records(list(records.where(case="lenet")), {"seed 0": "ValueError: no"}))
    assert not any("MLP" in statement for statement in verdicts(found))


def test_published_numbers_stand_beside_ours():
    networks, kernels, *_ = surrogate_result().tables.values()
    assert ["published: ResNet18 (CIFAR-10)", "1", "93.07", "-0.28", "0.776", "–"] in networks.texts()
    by_name = {
        row[0]: dict(zip([c.name for c in kernels.headings], row, strict=True)) for row in kernels.rows
    }
    assert by_name["CK"]["ResNet18, published"] == 0.630
    assert by_name["proj-pNTK"]["BERT-base, published"].value == 0.72


@pytest.mark.parametrize("fields", [{"train": 10}, {"passes": 0.0}])
def test_bad_settings_are_refused_before_any_work(fields):
    with pytest.raises(InputError, match="too small"):
        Config(**fields)
    with pytest.raises(UnknownNameError, match="unknown value of --cases"):
        Config(cases=("lenett",))


def test_abbreviations_are_explained_before_they_are_used():
    """By the list of terms, which stands before claims and tables, or in the answer itself."""
    found = surrogate_result()
    page = surrogate_page(found).render()
    assert page.index('<h2 id="asked"') < page.index('<h2 id="terms"') < page.index('<h2 id="claims"')
    used = [text for claim in found.claims for text in (claim.statement, claim.quantity)]
    used += [str(row[0]) for row in found.tables["kernels-tau"].rows]
    short = re.findall(r"(?<![\w-])(?:[a-z]+-)?(?:[a-z]*NTK\d?|CK|TAD|tau|R²)(?![\w-])", " ".join(used))
    assert {"trNTK", "trNTK0", "CK", "TAD", "tau", "proj-pNTK"} <= set(short) <= {*found.terms, "pseudo-NTK"}


def test_one_seed_is_not_many():
    found = report(surrogate_records(seeds=1), train=500, test=300, passes=0.2, dim=2048)
    assert "1 seeds" not in surrogate_page(found).render()
    assert {claim.verdict for claim in found.claims} == {"not decided"}
