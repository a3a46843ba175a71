"""`tangentkit explain`: a page, or a folder to be served, or the reason why not."""

import json

from tangentkit.surrogate.page import open_folder

SMALL = ("explain", "--train", "40", "--test", "10", "--epochs", "1", "--kernel", "conjugate")


def test_a_page_and_a_folder_are_written(tangentkit):
    done = tangentkit(*SMALL, "--json", "--out", "why.html")
    assert done.code == 0, done.err
    written = json.loads(done.out)
    assert written["page"] == "why.html"
    assert written["faithfulness"]["points"] == 10
    with open("why.html", encoding="utf-8") as page:
        assert page.readline() == "<!doctype html>\n"
    assert json.loads(tangentkit(*SMALL, "--json", "--out", "why").out)["page"] == "why"
    assert open_folder("why").shape == (10, 40)


def test_the_console_says_what_to_look_at_and_where(tangentkit, tmp_path):
    page = tmp_path / "why.html"
    done = tangentkit(*SMALL, "--out", str(page))
    assert f"page: {page}" in done.out
    assert "Choose a test image" in done.err


def test_what_cannot_be_is_an_error_and_writes_nothing(tangentkit, tmp_path):
    page = tmp_path / "out" / "why.html"
    assert tangentkit("explain", "--out", str(page), "--data", "nothing-like-it").code == 2
    done = tangentkit(*SMALL, "--out", str(page), "--model", "lenet99")
    assert (done.code, "lenet" in done.err) == (2, True)
    assert not page.parent.exists()
