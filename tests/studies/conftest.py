"""The toy study, listed among the others."""

import os

import pytest

from studies.toy_study import TOY
from tangentkit.studies.registry import STUDIES
from tangentkit.studies.trials.study import Study

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers reads it: no test waits for a network


@pytest.fixture
def toy(monkeypatch) -> Study:
    """A study that takes no time."""
    monkeypatch.setitem(STUDIES, "toy", TOY)
    return TOY
