"""The table of studies: light to list, and every study in it keeps the contract."""

import dataclasses
import subprocess
import sys

import pytest

from tangentkit.core.errors import UnknownNameError
from tangentkit.studies import STUDIES, find
from tangentkit.studies.settings import command_line, field_docs

HEAVY = {"torch", "scipy", "sklearn", "matplotlib", "zarr", "pandas", "numpy"}


def test_listing_imports_nothing_heavy():
    code = "import sys, tangentkit.studies as s; list(s.STUDIES.values()); print(*sys.modules)"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(listed.stdout.split())


def test_unknown_studies_show_the_near_ones():
    with pytest.raises(UnknownNameError, match=r"unknown study 'surogate'\. Try: 'surrogate'"):
        find("surogate")


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_keeps_the_contract(name):
    study = find(name)
    code = study.load()
    assert study.name == name
    assert set(study.cost) == set(code.SCALES) == {"quick", "full"}
    (kind,) = {type(config) for config in code.SCALES.values()}
    assert kind.__dataclass_params__.frozen
    assert code.Result.__dataclass_params__.frozen
    assert len(code.SCALES["quick"].seeds) > 1, "a claim is judged from several seeds"
    undocumented = [field for field, doc in field_docs(kind).items() if not doc]
    assert not undocumented
    assert {field.name for field in dataclasses.fields(code.Result)} >= {"seeds", "data"}
    assert command_line(study, "quick", code.SCALES["quick"]) == f"tangentkit run {name} --scale quick"
