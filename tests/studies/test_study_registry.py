"""The table of studies: light to list, and every study in it keeps the contract."""

import pickle
import re
import subprocess
import sys

import pytest

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.studies.registry import STUDIES, find
from tangentkit.studies.settings import command_line, field_docs

HEAVY = {"torch", "scipy", "sklearn", "matplotlib", "zarr", "pandas", "numpy"}


def test_listing_imports_nothing_heavy():
    code = "import sys, tangentkit.studies.registry as s; list(s.STUDIES.values()); print(*sys.modules)"
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
    assert study.paper
    assert list(study.cost) == list(code.SCALES) == ["quick", "evening", "full"]
    assert all(study.cost.values()), "what each scale costs is said"
    (kind,) = {type(config) for config in code.SCALES.values()}
    assert kind.__dataclass_params__.frozen
    for config in code.SCALES.values():
        assert len(config.seeds) >= 5, "a claim is judged from several seeds"
    undocumented = [field for field, doc in field_docs(kind).items() if not doc]
    assert not undocumented
    assert command_line(study, "quick", code.SCALES["quick"]) == f"tangentkit run {name} --scale quick"


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("scale", ["quick", "full"])
def test_trials_are_plain_can_travel_and_are_told_apart(name, scale):
    code = find(name).load()
    try:
        trials = code.trials(code.SCALES[scale])
    except InputError as error:
        if not re.search("no (data|model) for this study", str(error)):
            raise
        pytest.skip(f"{name} at scale {scale} needs what is not here: {error}")
    assert len({trial.key for trial in trials}) == len(trials) > 1
    for trial in (trials[0], trials[-1]):
        assert pickle.loads(pickle.dumps(trial)) == trial
        assert trial.function.__module__.startswith("tangentkit.studies.")
