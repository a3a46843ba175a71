"""The toy study, listed among the others."""

import pytest

from studies.toy_study import TOY
from tangentkit.studies.registry import STUDIES
from tangentkit.studies.trials.study import Study


@pytest.fixture
def toy(monkeypatch) -> Study:
    """A study that takes no time."""
    monkeypatch.setitem(STUDIES, "toy", TOY)
    return TOY
