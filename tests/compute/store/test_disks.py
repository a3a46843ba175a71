"""Disks that are full, or that may not be written to: a clear error, and a store that is still valid."""

import os
import resource
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from compute.toy_kernels import Gaussian
from tangentkit.compute import gram, open_gram
from tangentkit.core.errors import DataError


def samples(n: int = 7) -> torch.Tensor:
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_what_cannot_fit_is_refused_before_it_begins(small_disk):
    with pytest.raises(DataError, match=r"no room for the tiles.*bytes"):
        gram(Gaussian(), samples(600), store=small_disk / "k", tile=100)
    assert not list((small_disk / "k").rglob("c/*/*"))


def fill(file: Path, left: int = 0) -> None:
    """Takes all room of a disk but some bytes."""
    with file.open("wb", buffering=0) as handle, suppress(OSError):
        while True:
            handle.write(b"x" * 4096)
    os.truncate(file, file.stat().st_size - left)


@pytest.mark.parametrize("pages", range(1, 9))
def test_a_disk_that_fills_up_while_a_store_is_made_is_no_store(small_disk, pages):
    """Lock, descriptions and manifest take a page of 4 kB each, and so do their folders."""
    fill(small_disk / "filler", left=4096 * pages)
    with pytest.raises(DataError, match=r"no room|cannot make the folder .*No space left"):
        gram(Gaussian(), samples(100), store=small_disk / "k", tile=25)
    if (small_disk / "k").exists():
        with pytest.raises(DataError, match=r"not a store|not complete"):
            open_gram(small_disk / "k")
    assert not (small_disk / "k" / "lock.json").exists()
    (small_disk / "filler").unlink()
    gram(Gaussian(), samples(100), store=small_disk / "k", tile=25).verify()  # type: ignore[attr-defined]


class Filling(Gaussian):
    """Fills the disk when it has computed some tiles."""

    def __call__(self, x, y=None):
        if (self.folder / "k" / "gram" / "c" / "0" / "1").exists() and not self.filler.exists():  # type: ignore
            fill(self.filler)  # type: ignore[attr-defined]
        return super().__call__(x, y)

    def identity(self):
        return {"kind": "filling"}


def test_a_disk_that_fills_up_leaves_a_valid_store(small_disk):
    kernel, x = Filling(), samples(250)
    object.__setattr__(kernel, "folder", small_disk)
    object.__setattr__(kernel, "filler", small_disk / "filler")
    with pytest.raises(DataError, match=r"no room to write .*gram/c/0/2.*run again"):
        gram(kernel, x, store=small_disk / "k", tile=50)
    assert not list(small_disk.rglob("*.partial"))
    assert not (small_disk / "k" / "lock.json").exists()
    assert len(list((small_disk / "k" / "gram" / "c").glob("*/*"))) == 2
    (small_disk / "filler").unlink()
    (small_disk / "filler").touch()
    torch.testing.assert_close(gram(kernel, x, store=small_disk / "k").dense(), Gaussian()(x))


def test_a_limit_on_the_size_of_files_leaves_a_valid_store(tmp_path):
    def limited(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    x = samples(100)
    try:
        limited(10_000)
        with pytest.raises(DataError, match="no room to write"):
            gram(Gaussian(), x, store=tmp_path / "k", tile=50)
    finally:
        limited(soft)
        signal.signal(signal.SIGXFSZ, previous)
    assert not list(tmp_path.rglob("*.partial"))
    torch.testing.assert_close(gram(Gaussian(), x, store=tmp_path / "k").dense(), Gaussian()(x))


# Not ours to write ------------------------------------------------------------------------------------------------


@contextmanager
def as_nobody():
    """Without the rights of root, for whom no folder is closed."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def closed_folder(folder: Path):
    """The folder may be read by its owner's fellows, and written by nobody."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        with as_nobody():
            yield
    finally:
        for path in folders:
            path.chmod(0o755)


@contextmanager
def read_only_disk(folder: Path):
    """A mount that nobody can write to, root neither."""
    made = subprocess.run(
        ["mount", "--bind", "-o", "ro", str(folder), str(folder)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"nothing can be mounted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def open_place():
    """A folder that everybody can reach, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("closed", [closed_folder, read_only_disk])
def test_a_store_that_may_not_be_written_is_read(open_place, closed):
    x, store = samples(), open_place / "k"
    expected = gram(Gaussian(), x, store=store, tile=3).dense()
    with closed(open_place):
        assert torch.equal(open_gram(store).dense(), expected)
        assert torch.equal(gram(Gaussian(), x, store=store).dense(), expected)
        open_gram(store).verify()
        for attempt in (
            lambda: gram(Gaussian(), x, store=store, repair=True),
            lambda: gram(Gaussian(), x, store=open_place / "new"),
        ):
            with pytest.raises(DataError, match=r"cannot (write|make the folder) .*(Read-only|denied)"):
                attempt()
    path = store / "gram" / "c" / "0" / "1"
    path.unlink()
    with closed(open_place), pytest.raises(DataError, match=r"cannot write .*lock.json.*Try: a folder that"):
        gram(Gaussian(), x, store=store)
    assert torch.equal(gram(Gaussian(), x, store=store).dense(), expected)


def test_a_store_that_may_not_even_be_read_is_named(open_place):
    store = open_place / "k"
    gram(Gaussian(), samples(), store=store, tile=3)
    store.chmod(0o700)
    with as_nobody():
        if os.access(store, os.R_OK, effective_ids=True):
            pytest.skip("this process is the owner of its files, and not root: nothing can be closed to it")
        for attempt in (lambda: gram(Gaussian(), samples(), store=store), lambda: open_gram(store)):
            with pytest.raises(DataError, match=f"{store}.*denied"):
                attempt()
    store.chmod(0o755)
    (store / "gram" / "c").chmod(0o700)
    with as_nobody(), pytest.raises(DataError, match=f"cannot look at {store}/gram/c/0/0.*denied"):
        open_gram(store)
