"""The folder of a run: what was asked, what surrounds it, what came out, and whether it is whole.

    status.json        running, finished, interrupted or failed, and why; the SHA-256 of every other file
    config.json        study, scale, every field, and the keys of the trials that these ask for
    environment.json   command, versions, time, memory
    earlier-verdicts.json   what the run of another scale said, if this one took its place
    trials/            a record for each trial, written as soon as it is finished; trials.csv has their numbers
    tables/*.csv       figures/*.png, *.svg                 report.html

Each file is written whole or not at all, and `status.json` says finished only after the last of them. It seals them
as a manifest seals a store: what is read back is what was written.
"""

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tangentkit.core.errors import DataError, InputError, UnknownNameError
from tangentkit.core.files.safe import (
    JSON_BYTES,
    as_path,
    digest,
    read_json,
    read_whole,
    remove_partial_files,
    write_whole,
)
from tangentkit.core.files.seals import seal, unseal
from tangentkit.core.progress import Progress, silent
from tangentkit.studies.earlier_run import EARLIER, read_earlier
from tangentkit.studies.environment import Environment
from tangentkit.studies.registry import STUDIES, find
from tangentkit.studies.settings import configure, read_fields
from tangentkit.studies.trials.plain import MALFORMED, from_plain, to_plain
from tangentkit.studies.trials.store import TrialStore
from tangentkit.studies.trials.study import FILE_NAME, Study
from tangentkit.studies.trials.trial import KEY_DIGITS
from tangentkit.studies.write_up import REPORT, Run, write_report

State = Literal["running", "finished", "interrupted", "failed"]

STATUS, CONFIG, ENVIRONMENT = "status.json", "config.json", "environment.json"
TRIALS = "trials"
FILE = re.compile(rf"({FILE_NAME.pattern}/)?{FILE_NAME.pattern}")
"""The name of a file of a run: in its folder, or in one below."""
KEY = re.compile(f"[0-9a-f]{{{KEY_DIGITS}}}")
"""Of a trial."""


def new_folder(name: str, scale: str, *, root: Path = Path("runs")) -> Path:
    """An empty folder that no run has used: runs/STUDY-SCALE-TIME.

    Raises:
        InputError: it cannot be made.
    """
    stem = f"{name}-{scale}-{datetime.now():%Y%m%d-%H%M%S}"
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


def load_run(folder: Path) -> Run:
    """The run that a folder holds, with its result; nothing is computed.

    Raises:
        InputError: the folder is not that of a run, or its run came to no result.
        DataError: a file is damaged, or of another version.
    """
    folder = as_path(folder)
    return _load(folder, read_status(folder))


def holds_studies(folder: Path) -> bool:
    """Whether a folder is that of `run all`: it has folders of studies, with their runs."""
    return any((folder / name / STATUS).is_file() for name in STUDIES)


def damaged_files(folder: Path) -> list[str]:
    """The files of a run that are missing, or not as they were written.

    Raises:
        InputError: the folder is not that of a run.
        DataError: the status, which would tell, is damaged; or a file cannot be read.
    """
    folder = as_path(folder)
    files = read_status(folder)["files"]
    return [name for name, expected in files.items() if digest(folder / name) != expected]


def rewrite_report(folder: Path, *, progress: Progress = silent) -> Run:
    """Writes tables, figures and page of a folder again, from its trials.

    Raises:
        InputError: the folder is not that of a run, or its run came to no result.
        DataError: a file that the report is made of is damaged, or of another version.
    """
    folder = as_path(folder)
    known = read_status(folder)
    run = _load(folder, known)
    remove_partial_files(folder)
    sources = {name: known["files"][name] for name in _sources(known)}
    with keep_status(folder, sources) as sealed:
        sealed(*write_report(run, folder, (CONFIG, ENVIRONMENT), progress=progress))
    return run


def _sources(known: Mapping[str, Any]) -> list[str]:
    """What a run is; all other files are made of these."""
    own = (CONFIG, ENVIRONMENT, EARLIER)
    return [name for name in known["files"] if name in own or name.startswith(f"{TRIALS}/")]


