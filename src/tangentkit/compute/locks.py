"""One writer at a time: a lock file that says who holds it."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

from tangentkit.compute.files import as_folder, write_whole
from tangentkit.core.errors import DataError

LOCK = "lock.json"
CLOCK = 2.0
"""Seconds by which two readings of a process's start may differ."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    host: str
    namespace: str
    """Of process numbers: containers on one host count theirs apart."""
    pid: int
    started: float
    """When the process began, in seconds since 1970: process numbers are used again."""

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        return f"process {self.pid} on {self.host}, running since {since}"

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to have ended; of another machine nothing is known."""
        if (self.host, self.namespace) != (socket.gethostname(), _namespace()):
            return False
        try:
            process = psutil.Process(self.pid)
            ended = process.status() == psutil.STATUS_ZOMBIE
            return ended or abs(process.create_time() - self.started) > CLOCK
        except psutil.NoSuchProcess:
            return True


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder; that of a process which has ended is taken over.

    Raises:
        DataError: another process holds it; with its owner, and the way to break it.
    """
    path, me = folder / LOCK, _myself()
    with _alone(folder):
        if (owner := _owner(path)) is not None and not owner.is_gone:
            raise DataError(
                f"{folder} is being written",
                expected="one writer at a time",
                got=str(owner),
                hint="wait for it; if it is gone for certain: tangentkit.compute.break_lock(folder), "
                "or tangentkit gram --break-lock",
            )
        write_whole(path, [_text(me)], durable=True)
    try:
        yield
    finally:
        with _alone(folder):
            # Whoever broke the lock may hold it now.
            if path.exists() and path.read_bytes() == _text(me):
                path.unlink()


def break_lock(folder: str | Path) -> bool:
    """Removes the lock of a store whose writer is gone for certain, such as one on another machine.

    Returns:
        Whether there was one.
    """
    path = as_folder(folder) / LOCK
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def _myself() -> Owner:
    return Owner(socket.gethostname(), _namespace(), os.getpid(), psutil.Process().create_time())


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _text(owner: Owner) -> bytes:
    return json.dumps(asdict(owner), indent=1).encode()


def _owner(path: Path) -> Owner | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        owner = Owner(**json.loads(content))
        if _text(owner) == content:
            return owner
    except (ValueError, TypeError):
        pass
    raise DataError(
        f"{path} is damaged",
        expected="the owner of the lock",
        got="something else",
        hint="if no other process writes: tangentkit.compute.break_lock(folder)",
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """The moment in which a lock is looked at and taken, shared with no other process."""
    # Where there is no flock (Windows, some network file systems), the guard against a race is lost, not the lock.
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
