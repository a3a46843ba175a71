"""Seeded and quiet: every test starts from the same global seed and must not leave it to chance."""

import os
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def real_data() -> Path:
    """The folder of real data sets; tests that need it skip with a sentence where it is missing."""
    folder = os.environ.get("TANGENTKIT_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data sets are not here: set TANGENTKIT_DATA to their folder")
    return Path(folder)
