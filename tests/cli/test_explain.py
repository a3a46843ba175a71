"""`tangentkit explain` writes one page, or says why not."""

import json

import pytest

from tangentkit.cli.app import main
from tangentkit.surrogate.page import open_folder

SMALL = ["--train", "60", "--test", "12", "--epochs", "1"]


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    return ended.value.code


def test_a_page_of_the_embedded_data_and_its_numbers(tmp_path, capsys):
    page = tmp_path / "why.html"
    assert run("--out", str(page), *SMALL, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == str(page)
    assert told["faithfulness"]["points"] == 12
    text = page.read_text()
    assert "fashion-mini" in text
    assert "http-equiv" in text


def test_the_console_says_what_to_look_at_and_where(tmp_path, capsys):
    page = tmp_path / "why.html"
    assert run("--out", str(page), *SMALL, "--kernel", "conjugate") == 0
    printed = capsys.readouterr()
    assert f"page: {page}" in printed.out
    assert "Choose a test image" in printed.err


def test_a_path_that_is_no_html_becomes_a_folder_to_be_served(tmp_path, capsys):
    assert run("--out", str(tmp_path / "why"), *SMALL, "--kernel", "conjugate") == 0
    assert f"tangentkit serve {tmp_path / 'why'}" in capsys.readouterr().out
    assert open_folder(tmp_path / "why").shape == (12, 60)


def test_what_cannot_be_is_an_error_and_writes_nothing(tmp_path, capsys):
    page = tmp_path / "why.html"
    assert run("--out", str(page), "--data", "nothing-like-it") == 2
    assert run("--out", str(page), "--model", "lenet99", *SMALL) == 2
    assert "lenet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
