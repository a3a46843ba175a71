"""The study of spectra in fine-tuning: claims on courses made by hand, and a trial on a tiny model in a folder."""

import numpy as np
import pytest
import torch

from studies.tiny_text_model import save_model, tweets
from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.empirical import ConjugateKernel
from tangentkit.studies.spectra import finetune_spectra
from tangentkit.studies.spectra.finetune_spectra import Config, fall, follow, result, rise, top_two, trials
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.text_models import TextClassifier, pretrained, tokens


def course(first: list[float], alignment: list[float], seed: int) -> dict:
    jitter = 1 + 0.01 * seed
    return {
        "seed": seed,
        "step": np.arange(3),
        "lambda_1": np.array(first) * jitter,
        "lambda_2": np.array([1.0, 2.0, 3.0]),
        "alignment_1": np.array(alignment) * jitter,
        "alignment_2": np.array(alignment) * jitter,
        "train_accuracy": 0.9,
        "test_accuracy": 0.8,
        "test_accuracy_before": 0.5,
    }


def verdicts(first: list[float], alignment: list[float]) -> list[str]:
    rows = Records([course(first, alignment, seed) for seed in range(5)])
    return [claim.verdict for claim in result(Config(), rows).claims]


def test_claims_hold_where_the_eigenvalue_falls_and_rises_and_alignments_rise():
    assert verdicts([10.0, 5.0, 20.0], [0.1, 0.3, 0.8]) == ["holds"] * 4


def test_claims_do_not_hold_the_other_way_round():
    assert verdicts([10.0, 12.0, 10.0], [0.8, 0.3, 0.1]) == ["does not hold"] * 4


def test_an_eigenvalue_that_only_falls_does_not_rise_again():
    assert verdicts([10.0, 5.0, 4.0], [0.1, 0.2, 0.3])[:2] == ["holds", "does not hold"]


def test_fall_and_rise_are_logarithms_about_the_lowest_value():
    row = {"lambda_1": [8.0, 2.0, 4.0]}
    assert fall(row) == pytest.approx(-np.log(4))
    assert rise(row) == pytest.approx(np.log(2))


@pytest.mark.parametrize("seeds", [[], [0], [0, 3]])
def test_missing_trials_leave_a_page(seeds):
    found = result(
        Config(), Records([course([3.0, 2.0, 3.0], [0.1, 0.2, 0.3], s) for s in seeds], {"x": "lost"})
    )
    assert len(found.claims) == 4
    assert len(found.figures) == 2 * bool(seeds)
    assert ("No trial" in found.answer) == (not seeds)


def test_a_bad_probe_is_refused():
    with pytest.raises(InputError, match="bad probe"):
        Config(tweets=50)


def test_a_trial_starts_at_the_conjugate_kernel_of_the_model_and_follows_it(monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    monkeypatch.setattr(finetune_spectra, "first_here", lambda names: names[0])
    monkeypatch.setattr(finetune_spectra, "cards", lambda *_, **__: [])
    monkeypatch.setattr(finetune_spectra, "whole", tweets)
    config = Config(
        model=save_model(tmp_path), length=8, tweets=100, epochs=2, batch=10, rate=0.05, probe=30, every=8
    )
    (trial, *_) = trials(config)
    found = follow(**trial.settings)
    assert found["step"].tolist() == [0, 8, 16, 20]
    assert len(found["loss"]) == 20
    assert len(set(found["lambda_1"].tolist())) == 4, "the network changes from look to look"

    key = Key(trial.settings["seed"]).fold("finetune-spectra")
    data, _ = tweets("", "P").partition(100, key=key.fold("tweets"))
    few = torch.randperm(100, generator=key.fold("probe").torch())[:30]
    model = TextClassifier(pretrained(config.model), "mean", key.fold("head"))
    batch = {name: part[few] for name, part in tokens(config.model, data.inputs, 8).items()}
    values, vectors = np.linalg.eigh(ConjugateKernel(model)(batch).double().numpy())
    y = np.where(data.targets[few] == 1, 1.0, -1.0)
    assert found["lambda_1"][0] == pytest.approx(values[-1], rel=1e-4)
    assert found["lambda_2"][0] == pytest.approx(values[-2], rel=1e-4)
    assert found["alignment_2"][0] == pytest.approx(abs(y @ vectors[:, -2]) / np.sqrt(30), abs=1e-4)


def test_alignments_of_labels_in_one_direction_are_one_and_none():
    y = torch.tensor([1, 0, 1, 0])
    signs = 2.0 * y - 1
    found = top_two(torch.stack([3 * signs, torch.ones(4)], 1), y)
    assert [round(value, 5) for value in found.values()] == [36.0, 4.0, 1.0, 0.0]
