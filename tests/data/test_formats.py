import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from data.toy_set import idx, zipped
from tangentkit.core import DataError
from tangentkit.data.formats import parse_cifar, parse_cola, parse_idx, parse_sentiment140, zip_member

SENTENCES = st.text(st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), min_size=1)


@given(array=hnp.arrays(np.uint8, hnp.array_shapes(max_dims=4)))
def test_idx_round_trip(array):
    parsed = parse_idx(idx(array), name="array")
    assert parsed.dtype == np.uint8
    np.testing.assert_array_equal(parsed, array)


@given(array=hnp.arrays(np.uint8, hnp.array_shapes(max_dims=3)), data=st.data())
def test_idx_of_another_length_is_refused(array, data):
    content = idx(array)
    cut = data.draw(st.integers(0, len(content) - 1))
    for broken in (content[:cut], content + b"\0"):
        with pytest.raises(DataError, match="array"):
            parse_idx(broken, name="array")


@pytest.mark.parametrize("magic", [b"\0\1\x08\1", b"\0\0\x0d\1", b"\x1f\x8b\x08\0", b""])
def test_idx_with_bad_magic_is_refused(magic):
    with pytest.raises(DataError, match="not an idx file"):
        parse_idx(magic + bytes(8), name="file")


def test_cifar_records_are_a_label_and_three_planes():
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (5, 3, 32, 32), np.uint8), np.array([3, 9, 0, 1, 3], np.uint8)
    content = b"".join(bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True))
    parsed_images, parsed_labels = parse_cifar(content, name="batch")
    np.testing.assert_array_equal(parsed_images, images)
    np.testing.assert_array_equal(parsed_labels, labels)
    for broken in (content[:-1], b"", b"\x0a" + content[1:]):
        with pytest.raises(DataError, match="no CIFAR-10 batch"):
            parse_cifar(broken, name="batch")


@given(rows=st.lists(st.tuples(st.integers(0, 1), SENTENCES), min_size=1))
def test_cola_round_trip_whatever_the_sentence(rows):
    content = "\n".join(f"src\t{label}\t\t{sentence}" for label, sentence in rows).encode()
    sentences, labels = parse_cola(content, name="file")
    assert list(zip(labels, sentences, strict=True)) == rows


@pytest.mark.parametrize("line", ["src\t2\t\tx", "src\t1\tx", "src\t1\t\tx\ty"])
def test_a_bad_line_of_cola_is_named(line):
    with pytest.raises(DataError, match="line 2 of file"):
        parse_cola(f"src\t1\t\tfine\n{line}".encode(), name="file")


def tweets(*rows: tuple[str, str]) -> str:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
    writer.writerows([polarity, "1", "Mon", "q", "someone", text] for polarity, text in rows)
    return stream.getvalue()


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_tweets_lose_neutral_rows_and_handles(encoding):
    content = tweets(("0", 'é "x", y'), ("2", "meh"), ("4", "@anne_1 hi, see you @ noon")).encode(encoding)
    texts, labels = parse_sentiment140(content, name="file", encoding=encoding)
    assert texts == ['é "x", y', "USERNAME hi, see you @ noon"]
    assert labels == [0, 1]


@pytest.mark.parametrize("content", [tweets(("4", "a"), ("3", "b")), '"4","1"'])
def test_a_bad_row_of_tweets_is_named(content):
    with pytest.raises(DataError, match=r"row . of file"):
        parse_sentiment140(content.encode(), name="file", encoding="utf-8")


def test_a_member_of_an_archive_is_read_and_a_missing_one_is_named():
    assert zip_member(zipped({"a": b"1", "b": b"2"}), "b", name="pack") == b"2"
    for content, member in ((zipped({"a": b"1"}), "b"), (b"PK, but not really", "a")):
        with pytest.raises(DataError, match=f"{member} in pack"):
            zip_member(content, member, name="pack")
