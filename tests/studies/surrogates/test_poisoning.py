"""The poisoning study: its claims on made-up records, and one real trial of toy size."""

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.models import load_cifar_resnet
from tangentkit.studies.surrogates import poisoning
from tangentkit.studies.surrogates.poisoning import Config, result, trials
from tangentkit.studies.surrogates.poisoning_report import NUMBERS, TABLE_3
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
    inaccurate = {kernel: (*numbers[:3], -6.0, *numbers[4:]) for kernel, numbers in reverse.items()}
    found = result(TINY, made_up(inaccurate))
    assert {claim.verdict for claim in found.claims} == {"does not hold"}


@pytest.mark.parametrize("kernel", TABLE_3)
def test_the_accuracy_of_every_surrogate_on_clean_images_is_judged(kernel):
    numbers = TABLE_3[kernel]
    found = result(TINY, made_up({**TABLE_3, kernel: (*numbers[:3], -37.2, *numbers[4:])}))
    (refuted,) = (claim.statement for claim in found.claims if claim.verdict != "holds")
    assert refuted.startswith(f"On clean images the surrogate on {kernel} is as accurate as the network")


def test_a_network_that_has_not_learned_the_backdoor_decides_nothing():
    rows = [{**row, "success": 80.0} for row in made_up(TABLE_3)]
    found = result(TINY, Records(rows))
    assert {claim.verdict for claim in found.claims} == {"not decided"}
    assert "80 % of the images" in found.claims[0].remedy


def test_a_kernel_may_be_worse_and_still_find_the_poison():
    behind = {**TABLE_3, "CK": (99.0, 97.0, *TABLE_3["CK"][2:])}
    claims = {claim.statement: claim.verdict for claim in result(TINY, made_up(behind)).claims}
    assert claims["The conjugate kernel is worse than trNTK"] == "holds"
    assert claims["The conjugate kernel does not find the poison"] == "does not hold"


def test_published_numbers_beside_other_images_say_for_which_they_were_published():
    other = [{**row, "data": "fashion-mini"} for row in made_up(TABLE_3)]
    for rows, named in ((made_up(TABLE_3), False), (Records(other), True)):
        found = result(TINY, rows)
        texts = [*(claim.published for claim in found.claims), found.notes[-2]]
        assert {"(published for CIFAR-10)" in text for text in texts} == {named}


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


TUNED = Config(data=("cifar10",), pretrained=20, train=20, test=50, epochs=1, dim=512, seeds=(0,))


def test_a_pretrained_network_knows_the_images_that_it_is_given(real_data):
    (trial,) = trials(TUNED)
    assert trial.function is poisoning.tune_and_trace
    images = poisoning._poisoned_images("cifar10", 20, 50, 0.1, Key(0)).standardized()
    with torch.no_grad():
        guessed = load_cifar_resnet(20)(images.clean.inputs).argmax(1)
    assert (guessed == images.clean.targets).double().mean() > 0.8  # 91.7 % of all test images


@pytest.mark.slow
def test_a_pretrained_network_that_is_tuned_is_asked_the_same(real_data):
    (trial,) = trials(TUNED)
    row = {**trial.settings, **trial.function(**trial.settings), "seconds": 1.0}
    assert set(row["kernels"]) == set(TABLE_3)
    assert row["accuracy"] > 50, "one pass over 20 images does not undo what it knew"


def test_the_page_of_a_pretrained_network_says_so():
    stand_ins = result(TUNED, made_up(TABLE_3)).stand_ins
    assert "pre-trained CIFAR-10 ResNet-20" in next(part.here for part in stand_ins if part.what == "network")


def test_a_pretrained_resnet_is_of_cifar_10():
    with pytest.raises(InputError, match="knows CIFAR-10 alone"):
        Config(pretrained=20)


def test_a_share_of_poison_is_between_0_and_1():
    with pytest.raises(InputError, match="bad fraction"):
        Config(fraction=1.0)
