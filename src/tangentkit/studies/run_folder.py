"""The folder of a run: what was asked, what surrounds it, what came out, and whether it is whole.

    status.json        running, finished, interrupted or failed, and why; the SHA-256 of every other file
    config.json        study, scale and every field
    environment.json   command, versions, threads, time, memory
    numbers.json       the result without its arrays       arrays.npz   the arrays
    tables/*.csv       figures/*.png, *.svg                 report.html

Each file is written whole or not at all, and `status.json` says finished only after the last of them. It seals them
as a manifest seals a store: what is read back is what was written.
"""

import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from tangentkit.core.errors import DataError, InputError, TangentkitError
from tangentkit.core.files.safe import (
    JSON_BYTES,
    as_path,
    digest,
    read_json,
    read_whole,
    remove_partial_files,
    write_json,
    write_whole,
)
from tangentkit.core.files.seals import seal, unseal
from tangentkit.core.progress import Progress, silent
from tangentkit.studies.environment import Environment, here, peak_bytes
from tangentkit.studies.records import (
    ARRAYS,
    MALFORMED,
    NUMBERS,
    from_plain,
    load_record,
    save_record,
    to_plain,
)
from tangentkit.studies.registry import find
from tangentkit.studies.settings import command_line
from tangentkit.studies.study import Study
from tangentkit.studies.write_up import REPORT, Run, write_report

State = Literal["running", "finished", "interrupted", "failed"]

STATUS, CONFIG, ENVIRONMENT = "status.json", "config.json", "environment.json"
SOURCES = (CONFIG, ENVIRONMENT, NUMBERS, ARRAYS)
"""What a run is; all other files are made of these."""
FILE = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")
"""The name of a file of a run: in its folder, or in one below."""


def new_folder(study: Study, scale: str, *, root: Path = Path("runs")) -> Path:
    """An empty folder that no run has used: runs/STUDY-SCALE-TIME.

    Raises:
        InputError: it cannot be made.
    """
    stem = f"{study.name}-{scale}-{datetime.now():%Y%m%d-%H%M%S}"
    for attempt in range(1, 1000):
        folder = root / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            with _making(folder):
                folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise InputError(f"no free folder name in {root}")


