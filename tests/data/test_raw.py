import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.toy_set import md5
from tangentkit.core import DataError
from tangentkit.data.raw import raw_content, read_raw
from tangentkit.data.registry import File

CONTENT = bytes(range(256)) * 4
FILE = File("numbers", md5(CONTENT))


def test_plain_and_gzipped_content_is_the_same(tmp_path):
    (tmp_path / "numbers").write_bytes(CONTENT)
    (tmp_path / "numbers.gz").write_bytes(gzip.compress(CONTENT, 1))
    assert read_raw(tmp_path / "numbers", FILE) == CONTENT
    assert read_raw(tmp_path / "numbers.gz", FILE) == CONTENT


def test_content_that_a_server_unzipped_keeps_its_name(tmp_path):
    (tmp_path / "numbers.gz").write_bytes(CONTENT)
    assert read_raw(tmp_path / "numbers.gz", FILE) == CONTENT


@given(position=st.integers(0, len(CONTENT) - 1), flip=st.integers(1, 255))
def test_any_flipped_byte_is_an_error_with_both_sums(position, flip):
    broken = CONTENT[:position] + bytes([CONTENT[position] ^ flip]) + CONTENT[position + 1 :]
    with pytest.raises(DataError) as caught:
        raw_content(broken, FILE, place="here/numbers")
    assert all(word in str(caught.value) for word in ("here/numbers", FILE.md5, md5(broken)))


@given(length=st.integers(0, len(CONTENT) - 1))
def test_truncated_content_is_an_error(length):
    with pytest.raises(DataError, match="truncated"):
        raw_content(CONTENT[:length], FILE, place="numbers")


@given(data=st.data())
def test_no_damaged_gzip_stream_passes(data):
    zipped = gzip.compress(CONTENT, mtime=0)
    if data.draw(st.booleans(), label="truncate"):
        broken = zipped[: data.draw(st.integers(0, len(zipped) - 1))]
    else:
        # The header's time, flags and system bytes carry no content: a flip there is harmless.
        position = data.draw(st.integers(10, len(zipped) - 1))
        broken = zipped[:position] + bytes([zipped[position] ^ data.draw(st.integers(1, 255))])
        broken += zipped[position + 1 :]
    with pytest.raises(DataError, match=FILE.md5):
        raw_content(broken, FILE, place="numbers.gz")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match="gone"):
        read_raw(tmp_path / "gone", FILE)
