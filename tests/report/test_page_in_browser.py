"""The page in a real browser: on a phone and a desk, light and dark, no overflow and no complaints."""

from pathlib import Path

import pytest

from browsing import set_screen
from report.surrogate_sample import surrogate_page, surrogate_result

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(page, tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def surrogate_address(tmp_path_factory) -> str:
    """The page of the surrogate study, without its figures."""
    path: Path = tmp_path_factory.mktemp("page") / "surrogate.html"
    path.write_text(surrogate_page(surrogate_result()).render(), encoding="utf-8")
    return path.as_uri()


def show(browser, address: str, width: int) -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 375, 1280])
def test_the_page_fits_and_is_quiet(browser, address, width, scheme):
    set_screen(browser, width, 844, scheme)
    browser.get(address)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return document.body.scrollWidth") <= width
    loaded = "return [...document.images].every(i => i.complete && i.naturalWidth > 0)"
    assert browser.execute_script(loaded)
    assert browser.title.startswith("<script>")  # shown as text; a script that ran would say "owned"
    assert (
        browser.execute_script(
            "return performance.getEntriesByType('resource').filter(r => !r.name.startsWith('data:')).length"
        )
        == 0
    )


def test_dark_and_light_differ_in_page_and_figures(browser, address):
    seen = {}
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.get(address)
        seen[scheme] = browser.execute_script(
            "return [getComputedStyle(document.body).backgroundColor, document.images[0].currentSrc]"
        )
    assert all(light != dark for light, dark in zip(seen["light"], seen["dark"], strict=True))


WIDTHS = """
const tables = [...document.querySelectorAll('main > section .scroll')];
return tables.map(d => [d.ariaLabel, d.scrollWidth, d.clientWidth]);
"""


def cut_tables(browser) -> list[str]:
    """The tables of which a part is out of view."""
    # Half a pixel is rounded either way.
    return [label for label, whole, seen in browser.execute_script(WIDTHS) if whole > seen + 1]


def test_every_column_of_the_study_is_in_view_on_a_desk(browser, surrogate_address):
    show(browser, surrogate_address, 1280)
    assert len(browser.execute_script(WIDTHS)) == 5
    assert cut_tables(browser) == []
    assert not browser.execute_script("return document.querySelector('.cue').checkVisibility()")


def test_on_a_phone_wide_tables_are_cut_and_say_so(browser, surrogate_address):
    show(browser, surrogate_address, 375)
    cut = cut_tables(browser)
    assert [label.partition(" (")[0] for label in cut] == [
        "Faithfulness of the trNTK surrogate",
        "Kernels compared by tau",
        "Kernels compared by TAD",
        "What attributions look like",
    ]
    cues = browser.find_elements("css selector", ".cue")
    assert [cue.is_displayed() for cue in cues] == [True] * len(cut)
    assert "8 columns: scroll sideways" in cues[1].text
    # A bar that takes room is one that is always seen.
    bar = "const d = document.querySelector('.cue + .scroll'); return d.offsetHeight - d.clientHeight - 2"
    assert browser.execute_script(bar) > 4
    shadow = "return getComputedStyle(document.querySelector('.cue + .scroll')).backgroundAttachment"
    assert browser.execute_script(shadow).startswith("local, local, scroll, scroll")


def test_the_contents_lead_to_what_they_name(browser, address):
    show(browser, address, 1280)
    links = browser.find_elements("css selector", "nav a")
    assert len(links) == 19  # 8 sections, 2 tables, 9 figures
    for link in links:
        name = link.get_attribute("href").partition("#")[2]
        browser.execute_script("arguments[0].click()", link)
        seen = "return [location.hash, document.getElementById(arguments[0]).getBoundingClientRect().top]"
        place, top = browser.execute_script(seen, name)
        assert place == f"#{name}"
        assert 0 <= top < 844
    assert browser.get_log("browser") == []
