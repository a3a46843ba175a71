"""What surrounded a run: versions, machine, threads, time and memory."""

import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import torch

PACKAGES = ("tangentkit", "torch", "numpy", "scipy", "scikit-learn", "matplotlib")


@dataclass(frozen=True)
class Environment:
    """The surroundings of a run; no paths and no names of people or machines."""

    command: str
    """The command that gives the same numbers."""
    started: str
    """UTC, ISO 8601."""
    versions: dict[str, str]
    machine: str
    threads: int
    """Of torch, where the config does not say."""
    seconds: float | None = None
    """How long the run took; None until it is finished."""
    peak_bytes: int | None = None
    """The most memory that the process held; None where the system does not say."""


def here(command: str) -> Environment:
    """The surroundings of a run that starts now."""
    return Environment(
        command=command,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        machine=f"{platform.system()} {platform.machine()}",
        threads=torch.get_num_threads(),
    )


def peak_bytes() -> int | None:
    """The most memory that this process has held so far, if the system says."""
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
