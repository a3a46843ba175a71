"""What a trial has on disk outlives whatever ends it, and is gone when the trial is done."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import torch

from tangentkit.compute.gram import gram
from tangentkit.core.errors import DataError
from tangentkit.empirical import ConjugateKernel
from tangentkit.models import mlp
from tangentkit.studies.trials.kept_folder import kept_folder
from tangentkit.studies.trials.trial import Trial, perform


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TANGENTKIT_CACHE", str(tmp_path))
    return tmp_path / "trials"


def stored(*, trouble: str, flag: str) -> dict:
    """The trace of a stored matrix, and how many tiles were there before; trouble comes once, in the middle."""
    x = torch.linspace(-1, 1, 40)[:, None]
    kernel = ConjugateKernel(mlp((1, 8, 1), seed=0))

    def progress(stage: str, done: int, total: int) -> None:
        if done and trouble != "none" and not Path(flag).exists():
            Path(flag).touch()
            if trouble == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise DataError("no room") if trouble == "damage" else MemoryError

    with kept_folder() as folder:
        before = len(list((folder / "gram").rglob("c/*/*")))
        K = gram(kernel, x, store=folder / "gram", tile=10, progress=progress).dense()
    return {"trace": float(K.trace()), "before": before}


def test_a_trial_that_is_killed_goes_on_from_its_tiles(cache, tmp_path):
    trial = Trial(stored, {"trouble": "killed", "flag": str(tmp_path / "flag")})
    process = multiprocessing.get_context("fork").Process(target=perform, args=(trial,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (cache / trial.key).is_dir()
    again = perform(trial)
    assert not again.error
    assert again.values["before"] > 0
    whole = perform(Trial(stored, {"trouble": "none", "flag": ""})).values
    assert (again.values["trace"], whole["before"]) == (whole["trace"], 0)
    assert list(cache.iterdir()) == []


def test_a_trial_that_raises_goes_on_and_one_whose_store_is_damaged_begins_anew(cache, tmp_path):
    found = {}
    for trouble in ("memory", "damage"):
        trial = Trial(stored, {"trouble": trouble, "flag": str(tmp_path / trouble)})
        assert perform(trial).error
        found[trouble] = perform(trial).values["before"]
    assert found["memory"] > 0
    assert found["damage"] == 0
    assert list(cache.iterdir()) == []


def test_outside_a_trial_the_folder_is_a_temporary_one(cache):
    with kept_folder() as folder:
        assert folder.is_dir()
        assert not folder.is_relative_to(cache)
    assert not folder.exists()