def _load(folder: Path, known: Mapping[str, Any]) -> Run:
    sources = _sources(known)
    if ENVIRONMENT not in sources:
        raise InputError(
            f"the run in {folder} has no result",
            expected="a finished run",
            got=f"status {known['state']!r}",
            hint=f"tangentkit run --resume {folder}",
        )
    study, scale, config, keys = read_config(folder)
    for name in sources:
        if (found := digest(folder / name)) != known["files"][name]:
            raise DataError(
                f"{folder / name} is damaged",
                expected=f"the file as it was written, by its SHA-256 in {STATUS}",
                got="no such file" if found is None else "other bytes",
                hint=f"tangentkit run --resume {folder} does again what is damaged",
            )
    try:
        environment = from_plain(Environment, read_json(folder / ENVIRONMENT), {})
        records = TrialStore(folder / TRIALS).records(keys)
        result = study.load().result(config, records)
    except MALFORMED as error:
        raise DataError(f"the files in {folder} are of another version of the study", got=error) from error
    return Run(study, scale, config, result, records, environment, read_earlier(folder))


def read_config(folder: Path) -> tuple[Study, str, Any, list[str]]:
    """Study, scale, config and keys of the trials of a folder.

    Raises:
        DataError: they are not as they were written, or are of another version of the study.
    """
    path = folder / CONFIG
    expected = read_status(folder)["files"].get(CONFIG) if (folder / STATUS).exists() else None
    hint = (
        f"tangentkit run STUDY --scale SCALE --resume {folder}, with the fields given anew: {folder / ENVIRONMENT} "
        "has the command, and finished trials are not done again"
    )
    try:
        if expected is not None and digest(path) != expected:
            raise DataError(
                f"{path} is damaged",
                expected=f"the file as it was written, by its SHA-256 in {STATUS}",
                got="other bytes" if path.exists() else "no such file",
            )
        asked = read_json(path)
        if not isinstance(asked, dict) or not {"study", "scale", "fields", "trials"} <= set(asked):
            raise DataError(
                f"{path} is damaged", expected="study, scale, fields and trials", got="something else"
            )
        study = find(asked["study"])
        config = configure(study, asked["scale"], {})
        # Fields that came into the study after the run have their defaults, by which it is as it was.
        return study, asked["scale"], read_fields(type(config), asked["fields"]), _keys(asked["trials"])
    except DataError as error:
        raise DataError(error.problem, expected=error.expected, got=error.got, hint=hint) from error
    except InputError as error:
        raise DataError(
            f"{path} is damaged, or of another version of the study", got=error, hint=hint
        ) from error
    except (UnknownNameError, *MALFORMED) as error:
        raise DataError(f"{path} is of another version of the study", got=error, hint=hint) from error


def _keys(plain: Any) -> list[str]:
    """The keys of trials.

    Raises:
        InputError: there is something else among them.
    """
    if isinstance(plain, list) and all(isinstance(key, str) and KEY.fullmatch(key) for key in plain):
        return plain
    raise InputError("bad trials", expected="the keys of trials", got="something else")


def read_status(folder: Path) -> dict[str, Any]:
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
            hint=f"tangentkit run all --resume {folder}" if holds_studies(folder) else "tangentkit run NAME",
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
            "published": claim.published,
            "seeds_needed": claim.seeds_needed,
        }
        for claim in run.result.claims
    ]
    content = {
        "study": run.study.name,
        "scale": run.scale,
        "folder": str(folder),
        "report": str(folder / REPORT),
        "command": run.environment.command,
        "seconds": run.environment.seconds,
        "claims": claims,
        "failures": run.records.failures,
        "trials": [_numbers(row) for row in run.records],
    }
    return to_plain(content, {})


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """A record without its arrays."""
    return {name: value for name, value in row.items() if not isinstance(value, np.ndarray)}


@contextmanager
def keep_status(folder: Path, files: Mapping[str, str] | None = None) -> Iterator[Callable[..., None]]:
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
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, and what SIGTERM is in the command
        say("interrupted")
        raise
    except BaseException as error:
        say("failed", error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
        raise
    say("finished")
