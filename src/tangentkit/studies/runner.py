"""The runner: does the trials of a study on an engine, keeps each as soon as it is finished, and writes the report.

Whatever ends a run, a lost worker, Ctrl-C or kill -9, loses the running trials only; `resume` goes on from there.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tangentkit.compute.engines import Engine, Serial
from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files.safe import as_path, remove_partial_files, write_json
from tangentkit.core.progress import Progress, silent
from tangentkit.studies.earlier_run import EARLIER, EarlierRun, read_earlier, write_earlier
from tangentkit.studies.environment import here, peak_bytes
from tangentkit.studies.registry import find
from tangentkit.studies.run_folder import (
    CONFIG,
    ENVIRONMENT,
    TRIALS,
    keep_status,
    load_run,
    read_config,
    read_status,
)
from tangentkit.studies.settings import command_line, configure, override
from tangentkit.studies.trials.data import check_data
from tangentkit.studies.trials.fields import check_field
from tangentkit.studies.trials.plain import from_plain, to_plain
from tangentkit.studies.trials.store import TrialStore
from tangentkit.studies.trials.study import Study
from tangentkit.studies.trials.trial import Trial, message, perform
from tangentkit.studies.write_up import Run, write_report


def execute(
    study: Study,
    config: Any,
    folder: Path,
    *,
    scale: str,
    engine: Engine | None = None,
    progress: Progress = silent,
) -> Run:
    """Does the trials that are not done yet, and writes everything to the folder of the run.

    A trial that fails is noted, and the others go on. An error or Ctrl-C passes through; the folder then says so in
    `status.json`, and what was finished stays.

    Args:
        study: what to run.
        config: its settings.
        folder: empty, or that of an earlier run of the study: trials that it holds are not done again.
        scale: the name of the settings.
        engine: who does the trials; by default this process.
        progress: how many are done.

    Raises:
        InputError: every trial failed.
    """
    code = study.load()
    # As it will be read again: whole numbers of a field of floats are floats, here and when it goes on.
    config = from_plain(type(config), to_plain(config, {}), {})
    wanted = asked_trials(study, config)
    with keep_status(folder) as sealed:
        environment = here(command_line(study, scale, config))
        asked = {
            "study": study.name,
            "scale": scale,
            "fields": to_plain(config, {}),
            "trials": list(wanted),
        }
        write_json(folder / CONFIG, asked)
        sealed(CONFIG)
        write_json(folder / ENVIRONMENT, to_plain(environment, {}))
        start = time.perf_counter()
        store = TrialStore(folder / TRIALS)
        _do_trials(store, wanted, engine or Serial(), progress)
        environment = replace(environment, seconds=time.perf_counter() - start, peak_bytes=peak_bytes())
        write_json(folder / ENVIRONMENT, to_plain(environment, {}))
        records = store.records(wanted)
        if not records:
            raise _all_failed(study, records.failures, folder)
        sources = [CONFIG, ENVIRONMENT, *(f"{TRIALS}/{path.name}" for path in store.files(wanted))]
        earlier = read_earlier(folder)
        sealed(*sources, *([EARLIER] if earlier else []))
        run = Run(study, scale, config, code.result(config, records), records, environment, earlier)
        sealed(*write_report(run, folder, (CONFIG, ENVIRONMENT), progress=progress))
    return run


def resume(
    folder: Path,
    texts: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    scale: str | None = None,
    engine: Engine | None = None,
    progress: Progress = silent,
) -> Run:
    """Goes on with the run of a folder: does what is missing, failed or damaged, and writes the report.

    Args:
        folder: of a run that ended, in whatever way.
        texts: fields to change, as in `override`; trials that both have are not done again.
        name: of the study that the folder must hold; with a scale it stands in for a config that is damaged: fields
            are then those of the scale, but for the texts.
        scale: another scale, with the fields that it has; by default that of the folder.
        engine: who does the trials.
        progress: how many are done.

    Raises:
        InputError: the folder is not that of a run, or that of another study.
        DataError: its config is damaged, or of another version of the study, and name and scale are not given.
        UnknownNameError: there is no such study, scale or field.
    """
    folder = as_path(folder)
    read_status(folder)
    remove_partial_files(folder)
    try:
        study, before, config, _ = read_config(folder)
    except DataError:
        if name is None or scale is None:
            raise
        study, before = find(name), scale
        config = configure(study, scale, {})
    if name not in (None, study.name):
        raise InputError(f"{folder} holds a run of another study", expected=name, got=study.name)
    if scale not in (None, before):
        _keep_verdicts(folder)
    config = (
        override(config, texts or {}) if scale in (None, before) else configure(study, scale, texts or {})
    )
    return execute(study, config, folder, scale=scale or before, engine=engine, progress=progress)


def asked_trials(study: Study, config: Any) -> dict[str, Trial]:
    """Key -> trial, of all that a config asks for; nothing that would make all of them fail is let through.

    Raises:
        InputError: a field cannot hold its value, or there are no data or models for it.
        UnknownNameError: a field names what is not known.
    """
    for field in fields(config):
        check_field(field.name, getattr(config, field.name))
    trials = study.load().trials(config)
    check_data(trials)
    return {trial.key: trial for trial in trials}


def _all_failed(study: Study, failures: Mapping[str, str], folder: Path) -> InputError:
    label, error = next(iter(failures.items()))
    return InputError(
        f"every trial of {study.name} failed",
        expected="at least one that ends well",
        got=f"{len(failures)} failures; the first, {label}: {message(error)}. "
        f"Their tracebacks are in {folder / TRIALS}",
    )


def _keep_verdicts(folder: Path) -> None:
    """Notes what the run of a folder says before another scale takes its place; one without a result says nothing."""
    with suppress(InputError, DataError):
        run = load_run(folder)
        write_earlier(folder, EarlierRun.of(run.scale, run.result.claims))


def _do_trials(store: TrialStore, wanted: Mapping[str, Trial], engine: Engine, progress: Progress) -> None:
    """Does and stores every trial that is not in the store."""
    missing = [trial for key, trial in wanted.items() if key not in store]
    done = len(wanted) - len(missing)
    stage = "trials"
    progress(stage, done, len(wanted))
    for outcome in engine.map(perform, missing):
        store.write(outcome)
        done += 1
        progress(stage, done, len(wanted))