def claim_folder(folder: Path) -> Path:
    """The folder, made if it was not there; one that holds something is never written to.

    Raises:
        InputError: it is a file, is not empty, or cannot be made.
    """
    folder = as_path(folder)
    with _making(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"{folder} is not free",
                expected="a new or an empty folder",
                got="a folder with files" if folder.is_dir() else "a file",
                hint="another --out, or none for a fresh folder below runs/",
            )
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    """What the system says of a folder, as an error of the one who named it; that it is there passes."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise InputError(
            f"cannot make the folder {folder}",
            got=error.strerror or error,
            hint="an --out that this process may write to",
        ) from error


def execute(study: Study, config: Any, folder: Path, *, scale: str, progress: Progress = silent) -> Run:
    """Runs a study and writes everything to its (empty) folder.

    An error or Ctrl-C passes through; the folder then says so in `status.json`.
    """
    with _status(folder) as sealed:
        environment = here(command_line(study, scale, config))
        write_json(folder / CONFIG, {"study": study.name, "scale": scale, "fields": to_plain(config, {})})
        write_json(folder / ENVIRONMENT, to_plain(environment, {}))
        start = time.perf_counter()
        result = study.load().run(config, progress=progress)
        environment = replace(environment, seconds=time.perf_counter() - start, peak_bytes=peak_bytes())
        write_json(folder / ENVIRONMENT, to_plain(environment, {}))
        save_record(result, folder)
        sealed(*SOURCES)
        run = Run(study, scale, config, result, environment)
        sealed(*write_report(run, folder, SOURCES, progress=progress))
    return run


def load_run(folder: Path) -> Run:
    """The run that a folder holds, with its result; nothing is computed.

    Raises:
        InputError: the folder is not that of a run, or its run came to no result.
        DataError: a file is damaged, or of another version.
    """
    folder = as_path(folder)
    return _load(folder, _read_status(folder))


def damaged_files(folder: Path) -> list[str]:
    """The files of a run that are missing, or not as they were written.

    Raises:
        InputError: the folder is not that of a run.
        DataError: the status, which would tell, is damaged; or a file cannot be read.
    """
    folder = as_path(folder)
    files = _read_status(folder)["files"]
    return [name for name, expected in files.items() if digest(folder / name) != expected]


def rewrite_report(folder: Path, *, progress: Progress = silent) -> Run:
    """Writes tables, figures and page of a folder again, from its numbers.

    Raises:
        InputError: the folder is not that of a run, or its run came to no result.
        DataError: a file that the report is made of is damaged, or of another version.
    """
    folder = as_path(folder)
    known = _read_status(folder)
    run = _load(folder, known)
    remove_partial_files(folder)
    with _status(folder, {name: known["files"][name] for name in SOURCES}) as sealed:
        sealed(*write_report(run, folder, SOURCES, progress=progress))
    return run


def _load(folder: Path, known: Mapping[str, Any]) -> Run:
    if not set(SOURCES) <= set(known["files"]):
        raise InputError(
            f"the run in {folder} has no result", expected="a finished run", got=f"status {known['state']!r}"
        )
    for name in SOURCES:
        if (found := digest(folder / name)) != known["files"][name]:
            raise DataError(
                f"{folder / name} is damaged",
                expected=f"the file as it was written, by its SHA-256 in {STATUS}",
                got="other bytes" if found else "no file",
                hint="run the study again",
            )
    try:
        asked = read_json(folder / CONFIG)
        study, scale = find(from_plain(str, asked["study"], {})), from_plain(str, asked["scale"], {})
        code = study.load()
        config = from_plain(type(code.SCALES["quick"]), asked["fields"], {})
        environment = from_plain(Environment, read_json(folder / ENVIRONMENT), {})
    except TangentkitError:
        raise
    except MALFORMED as error:
        raise DataError(f"the files in {folder} are of another version of the study", got=error) from error
    return Run(study, scale, config, load_record(code.Result, folder), environment)


def _read_status(folder: Path) -> dict[str, Any]:
    """State, and name -> SHA-256 of the files that are whole.

    Raises:
        InputError: there is no status.
        DataError: it is damaged, or of an older version.
    """
    path = folder / STATUS
    raw = read_whole(path, limit=JSON_BYTES)
    if raw is None:
        raise InputError(
            f"{folder} is not the folder of a run",
            expected=f"a folder with {STATUS}",
            hint="tangentkit run NAME",
        )
    known = unseal(raw) or {}
    files = known.get("files")
    if (
        isinstance(known.get("state"), str)
        and isinstance(files, dict)
        and all(FILE.fullmatch(name) and isinstance(text, str) for name, text in files.items())
    ):
        return known
    raise DataError(
        f"{path} is damaged",
        expected="the state of a run and the SHA-256 of its files, as they were written",
        got="other bytes, or those of an older version",
        hint="run the study again",
    )


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
            "seeds_needed": claim.seeds_needed,
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
def _status(folder: Path, files: Mapping[str, str] | None = None) -> Iterator[Callable[..., None]]:
    """Keeps `status.json` true while the work inside runs, ends or breaks; gives a function that seals files."""
    whole = dict(files or {})

    def say(state: State, **more: str) -> None:
        content = seal({"state": state, "files": whole, **more})
        write_whole(folder / STATUS, [content], durable=True, within=folder)

    def sealed(*names: str) -> None:
        whole.update({name: digest(folder / name) or "" for name in names})
        say("running")

    say("running")
    try:
        yield sealed
    except KeyboardInterrupt:
        say("interrupted")
        raise
    except BaseException as error:
        say("failed", error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
        raise
    say("finished")
