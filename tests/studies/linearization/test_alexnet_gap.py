"""The study of AlexNet and its linearization: its trial, own pictures, and claims on records made by hand."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.models import alexnet, lecun_normal
from tangentkit.studies.linearization.alexnet_gap import (
    SCALES,
    Config,
    compare,
    enlarged,
    pictures,
    result,
    trials,
)
from tangentkit.studies.linearization.width_gap import accuracy
from tangentkit.studies.registry import find
from tangentkit.studies.runner import execute, resume
from tangentkit.studies.trials.data import whole
from tangentkit.studies.trials.records import Records

CONFIG = Config(widths=(1, 4))
TINY = Config(
    data=("fashion-mini",),
    train=20,
    test=10,
    widths=(1 / 64, 1 / 32),
    epochs=1,
    linear_rates=(1e-2, 1e-3),
    seeds=(2,),
)


def records(gap: float, rates: float, train: float, test: float) -> Records:
    """A linearization that is worse by a gap, and worse by `rates` at the lower rate; width adds to it."""
    rows = []
    for width in CONFIG.widths:
        for seed in CONFIG.seeds:
            more = (width == 4) * (1 + seed / 100)
            better = 50 - gap * (1 + seed / 100) + more * test
            rows.append(
                {
                    "data": "cifar10",
                    "classes": ["cat", "dog"],
                    "width": width,
                    "seed": seed,
                    "parameters": 57_044_810,
                    "train_network": 90.0,
                    "train_higher": 60 + more * train,
                    "train_lower": 55.0,
                    "test_network": 50.0,
                    "test_higher": better,
                    "test_lower": better - rates * (1 + seed / 100),
                }
            )
    return Records(rows)


def verdicts(rows: Records) -> list[str]:
    return [claim.verdict for claim in result(CONFIG, rows).claims]


def test_claims_hold_for_the_published_gaps():
    assert verdicts(records(gap=20.4, rates=2.0, train=20.0, test=1.84)) == ["holds"] * 8


def test_claims_do_not_hold_where_all_goes_the_other_way():
    rows = records(gap=-5.0, rates=-2.0, train=-20.0, test=-1.0)
    narrow_is_better = [
        {**row, "test_network": row["test_network"] + 3 * (row["width"] == 1)} for row in rows
    ]
    assert verdicts(rows) == ["does not hold"] * 3 + ["holds"] + ["does not hold"] * 4
    assert verdicts(Records(narrow_is_better))[3] == "does not hold"


def test_a_gain_on_test_images_as_large_as_on_training_images_is_seen():
    found = verdicts(records(gap=20.4, rates=2.0, train=3.0, test=5.0))
    assert found == ["holds"] * 7 + ["does not hold"]


def test_networks_that_are_trained_less_well_than_their_linearizations_decide_nothing():
    """At the larger width in the mean over seeds; what is said of the linearization alone is judged."""
    rows = records(gap=20.4, rates=2.0, train=20.0, test=1.84)
    failed = [
        {**row, "train_network": 95.0 if row["seed"] == 1 else 70.0} if row["width"] == 4 else row
        for row in rows
    ]
    found = result(CONFIG, Records(failed))
    undecided = {claim.statement for claim in found.claims if claim.verdict == "not decided"}
    assert len(undecided) == 4
    assert all("etwork" in statement or "gap" in statement for statement in undecided)
    assert all("--learning-rate" in claim.remedy for claim in found.claims if claim.statement in undecided)
    assert any("70.0, 95.0" in note for note in found.notes)
    assert not any("not trained well" in note for note in result(CONFIG, rows).notes)


def test_a_run_of_the_published_size_does_not_tell_of_stand_ins_that_it_has_not():
    full = dataclasses.replace(SCALES["full"], folder="/home/me/snakes")
    found = result(full, records(gap=20.4, rates=2.0, train=20.0, test=1.84))
    assert [one.why for one in found.stand_ins] == [""] * 5
    assert not any("LeCun" in note or "0.001" in note for note in found.notes)
    assert any("LeCun" in note for note in result(CONFIG, Records([])).notes)


def test_missing_trials_cost_their_seed_only():
    rows = Records([row for row in records(20.4, 2.0, 20.0, 1.84) if (row["width"], row["seed"]) != (4, 3)])
    assert {len(claim.values) for claim in result(CONFIG, rows).claims} == {4}


def test_seeds_that_outlived_divergence_decide_nothing():
    rows = records(20.4, 2.0, 20.0, 1.84)
    left = [row for row in rows if row["seed"] != 3]
    found = result(CONFIG, Records(left, {"seed 3": "NumericalError: training diverged in epoch 5"})).claims
    assert {claim.verdict for claim in found} == {"not decided"}


def test_a_claim_about_every_width_is_not_decided_without_a_width_of_a_seed():
    rows = records(20.4, 2.0, 20.0, 1.84)
    left = [row for row in rows if (row["width"], row["seed"]) != (4, 3)]
    every, others = [], []
    for claim in result(CONFIG, Records(left, {"width 4, seed 3": "lost"})).claims:
        (every if "every width" in claim.statement else others).append(claim)
    assert len(every) == 2
    assert {claim.verdict for claim in every} == {"not decided"}
    assert all("width 4 (seed 3) is missing" in claim.remedy for claim in every)
    assert {claim.verdict for claim in others} == {"holds"}


def test_published_gaps_say_that_they_are_of_other_images():
    found = result(CONFIG, records(20.4, 2.0, 20.0, 1.84)).claims
    assert all("(published for ten snakes of ImageNet)" in claim.published for claim in found)


@pytest.mark.parametrize("rows", [Records([]), records(1.0, 1.0, 1.0, 1.0)[:1]])
def test_nearly_all_trials_may_be_missing(rows):
    assert result(CONFIG, rows).tables


def test_a_trial_starts_all_models_from_the_network_of_its_seed():
    setting = trials(TINY)[0].settings
    still = compare(**{**setting, "learning_rate": 1e-12, "linear_rates": (1e-12, 1e-13)})
    key = Key(2).fold("alexnet-gap")
    sets = enlarged("fashion-mini", 20, 10, 64, key.fold("images"))
    network = alexnet(1 / 64, channels=1, outputs=5, seed=key.fold("network"), init=lecun_normal)
    for split, data in zip(("train", "test"), sets, strict=True):
        expected = accuracy(network, data)
        assert {still[f"{split}_{name}"] for name in ("network", "higher", "lower")} == {expected}
    assert still["classes"] == [whole("fashion-mini", "train").classes[i] for i in (0, 2, 3, 4, 6)]


def test_divergence_fails_the_trial():
    with pytest.raises(NumericalError, match="diverged"):
        compare(**{**trials(TINY)[0].settings, "epochs": 3, "learning_rate": 1e30})


@pytest.fixture
def folder(tmp_path):
    """Pictures of several sizes: the class is the color of the middle, which the crop keeps; the rim is white."""
    for split, count in (("train", 8), ("val", 4)):
        for value, name in ((0, "adder"), (200, "boa")):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = np.full((80 + i, 140, 3), 255, np.uint8)
                pixels[:, 20:120] = value
                Image.fromarray(pixels).save(tmp_path / split / name / f"{i}.png")
    return tmp_path


def test_pictures_of_a_folder_are_cropped_and_standardized(folder):
    first, second = pictures(str(folder), 63)
    assert first.inputs.shape == (16, 3, 63, 63)
    assert first.classes == second.classes == ("adder", "boa")
    assert float(first.inputs.mean()) == pytest.approx(0, abs=1e-5)
    assert float(first.inputs.std(correction=0)) == pytest.approx(1, abs=1e-4)
    # The white rim is cropped away: each picture has one color, and it is that of its class.
    assert float(second.inputs.flatten(1).std(1).max()) < 1e-5
    assert torch.equal(second.inputs[:, 0, 0, 0] > 0, second.targets == 1)


def test_a_trial_runs_on_a_folder(folder):
    config = dataclasses.replace(TINY, folder=str(folder), size=63)
    found = compare(**trials(config)[0].settings)
    assert found["classes"] == ["adder", "boa"]
    assert [card["samples"] for card in found["data_cards"]] == [16, 8]


def invert(folder: Path) -> None:
    for path in folder.rglob("*.png"):
        Image.fromarray(255 - np.asarray(Image.open(path))).save(path)


def test_a_run_goes_on_with_the_pictures_that_are_there_and_averages_no_others(folder, tmp_path_factory):
    config = dataclasses.replace(TINY, folder=str(folder), size=63, seeds=(0,))
    run = tmp_path_factory.mktemp("run")
    before = execute(find("alexnet-gap"), config, run, scale="quick").records
    assert len(resume(run, {"seeds": "0,1"}).records) == 4
    invert(folder)
    after = resume(run, {"seeds": "0,1"}).records
    seen = [{card["fingerprint"] for row in rows for card in row["data_cards"]} for rows in (before, after)]
    assert len(after) == 4
    assert len(seen[1]) == 2, "one for each split"
    assert not seen[0] & seen[1]


def test_the_same_words_mean_another_folder_elsewhere(folder, tmp_path_factory, monkeypatch):
    config = dataclasses.replace(TINY, folder="snakes", size=63)
    keys = []
    for change in (lambda _: None, invert):
        place = tmp_path_factory.mktemp("place")
        shutil.copytree(folder, place / "snakes")
        change(place)
        monkeypatch.chdir(place)
        keys.append({trial.key for trial in trials(config)})
    assert not keys[0] & keys[1]


def test_the_published_size_asks_for_a_folder():
    with pytest.raises(InputError, match=r"no data for this study.*--folder PATH.*train/CLASS"):
        trials(SCALES["full"])


def test_a_folder_without_test_pictures_is_refused_by_name(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(InputError, match=r"no .*val"):
        trials(dataclasses.replace(SCALES["full"], folder=str(tmp_path)))


def test_a_folder_whose_halves_have_other_classes_is_refused(folder):
    (folder / "val" / "boa").rename(folder / "val" / "cobra")
    with pytest.raises(InputError, match=r"other classes.*adder, boa.*adder, cobra"):
        pictures(str(folder), 63)


@pytest.mark.parametrize(
    "wrong", [{"widths": (2, 1)}, {"linear_rates": (0.1,)}, {"linear_rates": (0.1, 1)}, {"size": 32}]
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(InputError, match="bad"):
        dataclasses.replace(TINY, **wrong)
