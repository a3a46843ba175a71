"""One writer at a time: a lock file that says who holds it."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import as_path, read_whole, write_whole

LOCK = "lock.json"
LOCK_BYTES = 2**16
CLOCK = 2.0
"""Seconds by which two readings of a process's start may differ where only the clock tells it."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    host: str
    machine: str
    """Its number, empty where it has none: two machines may bear one name."""
    boot: str
    """Which start of the machine."""
    namespace: str
    """Of process numbers: containers on one host count theirs apart."""
    pid: int
    started: float
    """When the process began, see `_started`: process numbers are used again."""
    since: str
    """When it took the lock, for people: a clock may be set, so nothing is decided by it."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, which took the lock at {self.since}"

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to have ended; of another machine nothing is known."""
        me = _myself()
        if (self.host, self.machine) != (me.host, me.machine):
            return False
        if self.boot != me.boot:
            return self.machine != ""  # the same machine for certain, and started again since
        if self.namespace != me.namespace:
            return False
        try:
            process = psutil.Process(self.pid)
            ended = process.status() == psutil.STATUS_ZOMBIE
            return ended or abs(_started(process) - self.started) > CLOCK
        except psutil.NoSuchProcess:
            return True


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder; that of a process which has ended is taken over.

    Raises:
        DataError: another process holds it; with its owner, and the way to break it.
    """
    path, me = folder / LOCK, _text(_myself())
    with _alone(folder):
        if (owner := _owner(path)) is not None and not owner.is_gone:
            raise DataError(
                f"{folder} is being written",
                expected="one writer at a time",
                got=str(owner),
                hint="wait for it; if it is gone for certain: tangentkit.compute.break_lock(folder), "
                "or tangentkit gram --break-lock",
            )
        write_whole(path, [me], durable=False)  # a loss of power ends its owner too
    try:
        yield
    finally:
        # Whoever broke the lock may hold it now; and what stood in the way of writing may stand in the way of this.
        with suppress(OSError), _alone(folder):
            if read_whole(path, limit=LOCK_BYTES) == me:
                path.unlink()


def break_lock(folder: str | Path) -> bool:
    """Removes the lock of a store whose writer is gone for certain, such as one on another machine.

    Returns:
        Whether there was one.

    Raises:
        DataError: it cannot be removed.
    """
    path = as_path(folder) / LOCK
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(f"cannot remove {path}", got=error.strerror) from error
    return True


def _myself() -> Owner:
    return Owner(
        host=socket.gethostname(),
        machine=_line("/etc/machine-id"),
        boot=_line("/proc/sys/kernel/random/boot_id"),
        namespace=_namespace(),
        pid=os.getpid(),
        started=_started(psutil.Process()),
        since=time.strftime("%Y-%m-%d %H:%M:%S"),
    )


def _started(process: psutil.Process) -> float:
    """When a process began: in ticks since the machine did; where no system tells these, in seconds since 1970."""
    try:
        # Not by the clock, which may be set. The second field is a name in brackets, with blanks and brackets.
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return float(fields[19])
    except (OSError, IndexError, ValueError):
        return process.create_time()


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _text(owner: Owner) -> bytes:
    return json.dumps(asdict(owner), indent=1).encode()


def _owner(path: Path) -> Owner | None:
    content = read_whole(path, limit=LOCK_BYTES)
    if not content:
        return None  # empty: what a loss of power leaves
    try:
        owner = Owner(**json.loads(content))
        kinds = [type(getattr(owner, field.name)) is field.type for field in fields(Owner)]
        if all(kinds) and 0 < owner.pid < 2**31 and _text(owner) == content:
            return owner
    except (ValueError, TypeError, RecursionError):
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
    with ExitStack() as stack:
        # Where there is no flock (Windows, some network file systems) the guard against a race is lost, not the lock.
        with suppress(OSError):
            if fcntl is not None:
                handle = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
