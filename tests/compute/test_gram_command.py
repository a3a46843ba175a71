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
from tangentkit.compute.store.locks import Owner
from tangentkit.core.errors import InputError

WIDTH = ("--width", "8")
WORDS = ("gram", "--model", "mlp", *WIDTH, "--data", "digits", "--samples", "30", "--tile", "8")


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
def test_a_damaged_tile_is_reported_by_the_next_run_and_repaired_on_request(tangentkit, tmp_path, damage):
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


def test_a_dry_run_writes_nothing_and_prints_the_cost(tangentkit, tmp_path):
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
def test_every_kernel_of_the_command_is_that_of_the_library(tangentkit, tmp_path, words, make):
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


@pytest.mark.parametrize("kernel", ["conjugate", "embedding", "infinite", "nngp"])
def test_outputs_of_a_kernel_that_has_none_to_choose_are_refused(tangentkit, tmp_path, kernel):
    done = tangentkit(*WORDS, "--store", "k.zarr", "--kernel", kernel, "--outputs", "trace")
    assert done.code == 2
    assert "--outputs belongs to --kernel tangent or sketched" in done.err
    assert not (tmp_path / "k.zarr").exists()


@pytest.mark.parametrize("command", [("gram", "--store", "k.zarr"), ("audit",), ("explain", "--out", "why")])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "mlp", "--kernel", "conjugate", "--dim", "64"], "--dim belongs to --kernel sketched"),
        (["--model", "lenet", "--width", "64"], "--width belongs to --model mlp"),
    ],
)
def test_sizes_of_another_kernel_or_model_are_refused(tangentkit, tmp_path, command, words, said):
    done = tangentkit(*command, "--data", "digits", *words)
    assert done.code == 2
    assert said in done.err
    assert not list(tmp_path.iterdir())


def test_limit_is_another_word_for_samples(tangentkit):
    words = ["--limit" if word == "--samples" else word for word in WORDS]
    done = tangentkit(*words, "--store", "k.zarr", "--dry-run", "--json")
    assert done.code == 0
    assert json.loads(done.out)["shape"] == [30, 30]


OWN = """
import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 3))

def make():
    return Net()

ready = nn.Linear(64, 3)
number = 3

def word():
    return "a word"

def bare():
    return nn.Flatten()

def broken():
    return nn.Linear(64, missing)

def hungry(size):
    return nn.Linear(64, size)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Modules of a user in the working folder."""
    (tmp_path / "own_networks.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("import no_such_package")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("own_networks", "own_broken"):
        sys.modules.pop(name, None)


def with_model(name: str) -> list[str]:
    """The words without --width, which belongs to mlp."""
    return ["gram", "--model", name, *WORDS[WORDS.index("--data") :]]


@pytest.mark.parametrize("what", ["make", "Net"])
def test_a_model_of_the_users_own(tangentkit, own, tmp_path, what):
    words = with_model(f"own_networks:{what}")
    assert tangentkit(*words, "--store", "k.zarr", "--seed", "3").code == 0
    again = tangentkit(*words, "--store", "k.zarr", "--seed", "3")  # the same weights: it goes on
    assert again.code == 0, again.err
    torch.manual_seed(3)
    model = sys.modules["own_networks"].make().eval()
    x = tk.data.load("digits", "train", limit=30, seed=3).inputs
    torch.testing.assert_close(open_gram(tmp_path / "k.zarr").dense(), tk.TangentKernel(model)(x))


def test_a_model_of_the_users_own_takes_weights(tangentkit, own, tmp_path):
    layers = torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    model = torch.nn.Sequential(*layers)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    words = with_model("own_networks:make")
    assert tangentkit(*words, "--store", "k.zarr", "--weights", "w.pt").code == 0
    x = tk.data.load("digits", "train", limit=30).inputs
    torch.testing.assert_close(open_gram(tmp_path / "k.zarr").dense(), tk.TangentKernel(model)(x))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_networks:mak", "unknown function of own_networks 'mak'. Try: 'make'"),
        ("own_network:make", "there is no module own_network: expected MODULE:FUNCTION"),
        ("own_networks.inner:make", "there is no module own_networks.inner"),
        (
            "own_broken:make",
            "importing own_broken failed: got ModuleNotFoundError: No module named 'no_such_package'",
        ),
        ("own_networks:number", "got a int"),
        ("own_networks:ready", "got a Linear"),
        ("own_networks:word", "got one that returns a str"),
        ("own_networks:bare", "expected a module with parameters"),
        ("own_networks:broken", "own_networks:broken() failed: got NameError: name 'missing' is not defined"),
        ("own_networks:hungry", "got one that needs size"),
        ("own_networks:", "expected MODULE:FUNCTION"),
        ("./own_networks.py:make", "expected MODULE:FUNCTION"),
        ("a:b:c", "expected MODULE:FUNCTION"),
    ],
)
def test_what_gives_no_model_is_an_error_of_one_line(tangentkit, own, tmp_path, name, said):
    done = tangentkit(*with_model(name), "--store", "k.zarr")
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert not (tmp_path / "k.zarr").exists()


def test_a_stale_lock_is_broken_on_request(tangentkit, tmp_path):
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


def test_lines_of_progress_show_rate_and_remaining_time(monkeypatch, capsys):
    clock = iter([0.0, 0.0, 5.0, 20.0, 40.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    hear = ProgressLines()
    for done in (0, 10, 40, 80):
        hear("gram", done, 80)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["gram: 40/80 tiles, 2 tiles/s, 20 s left", "gram: 80/80 tiles, 2 tiles/s, 0 s left"]


def test_one_tile_is_one_tile(capsys):
    ProgressLines()("gram", 1, 1)
    assert capsys.readouterr().err == "gram: 1/1 tile\n"


def test_help_imports_nothing_heavy():
    after = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    call = "from tangentkit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", after + call, "gram", "--help"], capture_output=True, text=True, check=True
    )
    assert "--store" in done.stdout
    assert not {"torch", "zarr", "numpy", "dask", "distributed", "psutil"} & set(done.stderr.split())
