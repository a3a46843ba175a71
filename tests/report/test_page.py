"""The page is one file that loads nothing, and text stays text."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from report.sample_page import HOSTILE, sample_page
from tangentkit.report import Column, Measured, Page, Table

LOADERS = {"src", "srcset", "href", "action", "data", "poster", "background"}


class Elements(HTMLParser):
    """Tags and attributes as a browser would see them."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.links: list[str] = []
        """What a reader may follow; nothing that is loaded."""
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = [(name, value or "") for name, value in attrs]
        if tag == "a":
            self.links += [value for name, value in found if name == "href"]
        else:
            self.attributes += found

    def handle_data(self, data):
        self.text += data


def test_hostile_text_is_shown_and_not_obeyed(page):
    elements, plain = (Elements(sample_page(text, figures={}).render()) for text in (HOSTILE, "plain words"))
    assert elements.tags == plain.tags
    assert "script" not in Elements(page).tags
    assert not any(name.startswith("on") for name, _ in Elements(page).attributes)
    assert elements.text.count(HOSTILE) >= 15
    assert "&lt;script&gt;" in page


def test_nothing_is_loaded(page):
    addresses = [value for name, value in Elements(page).attributes if name in LOADERS]
    assert addresses
    assert all(address.startswith("data:") for address in addresses)
    assert not re.search(r"@import|url\(", page.split("<style>")[1].split("</style>")[0])


def test_links_lead_into_the_page_and_to_its_files_alone(page):
    links, ids = Elements(page).links, {value for name, value in Elements(page).attributes if name == "id"}
    inner = {link.removeprefix("#") for link in links if link.startswith("#")}
    assert inner <= ids
    assert {
        "asked",
        "terms",
        "claims",
        "table-wide",
        "table-long",
        "figure-dots",
        "standins",
        "files",
    } <= inner
    outer = [link for link in links if not link.startswith("#")]
    assert sorted(outer) == ["figures/dots.png", "figures/dots.svg", "numbers.json", "tables/wide.csv"]


def test_names_of_files_are_written_as_addresses():
    page = replace(sample_page(figures={}), files=('tables/wide.a"#?b', "javascript:alert(1)"))
    assert {link for link in Elements(page.render()).links if not link.startswith("#")} == {
        "tables/wide.a%22%23%3Fb",
        "javascript%3Aalert%281%29",
    }


def test_a_page_without_tables_and_figures_needs_no_contents():
    assert "nav" in Elements(sample_page(figures={}).render()).tags
    assert "nav" not in Elements(replace(sample_page(figures={}), tables={}).render()).tags


def test_a_claim_that_is_not_decided_says_what_would_decide_it(page):
    text = Elements(page).text
    assert text.count("What would decide it: ") == 1
    assert "5 seeds show the spread" in text
    assert "tangentkit run toy --seeds 0-4" in text


def test_the_policy_forbids_the_network(page):
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page


def test_every_figure_is_there_twice_with_words(page):
    elements = Elements(page)
    assert elements.tags.count("figure") == elements.tags.count("source") == elements.tags.count("img") == 9
    alts = [value for name, value in elements.attributes if name == "alt"]
    assert alts == ["What to see."] * 9


def test_verdicts_are_words_not_only_colors(page):
    text = Elements(page).text
    for verdict in ("✓ holds", "✗ does not hold", "? not decided"):
        assert verdict in text


def test_every_text_is_shown_and_the_page_can_be_written():
    text = "".join(map(chr, [*range(300), 0x202E, 0xD800, 0xFFFE, 0xFFFF])) + r"$\frac{$"
    page = sample_page(text, figures={}).render()
    page.encode()
    assert not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f\u202e\ufffe\uffff]", page)
    assert page.count(r"$\frac{$") >= 15
    assert page.count(r"\x00\x01") >= 15


@pytest.mark.parametrize(
    ("ours", "heading"), [((1,), "Published numbers beside ours"), ((0, 1), "Numbers"), ((), "Numbers")]
)
def test_tables_are_headed_by_what_they_have(ours, heading):
    table = Table("t", ("who", "tau"), (("a", 0.5), ("b", 0.6)), ours=ours)
    assert (
        Page(title="t", source="s", question="q", answer="a", tables={"t": table}).numbers_heading == heading
    )


def test_a_number_breaks_before_its_error_alone():
    table = Table("t", ("who", Column("tau", ".1e")), (("a", Measured(1e-5, 2e-6)), ("b", 3e-4)))
    text = Page(title="t", source="s", question="q", answer="a", tables={"t": table}).render()
    assert '<span class="whole">1.0e-05</span> <span class="whole">± 2.0e-06</span>' in text
    assert '<span class="whole">3.0e-04</span>' in text


def test_changed_verdicts_stand_above_the_claims():
    text = sample_page("plain", figures={}).render()
    changed = replace(sample_page("plain", figures={}), changed="One verdict <changed>.").render()
    assert "<p>One verdict &lt;changed&gt;.</p>" in changed
    assert "&lt;changed&gt;" not in text
