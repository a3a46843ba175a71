"""The folder of a run: what was asked, what surrounds it, what came out, and whether it is whole.

    status.json        running, finished, interrupted or failed, and why
    config.json        study, scale and every field
    environment.json   command, versions, threads, time, memory
    numbers.json       the result without its arrays       arrays.npz   the arrays
    tables/*.csv       figures/*.png, *.svg                 report.html

Each file is written whole or not at all, and `status.json` says finished only after the last of them.
"""

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from tangentkit.core.errors import DataError, InputError
from tangentkit.studies.environment import Environment, here, peak_bytes
from tangentkit.studies.records import (
    NUMBERS,
    from_plain,
    load_record,
    read_json,
    save_record,
    to_plain,
    write_json,
)
from tangentkit.studies.registry import find
from tangentkit.studies.settings import command_line
from tangentkit.studies.study import Progress, Study, silent
from tangentkit.studies.write_up import REPORT, Run, write_report

State = Literal["running", "finished", "interrupted", "failed"]

STATUS, CONFIG, ENVIRONMENT = "status.json", "config.json", "environment.json"


def new_folder(study: Study, scale: str, *, root: Path = Path("runs")) -> Path:
    """An empty folder that no run has used: runs/STUDY-SCALE-TIME."""
    stem = f"{study.name}-{scale}-{datetime.now():%Y%m%d-%H%M%S}"
    for attempt in range(1, 1000):
        folder = root / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise InputError(f"no free folder name in {root}")


def claim_folder(folder: Path) -> Path:
    """The folder, made if it was not there; one that holds something is never written to.

    Raises:
        InputError: it is a file or not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} is not free",
            expected="a new or an empty folder",
            got="a folder with files" if folder.is_dir() else "a file",
            hint="another --out, or none for a fresh folder below runs/",
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def execute(study: Study, config: Any, folder: Path, *, scale: str, progress: Progress = silent) -> Run:
    """Runs a study and writes everything to its (empty) folder.

    An error or Ctrl-C passes through; the folder then says so in `status.json`.
    """
    with _status(folder):
        environment = here(command_line(study, scale, config))
        write_json(folder / CONFIG, {"study": study.name, "scale": scale, "fields": to_plain(config, {})})
        write_json(folder / ENVIRONMENT, to_plain(environment, {}))
        start = time.perf_counter()
        result = study.load().run(config, progress=progress)
        environment = replace(environment, seconds=time.perf_counter() - start, peak_bytes=peak_bytes())
        write_json(folder / ENVIRONMENT, to_plain(environment, {}))
        save_record(result, folder)
        run = Run(study, scale, config, result, environment)
        write_report(run, folder, progress=progress)
    return run


def load_run(folder: Path) -> Run:
    """The run that a folder holds, with its result; nothing is computed.

    Raises:
        InputError: the folder is not that of a run, or its run came to no result.
        DataError: a file is damaged, or of another version.
    """
    if not (folder / STATUS).is_file():
        raise InputError(
            f"{folder} is not the folder of a run",
            expected=f"a folder with {STATUS}",
            hint="tangentkit run NAME",
        )
    state = read_json(folder / STATUS)["state"]
    if not (folder / NUMBERS).is_file():
        raise InputError(
            f"the run in {folder} has no result", expected="a finished run", got=f"status {state!r}"
        )
    asked = read_json(folder / CONFIG)
    study = find(asked["study"])
    code = study.load()
    try:
        config = from_plain(type(code.SCALES["quick"]), asked["fields"], {})
        environment = from_plain(Environment, read_json(folder / ENVIRONMENT), {})
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"the files in {folder} are of another version of {study.name}", got=error) from error
    return Run(study, asked["scale"], config, load_record(code.Result, folder), environment)


def rewrite_report(folder: Path, *, progress: Progress = silent) -> Run:
    """Writes tables, figures and page of a folder again, from its numbers."""
    run = load_run(folder)
    with _status(folder):
        write_report(run, folder, progress=progress)
    return run


def summary(run: Run, folder: Path) -> dict[str, Any]:
    """What a machine wants to know of a run, as JSON values."""
    claims = [
        {
            "statement": claim.statement,
            "verdict": claim.verdict,
            "quantity": claim.quantity,
            "mean": claim.interval.mean,
            "low": claim.interval.low,
            "high": claim.interval.high,
            "values": claim.values,
        }
        for claim in run.result.claims()
    ]
    content = {
        "study": run.study.name,
        "scale": run.scale,
        "folder": str(folder),
        "report": str(folder / REPORT),
        "command": run.environment.command,
        "seconds": run.environment.seconds,
        "claims": claims,
        "numbers": run.result,
    }
    return to_plain(content, {})


@contextmanager
def _status(folder: Path) -> Iterator[None]:
    """Keeps `status.json` true while the work inside runs, ends or breaks."""

    def say(state: State, **more: str) -> None:
        write_json(folder / STATUS, {"state": state, **more})

    say("running")
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted")
        raise
    except BaseException as error:
        say("failed", error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
        raise
    say("finished")
