"""The other tabs: the confusion matrix, the map, flags, and what it is about."""

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Keys
from sklearn.metrics import confusion_matrix

from surrogate.page.sample_explanation import HOSTILE, N
from tangentkit.surrogate.page.positions import positions

pytestmark = pytest.mark.browser


def test_a_cell_of_the_confusion_matrix_leaves_its_samples_in_the_list(page, explanation):
    shown = page(fragment="#tab=confusion")
    truth, network = explanation.test_labels, explanation.logits.argmax(axis=1)
    counts = confusion_matrix(truth, network, labels=range(4))
    cells = shown.table(".confusion")
    assert [[int(cell.replace("·", "0")) for cell in row[1:]] for row in cells] == counts.tolist()
    a, b = np.argwhere(counts * (1 - np.eye(4)))[0]
    shown.click(f"[data-cell='{a}-{b}']")
    assert shown.listed() == np.flatnonzero((truth == a) & (network == b)).tolist()
    shown.click(f"[data-cell='{a}-{b}']")
    assert len(shown.listed()) == N
    shown.choose("#compare", "network-surrogate")
    surrogate = explanation.kernels[0].logits.argmax(axis=1)
    cells = shown.table(".confusion")
    expected = confusion_matrix(network, surrogate, labels=range(4))
    assert [[int(cell.replace("·", "0")) for cell in row[1:]] for row in cells] == expected.tolist()


def on_map(explanation, width: float, height: float) -> np.ndarray:
    """Where test samples are on the screen, from the upper left corner of the map."""
    places = positions(explanation.kernels[0])
    both = np.concatenate([places.test, places.train])
    share = (places.test - both.min(axis=0)) / np.ptp(both, axis=0)
    return np.stack([16 + share[:, 0] * (width - 32), height - 16 - share[:, 1] * (height - 32)], axis=1)


def test_the_map_chooses_by_click_and_selects_by_drag(page, explanation):
    shown = page(fragment="#tab=map", height=900)
    canvas = shown.browser.find_element("id", "map")
    width, height = canvas.size["width"], canvas.size["height"]
    places = on_map(explanation, width, height)
    apart = [np.sort(np.linalg.norm(places - place, axis=1))[1] for place in places]
    alone = int(np.argmax(apart))

    def at(place):
        return ActionChains(shown.browser, duration=10).move_to_element_with_offset(
            canvas, *(int(part) for part in np.rint(place - [width / 2, height / 2]))
        )

    at(places[alone]).click().perform()
    assert shown.script("Number(document.querySelector('.row[aria-selected=true]').dataset.sample)") == alone
    middle, half = np.array([width / 2, height / 2]), np.array([150, 120])
    low, high = middle - half, middle + half
    at(low).click_and_hold().move_by_offset(100, 100).move_by_offset(200, 140).release().perform()
    inside = np.flatnonzero(((places > low) & (places < high)).all(axis=1))
    assert 0 < len(inside) < N
    assert shown.listed() == inside.tolist()
    assert "region=" in shown.browser.current_url
    shown.click("#region-off")
    assert shown.texts("#found") == [f"{N} samples"]
    before = shown.script("document.querySelector('.row[aria-selected=true]').dataset.sample")
    shown.browser.execute_script("document.getElementById('map').focus()")
    shown.keys(Keys.LEFT)
    now = shown.script("document.querySelector('.row[aria-selected=true]').dataset.sample")
    assert places[int(now), 0] <= places[int(before), 0]


@pytest.mark.parametrize(("name", "told"), [("pictures", True), ("unlabeled", False)])
def test_the_map_tells_of_wrong_answers_only_where_labels_are_known(page, name, told):
    legend = page(name, fragment="#tab=map").texts("#panel-map .note")[0]
    assert ("with a ring: the network is wrong" in legend) == told
    assert ("in the color of their true class" in legend) == told


def test_flags_are_a_tab_with_reasons_and_evidence(page):
    shown = page(fragment="#tab=flags")
    assert shown.texts("#tab-flags") == ["Flags (3)"]
    order = "[...document.querySelectorAll('.flagged')].map(f => Number(f.dataset.flag))"
    assert shown.script(order) == [8, 11, 5]  # the largest score first
    assert len(shown.browser.find_elements("css selector", "[data-flag='5'] .evidence li")) == 2
    assert "Its neighbors are birds. <script>" in shown.texts("[data-flag='5']")[0]
    shown.choose("#kind", "mislabeled")
    assert shown.script(order) == [11, 5]


def test_tabs_move_by_arrow_keys(page):
    shown = page()
    shown.browser.execute_script("document.getElementById('tab-sample').focus()")
    shown.keys(Keys.RIGHT)
    assert shown.script("document.activeElement.id") == "tab-confusion"
    assert shown.script("document.getElementById('panel-confusion').checkVisibility()")
    shown.keys(Keys.END)
    assert shown.script("document.getElementById('tab-about').getAttribute('aria-selected')") == "true"
    assert HOSTILE.replace("\u202e", "\\u202e") in shown.texts("#panel-about")[0]
