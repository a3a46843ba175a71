"""The command as a process: what it imports before it answers, and what Ctrl-C leaves."""

import json
import signal
import subprocess
import sys
import time

import pytest

HEAVY = {"torch", "scipy", "sklearn", "matplotlib", "zarr", "pandas", "numpy", "jinja2"}

AFTER = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
CALL = "from tangentkit.cli import main; main()"


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["run", "--help"], ["--version"], ["list"], ["list", "--json"], ["data", "list"]],
)
def test_quick_answers_import_nothing_heavy(arguments):
    done = subprocess.run(
        [sys.executable, "-c", AFTER + CALL, *arguments], capture_output=True, text=True, check=True
    )
    modules = set(done.stderr.split())
    assert "tangentkit.cli" in modules
    assert not HEAVY & modules
    assert done.stdout


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "tangentkit", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("tangentkit ")


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended")])
def test_ctrl_c_and_sigterm_leave_a_folder_that_says_it_was_interrupted(tmp_path, number, word):
    folder = tmp_path / "run"
    # A shell may have told its background jobs to ignore the signal, which children inherit.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    fields = {"cases": "lenet", "train": "20", "test": "20", "passes": "100000", "engine": "processes://1"}
    words = [word for name, value in fields.items() for word in (f"--{name}", value)]
    process = subprocess.Popen(
        [sys.executable, "-c", heed + CALL, "run", "surrogate", "--out", str(folder), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not (folder / "environment.json").is_file():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert json.loads((folder / "status.json").read_text())["state"] == "running"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert out == ""
    assert err.splitlines()[-1] == f"{word}: go on with: tangentkit run --resume {folder}"
    assert json.loads((folder / "status.json").read_text())["state"] == "interrupted"
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "environment.json",
        "status.json",
    ]
