import gzip
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.toy_set import md5
from tangentkit.core import DataError
from tangentkit.data.raw import raw_content, read_raw
from tangentkit.data.registry import EMBEDDED, SETS, File

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


def test_a_gzip_bomb_is_unzipped_no_further_than_the_file_may_be_long(tmp_path):
    bomb = gzip.compress(b"\0" * 2**28, 1)
    for file in (replace(FILE, nbytes=len(CONTENT)), FILE):
        (tmp_path / "numbers.gz").write_bytes(bomb)
        tracemalloc.start()
        with pytest.raises(DataError, match=f"got more than its {file.nbytes:,} bytes"):
            raw_content(bomb, file, place="numbers.gz")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * file.nbytes + 2**20
    with pytest.raises(DataError, match="too large"):
        read_raw(tmp_path / "numbers.gz", replace(FILE, nbytes=len(CONTENT)))


def test_the_table_knows_the_length_of_every_file_but_one():
    unknown = {
        file.name
        for entry in SETS.values()
        for edition in entry.editions
        for file in edition.all_files
        if file.nbytes == FILE.nbytes
    }
    assert unknown == {"trainingandtestdata.zip"}
    for split, samples in (("train", 2000), ("test", 1000)):
        (edition,) = SETS["fashion-mini"].editions
        assert (
            [len(read_raw(EMBEDDED / f"{file.name}.gz", file)) for file in edition.files[split]]
            == [file.nbytes for file in edition.files[split]]
            == [16 + samples * 784, 8 + samples]
        )
