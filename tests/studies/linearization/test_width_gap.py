"""The study of the gap between networks and their linearizations: its claims, and a trial at toy size."""

import dataclasses

import pytest
import torch

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.models import lenet
from tangentkit.studies.linearization.images import drawn_images
from tangentkit.studies.linearization.width_gap import Config, accuracy, compare, result, trials
from tangentkit.studies.trials.records import Records

CONFIG = Config(widths=(1, 2), train=50_000)
TINY = Config(
    data=("fashion-mini",), harder=("fashion-mini",), train=40, test=20, widths=(0.5, 1), epochs=2, seeds=(0,)
)
TASKS = {"plain": 0, "shifted": 7, "harder": 0}
PUBLISHED_GAPS = {"plain": (4.67, 0.48), "shifted": (27.65, 3.91), "harder": (20.22, 13.17)}


def records(
    gaps: dict[str, tuple[float, float]], network: float = 90.0, easy: str = "mnist", hard: str = "cifar10"
) -> Records:
    """Networks of one accuracy, and linearizations that are worse by the gaps of two widths."""
    return Records(
        [
            {
                "task": task,
                "data": hard if task == "harder" else easy,
                "shift": TASKS[task],
                "width": width,
                "seed": seed,
                "parameters": 61_706,
                "train_network": 100.0,
                "train_linearized": 99.0,
                "test_network": network,
                "test_linearized": network - gap * (1 + seed / 100),
            }
            for task, both in gaps.items()
            for width, gap in zip((1, 2), both, strict=True)
            for seed in CONFIG.seeds
        ]
    )


def verdicts(rows: Records, config: Config = CONFIG) -> dict[str, str]:
    return {claim.statement: claim.verdict for claim in result(config, rows).claims}


def test_the_published_gaps_hold_but_for_the_widest_linearization_that_is_still_worse():
    found = verdicts(records(PUBLISHED_GAPS))
    *others, last = found.values()
    assert set(others) == {"holds"}
    assert last == "does not hold"


def test_a_linearization_that_is_better_and_loses_with_width_makes_the_claims_fail():
    found = verdicts(records({"plain": (-1.0, -0.5), "shifted": (-3.0, -2.0), "harder": (-4.0, -3.0)}))
    *others, last = found.values()
    assert set(others) == {"does not hold"}
    assert last == "holds"


def test_few_images_do_not_decide_what_needs_the_published_accuracy():
    rows = records({"plain": (2.0, 1.0), "shifted": (4.0, 2.0), "harder": (4.0, -3.0)})
    *_, last = verdicts(rows, dataclasses.replace(CONFIG, train=1000)).values()
    assert last == "not decided"


def test_missing_trials_cost_their_seed_only():
    rows = records({"plain": (2.0, 1.0), "shifted": (8.0, 2.0), "harder": (9.0, 3.0)})
    some = Records([row for row in rows if (row["task"], row["width"], row["seed"]) != ("shifted", 2, 1)])
    shrinks = next(
        c for c in result(CONFIG, some).claims if c.statement == "The gap shrinks with width (mnist, shifted)"
    )
    assert (len(shrinks.values), shrinks.verdict) == (4, "holds")


@pytest.mark.parametrize("tasks", [{}, {"harder": (9.0, 3.0)}])
def test_whole_tasks_may_be_missing(tasks):
    assert result(CONFIG, records(tasks)).tables


@pytest.mark.parametrize("lost", [("plain", 1), ("shifted", 2)])
def test_a_claim_about_every_width_is_not_decided_without_a_width_of_a_seed(lost):
    task, width = lost
    rows = [row for row in records(PUBLISHED_GAPS) if (row["task"], row["width"], row["seed"]) != (*lost, 3)]
    found = {c.statement: c for c in result(CONFIG, Records(rows)).claims if "every width" in c.statement}
    names = {"plain": "(mnist)", "shifted": "(mnist, shifted)", "harder": "(cifar10)"}
    for other, name in names.items():
        (claim,) = [claim for statement, claim in found.items() if statement.endswith(f"every width {name}")]
        assert claim.verdict == ("not decided" if other == task else "holds")
        assert (f"width {width} (seed 3) is missing" in claim.remedy) == (other == task)


def test_tasks_with_the_same_images_are_one_and_not_compared():
    assert {trial.settings["task"] for trial in trials(TINY)} == {"plain", "shifted"}
    assert {trial.settings["task"] for trial in trials(dataclasses.replace(TINY, shift=0))} == {"plain"}
    found = result(CONFIG, records(PUBLISHED_GAPS, easy="fashion-mini", hard="fashion-mini"))
    compared = [claim.statement for claim in found.claims if "harder task" in claim.statement]
    assert compared == ["The gap is larger on a harder task (fashion-mini, shifted against fashion-mini)"]
    assert not any("widest" in claim.statement for claim in found.claims)
    assert "a third task needs images" in found.stand_ins[0].why


def test_published_gaps_beside_other_images_say_for_which_they_were_published():
    def published(rows):
        found = result(CONFIG, rows)
        in_table = {row[1] for row in found.tables["gaps"].rows if row[0] == "published"}
        return [claim.published for claim in found.claims if any(map(str.isdigit, claim.published))], in_table

    words, in_table = published(records(PUBLISHED_GAPS))
    assert not any("published for" in text for text in words)
    assert in_table == {"mnist", "mnist, shifted", "cifar10"}
    words, in_table = published(records(PUBLISHED_GAPS, easy="fashion-mini", hard="fashion-mini"))
    assert len(words) == 5
    assert all("(published for MNIST" in text for text in words)
    assert in_table == {"MNIST", "MNIST, shifted"}


def test_a_trial_trains_the_network_of_its_seed_and_leaves_accuracies_in_percent():
    setting = trials(TINY)[0].settings
    found = compare(**{**setting, "learning_rate": 1e-12})
    key = Key(0).fold("width-gap", "plain")
    sets = drawn_images("fashion-mini", 40, 20, 0, key.fold("images"))
    network = lenet(0.5, seed=key.fold("network"))
    for split, data in zip(("train", "test"), sets, strict=True):
        with torch.no_grad():
            right = sum(
                int(network(x[None]).argmax()) == y for x, y in zip(data.inputs, data.targets, strict=True)
            )
        # A step of no size leaves both models where they were.
        assert (
            found[f"{split}_network"]
            == found[f"{split}_linearized"]
            == pytest.approx(100 * right / len(data))
        )
    assert compare(**{**setting, "epochs": 8, "learning_rate": 0.3})["train_network"] > found["train_network"]


def test_accuracy_goes_on_beyond_one_piece(monkeypatch):
    data, _ = drawn_images("fashion-mini", 30, 10, 0, Key(1))
    network = lenet(0.5, seed=3)
    whole = accuracy(network, data)
    monkeypatch.setattr("tangentkit.studies.linearization.width_gap.EVALUATED", 7)
    assert accuracy(network, data) == whole


def test_divergence_fails_the_trial():
    with pytest.raises(NumericalError, match="linearized diverged"):
        compare(**{**trials(TINY)[0].settings, "learning_rate": 1e30})


def test_the_learning_rate_falls_on_the_harder_task_alone():
    falling = dataclasses.replace(TINY, harder=("digits",), decay_every=30)
    assert {t.settings["task"]: t.settings["decay_every"] for t in trials(falling)} == {
        "plain": None,
        "shifted": None,
        "harder": 30,
    }


def test_widths_must_rise():
    with pytest.raises(InputError, match="bad widths"):
        Config(widths=(1,))
