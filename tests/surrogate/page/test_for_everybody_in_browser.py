"""Any screen, any reader, any text, any number of classes."""

import pytest
from selenium.common.exceptions import JavascriptException
from selenium.webdriver import Keys

from surrogate.page.sample_explanation import HOSTILE, many_explanation
from tangentkit.surrogate.page.strongest import kept_outputs

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (390, "light"), (1280, "dark")])
def test_every_tab_fits_the_screen(page, width, scheme):
    shown = page(fragment="#pin=3", width=width, height=844, scheme=scheme)
    tabs = ["sample", "confusion", "map", "flags", "about", *(["list"] if width < 500 else [])]
    for tab in tabs:
        shown.browser.execute_script("document.getElementById('tab-' + arguments[0]).click()", tab)
        assert shown.script("document.documentElement.scrollWidth") <= width, tab
    if width < 500:
        shown.click(".row[data-sample='1']")  # from the list to the sample
        assert shown.sample(1) == 1
        assert shown.script("document.getElementById('panel-sample').checkVisibility()")


def test_light_and_dark_follow_the_system_until_one_is_chosen(page):
    shown = page(scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = shown.script(paper)
    shown.click("#theme")
    light = shown.script(paper)
    assert light != dark
    shown.click("#theme")
    assert shown.script(paper) == dark
    shown.click("#theme")
    assert shown.script("document.documentElement.dataset.theme") == "auto"


def test_everything_that_acts_or_shows_has_a_name_for_screen_readers(page):
    shown = page(fragment="#low=true")
    named = {"button", "combobox", "checkbox", "searchbox", "textbox", "slider", "tab", "tablist", "listbox"}
    named |= {"option", "image", "img", "meter", "application", "dialog", "tabpanel"}
    for tab in ("sample", "confusion", "map", "flags"):
        shown.click(f"#tab-{tab}")
        nodes = shown.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        seen = [node for node in nodes if not node["ignored"] and node.get("role", {}).get("value") in named]
        assert len(seen) > 20
        assert [node["role"]["value"] for node in seen if not node.get("name", {}).get("value")] == []


def test_text_is_shown_as_text(page):
    shown = page(fragment="#sample=3")
    visible = HOSTILE.replace("\u202e", "\\u202e")
    assert shown.browser.title.startswith(visible.strip())  # a script that ran would say "owned"
    assert visible in shown.texts(".who h2")[0]
    assert visible in shown.texts("#kernel option")
    assert shown.script("document.querySelectorAll('main b, main img, main script').length") == 0


def test_the_policy_stops_what_the_page_did_not_bring(browser, page):
    shown = page()
    attempts = {
        "TrustedScript": "const s = document.createElement('script'); s.textContent = 'owned = 1'",
        "TrustedHTML": "document.body.innerHTML = '<b>owned</b>'",
    }
    for needed, attempt in attempts.items():
        with pytest.raises(JavascriptException, match=needed):
            shown.browser.execute_script(attempt)
    style = "const s = document.createElement('style'); s.textContent = 'body { color: red }'"
    shown.browser.execute_script(f"{style}; document.head.append(s)")
    assert shown.script("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"
    fetch = "fetch('http://127.0.0.1:9/').then(() => done('sent'), () => done('stopped'))"
    assert shown.browser.execute_async_script(f"const done = arguments[0]; {fetch}") == "stopped"
    seen = " ".join(entry["message"] for entry in browser.get_log("browser"))
    assert all(rule in seen for rule in ("TrustedScript", "TrustedHTML", "style-src", "connect-src"))
    assert shown.script("performance.getEntriesByType('resource').length") == 0


def test_texts_with_one_output_and_no_truth(page):
    shown = page("texts")
    assert shown.script("document.getElementById('wrong').disabled")
    assert shown.texts("#output option") == ["good against bad"]
    shown.browser.find_element("id", "pattern").send_keys("^Sentence 1[0-9]")
    assert shown.listed() == list(range(10, 20))
    assert shown.texts(".who .text")[0].startswith("Sentence 10")
    assert shown.texts(".voice small")[0].startswith("Training sentence")
    assert len(shown.table(".bars")) == 1
    assert shown.texts(".side h3") == ["For good", "For bad"]
    assert shown.texts(".verdicts dt") == ["Network", "Surrogate"]
    shown.keys(Keys.TAB)
    for tab in ("confusion", "map", "flags", "about"):
        shown.click(f"#tab-{tab}")
        assert shown.script("document.getElementById('panel-' + arguments[0]).checkVisibility()", tab)
    assert "no map" in shown.texts("#panel-map")[0]


def test_of_many_classes_the_largest_are_shown_and_it_is_said(page):
    given = many_explanation()
    shown = page("many", fragment="#sample=5")
    assert len(shown.table(".bars")) == len(shown.table(".boxes")) == len(shown.table(".logits")) == 12
    assert "12 outputs and 12 training classes of the largest means" in shown.texts(".bars")[0]
    kept = set(kept_outputs(given.kernels[1], given)[5].tolist())
    shown.choose("#kernel", 1)
    shown.choose("#output", min(set(range(20)) - kept))
    shown.until("document.querySelector('.side')?.textContent.includes('this is none of them')")
    assert len(shown.table(".bars")) == 12
    shown.choose("#output", min(kept))
    shown.until("document.querySelectorAll('.side .voice').length === 20")
