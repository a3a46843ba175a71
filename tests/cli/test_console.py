"""Progress for people: a bar on a terminal, lines in a log."""

import pytest

from tangentkit.cli.console import exit_code, progress_bars
from tangentkit.core.errors import DataError, InputError, NumericalError, UnknownNameError


def advance_two_stages():
    with progress_bars() as progress:
        for stage in ("training", "kernels"):
            for done in range(3):
                progress(stage, done, 2)


def test_a_log_gets_a_line_when_a_stage_ends(capsys):
    advance_two_stages()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(":")[0] for line in captured.err.splitlines()] == ["training", "kernels"]


def test_a_terminal_gets_one_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    monkeypatch.setenv("TERM", "xterm")
    advance_two_stages()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "kernels" in captured.err
    assert "2/2" in captured.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("x"), 2),
        (UnknownNameError("study", "x", []), 2),
        (DataError("x"), 1),
        (NumericalError("x"), 1),
        (ValueError("x"), None),
    ],
)
def test_every_error_has_its_exit_code(error, code):
    assert exit_code(error) == code
