"""Pages on disk, and in the browser."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from browsing import set_screen
from surrogate.page.sample_explanation import many_explanation, picture_explanation, text_explanation
from tangentkit.surrogate.page import Explanation, write_page

PATIENCE = 20.0
"""Seconds until a page that does not answer is an error."""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def explanation() -> Explanation:
    return picture_explanation()


@pytest.fixture(scope="session")
def pages(tmp_path_factory, explanation) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        "pictures": write_page(explanation, folder / "pictures.html"),
        "texts": write_page(text_explanation(), folder / "texts.html"),
        "many": write_page(many_explanation(), folder / "many.html"),
        "unlabeled": write_page(
            replace(explanation, test=replace(explanation.test, labels=None)), folder / "unlabeled.html"
        ),
    }


class Shown:
    """A page in the browser, and what it says."""

    def __init__(self, browser, address: str):
        self.browser, self.address = browser, address

    def open(
        self, fragment: str = "", *, width: int = 1280, height: int = 2600, scheme: str = "light"
    ) -> None:
        """Opens the page anew; so high a screen that every row of the list is in sight."""
        set_screen(self.browser, width, height, scheme)
        self.browser.get("about:blank")
        self.browser.get(self.address + fragment)
        self.until("document.documentElement.dataset.ready || !document.getElementById('trouble').hidden")
        assert self.script("document.getElementById('trouble').textContent") == ""

    def script(self, expression: str, *arguments):
        return self.browser.execute_script(f"return {expression}", *arguments)

    def until(self, expression: str, *arguments):
        """The value of an expression, once it is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            value = self.script(expression, *arguments)
            if value:
                return value
            time.sleep(0.01)
        raise AssertionError(f"never true: {expression}")

    def click(self, selector: str) -> None:
        self.browser.find_element("css selector", selector).click()

    def choose(self, selector: str, value: object) -> None:
        """Chooses an option of a select element, as a person would."""
        change = "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
        self.browser.execute_script(change + "e.dispatchEvent(new Event('change'))", selector, str(value))

    def keys(self, *keys: str) -> None:
        self.browser.switch_to.active_element.send_keys(*keys)

    def listed(self) -> list[int]:
        """The samples of the list from top to bottom."""
        rows = "[...document.querySelectorAll('.row')].sort((a, b) => a.offsetTop - b.offsetTop)"
        return self.script(f"{rows}.map(row => Number(row.dataset.sample))")

    def sample(self, number: int | None = None) -> int:
        """The sample that is shown, once the panel is drawn for the one that is chosen."""
        chosen = "Number(document.querySelector('.row[aria-selected=true]').dataset.sample)"
        if number is not None:
            self.until(f"{chosen} === arguments[0]", number)
        self.until(f"Number(document.getElementById('panel-sample').dataset.sample) === {chosen}")
        return self.script(chosen)

    def texts(self, selector: str) -> list[str]:
        return self.script("[...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)

    def table(self, selector: str) -> list[list[str]]:
        """The cells of a table's body."""
        rows = "[...document.querySelectorAll(arguments[0] + ' tbody tr')]"
        return self.script(f"{rows}.map(row => [...row.children].map(cell => cell.textContent))", selector)

    def complaints(self) -> list:
        return self.browser.get_log("browser")


@pytest.fixture
def page(browser, pages) -> Callable[..., Shown]:
    """Opens one of the pages; at the end of the test nothing may have been complained of."""
    shown: list[Shown] = []

    def opened(name: str = "pictures", fragment: str = "", **screen) -> Shown:
        shown.append(Shown(browser, pages[name].as_uri()))
        shown[-1].open(fragment, **screen)
        return shown[-1]

    yield opened
    assert browser.get_log("browser") == []
    browser.execute_script("localStorage.clear()")  # stars that were kept
