"""What is saved comes back equal, whatever it holds; what is damaged is refused."""

import json
import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tangentkit.core.errors import DataError, InputError
from tangentkit.core.memory import Budget
from tangentkit.studies.records import (
    ARRAYS,
    NUMBERS,
    Record,
    load_record,
    save_record,
    to_plain,
)


@dataclass(frozen=True)
class Inner:
    tau: tuple[float, ...]
    word: str
    pair: tuple[int, str] = (1, "a")


@dataclass(frozen=True, eq=False)
class Outer(Record):
    inner: dict[str, Inner]
    images: np.ndarray
    maybe: float | None
    kind: Literal["a", "b"]
    flags: list[bool]


floats = st.floats(allow_nan=True, allow_infinity=True)
words = st.text(st.characters(codec="utf-8"), max_size=8)
inners = st.builds(Inner, st.lists(floats, max_size=3).map(tuple), words)
arrays = st.sampled_from(["<f8", "<f4", "<i8", "bool"]).flatmap(
    lambda dtype: hnp.arrays(
        np.dtype(dtype), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    )
)
outers = st.builds(
    Outer,
    st.dictionaries(words, inners, max_size=2),
    arrays,
    st.none() | floats,
    st.sampled_from(["a", "b"]),
    st.lists(st.booleans(), max_size=2),
)


@settings(deadline=None, max_examples=50)
@given(record=outers)
def test_records_round_trip(tmp_path_factory, record):
    folder = tmp_path_factory.mktemp("record")
    save_record(record, folder)
    loaded = load_record(Outer, folder)
    assert loaded == record
    assert hash(loaded) == hash(record)
    assert loaded.images.dtype == record.images.dtype
    np.testing.assert_array_equal(loaded.images, record.images)
    assert {name: inner.word for name, inner in loaded.inner.items()} == {
        name: inner.word for name, inner in record.inner.items()
    }


def example() -> Outer:
    return Outer({"a": Inner((0.5, math.nan), "w")}, np.arange(6.0).reshape(2, 3), None, "a", [True])


def test_equality_sees_every_part():
    base = example()
    assert base == example()
    assert base != replace(base, images=base.images + 1)
    assert base != replace(base, images=base.images.astype(np.float32))
    assert base != replace(base, maybe=0.0)
    assert base != replace(base, inner={"a": Inner((0.5, 0.0), "w")})
    assert base != 1


def test_numbers_are_strict_json(tmp_path):
    save_record(example(), tmp_path)
    assert "NaN" not in (tmp_path / NUMBERS).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [ARRAYS, NUMBERS]


@pytest.mark.parametrize("name", [ARRAYS, NUMBERS])
@pytest.mark.parametrize("damage", ["missing", "truncated", "other"])
def test_damage_is_refused(tmp_path, name, damage):
    save_record(example(), tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "truncated" else b'{"tau": 1}')
    with pytest.raises(DataError):
        load_record(Outer, tmp_path)


def test_pickled_objects_are_neither_written_nor_read(tmp_path):
    with pytest.raises(InputError, match="ndarray"):
        to_plain({"a": np.array([object()])}, {})
    with pytest.raises(InputError, match="set"):
        to_plain({"a": {1, 2}}, {})
    save_record(example(), tmp_path)
    np.savez(tmp_path / ARRAYS, images=np.array([object()], dtype=object))
    with pytest.raises(DataError):
        load_record(Outer, tmp_path)


def test_any_flip_in_the_arrays_is_refused_or_changes_nothing(tmp_path):
    save_record(example(), tmp_path)
    content, refused = (tmp_path / ARRAYS).read_bytes(), 0
    for where in range(len(content)):
        (tmp_path / ARRAYS).write_bytes(
            content[:where] + bytes([content[where] ^ 0xFF]) + content[where + 1 :]
        )
        try:
            assert load_record(Outer, tmp_path) == example()
        except DataError:
            refused += 1
    assert refused > len(content) / 2


@pytest.mark.parametrize(
    "numbers",
    ["[]", "7", "null", '{"inner": []}', "[" * 100_000, "1" * 5000, '"\\ud800"', "{"],
)
def test_numbers_of_another_kind_are_refused(tmp_path, numbers):
    save_record(example(), tmp_path)
    (tmp_path / NUMBERS).write_text(numbers)
    with pytest.raises(DataError):
        load_record(Outer, tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("inner", []), ("kind", "c"), ("maybe", 10**400), ("maybe", []), ("images", None), ("flags", 3)],
)
def test_a_field_of_another_kind_is_refused(tmp_path, field, value):
    save_record(example(), tmp_path)
    plain = json.loads((tmp_path / NUMBERS).read_text())
    (tmp_path / NUMBERS).write_text(json.dumps(plain | {field: value}))
    with pytest.raises(DataError, match="not those of a Outer"):
        load_record(Outer, tmp_path)


def test_halves_of_surrogate_pairs_come_back(tmp_path):
    record = replace(example(), inner={"\ud800": Inner((), "\udfff and α")})
    save_record(record, tmp_path)
    assert load_record(Outer, tmp_path) == record


def test_arrays_that_would_not_fit_are_refused_before_they_are_unzipped(tmp_path, monkeypatch):
    save_record(replace(example(), images=np.zeros(10**6)), tmp_path)
    assert (tmp_path / ARRAYS).stat().st_size < 20_000
    monkeypatch.setattr("tangentkit.studies.records.memory_budget", lambda: Budget(10**6))
    with pytest.raises(DataError, match=r"its arrays are beyond the memory budget.*got .*8\.0 MB"):
        load_record(Outer, tmp_path)
