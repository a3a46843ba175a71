"""Downloads, whole or not at all.

A download goes to a temporary folder inside the destination, is checked by md5, and only then moved to its
name: an interrupted, truncated or false download leaves nothing behind.
"""

import shutil
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tangentkit.core.errors import DataError
from tangentkit.data.errors import damaged, missing
from tangentkit.data.places import Found, gzipped
from tangentkit.data.raw import md5, raw_content
from tangentkit.data.registry import Edition, Entry, File

STAGING = ".tangentkit-download-"
"""How the folder of a download that has not ended is called, before a random part."""
STALE_SECONDS = 24 * 3600
TIMEOUT_SECONDS = 20
CHUNK_BYTES = 2**16


def download(entry: Entry, home: Path) -> Found:
    """The set, downloaded below a folder and checked.

    Raises:
        DataError: the set has no address, pooch is missing, no address answers, or the content is wrong.
    """
    edition = next((edition for edition in entry.editions if edition.is_public), None)
    if edition is None:
        raise missing(entry, reason="it is part of tangentkit", hint="install tangentkit again")
    if find_spec("pooch") is None:
        hint = f'pip install "tangentkit[data]" and then tangentkit data get {entry.name}'
        raise missing(entry, reason="downloads need the package pooch", hint=hint)
    found = Found(home / edition.folders[0], edition)
    try:
        home.mkdir(parents=True, exist_ok=True)
        _sweep(home)
        with tempfile.TemporaryDirectory(prefix=STAGING, dir=home) as staging:
            _move(_stage(edition, Path(staging)), found)
    except DataError:
        raise
    except OSError as error:
        # The texts of connection errors are paragraphs; the cause keeps them.
        words = str(error) if len(str(error)) < 100 else type(error).__name__
        hint = f"tangentkit data get {entry.name} (it needs the network)"
        raise missing(entry, reason=f"the download failed: {words}", hint=hint) from error
    return found


def _stage(edition: Edition, staging: Path) -> dict[File, Path]:
    """Every file of an edition, downloaded to the staging folder and checked."""
    sources: dict[tuple[str, ...], list[File]] = defaultdict(list)
    for file in edition.all_files:
        sources[file.urls].append(file)
    staged = {}
    for urls, files in sources.items():
        for attempt, url in enumerate(urls, start=1):
            try:
                staged |= _stage_one(url, files, staging)
                break
            except OSError:  # no answer, or wrong content: the next address may be better
                if attempt == len(urls):
                    raise
    return staged


def _stage_one(url: str, files: list[File], staging: Path) -> dict[File, Path]:
    arrived = staging / "arrived"
    _pull(url, arrived)
    if files[0].member:
        staged = {}
        for file, content in _members(arrived, files, url):
            staged[file] = staging / file.name
            staged[file].write_bytes(raw_content(content, file, place=f"{url} ({file.member})"))
        return staged
    (file,) = files
    content = arrived.read_bytes()
    is_zipped = raw_content(content, file, place=url) != content
    target = gzipped(staging / file.name) if is_zipped else staging / file.name
    return {file: arrived.rename(target)}


def _pull(url: str, target: Path) -> None:
    """One address to one file."""
    import pooch  # an optional package

    with _progress() as progress:
        bar = _Bar(progress, url)
        # pooch takes any object with the methods of a tqdm bar, whatever its hint says.
        downloader = pooch.HTTPDownloader(bar, CHUNK_BYTES, timeout=TIMEOUT_SECONDS)  # pyright: ignore[reportArgumentType]
        try:
            downloader(url, str(target), None)
        except OSError as error:
            # pooch leaves the answer of a server that refuses open.
            if (response := getattr(error, "response", None)) is not None:
                response.close()
            raise


def _members(archive: Path, files: list[File], url: str) -> Iterator[tuple[File, bytes]]:
    """The wanted members of an archive, read by name: nothing else of it is ever written."""
    wanted = {file.member: file for file in files}
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as pack:
                for member in wanted.keys() & set(pack.namelist()):
                    with pack.open(member) as stream:
                        content = stream.read(wanted[member].nbytes + 1)
                    yield wanted.pop(member), content
        else:
            with tarfile.open(archive) as pack:
                for member in pack:
                    if member.name in wanted and (stream := pack.extractfile(member)):
                        content = stream.read(wanted[member.name].nbytes + 1)
                        yield wanted.pop(member.name), content
        problem = "an archive without it"
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        problem = f"a broken archive ({error})"
    if wanted:
        got = f"{problem}, of md5 {md5(archive.read_bytes())}"
        raise damaged(next(iter(wanted.values())), place=url, got=got)


def _move(staged: dict[File, Path], found: Found) -> None:
    found.folder.mkdir(parents=True, exist_ok=True)
    for file, source in staged.items():
        target = found.folder / source.name
        source.replace(target)
        plain = found.folder / file.name
        for twin in {plain, gzipped(plain)} - {target}:
            twin.unlink(missing_ok=True)


def _sweep(home: Path) -> None:
    """Removes what a killed download of another day left."""
    for folder in home.glob(f"{STAGING}*"):
        if (
            folder.is_dir()
            and not folder.is_symlink()
            and time.time() - folder.stat().st_mtime > STALE_SECONDS
        ):
            shutil.rmtree(folder, ignore_errors=True)


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


class _Bar:
    """A rich progress bar with the methods that pooch calls."""

    def __init__(self, progress: Progress, url: str):
        self.total = 0
        self._progress = progress
        self._task = progress.add_task(url.rsplit("/", 1)[-1])

    def update(self, amount: int) -> None:
        self._progress.update(self._task, total=self.total, advance=amount)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()
