import re
import subprocess
import sys
from math import prod
from urllib.parse import urlsplit

import pytest

from tangentkit.data import SETS, available, load
from tangentkit.data.loading import COMPUTED, READERS
from tangentkit.data.registry import EMBEDDED

NAMES = {"fashion-mini", "digits", "mnist", "fashion-mnist", "cifar10", "cifar2", "cola", "sentiment140"}


def test_the_sets_of_the_studies_are_in_the_table():
    assert set(SETS) >= NAMES


@pytest.mark.parametrize("entry", SETS.values(), ids=lambda entry: entry.name)
def test_every_entry_is_complete(entry):
    assert entry.title
    assert entry.source
    assert entry.licence
    assert entry.splits
    # A set has files, or an origin, and a reader for what it has.
    assert bool(entry.editions) != bool(entry.origin)
    assert entry.name in READERS if entry.editions else entry.name.split("-")[0] in COMPUTED
    for edition in entry.editions:
        assert set(edition.files) == set(entry.splits)
        assert len({file.name for file in edition.all_files}) == len(edition.all_files)
        for file in edition.all_files:
            assert re.fullmatch("[0-9a-f]{32}", file.md5)
            assert all(urlsplit(url).scheme in {"http", "https"} for url in file.urls)
    if entry.editions and not entry.standing:
        assert any(edition.is_public for edition in entry.editions)


@pytest.mark.parametrize(
    "entry", [entry for entry in SETS.values() if entry.shape], ids=lambda entry: entry.name
)
def test_the_number_of_images_is_that_of_their_files(entry):
    assert set(entry.counts) == set(entry.splits)
    for edition in entry.editions:
        for split, files in edition.files.items():
            # A byte for each pixel and one for the label; the heads of the files are shorter than an image.
            assert sum(file.nbytes for file in files) // (prod(entry.shape) + 1) == entry.counts[split]
    if entry.standing == (EMBEDDED,) or entry.origin:
        for split, count in entry.counts.items():
            assert load(entry.name, split).inputs.shape == (count, *entry.shape)


def test_the_table_is_listed_without_torch():
    code = (
        "import sys; from tangentkit.data import available; rows = available(); "
        "assert 'torch' not in sys.modules and 'sklearn' not in sys.modules; print(len(rows))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) == len(SETS)


def test_rows_say_where_a_set_is_or_how_to_get_it(bare, toy, write_toy):
    def row(name):
        return next(row for row in available() if row.name == name)

    assert (row("mnist").here, row("mnist").where) == (False, "tangentkit data get mnist")
    assert (row("digits").here, row("digits").where) == (True, "inside scikit-learn")
    assert not row("toy").here
    write_toy(bare / "toy")
    assert (row("toy").here, row("toy").where) == (True, str(bare / "toy"))


def test_the_embedded_set_is_small_and_has_its_notice():
    assert sum(path.stat().st_size for path in EMBEDDED.iterdir()) < 2_000_000
    notice = (EMBEDDED / "LICENSE-fashion-mnist").read_text()
    assert "MIT License" in notice
    assert "2017 Zalando SE" in notice


def test_the_package_lists_its_lazy_names():
    import tangentkit.data

    assert {"load", "fetch", "Data", "available"} <= set(dir(tangentkit.data))
    with pytest.raises(AttributeError, match="no attribute 'loud'"):
        _ = tangentkit.data.loud  # pyright: ignore[reportAttributeAccessIssue]
