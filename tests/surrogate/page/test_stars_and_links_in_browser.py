"""What a person takes away from the page: stars as a table, a view as a link."""

import csv
import time

import pytest

from surrogate.page.sample_explanation import CLASSES, FORMULA, N

pytestmark = pytest.mark.browser


def test_stars_are_saved_as_csv_without_formulas(page, tmp_path):
    shown = page(fragment="#sample=4")
    shown.browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    assert shown.script("document.getElementById('save').disabled")
    shown.click(".who .star")
    train = int(shown.script("document.querySelector('.voice').dataset.train"))
    shown.browser.execute_script("document.querySelector('.voice .star').click()")
    shown.browser.execute_script("document.getElementById('starred').click()")
    assert shown.listed() == [4]
    shown.click("#save")
    end = time.monotonic() + 10
    while not (tmp_path / "stars.csv").exists() and time.monotonic() < end:
        time.sleep(0.02)
    with (tmp_path / "stars.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["set"], int(row["number"])) for row in rows] == [("test", 4), ("train", train)]
    assert rows[0]["name"] == f"'{FORMULA}"
    assert rows[0]["network"] in CLASSES
    shown.open("#sample=2")  # kept by the browser until they are taken away
    assert shown.texts("#star-count") == ["2"]


def test_a_link_restores_the_view(page):
    shown = page()
    shown.click(".row[data-sample='8']")
    shown.keys("p")
    shown.choose("#kernel", 2)
    shown.choose("#output", 3)
    shown.browser.execute_script("document.getElementById('low').click()")
    shown.browser.find_element("id", "pattern").send_keys("image|=")
    shown.choose("#sort", "margin")
    state = "[view('kernel'), view('output'), view('sort'), view('pattern'), document.getElementById('low').checked]"
    state = state.replace("view(", "(id => document.getElementById(id).value)(")
    shown.click("#share")
    link = shown.script("document.getElementById('link-text').value")
    before, listed, sample = shown.script(state), shown.listed(), shown.sample()
    assert before == ["2", "3", "margin", "image|=", True]
    shown.open("#" + link.partition("#")[2])
    assert (shown.script(state), shown.listed(), shown.sample()) == (before, listed, sample)
    assert "pin=8" in link


def test_what_a_link_says_that_cannot_be_is_left_out(page):
    shown = page(
        fragment="#sample=999&kernel=-1&output=77&tab=<b>&pin=x&sort=constructor&pattern=(&margin=nan"
        "&region=1&truth=__proto__&stars=test-999 train-1e9 <b>&kind=<b>"
    )
    assert shown.sample() == 0
    assert len(shown.listed()) == N
    assert shown.texts("#star-count") == ["0"]
