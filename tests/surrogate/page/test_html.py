"""The file: whole or not at all, the same for the same numbers, nothing of the data parsed as HTML."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from surrogate.page.sample_explanation import HOSTILE, picture_explanation, text_explanation
from tangentkit.core.errors import BudgetError, DataError, InputError, NumericalError
from tangentkit.surrogate.page import html, write_page
from tangentkit.surrogate.page.rounded import rounded


class Reader(HTMLParser):
    """The elements of a page and the texts of its scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.elements, self.scripts, self.metas, self.inside = [], {}, {}, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.elements.append(tag)
        if tag in ("script", "style"):
            self.inside = named.get("id", tag)
        if tag == "meta" and "http-equiv" in named:
            self.metas[named["http-equiv"]] = named["content"]

    def handle_endtag(self, tag):
        self.inside = None if tag in ("script", "style") else self.inside

    def handle_data(self, data):
        if self.inside:
            self.scripts[self.inside] = self.scripts.get(self.inside, "") + data


@pytest.fixture(scope="module")
def read(pages) -> Reader:
    return Reader(pages["pictures"].read_text(encoding="utf-8"))


def piece(read: Reader, name: str) -> bytes:
    raw = base64.b64decode(read.scripts[f"piece-{name}"])
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def test_the_policy_allows_this_script_and_this_style_alone(read):
    policy = read.metas["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    for what in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(read.scripts[what].encode()).digest()).decode()
        assert f"{what}-src 'sha256-{digest}';" in policy


def test_no_text_of_the_data_is_an_element(read):
    pieces = sum(name.startswith("piece-") for name in read.scripts)
    assert read.elements.count("script") == pieces + 1
    assert "img" not in read.elements
    assert "b" not in read.elements


def test_the_pieces_hold_the_numbers(read, explanation):
    tables = json.loads(piece(read, "tables"))
    assert tables["test"]["names"][3] == HOSTILE.replace("\u202e", "\\u202e")
    assert tables["train"]["labels"] == explanation.train_labels.tolist()
    assert [kernel["form"] for kernel in tables["kernels"]] == ["rounded", "strongest", "strongest"]
    codes = np.frombuffer(piece(read, "codes-0"), np.int8)
    view = explanation.kernels[0]
    assert np.array_equal(codes.reshape(view.shape), rounded(block for _, block in view.rows()).codes)
    logits = np.frombuffer(piece(read, "logits-2"), "<f4").reshape(explanation.logits.shape)
    assert np.allclose(logits, explanation.kernels[2].logits, rtol=1e-6)


def test_the_same_explanation_gives_the_same_bytes(pages, tmp_path):
    again = write_page(picture_explanation(), tmp_path / "again.html")
    assert again.read_bytes() == pages["pictures"].read_bytes()


def not_finite():
    view = picture_explanation().kernels[2]
    matrix = np.array(view.matrix)
    matrix[3, 4] = np.inf
    return replace(view, matrix=matrix)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda e: {"test": replace(e.test, pictures=["missing.png"] * e.num_test)}, InputError),
        (lambda e: {"train": replace(e.train, pictures=np.zeros((3, 8, 8)))}, InputError),
        (lambda e: {"kernels": (*e.kernels[:2], not_finite())}, NumericalError),
    ],
    ids=["missing pictures", "too few pictures", "a kernel that is not finite"],
)
def test_what_cannot_be_shown_leaves_no_file_and_no_harm(explanation, tmp_path, change, error):
    path = tmp_path / "why.html"
    path.write_text("of yesterday")
    with pytest.raises(error):
        write_page(replace(explanation, **change(explanation)), path)
    assert path.read_text() == "of yesterday"
    assert [file.name for file in tmp_path.iterdir()] == ["why.html"]


def test_a_page_too_large_for_a_browser_is_refused_with_what_to_do(explanation, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "MOST", 1000)
    with pytest.raises(BudgetError, match=r"too large for one file.*tangentkit serve"):
        write_page(explanation, tmp_path / "why.html")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_way_is_an_error(tmp_path):
    (tmp_path / "why.html").mkdir()
    with pytest.raises(DataError, match="cannot write"):
        write_page(text_explanation(), tmp_path / "why.html")
    assert [path.name for path in tmp_path.iterdir()] == ["why.html"]


def test_scripts_listed_are_scripts_there():
    folder = html.files("tangentkit.surrogate.page") / "templates" / "scripts"
    assert {f"{name}.js" for name in html.SCRIPTS} == {file.name for file in folder.iterdir()}


def test_no_script_makes_elements_of_text():
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", html._script()
    )
