"""`tangentkit serve`: an address on standard output, or one line that says what is wrong."""

import re

from surrogate.page.sample_explanation import text_explanation
from tangentkit.surrogate.page import PageServer, write_folder


def test_the_address_is_printed_and_ctrl_c_ends_it(tangentkit, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(PageServer, "serve_forever", interrupted)
    write_folder(text_explanation(), "page")
    done = tangentkit("serve", "page")
    assert done.code == 130
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{40,}/\n", done.out)


def test_a_folder_without_a_page_is_bad_input(tangentkit):
    done = tangentkit("serve", ".")
    assert done.code == 2
    assert "error: . is not the folder of a page: expected a folder with page.json" in done.err
