import pytest

from tangentkit.empirical import verification


@pytest.fixture
def forgetful(monkeypatch):
    """A process that has seen no model yet."""
    monkeypatch.setattr(verification, "_verdicts", {})
