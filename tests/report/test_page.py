"""The page is one file that loads nothing, and text stays text."""

import re
from html.parser import HTMLParser

from report.sample_page import HOSTILE, sample_page

LOADERS = {"src", "srcset", "href", "action", "data", "poster", "background"}


class Elements(HTMLParser):
    """Tags and attributes as a browser would see them."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

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


def test_the_policy_forbids_the_network(page):
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page


def test_every_figure_is_there_twice_with_words(page):
    elements = Elements(page)
    assert elements.tags.count("figure") == elements.tags.count("source") == elements.tags.count("img") == 7
    alts = [value for name, value in elements.attributes if name == "alt"]
    assert alts == ["What to see."] * 7


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
