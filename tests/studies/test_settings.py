"""Fields from the shell: types are checked, wrong names show the right ones, commands say the same again."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studies.toy_study import SCALES, TOY, Config
from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.studies.registry import STUDIES, find
from tangentkit.studies.settings import (
    changes,
    command_line,
    configure,
    field_docs,
    field_rows,
    override,
    parse,
    written,
)

configs = st.builds(
    Config,
    flips=st.integers(1, 10**6),
    chance=st.floats(0, 1, exclude_min=True),
    limit=st.none() | st.integers(1),
    mode=st.sampled_from(["fair", "bent"]),
    loud=st.booleans(),
    names=st.lists(
        st.text("abc xyz'", min_size=1).filter(lambda t: t == t.strip()), min_size=1, max_size=3, unique=True
    ).map(tuple),
    seeds=st.lists(st.integers(0, 20), min_size=1, max_size=8, unique=True).map(tuple),
)


@settings(deadline=None)
@given(configs)
def test_the_command_gives_the_same_config(config):
    words = shlex.split(command_line(TOY, "quick", config))
    assert words[:5] == ["tangentkit", "run", "toy", "--scale", "quick"]
    texts = {name.removeprefix("--"): text for name, text in zip(words[5::2], words[6::2], strict=True)}
    assert configure(TOY, "quick", texts) == config


@pytest.mark.parametrize("study", ["width-gap", "tangent-rank", "kernel-cost", "cntk"])
@pytest.mark.parametrize("text", ["0", "-3"])
def test_sizes_below_one_are_refused_whatever_the_study(study, text):
    study = find(study)
    name = next(
        field for field in ("train", "samples") if field in field_docs(type(study.load().SCALES["quick"]))
    )
    with pytest.raises(InputError, match=f"bad value for --{name}: expected at least 1, got {text}"):
        configure(study, "quick", {name: text})


def test_zero_is_taken_where_it_has_a_meaning():
    assert configure(find("binary-solver"), "quick", {"digit": "0"}).digit == 0
    assert configure(find("poisoning"), "evening", {"pretrained": "0", "seeds": "0"}).pretrained == 0
    with pytest.raises(InputError, match="bad value for --seeds: expected at least 0, got -1"):
        configure(find("poisoning"), "quick", {"seeds": "0,-1"})


@pytest.mark.parametrize("name", [*STUDIES])
def test_every_scale_of_every_study_can_be_asked_for_by_its_fields(name):
    study = find(name)
    for scale, config in study.load().SCALES.items():
        fields = changes(config, study.load().SCALES["quick"])
        texts = {field: written(value) for field, value in fields.items()}
        assert configure(study, "quick", texts) == config, scale


def test_a_default_config_needs_no_fields():
    assert command_line(TOY, "full", SCALES["full"]) == "tangentkit run toy --scale full"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"flips": "many"}, "--flips: expected an integer, got 'many'"),
        ({"flips": "1.5"}, "expected an integer"),
        ({"chance": "half"}, "expected a number"),
        ({"loud": "perhaps"}, "expected true or false"),
        ({"seeds": "0,x"}, "expected an integer, got 'x'"),
        ({"flips": "0"}, "at least 1"),
        ({"seeds": "0-99999999999"}, "100,000 numbers at most, got 0-99999999999"),
    ],
)
def test_bad_values_are_refused(texts, message):
    with pytest.raises(InputError, match=message):
        override(Config(), texts)


def test_wrong_names_show_the_near_ones():
    with pytest.raises(UnknownNameError, match=r"unknown field 'flip'\. Try: 'flips'"):
        override(Config(), {"flip": "3"})
    with pytest.raises(UnknownNameError, match=r"unknown value of --mode 'fare'\. Try: 'fair'"):
        override(Config(), {"mode": "fare"})
    with pytest.raises(UnknownNameError, match=r"unknown scale 'quik'\. Try: 'quick'"):
        configure(TOY, "quik", {})


def test_ranges_of_seeds():
    assert parse("0-3,9", tuple[int, ...], name="seeds") == (0, 1, 2, 3, 9)
    assert written(tuple(range(100))) == "0-99"
    assert written((3, 4)) == "3,4"
    assert parse("", tuple[int, ...], name="seeds") == ()


def test_every_field_carries_its_docstring():
    docs = field_docs(Config)
    assert list(docs)[:3] == ["flips", "chance", "limit"]
    assert docs["flips"] == "Coins to flip."
    assert docs["mode"] == "Not used\neither."
    assert docs["loud"] == ""
    assert field_rows([SCALES["quick"], SCALES["full"]])[0] == ("flips", "10", "1000", "Coins to flip.")
