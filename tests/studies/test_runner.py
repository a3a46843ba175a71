"""Trials are done once, kept at once, and done again only where they are missing, failed or damaged."""

import dataclasses
import json
import signal
import time
from contextlib import nullcontext

import pytest

import warm_processes
from studies import slow_study
from studies.toy_study import Config, trials
from tangentkit.compute.engines import Dask, Processes
from tangentkit.core.errors import DataError, InputError, UnknownNameError
from tangentkit.studies import runner
from tangentkit.studies.registry import STUDIES
from tangentkit.studies.run_all import run_all
from tangentkit.studies.run_folder import load_run
from tangentkit.studies.runner import execute, resume
from tangentkit.studies.trials.trial import perform


def status(folder) -> str:
    return json.loads((folder / "status.json").read_text())["state"]


@pytest.fixture
def done(monkeypatch) -> list[int]:
    """The seeds of the trials that were really done."""
    seeds: list[int] = []

    def counted(trial):
        seeds.append(trial.settings["seed"])
        return perform(trial)

    monkeypatch.setattr(runner, "perform", counted)
    return seeds


def test_a_failing_trial_is_recorded_and_the_others_go_on(toy, tmp_path):
    run = execute(toy, Config(trouble="bug"), tmp_path, scale="quick")
    assert run.records.column("seed") == [0, 1]
    ((label, error),) = run.records.failures.items()
    assert "seed 2" in label
    assert "ZeroDivisionError: a bug" in error
    assert status(tmp_path) == "finished"
    assert "A trial failed and is left out" in (tmp_path / "report.html").read_text()
    assert load_run(tmp_path).records.failures == run.records.failures


def test_a_run_in_which_every_trial_fails_says_so(toy, tmp_path):
    with pytest.raises(InputError, match=r"every trial of toy failed.*NumericalError"):
        execute(toy, Config(seeds=(0,), trouble="error"), tmp_path, scale="quick")
    assert status(tmp_path) == "failed"


def test_an_interrupt_loses_the_running_trial_only(toy, tmp_path, done):
    with pytest.raises(KeyboardInterrupt):
        execute(toy, Config(trouble="interrupt"), tmp_path, scale="quick")
    assert status(tmp_path) == "interrupted"
    with pytest.raises(InputError, match=r"status 'interrupted'.*--resume"):
        load_run(tmp_path)
    done.clear()
    run = resume(tmp_path, {"trouble": "none"})
    assert done == [2]
    assert run.records.column("seed") == [0, 1, 2]
    assert status(tmp_path) == "finished"


def test_failed_and_damaged_trials_are_done_again_and_no_other(toy, tmp_path, done):
    first = execute(toy, Config(trouble="bug"), tmp_path, scale="quick")
    damaged = tmp_path / "trials" / f"{trials(Config())[1].key}.json"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    done.clear()
    run = resume(tmp_path, {"trouble": "none"})
    assert done == [1, 2]
    assert run.records[0]["seconds"] == first.records[0]["seconds"]
    assert not run.records.failures


