"""Every study, one after the other, and one page about all their claims."""

import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tangentkit.compute.engines import Engine
from tangentkit.core.errors import DataError, InputError, UnknownNameError
from tangentkit.core.files.safe import as_path, make_folder, write_whole
from tangentkit.core.progress import Progress, silent
from tangentkit.studies.index_page import INDEX, index_page
from tangentkit.studies.publication import finished_runs
from tangentkit.studies.registry import STUDIES
from tangentkit.studies.run_folder import STATUS, holds_studies, read_config
from tangentkit.studies.runner import execute, resume
from tangentkit.studies.settings import configure
from tangentkit.studies.trials.study import Study
from tangentkit.studies.write_up import REPORT


def run_all(
    root: Path,
    scale: str,
    *,
    studies: Mapping[str, Study] | None = None,
    engine: Engine | None = None,
    progress: Progress = silent,
    say: Callable[[str], object] = lambda _: None,
) -> tuple[Path, dict[str, str]]:
    """Runs studies into folders below a root and writes the index; a study that fails does not stop the others.

    A folder that holds a run already goes on where it stopped.

    Args:
        root: the folder that holds the runs, one folder for each study.
        scale: of all studies.
        studies: which; by default all.
        engine: who does the trials.
        progress: how many trials of a study are done.
        say: hears the name of each study as it begins.

    Returns:
        The path of the index, and study -> error for those that failed.

    Raises:
        InputError: no study came to a result.
        UnknownNameError: there is no such scale.
    """
    root = as_path(root)
    studies = STUDIES if studies is None else studies
    check_scale(scale, studies)
    make_folder(root)
    failures: dict[str, str] = {}
    for name, study in studies.items():
        say(f"{name}: {study.title}")
        try:
            _run(study, root / name, scale, engine, progress)
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"
            say(traceback.format_exc())
    return write_index(root, failures), failures


def check_scale(scale: str, studies: Mapping[str, Study] | None = None) -> None:
    """Refuses a scale that no study has, before any of them begins.

    Raises:
        UnknownNameError: there is no such scale.
    """
    studies = STUDIES if studies is None else studies
    known = {one for study in studies.values() for one in study.cost}
    if scale not in known:
        raise UnknownNameError("scale", scale, known)


def scale_to_go_on_with(root: Path, scale: str | None) -> str:
    """The scale that is given, or else that of the runs below a folder that `run_all` made.

    Raises:
        InputError: the folder is another one, or its runs are of several scales.
    """
    root = as_path(root)
    if not holds_studies(root):
        one = (root / STATUS).exists()
        raise InputError(
            f"{root} is not the folder of all studies",
            expected="a folder with a folder for each study",
            got="the run of one study" if one else "none of a study",
            hint=f"tangentkit run --resume {root}" if one else "tangentkit run all",
        )
    if scale is not None:
        return scale
    scales = set()
    for name in STUDIES:
        with suppress(DataError):
            scales.add(read_config(root / name)[1])
    if len(scales) != 1:
        found = " and ".join(sorted(scales)) or "none that can be read"
        raise InputError(f"no one scale to go on with in {root}", expected="--scale", got=found)
    return scales.pop()


def write_index(root: Path, failures: Mapping[str, str] | None = None) -> Path:
    """Writes the page about all finished runs below a folder, and returns its path.

    Raises:
        InputError: there is no finished run.
    """
    runs = {f"{folder}/{REPORT}": run for folder, run in finished_runs(root).items()}
    path = root / INDEX
    write_whole(path, [index_page(runs, failures or {}).encode()], durable=False, within=root)
    return path


def _run(study: Study, folder: Path, scale: str, engine: Engine | None, progress: Progress) -> None:
    make_folder(folder)
    try:
        same = read_config(folder)[1] == scale
    except DataError:
        same = False
    if same:
        resume(folder, engine=engine, progress=progress)
    else:
        execute(study, configure(study, scale, {}), folder, scale=scale, engine=engine, progress=progress)
