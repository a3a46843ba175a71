"""The poisoning study: its claims on made-up records, and one real trial of toy size."""

import numpy as np
import pytest

from tangentkit.core.errors import InputError
from tangentkit.studies.surrogates.poisoning import NUMBERS, TABLE_3, Config, result, trials
from tangentkit.studies.trials.records import Records

TINY = Config(data=("digits",), train=20, test=10, epochs=1, dim=512, seeds=(0,))


def made_up(found: dict[str, tuple[float, ...]]) -> Records:
    rng = np.random.default_rng(0)
    return Records(
        [
            {
                "seed": seed,
                "data": "cifar10",
                "accuracy": 80.0 + seed,
                "success": 99.0,
                "seconds": 1.0,
                "kernels": {
                    kernel: {
                        "recall_fooled": 99.0,
                        **dict(zip(NUMBERS, np.array(numbers) + rng.normal(0, 0.01, 6), strict=True)),
                    }
                    for kernel, numbers in found.items()
                },
            }
            for seed in range(4)
        ]
    )


def test_the_published_table_holds_and_its_reverse_does_not():
    found = result(TINY, made_up(TABLE_3))
    assert {claim.verdict for claim in found.claims} == {"holds"}
    reverse = dict(zip(TABLE_3, [TABLE_3["CK"]] * 5 + [TABLE_3["trNTK"]], strict=True))
    found = result(TINY, made_up(reverse))
    assert {claim.verdict for claim in found.claims} == {"does not hold"}


def test_a_network_that_has_not_learned_the_backdoor_decides_nothing():
    rows = [{**row, "success": 80.0} for row in made_up(TABLE_3)]
    found = result(TINY, Records(rows))
    assert {claim.verdict for claim in found.claims} == {"not decided"}
    assert "80 % of the images" in found.claims[0].remedy


def test_published_rows_stand_above_ours():
    table = result(TINY, made_up(TABLE_3)).tables["forensics"]
    assert [row[0] for row in table.rows][-2:] == ["published: CK", "this run: CK"]
    assert table.rows[-2][1:] == (*TABLE_3["CK"], None)


def test_a_real_trial_measures_every_kernel():
    (trial,) = trials(TINY)
    row = {**trial.settings, **trial.function(**trial.settings), "seconds": 1.0}
    assert set(row["kernels"]) == set(TABLE_3)
    for numbers in row["kernels"].values():
        assert 0 <= numbers["recall"] <= 100
        assert -1 <= numbers["poisoned_tau"] <= 1
    assert {card["name"] for card in row["data_cards"]} == {"digits"}
    assert {claim.verdict for claim in result(TINY, Records([row])).claims} == {"not decided"}


def test_a_share_of_poison_is_between_0_and_1():
    with pytest.raises(InputError, match="bad fraction"):
        Config(fraction=1.0)
