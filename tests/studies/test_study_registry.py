"""The table of studies: light to list, and every study in it keeps the contract."""

import pickle
import re
import subprocess
import sys
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.studies.registry import STUDIES, find
from tangentkit.studies.runner import asked_trials
from tangentkit.studies.settings import command_line, configure, field_docs
from tangentkit.studies.trials.fields import check_field

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


MAY_BE_EMPTY = {
    "compared": "more sizes, beside those that are compared anyway",
    "most": "larger sizes, with fewer seeds than the others",
    "whole": "kernels of all images, beside those of some",
}
"""Field -> why a list of nothing is allowed."""


@pytest.mark.parametrize("name", STUDIES)
def test_no_study_takes_empty_lists_repeats_and_numbers_that_are_none(name):
    study = find(name)
    config = study.load().SCALES["quick"]
    hints = get_type_hints(type(config))
    numbers = [field for field, hint in hints.items() if float in (hint, *get_args(hint))]
    lists = [field.name for field in fields(config) if isinstance(getattr(config, field.name), tuple)]
    bad = [(field, text) for field in numbers for text in ("nan", "inf", "-1", "1,nan")]
    bad += [(field, "") for field in lists if field not in MAY_BE_EMPTY]
    bad += [("seeds", "0,0"), ("seeds", "0,0-3"), ("seeds", "-1")]
    for field, text in bad:
        with pytest.raises(InputError):
            asked_trials(study, configure(study, "quick", {field: text}))
    for field in set(lists) & set(MAY_BE_EMPTY):
        assert getattr(configure(study, "quick", {field: ""}), field) == ()


@pytest.mark.parametrize("name", STUDIES)
def test_every_scale_holds_what_its_fields_may_hold(name):
    for config in find(name).load().SCALES.values():
        for field in fields(config):
            check_field(field.name, getattr(config, field.name))


@pytest.mark.parametrize(
    ("name", "field", "text"),
    [
        ("binary-solver", "shift", "0"),
        ("tangent-rank", "shift", "0"),
        ("tangent-rank", "shift", "28"),
        ("tangent-rank", "samples", "60001"),
        ("tangent-rank", "data", "cola"),
        ("width-gap", "harder", "function-f1"),
        ("output-trajectories", "watched", "99999999"),
        ("layer-pca", "train", "50001"),
        ("spectral-theory", "rate", "0"),
        ("spectral-theory", "samples", "100"),
        ("spectral-theory", "width-share", "0.001"),
        ("kernel-bounds", "functions", "f4"),
        ("logistic-regression", "moments", "0,10,4000"),
        ("binary-solver", "digit", "10"),
        ("finetune-spectra", "momentum", "1"),
        ("eigenfunctions", "indices", "8,8"),
    ],
)
def test_what_would_make_every_trial_fail_is_refused_before(name, field, text):
    study = find(name)
    with pytest.raises((InputError, UnknownNameError)):
        asked_trials(study, configure(study, "quick", {field: text}))
