"""Finished runs as a small set of pages, with the records that they are made of.

PAGES/index.html    a row for each claim        PAGES/STUDY.html   the report        PAGES/STUDY.csv   its numbers
RECORDS/STUDY/      config.json, environment.json, status.json and the trials: the folder of a run without whatever
                    can be made again, and the verdicts of the run of another scale whose place it took;
                    `tangentkit run --resume` goes on from there
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files.safe import digest, make_folder, read_whole, remove_file, write_whole
from tangentkit.core.files.seals import seal
from tangentkit.studies.earlier_run import EARLIER, EarlierRun, write_earlier
from tangentkit.studies.index_page import INDEX, index_page
from tangentkit.studies.run_folder import CONFIG, ENVIRONMENT, STATUS, TRIALS, load_run, read_config
from tangentkit.studies.trials.store import ARRAYS_BYTES, TrialStore
from tangentkit.studies.write_up import Run, numbers, page


def finished_runs(root: Path) -> dict[str, Run]:
    """Folder -> run, of all finished runs below a folder.

    Raises:
        InputError: there is none.
    """
    runs: dict[str, Run] = {}
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        try:
            runs[folder.name] = load_run(folder)
        except (InputError, DataError):
            continue  # not the folder of a run, or one without result
    if not runs:
        raise InputError(f"no finished run below {root}", expected="folders of runs", got="none")
    return runs


def publish(runs: Mapping[str, Run], pages: Path) -> None:
    """Writes the index and the page and the numbers of every run into one folder."""
    make_folder(pages)
    links = {}
    for name, run in runs.items():
        csv = f"{name}.csv"
        _write(pages / csv, numbers(run.records))
        _write(pages / f"{name}.html", page(run, files=(csv,)).render())
        links[f"{name}.html"] = run
    _write(pages / INDEX, index_page(links, {}))


def keep_records(root: Path, names: Mapping[str, Run], records: Path) -> None:
    """Copies what finished runs are made of, and no more; it takes the place of earlier records of the studies."""
    for name in names:
        source, target = root / name, records / name
        earlier = names[name].earlier or _replaced(names[name].scale, target)
        trials = _keep_trials(source, target)
        for path in TrialStore(target / TRIALS).every_file():
            if f"{TRIALS}/{path.name}" not in trials:
                remove_file(path, within=target)
        files = [CONFIG, ENVIRONMENT, *trials]
        for file in files[:2]:
            _copy(file, source, target)
        if earlier:
            write_earlier(target, earlier)
            files.append(EARLIER)
        sums = {file: digest(target / file) or "" for file in files}
        write_whole(
            target / STATUS, [seal({"state": "finished", "files": sums})], durable=False, within=target
        )


def _replaced(scale: str, target: Path) -> EarlierRun | None:
    """What the records of a study say that those of a scale take the place of."""
    try:
        run = load_run(target)
    except (InputError, DataError):
        return None
    return run.earlier if run.scale == scale else EarlierRun.of(run.scale, run.result.claims)


def keep_unfinished(root: Path, names: Iterable[str], records: Path) -> None:
    """Copies the finished trials of runs that are not, beside what is there: `run --resume` goes on from them."""
    for name in names:
        _keep_trials(root / name, records / name)


def _keep_trials(source: Path, target: Path) -> list[str]:
    keys = read_config(source)[3]
    files = [f"{TRIALS}/{path.name}" for path in TrialStore(source / TRIALS).files(keys)]
    for file in files:
        _copy(file, source, target)
    return files


def _copy(file: str, source: Path, target: Path) -> None:
    content = read_whole(source / file, limit=ARRAYS_BYTES) or b""
    write_whole(target / file, [content], durable=False, within=target)


def _write(path: Path, text: str) -> None:
    write_whole(path, [text.encode(errors="backslashreplace")], durable=False)
