"""What a trial gave comes back as it was, whatever it holds; what is damaged counts as not done."""

import importlib
import linecache
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tangentkit.core.errors import DataError, InputError
from tangentkit.studies.trials.own_files import contents
from tangentkit.studies.trials.plain import NOT_FINITE, from_plain, restored, to_plain
from tangentkit.studies.trials.store import TrialStore
from tangentkit.studies.trials.trial import Outcome, Trial, code_of, perform, revision, same_records, sweep

words = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda word: word not in NOT_FINITE)
numbers = st.floats(allow_nan=False, allow_infinity=True) | st.integers(-(2**60), 2**60)
arrays = st.sampled_from(["<f8", "<f4", "<i8", "bool"]).flatmap(
    lambda dtype: hnp.arrays(
        np.dtype(dtype),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        elements={"allow_nan": False} if "f" in dtype else None,
    )
)
plain = st.recursive(
    words | numbers | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def half(*, seed: int, scale: float = 1.0) -> dict:
    """Half of a seed."""
    return {"half": scale * seed / 2}


def look(*, seed: int, shown: str) -> dict:
    """A trial that has seen coins."""
    return {"data_cards": [{"name": "coins", "split": "train", "fingerprint": shown}]}


def test_trials_that_saw_other_data_under_one_name_are_not_averaged(tmp_path):
    store, seen = TrialStore(tmp_path), [Trial(look, {"seed": i, "shown": "aab"[i]}) for i in range(3)]
    for trial in seen:
        store.write(perform(trial))
    assert len(store.records([trial.key for trial in seen[:2]])) == 2
    with pytest.raises(DataError, match=f"coins, train.*{seen[2].key}.json.*Try: remove"):
        store.records([trial.key for trial in seen])


@pytest.mark.parametrize("name", ["folder", "model"])
def test_what_lies_in_a_folder_of_ones_own_belongs_to_the_trial(tmp_path, name):
    def key() -> str:
        return Trial(half, {"seed": 1, name: str(tmp_path)}).key

    empty = key()
    (tmp_path / "weights").write_bytes(b"one")
    first = key()
    (tmp_path / "weights").write_bytes(b"other")
    other = key()
    (tmp_path / "weights").write_bytes(b"one")
    (tmp_path / ".hidden").write_bytes(b"of the system")
    assert len({empty, first, other}) == 3
    assert key() == first
    (tmp_path / "weights").rename(tmp_path / "renamed")
    assert key() not in {empty, first, other}


def test_a_name_of_the_hub_is_a_word(tmp_path, monkeypatch):
    """Keys of published records stay: most models and data sets are no folders."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10").mkdir()
    settings = {"seed": 1, "model": "bert-base-uncased", "folder": "", "data": "cifar10"}
    assert contents(settings) == {}


def fail(*, seed: int) -> dict:
    raise ValueError(f"seed {seed} is bad")


def unstorable(*, seed: int) -> dict:
    return {"set": {seed}}


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(words, plain | arrays, max_size=4))
def test_values_and_arrays_come_back_as_they_were(tmp_path_factory, values):
    store = TrialStore(tmp_path_factory.mktemp("trials"))
    trial = Trial(half, {"seed": 3})
    store.write(Outcome(trial, values, 0.5))
    row = store.row(trial.key)
    assert set(row) == {"seed", "seconds"} | set(values)
    for name, value in values.items():
        if name in ("seed", "seconds"):
            continue
        if isinstance(value, np.ndarray):
            assert row[name].dtype == value.dtype
            np.testing.assert_array_equal(row[name], value)
        else:
            assert row[name] == value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_has_not_come_back(tmp_path, value):
    store, trial = TrialStore(tmp_path), Trial(half, {"seed": 3})
    store.write(Outcome(trial, {"found": value}, 0.5))
    np.testing.assert_equal(store.row(trial.key)["found"], value)


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_one_flipped_bit_makes_a_trial_undone(tmp_path, suffix):
    store, trial = TrialStore(tmp_path), Trial(half, {"seed": 3})
    store.write(Outcome(trial, {"map": np.arange(40.0), "half": 1.5}, 0.5))
    path = tmp_path / f"{trial.key}.{suffix}"
    content = path.read_bytes()
    for where in range(0, len(content), max(1, len(content) // 40)):
        path.write_bytes(content[:where] + bytes([content[where] ^ 1]) + content[where + 1 :])
        assert trial.key not in store
        with pytest.raises(DataError, match="is damaged"):
            store.row(trial.key)
    path.write_bytes(content)
    assert trial.key in store


def test_a_failure_is_noted_and_forgotten_when_the_trial_succeeds(tmp_path):
    store, trial = TrialStore(tmp_path), Trial(fail, {"seed": 3})
    store.write(perform(trial))
    records = store.records([trial.key])
    assert not records
    assert "ValueError: seed 3 is bad" in records.failures["seed 3"]
    store.write(Outcome(trial, {"half": 1.5}, 0.1))
    assert store.records([trial.key]).column("half") == [1.5]
    assert not list(tmp_path.glob("*.failed.json"))


def test_an_error_that_a_kill_left_beside_the_finished_trial_is_not_believed(tmp_path):
    store, trial = TrialStore(tmp_path), Trial(fail, {"seed": 3})
    store.write(perform(trial))
    (left,) = tmp_path.glob("*.failed.json")
    content = left.read_bytes()
    store.write(Outcome(trial, {"half": 1.5}, 0.1))
    left.write_bytes(content)
    records = store.records([trial.key])
    assert records.column("half") == [1.5]
    assert not records.failures


def test_what_cannot_be_stored_is_the_failure_of_its_trial(tmp_path):
    outcome = perform(Trial(unstorable, {"seed": 3}))
    assert "cannot save set" in outcome.error
    TrialStore(tmp_path).write(outcome)
    assert [path.name for path in tmp_path.iterdir()] == [f"{outcome.trial.key}.failed.json"]


def test_a_key_tells_functions_and_settings_apart_and_nothing_else():
    keys = {
        Trial(function, settings).key
        for function in (half, fail)
        for settings in ({"seed": 3}, {"seed": 4}, {"seed": "3"}, {"seed": 3, "scale": 1.0})
    }
    assert len(keys) == 8
    assert Trial(half, {"seed": 3, "scale": 2.0}).key == Trial(half, {"scale": 2.0, "seed": 3}).key


def test_a_function_with_other_statements_is_another_trial_one_with_other_words_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    keys = []
    for text in ("return {'n': 1}", '"""Words."""\n    # why\n    return {"n": 1}', "return {'n': 2}"):
        (tmp_path / "own_trial.py").write_text(f"def own():\n    {text}\n")
        sys.modules.pop("own_trial", None)
        importlib.invalidate_caches()
        linecache.clearcache()
        keys.append(Trial(importlib.import_module("own_trial").own, {}).key)
    sys.modules.pop("own_trial", None)
    assert keys[0] == keys[1] != keys[2]


def test_a_sweep_without_a_value_is_refused():
    with pytest.raises(InputError, match="no value for width"):
        sweep(half, {"width": (), "seed": (1,)})


@settings(deadline=None, max_examples=60)
@given(plain)
def test_plain_values_are_their_own_json_values(value):
    assert restored(to_plain(value, {}), {}) == value


@pytest.mark.parametrize(("hint", "value"), [(int, "1"), (tuple[int, str], [1]), (bool, 1), (str, 3)])
def test_values_of_another_kind_are_refused(hint, value):
    with pytest.raises((TypeError, ValueError)):
        from_plain(hint, value, {})


@revision(2)
def revised(*, seed: int, scale: float = 1.0) -> dict:
    """Half of a seed."""
    return {"half": scale * seed / 2}


def test_a_revision_is_another_trial_and_a_change_that_no_record_shows_is_not():
    first = Trial(half, {"seed": 3})

    @same_records(code_of(half))
    def other(*, seed: int) -> dict:
        return {"half": 0.5 * seed}

    assert code_of(revised) != code_of(half)
    assert code_of(other) == code_of(half)
    assert Trial(half, {"seed": 3}).key == first.key
    assert perform(Trial(revised, {"seed": 3})).values == {"half": 1.5}
    with pytest.raises(InputError, match="bad revision"):
        revision(1)
