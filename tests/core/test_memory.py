import pytest

from tangentkit.core import InputError, memory_budget
from tangentkit.core.memory import NO_LIMIT, _free_in_cgroup, format_bytes, free_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * 10**9),
        ("2 gib", 2**31),
        ("1.5kB", 1500),
        ("7", 7),
        (10, 10),
        (2.5e3, 2500),
        ("3M", 3 * 10**6),
    ],
)
def test_sizes_are_parsed_to_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "many", "-1GB", 0, -5, "1.2.3GB", "5 PB", float("nan"), float("inf"), True]
)
def test_bad_sizes_are_refused(text):
    with pytest.raises(InputError, match="expected bytes such as"):
        parse_bytes(text)


def test_the_default_budget_is_a_share_of_what_is_free():
    assert 0 < memory_budget() < free_bytes()
    assert memory_budget("1MB") == 10**6


def test_a_control_group_limits_what_is_free(tmp_path):
    assert _free_in_cgroup(tmp_path) == NO_LIMIT
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("300\n")
    assert _free_in_cgroup(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert _free_in_cgroup(tmp_path) == NO_LIMIT


@pytest.mark.parametrize(("size", "text"), [(3, "3 B"), (2500, "2.5 kB"), (3e9, "3.0 GB"), (4e13, "40.0 TB")])
def test_sizes_are_printed_with_a_unit(size, text):
    assert format_bytes(size) == text
