"""Two network namespaces stand for two machines: scheduler and a worker in one, a worker in the other, which dies."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from compute.toy_kernels import Gaussian
from tangentkit.compute import gram

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tangentkit[cluster]'")

HERE, THERE = "10.213.77.1", "10.213.77.2"
KERNEL = Gaussian(delay=0.05)

DRIVER = """
import json, os, signal, sys
import distributed, torch
from compute.store.test_two_machines import KERNEL, samples
from tangentkit.compute import gram
from tangentkit.compute.engines import Dask

if __name__ == "__main__":
    with distributed.Client(sys.argv[2]) as client:
        client.wait_for_workers(2, timeout=120)
        workers = client.scheduler_info()["workers"]
        remote = next(address for address in workers if sys.argv[3] in address)
        hosts = sorted(address.split("://")[1].split(":")[0] for address in workers)
        pid = client.run(os.getpid, workers=[remote])[remote]
        killed = []

        def kill(stage, done, total):
            if done == total // 3 and not killed:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

        gram(KERNEL, samples(), store=sys.argv[1], tile=4, engine=Dask(client), progress=kill)
        print(json.dumps({"killed": killed, "hosts": hosts}))
"""


def samples():
    return torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def machines():
    """The names of two namespaces joined by a cable."""
    a, b = (f"tangentkit-{os.getpid()}-{side}" for side in "ab")
    cable = f"tk{os.getpid() % 100000}"
    steps = [
        f"netns add {a}",
        f"netns add {b}",
        f"-n {a} link add {cable} type veth peer name {cable} netns {b}",
        *(
            f"-n {name} {step}"
            for name, address in ((a, HERE), (b, THERE))
            for step in (f"addr add {address}/24 dev {cable}", f"link set {cable} up", "link set lo up")
        ),
    ]
    try:
        for step in steps:
            try:
                subprocess.run(["ip", *step.split()], check=True, capture_output=True, text=True)
            except FileNotFoundError:
                pytest.skip("network namespaces cannot be made here: there is no command ip")
            except subprocess.CalledProcessError as error:
                pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
        yield a, b
    finally:
        for name in (a, b):
            with contextlib.suppress(FileNotFoundError):
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.slow
def test_a_worker_on_another_machine_dies_and_nothing_is_lost(tmp_path, machines):
    gram(KERNEL, samples(), store=tmp_path / "whole", tile=4)
    a, b = machines
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    address = f"tcp://{HERE}:8786"
    log = (tmp_path / "log").open("w")

    def run(machine: str, *words: str, **options) -> subprocess.Popen:
        return subprocess.Popen(
            ["ip", "netns", "exec", machine, sys.executable, *words],
            env=environment,
            cwd=tmp_path,
            stderr=log,
            text=True,
            start_new_session=True,
            **options,
        )

    worker = ["-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard", "--host"]
    (tmp_path / "driver.py").write_text(DRIVER)
    with contextlib.ExitStack() as stack:
        stack.callback(log.close)

        def until_the_end(process: subprocess.Popen) -> subprocess.Popen:
            stack.callback(_end, process)
            return process

        until_the_end(
            run(a, "-m", "distributed.cli.dask_scheduler", "--host", HERE, "--port", "8786", "--no-dashboard")
        )
        until_the_end(run(a, *worker, HERE))
        until_the_end(run(b, *worker, THERE))
        driver = until_the_end(
            run(a, "driver.py", str(tmp_path / "k"), address, THERE, stdout=subprocess.PIPE)
        )
        out, _ = driver.communicate(timeout=180)
    assert driver.returncode == 0, (tmp_path / "log").read_text()[-2000:]
    found = json.loads(out)
    assert found["hosts"] == [HERE, THERE]
    assert len(found["killed"]) == 1
    files = [
        {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        for folder in (tmp_path / "k", tmp_path / "whole")
    ]
    assert files[0] == files[1]


def _end(process: subprocess.Popen) -> None:
    """Ends a process that we started, and its children."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
