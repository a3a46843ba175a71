"""Processes that begin warm: forked from one that has imported what they need, for imports take longer than tests."""

import os
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

IMPORTED = [
    *(
        f"tangentkit.{name}"
        for name in ("analysis", "cli", "data", "empirical", "infinite", "models", "sketch")
    ),
    *(
        "torch.fx.experimental.symbolic_shapes",
        "tangentkit.cli.gram",
        "tangentkit.studies.runner",
        "sklearn.datasets",
        "zarr",
    ),
    *("distributed.nanny", "distributed.cli.dask_scheduler", "distributed.cli.dask_worker"),
    *("analysis.tracking.runs", "compute.store.writers", "compute.toy_kernels", "empirical.fresh_plan"),
    "studies.slow_study",
]
"""By the process of which the others come; what is not installed is left out."""


def begin() -> ForkServerContext:
    """The way to begin them; the process of which they come is there until this one ends."""
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        # What Dask sets for the time in which it starts a worker must be there when the first process starts.
        for name, value in dask_environment().items():
            patch.setenv(name, value)
        forkserver.ensure_running()
    return context


def address() -> str:
    """Of the process of which the warm ones come."""
    found = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]
    assert isinstance(found, str), "it was not begun"
    return found


def begin_at(place: str) -> None:
    """Lets a process that began warm begin others so: by itself it would begin with imports anew."""
    server = forkserver._forkserver  # type: ignore[attr-defined]
    server._forkserver_address = place
    server.ensure_running = lambda: None


def dask_environment() -> dict[str, str]:
    """The variables that workers of Dask start with."""
    try:
        import dask
        import distributed  # noqa: F401 - brings the settings
    except ImportError:
        return {}
    return {
        name: str(value) for name, value in dask.config.get("distributed.nanny.pre-spawn-environ").items()
    }