def test_whole_numbers_of_a_field_of_floats_are_no_other_trials_when_it_goes_on(toy, tmp_path, done):
    execute(toy, Config(chance=1), tmp_path, scale="quick")
    done.clear()
    assert resume(tmp_path).records.column("share") == [1.0, 1.0, 1.0]
    assert not done


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("what", ["half", "another", "no fields", "gone"])
def test_a_damaged_config_is_refused_and_study_and_scale_go_on_with_the_trials(
    toy, tmp_path, done, ended, what
):
    with nullcontext() if ended else pytest.raises(KeyboardInterrupt):
        execute(toy, Config(flips=11, trouble="none" if ended else "interrupt"), tmp_path, scale="quick")
    path, before = tmp_path / "config.json", status(tmp_path)
    written = path.read_text()
    path.write_text(
        {
            "half": written[: len(written) // 2],
            "another": "{}",
            "no fields": written.replace("11", "12"),
            "gone": "",
        }[what]
    )
    if what == "gone":
        path.unlink()
    with pytest.raises(DataError, match=r"config\.json is damaged.*run STUDY --scale SCALE --resume"):
        resume(tmp_path)
    assert status(tmp_path) == before
    done.clear()
    run = resume(tmp_path, {"flips": "11"}, name="toy", scale="quick")
    assert done == ([] if ended else [2])
    assert run.config == Config(flips=11)
    assert status(tmp_path) == "finished"


def test_bad_fields_leave_a_finished_run_as_it_was(toy, tmp_path):
    execute(toy, Config(), tmp_path, scale="quick")
    for texts in ({"seeds": ""}, {"flips": "-1"}, {"chance": "nan"}):
        with pytest.raises(InputError, match="bad value"):
            resume(tmp_path, texts)
    assert status(tmp_path) == "finished"
    assert load_run(tmp_path).config == Config()


def test_every_failed_trial_is_told_once_and_in_full(toy, tmp_path, monkeypatch):
    with pytest.raises(InputError) as told:
        execute(toy, Config(seeds=(0,), trouble="error"), tmp_path, scale="quick")
    assert "the coin is lost. Try: look under the table" in str(told.value)
    assert str(told.value).count("Try:") == 1


def test_other_fields_do_the_trials_that_are_new(toy, tmp_path, done):
    execute(toy, Config(), tmp_path, scale="quick")
    done.clear()
    run = resume(tmp_path, {"seeds": "1-4"})
    assert done == [3, 4]
    assert run.records.column("seed") == [1, 2, 3, 4]
    assert run.environment.command == "tangentkit run toy --scale quick --seeds 1-4"
    done.clear()
    resume(tmp_path, {"flips": "11"})
    assert done == [1, 2, 3, 4]


def test_another_scale_goes_on_with_its_own_fields_from_the_trials_that_are_there(toy, tmp_path, done):
    execute(toy, Config(seeds=(0, 7), flips=11), tmp_path, scale="quick")
    done.clear()
    run = resume(tmp_path, {"seeds": "0-3", "flips": "11"}, scale="full")
    assert done == [1, 2, 3]
    assert run.scale == load_run(tmp_path).scale == "full"
    with pytest.raises(UnknownNameError, match="scale"):
        resume(tmp_path, scale="huge")
    assert status(tmp_path) == "finished"


@pytest.fixture
def warm_engines(warm, monkeypatch):
    """Engines begin their processes warm, not as a user's do: that takes seconds for each."""
    monkeypatch.setattr("tangentkit.compute.engines.processes.get_context", lambda _: warm)
    dask = pytest.importorskip("dask", reason="Dask is not installed: pip install 'tangentkit[cluster]'")
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.mark.usefixtures("warm_engines")
@pytest.mark.parametrize("engine", [Processes(2), Dask(workers=2)], ids=["processes", "dask"])
def test_a_killed_worker_costs_its_trial_only_and_the_records_are_those_of_one_process(engine, tmp_path):
    """One of two workers is killed in its first trial; it is done again, and all come out as from this process."""
    folder, marker = tmp_path / "run", tmp_path / "killed"
    folder.mkdir()
    config = slow_study.Config(pause=0.01, marker=str(marker))
    run = execute(slow_study.SLOW, config, folder, scale="quick", engine=engine)
    assert marker.exists(), "a worker was killed"
    assert run.records.column("number") == [slow_study.number(seed) for seed in config.seeds]
    assert not run.records.failures


def test_kill_9_loses_the_running_trials_only(warm, tmp_path, monkeypatch):
    """Trials on two processes, killed when some are there."""
    process = warm.Process(target=slow_study.run_warm, args=(tmp_path, warm_processes.address()))
    process.start()
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("trials/*.json"))) < 2:
        assert time.monotonic() < deadline
        assert process.is_alive(), "it ended before it was killed"
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "it ended before it was killed"
    kept = set(tmp_path.glob("trials/*.json"))
    assert status(tmp_path) == "running"
    monkeypatch.setitem(STUDIES, "slow", slow_study.SLOW)
    before = {path: path.stat().st_mtime_ns for path in kept}
    run = resume(tmp_path)
    assert len(run.records) == len(slow_study.Config().seeds)
    assert {path: path.stat().st_mtime_ns for path in kept} == before, "finished trials were not done again"


def test_run_all_goes_on_after_a_failure_and_writes_the_index(toy, tmp_path):
    broken = dataclasses.replace(toy, name="broken", module="studies.no_such_module")
    index, failures = run_all(tmp_path, "quick", studies={"broken": broken, "toy": toy})
    assert list(failures) == ["broken"]
    assert "ModuleNotFoundError" in failures["broken"]
    page = index.read_text()
    assert "Heads come up" in page
    assert "The study broken came to no result" in page
    assert (tmp_path / "toy" / "report.html").exists()
    assert 'href="toy/report.html"' in page


def test_run_all_refuses_a_scale_that_no_study_has_at_once(toy, tmp_path):
    with pytest.raises(UnknownNameError, match="unknown scale 'qick'"):
        run_all(tmp_path / "all", "qick", studies={"toy": toy})
    assert not (tmp_path / "all").exists()


def test_run_all_again_does_no_trial_twice(toy, tmp_path, done):
    run_all(tmp_path, "quick", studies={"toy": toy})
    assert done == [0, 1, 2]
    run_all(tmp_path, "quick", studies={"toy": toy})
    assert done == [0, 1, 2]
