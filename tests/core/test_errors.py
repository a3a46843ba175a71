import pytest

from tangentkit.core import DataError, InputError, TangentkitError, UnknownNameError


def test_an_error_says_expected_got_and_hint():
    error = InputError("bad batch", expected="(n, c)", got="(3,)", hint="add an axis")
    assert str(error) == "bad batch: expected (n, c), got (3,). Try: add an axis"
    assert isinstance(error, ValueError)
    assert isinstance(error, TangentkitError)


def test_an_os_error_prints_its_sentence():
    assert str(DataError("no such set", hint="fetch it")) == "no such set. Try: fetch it"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("surogate", "'surrogate'"), ("Surrogate-", "'surrogate'"), ("zzz", "'spectra', 'surrogate', 'width'")],
)
def test_unknown_names_show_near_matches_else_all(name, shown):
    error = UnknownNameError("study", name, ["width", "surrogate", "spectra"])
    assert str(error) == f"unknown study {name!r}. Try: {shown}"
    assert isinstance(error, KeyError)


def test_unknown_names_of_a_long_list_are_cut():
    assert "(40 in all)" in str(UnknownNameError("layer", "#", [f"layer{i}" for i in range(40)]))
