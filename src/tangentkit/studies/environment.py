"""What surrounded a run: versions, machine, time and memory."""

import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module

PACKAGES = {
    "tangentkit": "tangentkit",
    "torch": "torch",
    "numpy": "numpy",
    "scipy": "scipy",
    "scikit-learn": "sklearn",
    "matplotlib": "matplotlib",
}
"""Package -> its module, which knows the version: what was installed beside it may not be readable, or be another."""


@dataclass(frozen=True)
class Environment:
    """The surroundings of a run; no paths and no names of people or machines."""

    command: str
    """The command that gives the same numbers."""
    started: str
    """UTC, ISO 8601."""
    versions: dict[str, str]
    machine: str
    seconds: float | None = None
    """How long the run took; None until it is finished."""
    peak_bytes: int | None = None
    """The most memory that the process held; None where the system does not say."""


def here(command: str) -> Environment:
    """The surroundings of a run that starts now."""
    return Environment(
        command=command,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"python": platform.python_version()}
        | {package: import_module(module).__version__ for package, module in PACKAGES.items()},
        machine=f"{platform.system()} {platform.machine()}",
    )


def peak_bytes() -> int | None:
    """The most memory that this process has held so far, if the system says."""
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
