"""The page about many studies: every claim a row, filters that work, nothing that a browser complains about."""

from dataclasses import replace

import pytest

from browsing import set_screen
from studies.toy_study import TOY, Config
from tangentkit.report import Claim
from tangentkit.report.claim_index import ClaimIndex, ClaimRow
from tangentkit.studies.earlier_run import EarlierRun
from tangentkit.studies.index_page import index_page
from tangentkit.studies.run_folder import claim_folder
from tangentkit.studies.runner import execute

HOSTILE = "<script>document.title = 'owned'</script>"


def row(paper: str, verdict: str, study: str = "toy", before: str = "") -> ClaimRow:
    values = {"holds": (0.8, 0.81, 0.82), "does not hold": (0.1, 0.11, 0.12), "not decided": (0.2, 0.9)}[
        verdict
    ]
    return ClaimRow(
        study=study,
        title=HOSTILE,
        paper=paper,
        claim=Claim(f"{HOSTILE} {verdict}", "share", values, low=0.5, published="0.9"),
        size="quick",
        seconds=100.0,
        link="toy.html",
        before=before,
    )


ROWS = (
    row("A 2020", "holds", before="not decided (quick)"),
    row("A 2020", "does not hold"),
    row('B "2021"', "not decided", "other"),
)


def test_texts_are_escaped_and_counts_are_right():
    page = ClaimIndex(title="Claims", rows=ROWS, failures={"lost": HOSTILE}).render()
    assert HOSTILE not in page
    assert "1 holds" in page
    assert page.count("<tr data-paper=") == 3


def test_a_number_that_all_seeds_share_is_one_number():
    one = replace(ROWS[0], claim=Claim("c", "p", (0.0622,) * 5, high=0.05))
    assert one.ours == "0.0622"
    assert "5 values" not in ClaimIndex(title="Claims", rows=(one,)).render()
    assert "3 values" in ClaimIndex(title="Claims", rows=ROWS[:1]).render()


def test_a_run_has_a_row_for_each_claim_with_its_first_figure(tmp_path):
    run = execute(TOY, Config(), claim_folder(tmp_path / "toy"), scale="quick")
    page = index_page({"a b/report.html": run}, {})
    assert 'href="a%20b/report.html"' in page
    assert page.count("<tr data-paper=") == len(run.result.claims)
    assert "data:image/webp" in page


def test_verdicts_that_a_larger_run_changed_are_named_with_those_before(tmp_path):
    run = execute(TOY, Config(), claim_folder(tmp_path / "toy"), scale="evening")
    first, *others = run.result.claims
    other = next(verdict for verdict in ("holds", "not decided") if verdict != first.verdict)
    same = {claim.statement: claim.verdict for claim in others}
    known = replace(run, earlier=EarlierRun("quick", {first.statement: other, **same}))
    page = index_page({"report.html": known}, {})
    assert f"before: {other} (quick)" in page
    assert page.count("before: ") == page.count('data-changed="changed"') == 1
    assert 'name="changed"' in page
    assert 'name="changed"' not in index_page({"report.html": run}, {})


@pytest.mark.browser
def test_filters_show_the_rows_that_fit(browser, tmp_path):
    path = tmp_path / "index.html"
    path.write_text(ClaimIndex(title="Claims", rows=ROWS).render(), encoding="utf-8")

    def shown() -> list[str]:
        rows = browser.find_elements("css selector", "tbody tr")
        return [one.get_attribute("data-verdict") for one in rows if one.is_displayed()]

    def choose(name: str, value: str) -> None:
        code = "const s = document.querySelector(`select[name=${arguments[0]}]`); s.value = arguments[1];"
        browser.execute_script(code + "s.dispatchEvent(new Event('change'));", name, value)

    browser.get(path.as_uri())
    assert browser.get_log("browser") == []
    assert browser.title.startswith("Claims")
    assert len(shown()) == 3
    choose("paper", "A 2020")
    assert shown() == ["holds", "does not hold"]
    choose("verdict", "holds")
    assert shown() == ["holds"]
    assert browser.find_element("id", "shown").text == "1 of 3 claims"
    choose("paper", 'B "2021"')
    assert shown() == []
    choose("verdict", "")
    assert shown() == ["not decided"]
    choose("paper", "")
    choose("changed", "changed")
    assert shown() == ["holds"]
    set_screen(browser, 375, 800)
    browser.get(path.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 375
