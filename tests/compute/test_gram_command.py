"""`tangentkit gram` from the shell."""

import json
import subprocess
import sys
from dataclasses import asdict
from typing import NamedTuple

import pytest
import torch

import tangentkit as tk
from tangentkit.cli import main
from tangentkit.cli.gram import ProgressLines, parse_engine
from tangentkit.compute import open_gram
from tangentkit.compute.engines import Dask, Serial, Threads
from tangentkit.compute.locks import Owner
from tangentkit.core.errors import InputError

WORDS = ("gram", "--model", "mlp", "--width", "8", "--data", "digits", "--samples", "30", "--tile", "8")


class Finished(NamedTuple):
    code: object
    out: str
    err: str


@pytest.fixture
def tangentkit(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Finished:
        with pytest.raises(SystemExit) as end:
            main(words)
        said = capsys.readouterr()
        return Finished(end.value.code, said.out, said.err)

    return run


def expected(outputs="trace", **options) -> torch.Tensor:
    data = tk.data.load("digits", "train", limit=30)
    model = tk.models.mlp((64, 8, 8, 10), seed=0).eval()
    return tk.TangentKernel(model, outputs, **options)(data.inputs)


def test_it_writes_the_kernel_and_goes_on_where_it_stopped(tangentkit, tmp_path):
    first = tangentkit(*WORDS, "--store", "k.zarr", "--json")
    assert first.code == 0, first.err
    record = json.loads(first.out)
    assert record["shape"] == [30, 30]
    assert record["tiles"] == 10
    assert "about" in first.err
    assert "gram: 10/10 tiles" in first.err
    torch.testing.assert_close(open_gram(tmp_path / "k.zarr").dense(), expected(), rtol=1e-4, atol=1e-4)
    (tmp_path / "k.zarr" / "gram" / "c" / "1" / "2").unlink()
    again = tangentkit(*WORDS, "--store", "k.zarr", "--engine", "threads://2")
    assert again.code == 0
    torch.testing.assert_close(open_gram(tmp_path / "k.zarr").dense(), expected(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_a_damaged_tile_is_told_by_the_next_run_and_mended_when_asked(tangentkit, tmp_path, damage):
    assert tangentkit(*WORDS, "--store", "k.zarr").code == 0
    path = tmp_path / "k.zarr" / "gram" / "c" / "1" / "3"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] if damage == "truncate" else whole[:50] + b"?" + whole[51:])
    done = tangentkit(*WORDS, "--store", "k.zarr")
    assert done.code == 1
    assert str(path) in done.err
    assert "--repair" in done.err
    assert tangentkit(*WORDS, "--store", "k.zarr", "--repair").code == 0
    assert path.read_bytes() == whole


def test_what_is_there_is_not_counted_again(tangentkit, tmp_path):
    assert tangentkit(*WORDS, "--store", "k.zarr").code == 0
    for name in ("0/1", "2/3", "3/3"):
        (tmp_path / "k.zarr" / "gram" / "c" / name).unlink()
    # Without --tile the store's own counts, as in the run that would follow.
    done = tangentkit(*WORDS[:-2], "--store", "k.zarr", "--dry-run", "--json")
    assert done.code == 0
    record = json.loads(done.out)
    assert (record["tiles"], record["tiles_there"]) == (10, 7)
    assert "10 tiles of 8 samples a side, 7 of them there," in done.err


def test_a_dry_run_writes_nothing_and_tells_the_cost(tangentkit, tmp_path):
    done = tangentkit(*WORDS, "--store", "k.zarr", "--dry-run", "--json")
    assert done.code == 0
    record = json.loads(done.out)
    assert record["bytes"] == 10 * (8 * 8 * 4 + 4 + 52)  # numbers, checksum, seal and index
    assert record["estimated_seconds"] > 0
    assert list(tmp_path.iterdir()) == []


def test_options_make_another_matrix(tangentkit):
    assert tangentkit(*WORDS, "--store", "k.zarr").code == 0
    for option in (["--seed", "1"], ["--outputs", "pseudo"], ["--dtype", "float64"], ["--normalized"]):
        done = tangentkit(*WORDS, "--store", "k.zarr", *option)
        assert done.code == 1
        assert "holds another Gram matrix" in done.err


@pytest.mark.parametrize(
    ("words", "make"),
    [
        (["conjugate"], tk.ConjugateKernel),
        (["embedding"], tk.EmbeddingKernel),
        (["sketched", "--dim", "64"], lambda model: tk.SketchedTangentKernel(model, 64)),
        (["infinite"], tk.InfiniteKernel),
        (["nngp"], lambda model: tk.InfiniteKernel(model, "nngp")),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_other_kernels(tangentkit, tmp_path, words, make):
    done = tangentkit(*WORDS, "--store", "k.zarr", "--kernel", *words)
    assert done.code == 0, done.err
    data = tk.data.load("digits", "train", limit=30)
    k = make(tk.models.mlp((64, 8, 8, 10), seed=0).eval())(data.inputs)
    torch.testing.assert_close(open_gram(tmp_path / "k.zarr").dense(), k, rtol=1e-4, atol=1e-4)


def test_weights_come_from_a_file_of_tensors_and_nothing_else(tangentkit, tmp_path):
    model = tk.models.mlp((64, 8, 8, 10), seed=5).eval()
    torch.save(model.state_dict(), tmp_path / "good.pt")
    torch.save(tk.models.mlp((64, 4, 4, 10)).state_dict(), tmp_path / "other.pt")
    torch.save(model, tmp_path / "code.pt")
    (tmp_path / "noise.pt").write_bytes(b"nothing of the kind")
    assert tangentkit(*WORDS, "--store", "k.zarr", "--weights", "good.pt").code == 0
    data = tk.data.load("digits", "train", limit=30)
    k = tk.TangentKernel(model)(data.inputs)
    torch.testing.assert_close(open_gram(tmp_path / "k.zarr").dense(), k, rtol=1e-4, atol=1e-4)
    for name, code in (("other.pt", 2), ("code.pt", 1), ("noise.pt", 1), ("missing.pt", 1)):
        done = tangentkit(*WORDS, "--store", "l.zarr", "--weights", name)
        assert (done.code, name in done.err) == (code, True)
        assert "weights_only" not in done.err
    assert not (tmp_path / "l.zarr").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "mpl"],
        ["--data", "digit"],
        ["--engine", "spark://"],
        ["--tile", "0"],
        ["--outputs", "traces"],
    ],
)
def test_bad_words_are_refused_before_any_work(tangentkit, tmp_path, words):
    line = list(WORDS)
    if words[0] in line:
        line[line.index(words[0]) + 1] = words[1]
    else:
        line += words
    assert tangentkit(*line, "--store", "k.zarr").code == 2
    assert not (tmp_path / "k.zarr").exists()


