"""Seeded and quiet: every test starts from the same global seed and must not leave it to chance.

What takes long to start, processes that have imported everything and a browser, is started once for all tests.
"""

import gc
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.context import ForkServerContext
from pathlib import Path

import hypothesis  # noqa: F401 - its first import asks what refers to its generators, and frozen objects do not count
import pytest
import torch

import warm_processes
from browsing import as_started, chromium

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before any test imports transformers: none waits for a network


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no search for garbage goes through its 700,000 objects again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seed():
    # torch.manual_seed would also queue a seed, with a printed stack, for every kind of device that is not there.
    torch.default_generator.manual_seed(0)


@pytest.fixture
def real_data() -> Path:
    """The folder of real data sets; tests that need it skip with a sentence where it is missing."""
    folder = os.environ.get("TANGENTKIT_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data sets are not here: set TANGENTKIT_DATA to their folder")
    return Path(folder)


@pytest.fixture
def no_handles() -> Callable[[], AbstractContextManager[None]]:
    """A while in which no file can be opened."""

    @contextmanager
    def while_inside() -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return while_inside


@pytest.fixture(scope="session")
def warm() -> ForkServerContext:
    """Begins processes that have imported everything: `warm.Process(target=..., args=...)`."""
    return warm_processes.begin()


@pytest.fixture(scope="session")
def chrome(tmp_path_factory) -> Iterator:
    """The browser of all tests; take `browser`."""
    with chromium(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


@pytest.fixture
def browser(chrome):
    """A browser that is as it was when it was started."""
    as_started(chrome)
    return chrome
