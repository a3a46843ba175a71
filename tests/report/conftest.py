"""The hard page, drawn once."""

import pytest

from report.sample_page import HOSTILE, sample_page


@pytest.fixture(scope="session")
def page() -> str:
    """The sample page with hostile text, as HTML."""
    return sample_page(HOSTILE).render()
