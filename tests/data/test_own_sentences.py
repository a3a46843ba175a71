"""Sentences of one's own: every row is read as it is written, or named."""

import json
from pathlib import Path

import pytest

from tangentkit.core import DataError, InputError
from tangentkit.data import read_files


@pytest.fixture
def written(tmp_path):
    """Writes a file and gives its path."""

    def write(name: str, content: str, encoding: str = "utf-8") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode(encoding))
        return path

    return write


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_marks_within_a_sentence_end_no_line_of_json(written, mark, end):
    lines = [json.dumps({"text": f"one{mark}two", "label": i}, ensure_ascii=False) for i in range(2)]
    read = read_files(written("data.jsonl", end.join(lines) + end))
    assert read.data.inputs == [f"one{mark}two"] * 2
    assert read.names == ("row 1", "row 2")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a, b,1", 'row 3 of .* too many fields: expected 3, as .* got 4.*quotes: "well, yes"'),
        ("a,0", "row 3 of .* too few fields: expected 3, as .* got 2"),
    ],
)
def test_rows_of_csv_with_other_fields_than_the_first_are_refused(written, row, said):
    with pytest.raises(InputError, match=said):
        read_files(written("data.csv", f"text,label,id\nyes,1,7\n{row}{',8' * ('b' in row)}\n"))


def test_a_comma_in_quotes_is_of_the_sentence(written):
    assert read_files(written("data.csv", 'text,label\n"a, b",1\n')).data.inputs == ["a, b"]


def rows_of_json(*rows: tuple) -> str:
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)


@pytest.mark.parametrize("strange", [["a", "b"], 3, True, {"a": 1}])
def test_a_value_that_is_no_text_is_refused_as_a_sentence(written, strange):
    with pytest.raises(InputError, match=r"row 2 of .* holds no text: expected a string, got"):
        read_files(written("data.jsonl", rows_of_json(("a", 1), (strange, 0))))


@pytest.mark.parametrize("strange", [True, False, float("nan"), float("inf"), 0.5, ["a"], {"a": 1}])
def test_a_value_that_is_no_class_is_refused_as_a_label(written, strange):
    with pytest.raises(InputError, match=r"row 2 of .* holds no label: expected a string or a whole number"):
        read_files(written("data.jsonl", rows_of_json(("a", 1), ("b", strange))))


def test_one_whole_number_is_one_label_however_it_is_written(written):
    read = read_files(written("data.jsonl", rows_of_json(("a", 1), ("b", 1.0), ("c", "1"), ("d", 0))))
    assert read.data.classes == ("0", "1")
    assert read.data.targets.tolist() == [1, 1, 1, 0]
    huge = 10**400
    assert read_files(written("huge.jsonl", rows_of_json(("a", huge)))).data.classes == (str(huge),)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("name", ["data.csv", "data.jsonl"])
def test_utf_16_is_called_so(written, name, encoding):
    mark = "\ufeff" if encoding == "utf-16-be" else ""  # Python writes it for "utf-16" alone
    with pytest.raises(DataError, match=r"is not UTF-8: got UTF-16\. Try: iconv -f utf-16 -t utf-8"):
        read_files(written(name, mark + "text,label\nyes,1\n", encoding))
