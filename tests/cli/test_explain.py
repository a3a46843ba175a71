"""`tangentkit explain`: a page, or a folder to be served."""

import json

from tangentkit.surrogate.page import open_folder

SMALL = ("explain", "--train", "40", "--test", "10", "--epochs", "1", "--kernel", "conjugate", "--json")


def test_a_page_and_a_folder_are_written(tangentkit):
    done = tangentkit(*SMALL, "--out", "why.html")
    assert done.code == 0, done.err
    written = json.loads(done.out)
    assert written["page"] == "why.html"
    assert set(written["faithfulness"])
    with open("why.html", encoding="utf-8") as page:
        assert page.readline() == "<!doctype html>\n"
    assert json.loads(tangentkit(*SMALL, "--out", "why").out)["page"] == "why"
    assert open_folder("why").shape == (10, 40)
