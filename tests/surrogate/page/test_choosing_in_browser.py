"""Samples are filtered, searched, sorted and chosen, by mouse and by keyboard."""

import numpy as np
import pytest
from selenium.webdriver import Keys

from browsing import set_screen
from surrogate.page.expected_numbers import margins, softmax
from surrogate.page.sample_explanation import N

pytestmark = pytest.mark.browser


def test_filters_leave_the_samples_that_they_name(page, explanation):
    shown, network = page(), explanation.logits.argmax(axis=1)
    surrogate, truth = explanation.kernels[0].logits.argmax(axis=1), explanation.test_labels
    expected = {
        "wrong": network != truth,
        "differ": network != surrogate,
        "low": margins(explanation) < 0.2,
    }
    for name, mask in expected.items():
        assert 0 < mask.sum() < N  # the filter has something to do
        shown.browser.execute_script("document.getElementById(arguments[0]).click()", name)
        assert shown.listed() == np.flatnonzero(mask).tolist()
        assert shown.texts("#found") == [f"{mask.sum()} of {N} samples"]
        shown.click("#clear")
        assert len(shown.listed()) == N
    for select, labels in (("truth", truth), ("network", network), ("surrogate", surrogate)):
        shown.choose(f"#{select}", 2)
        assert shown.listed() == np.flatnonzero(labels == 2).tolist()
        shown.choose(f"#{select}", "")
    margin = "const e = document.getElementById('margin'); e.value = 0.5; e.dispatchEvent(new Event('input'))"
    shown.browser.execute_script(f"document.getElementById('low').click(); {margin}")
    assert shown.listed() == np.flatnonzero(margins(explanation) < 0.5).tolist()


def test_a_regular_expression_searches_names_and_classes(page, explanation):
    shown = page()
    field = shown.browser.find_element("id", "pattern")
    field.send_keys(r"image-1[0-4]\.png$")
    assert shown.listed() == [10, 11, 12, 13, 14]
    field.clear()
    field.send_keys("FISH")
    assert shown.listed() == np.flatnonzero(explanation.test_labels == 3).tolist()
    field.clear()
    field.send_keys("(")
    assert "Not a regular expression" in shown.texts("#pattern-trouble")[0]
    assert shown.script("document.getElementById('pattern-trouble').checkVisibility()")
    field.send_keys(Keys.BACKSPACE)
    assert not shown.script("document.getElementById('pattern-trouble').checkVisibility()")
    assert len(shown.listed()) == N


def test_samples_are_sorted(page, explanation):
    shown = page()
    p, q = softmax(explanation.logits), softmax(explanation.kernels[0].logits)
    keys = {
        "margin": margins(explanation),
        "truth": p[np.arange(N), explanation.test_labels],
        "distance": np.abs(p - q).sum(axis=1) / 2,
    }
    for name, values in keys.items():
        shown.choose("#sort", name)
        assert np.allclose(values[shown.listed()], np.sort(values), atol=1e-6)
    shown.click("#down")
    assert np.allclose(values[shown.listed()], np.sort(values)[::-1], atol=1e-6)


def test_the_list_obeys_the_keyboard(page):
    shown = page(height=900)
    shown.browser.execute_script("document.getElementById('list').focus()")
    for key, sample in ((Keys.DOWN, 1), (Keys.DOWN, 2), (Keys.UP, 1), (Keys.END, N - 1), (Keys.HOME, 0)):
        shown.keys(key)
        assert shown.sample(sample) == sample
        active = shown.script("document.getElementById('list').getAttribute('aria-activedescendant')")
        assert active == f"row-{sample}"
        seen = "const r = document.querySelector('.row[aria-selected=true]').getBoundingClientRect();"
        seen += "const l = document.getElementById('list').getBoundingClientRect();"
        assert shown.browser.execute_script(seen + "return r.top >= l.top - 1 && r.bottom <= l.bottom + 1")
    shown.keys(Keys.PAGE_DOWN)
    assert shown.sample() > 3


def test_keys_work_from_anywhere(page):
    shown = page()
    shown.keys("jjk")
    assert shown.sample(1) == 1
    shown.keys("s")
    assert shown.texts("#star-count") == ["1"]
    shown.keys("p")
    assert "pinned" in shown.until("document.querySelector('.badge')?.textContent")
    for key, tab in zip("2345", ("confusion", "map", "flags", "about"), strict=True):
        shown.keys(key)
        assert shown.script("document.getElementById('panel-' + arguments[0]).checkVisibility()", tab)
    shown.keys("?")
    assert shown.script("document.getElementById('keys').open")
    shown.keys(Keys.ESCAPE)
    shown.until("!document.getElementById('keys').open")
    shown.keys("/")
    assert shown.script("document.activeElement.id") == "pattern"
    shown.keys("j")  # in a field it is a letter
    assert shown.script("document.getElementById('pattern').value") == "j"


def test_arrows_choose_samples_wherever_nothing_else_takes_them(page):
    shown = page()
    focus = "document.querySelector(arguments[0]).focus()"
    shown.keys(Keys.DOWN, Keys.DOWN, Keys.UP)
    assert shown.sample(1) == 1
    for sample, place in enumerate(("#help", "#wrong", "#tab-sample", "#main"), 2):
        shown.browser.execute_script(focus, place)
        shown.keys(Keys.DOWN)
        assert shown.sample(sample) == sample, place
    for place in ("#pattern", "#output", ".logits .scroll"):
        shown.browser.execute_script(focus, place)
        shown.keys(Keys.DOWN)
        assert shown.sample() == 5, place
    shown.browser.execute_script("document.activeElement.blur()")
    shown.keys("?")
    shown.keys(Keys.DOWN)
    shown.keys(Keys.ESCAPE)
    shown.until("!document.getElementById('keys').open")
    assert shown.sample() == 5


def test_the_chosen_row_stays_in_sight_when_a_filter_is_taken_away(page, explanation):
    shown = page()
    # A low window: not all rows are in sight at once, however few samples there are.
    set_screen(shown.browser, 1280, 420)
    last = int(np.flatnonzero(explanation.test_labels == 2)[-1])
    shown.choose("#truth", 2)
    shown.browser.execute_script(
        "document.querySelector(`.row[data-sample='${arguments[0]}']`).click()", last
    )
    shown.click("#clear")
    assert (
        shown.script("document.getElementById('list').getAttribute('aria-activedescendant')") == f"row-{last}"
    )
    inside = """(() => {
        const box = document.getElementById('list').getBoundingClientRect();
        const row = document.querySelector('.row[aria-selected=true]').getBoundingClientRect();
        return row.top >= box.top - 1 && row.bottom <= box.bottom + 1;
    })()"""
    assert shown.script(inside)


def test_the_order_is_told_in_words(page):
    shown = page()
    assert shown.texts("#down") == ["↑ ascending"]
    shown.click("#down")
    assert shown.texts("#down") == ["↓ descending"]
    name = shown.script("document.getElementById('down').getAttribute('aria-label')")
    assert name == "Descending order. Turn it round"