def test_a_stale_lock_is_broken_when_told(tangentkit, tmp_path):
    assert tangentkit(*WORDS, "--store", "k.zarr").code == 0
    (tmp_path / "k.zarr" / "gram" / "c" / "0" / "0").unlink()
    lock = tmp_path / "k.zarr" / "lock.json"
    owner = Owner("elsewhere", machine="", boot="", namespace="", pid=1, started=0.0, since="yesterday")
    lock.write_text(json.dumps(asdict(owner), indent=1))
    refused = tangentkit(*WORDS, "--store", "k.zarr")
    assert refused.code == 1
    assert "elsewhere" in refused.err
    assert "--break-lock" in refused.err
    assert tangentkit(*WORDS, "--store", "k.zarr", "--break-lock").code == 0
    assert not lock.exists()


def test_engines_by_name():
    assert parse_engine("serial") == Serial()
    assert parse_engine("threads://4") == Threads(4)
    places = {
        "dask://": None,
        "dask://host:8786": "tcp://host:8786",
        "dask://tls://host:8786": "tls://host:8786",
        "dask:///shared/scheduler.json": "/shared/scheduler.json",
    }
    for text, place in places.items():
        engine = parse_engine(text)
        assert isinstance(engine, Dask)
        assert engine.cluster == place
    for bad in ("", "threads://many", "serial://2", "spark://host"):
        with pytest.raises(InputError, match="engine"):
            parse_engine(bad)


def test_lines_of_progress_tell_rate_and_remaining_time(monkeypatch, capsys):
    clock = iter([0.0, 0.0, 5.0, 20.0, 40.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    hear = ProgressLines()
    for done in (0, 10, 40, 80):
        hear("gram", done, 80)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["gram: 40/80 tiles, 2 tiles/s, 20 s left", "gram: 80/80 tiles, 2 tiles/s, 0 s left"]


def test_help_imports_nothing_heavy():
    after = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    call = "from tangentkit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", after + call, "gram", "--help"], capture_output=True, text=True, check=True
    )
    assert "--store" in done.stdout
    assert not {"torch", "zarr", "numpy", "dask", "distributed", "psutil"} & set(done.stderr.split())
