"""The command line in this process, with the toy study in its list."""

from typing import NamedTuple

import pytest

from studies.toy_study import TOY
from tangentkit.cli import main
from tangentkit.studies.registry import STUDIES


class Finished(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


@pytest.fixture
def tangentkit(monkeypatch, capsys, tmp_path):
    """Runs a command in an empty folder."""
    monkeypatch.setitem(STUDIES, "toy", TOY)
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Finished:
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        captured = capsys.readouterr()
        code = exit.value.code
        assert isinstance(code, int)
        return Finished(code, captured.out, captured.err)

    return command
