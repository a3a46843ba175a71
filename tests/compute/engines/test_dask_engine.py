"""Work by a Dask cluster survives the death of workers, and its store the death of the scheduler."""

import json
import os
import platform
import re
import resource
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

import tangentkit as tk
from compute.engines.dask_commands import run_command
from compute.toy_kernels import Gaussian, Linear, RowWitness, Witness
from tangentkit.compute import gram, open_gram
from tangentkit.compute.engines import Dask, EngineError
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.files.safe import is_partial

dask = pytest.importorskip("dask")
distributed = pytest.importorskip(
    "distributed", reason="Dask is not installed: pip install 'tangentkit[cluster]'"
)

LIMIT = 4 * 2**30
"""Of a worker's memory, in bytes."""


def samples(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def forked(warm):
    """Workers begin warm: imports take longer than what they do."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.fixture(scope="module")
def client(forked):
    """Two processes of this machine."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=LIMIT, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


SLOW, SAME = (Linear().normalized() + Gaussian(delay=delay) for delay in (0.02, 0.0))
"""A kernel with the time to be killed at, and the one that gives the same numbers at once."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """What it stores of 40 samples when nobody is killed."""
    store = tmp_path_factory.mktemp("stores") / "whole"
    gram(SAME, samples(40), store=store, tile=4)
    return store


def equal_files(a: Path, b: Path) -> bool:
    """Whether two stores hold the same, but for half a file of a killed worker: the next writer removes it."""

    def content(folder: Path) -> dict[str, bytes]:
        files = (p for p in folder.rglob("*") if p.is_file() and not is_partial(p))
        return {str(p.relative_to(folder)): p.read_bytes() for p in files}

    return content(a) == content(b)


def test_a_cluster_computes_the_same(client, tmp_path):
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    # A function of this test goes along, by value.
    kernel = tk.TangentKernel(model, memory="200MB", forward=lambda m, x: 2 * m(x)) + Linear().normalized()
    x, engine = samples(9), Dask(client)
    expected = kernel(x)
    stored = gram(kernel, x, store=tmp_path / "k", tile=4, engine=engine)
    torch.testing.assert_close(stored.dense(), expected, rtol=1e-11, atol=1e-12)
    held = gram(kernel, x, tile=4, engine=engine)
    torch.testing.assert_close(held.dense(), expected, rtol=1e-11, atol=1e-12)
    assert client.run(lambda dask_worker: [n for n in dask_worker.plugins if n.startswith("tangentkit")]) == {
        address: [] for address in client.scheduler_info()["workers"]
    }


def small_network():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


@pytest.mark.parametrize("name", ["full", "sketched", "infinite", "monte carlo"])
def test_every_kind_of_kernel_goes_to_a_cluster(client, tmp_path, name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = small_network()
    kernel = {
        "full": tk.TangentKernel(model, "full"),
        "sketched": 2.0 * tk.SketchedTangentKernel(model, 32).normalized(),
        "infinite": tk.InfiniteKernel(model) + tk.ConjugateKernel(model),
        "monte carlo": tk.MonteCarloKernel(small_network, 2),
    }[name]
    x, y = samples(7), samples(3, 1)
    gram(kernel, x, store=tmp_path / "here", tile=4)
    gram(kernel, x, store=tmp_path / "there", tile=4, engine=Dask(client))
    one, other = (open_gram(tmp_path / place).dense() for place in ("here", "there"))
    torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-13)
    k = kernel(x, y)
    held = gram(kernel, x, y, tile=4, engine=Dask(client)).dense()
    torch.testing.assert_close(held, k.flatten(2).flatten(0, 1) if k.ndim == 4 else k)


class Broken(Gaussian):
    """Not finite in tiles of two samples; probes are larger."""

    def __call__(self, x, y=None):
        return super().__call__(x, y) / (0.0 if len(x) == 2 else 1.0)


def test_an_error_on_a_worker_arrives_as_it_is(client, tmp_path):
    with pytest.raises(NumericalError, match=r"samples \[(0, 1|2, 3|4, 5|6, 7)\] of x"):
        gram(Broken(), samples(8), store=tmp_path / "k", tile=2, engine=Dask(client))
    assert not (tmp_path / "k" / "lock.json").exists()


def test_a_worker_killed_in_the_middle_costs_nothing_but_time(client, whole, tmp_path):
    pids = list(client.run(os.getpid).values())
    killed = []

    def kill_one(stage: str, done: int, total: int) -> None:
        if stage == "gram" and done == total // 3 and not killed:
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    gram(SLOW, samples(40), store=tmp_path / "k", tile=4, engine=Dask(client), progress=kill_one)
    assert killed
    client.wait_for_workers(2, timeout=60)
    assert pids[0] not in client.run(os.getpid).values(), "it lives"
    assert equal_files(tmp_path / "k", whole)


def test_all_workers_killed_at_once_those_who_join_go_on(client, whole, tmp_path):
    client.wait_for_workers(2, timeout=60)
    pids = list(client.run(os.getpid).values())

    def kill_all(stage: str, done: int, total: int) -> None:
        if stage == "gram" and done == total // 3:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

    with Dask(client) as engine:
        gram(SLOW, samples(40), store=tmp_path / "k", tile=4, engine=engine, progress=kill_all)
    assert not set(pids) & set(client.run(os.getpid).values()), "some lived"
    assert equal_files(tmp_path / "k", whole)
    client.wait_for_workers(2, timeout=60)


def test_no_worker_for_too_long_is_an_error_that_says_what_is_stored(tmp_path):
    here = {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**here) as cluster, distributed.Client(cluster) as client:

        def end_it(stage: str, done: int, total: int) -> None:
            if done == 5:
                cluster.scale(0)

        start = time.monotonic()
        with pytest.raises(
            EngineError, match=r"no worker is left: .* 0\.5 s.* of 55 tiles stored in .* left"
        ):
            gram(
                Gaussian(delay=0.05),
                samples(40),
                store=tmp_path / "k",
                tile=4,
                engine=Dask(client, patience=0.5),
                progress=end_it,
            )
        assert time.monotonic() - start < 60
    assert len(list((tmp_path / "k" / "gram" / "c").glob("*/*"))) >= 5


@pytest.mark.parametrize("patience", [-1, float("nan"), float("inf")])
def test_patience_is_a_number_of_seconds(patience):
    with pytest.raises(InputError, match="patience"):
        Dask(patience=patience)


def test_an_interrupt_of_a_cluster_says_what_is_stored(client, tmp_path):
    def interrupt(stage: str, done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"^\d+ of 55 tiles stored in .*: run again to go on$"):
        gram(Gaussian(), samples(40), store=tmp_path / "k", tile=4, engine=Dask(client), progress=interrupt)
    gram(Gaussian(), samples(40), store=tmp_path / "k", engine=Dask(client))


def test_the_scheduler_dies_and_the_store_goes_on(warm, whole, tmp_path):
    file = tmp_path / "scheduler.json"
    addresses = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0"]
    options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--death-timeout", "60"]
    scheduler, worker = (
        warm.Process(target=run_command, args=(module, tmp_path, ["--scheduler-file", str(file), *more]))
        for module, more in (("dask_scheduler", addresses), ("dask_worker", options))
    )
    scheduler.start()
    worker.start()
    try:

        def kill_it(stage: str, done: int, total: int) -> None:
            if stage == "gram" and done == total // 3:
                scheduler.kill()

        with pytest.raises(EngineError, match=r"scheduler at .* is gone"):
            gram(SLOW, samples(40), store=tmp_path / "k", tile=4, engine=Dask(str(file)), progress=kill_it)
        assert scheduler.exitcode == -signal.SIGKILL
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.join()
    done = len(list((tmp_path / "k" / "gram" / "c").glob("*/*")))
    assert 0 < done < 55
    G = gram(SAME, samples(40), store=tmp_path / "k")
    assert equal_files(tmp_path / "k", whole)
    torch.testing.assert_close(G.dense(), SAME(samples(40)))


def test_no_scheduler_is_an_error_that_says_where():
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "500ms"}),
        pytest.raises(EngineError, match=r"tcp://127.0.0.1:9"),
    ):
        list(Dask("tcp://127.0.0.1:9").map(abs, [1]))


def test_a_scheduler_is_found_by_host_and_port(client):
    place = client.scheduler.address.removeprefix("tcp://")
    assert sorted(Dask(place).map(abs, [-1, 2])) == [1, 2]


def test_the_file_of_a_scheduler_may_come_later(client, tmp_path, monkeypatch):
    file = tmp_path / "scheduler.json"
    file.write_text('{"addr')  # half of it
    writer = threading.Timer(0.5, lambda: file.write_text(json.dumps({"address": client.scheduler.address})))
    writer.start()
    assert list(Dask(str(file)).map(abs, [-1])) == [1]
    writer.join()
    monkeypatch.setattr("tangentkit.compute.engines.dask.WAIT", 0.2)
    with pytest.raises(EngineError, match=r"never.json: expected an address.*no such file in 0.2 s"):
        list(Dask(str(tmp_path / "never.json")).map(abs, [-1]))


def test_a_worker_gets_the_tiles_of_a_row_one_after_the_other(client, tmp_path):
    log, side = tmp_path / "log", 12
    gram(RowWitness(log=str(log)), samples(2 * side), store=tmp_path / "k", tile=2, engine=Dask(client))
    begun = [line for line in log.read_text().splitlines() if line.startswith("row")]
    # Each of two workers begins most rows once. Without any order they would begin one for nearly every tile.
    assert len(begun) <= 3 * side < side * (side + 1) // 2


class Grouped:
    """Says which process did an item (group, number), after a while."""

    def __call__(self, item):
        time.sleep(0.03)
        return item[0], os.getpid()

    def group(self, item):
        return item[0]


def test_items_of_a_group_stay_with_one_worker(client):
    done = list(Dask(client).map(Grouped(), [(group, k) for group in range(8) for k in range(6)]))
    workers = {group: {pid for g, pid in done if g == group} for group in range(8)}
    assert len(done) == 48
    assert sum(len(pids) == 1 for pids in workers.values()) >= 6  # the last may be shared
    assert len(set.union(*workers.values())) == 2


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 8, 50])
def test_more_items_than_the_scheduler_gets_at_once(client, monkeypatch, count):
    monkeypatch.setattr("tangentkit.compute.engines.dask_session.AHEAD", 6)
    monkeypatch.setattr("tangentkit.compute.engines.dask_session.REFILL", 4)
    assert sorted(Dask(client).map(lambda item: item + 1, range(count))) == list(range(1, count + 1))


def test_a_worker_without_work_takes_from_a_long_group(client):
    items = [(group, k) for group, length in enumerate((1, 60, 1, 1)) for k in range(length)]
    done = list(Dask(client).map(Grouped(), items))
    assert len(done) == 63
    assert len({pid for group, pid in done if group == 1}) == 2


def test_workers_may_come_later(forked):
    with (
        distributed.LocalCluster(
            n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        later = threading.Timer(0.5, lambda: cluster.scale(1))
        later.start()
        assert len(list(Dask(client).map(Grouped(), [(group, 0) for group in range(4)]))) == 4
        later.join()


def test_workers_get_the_model_once_and_the_memory_that_is_theirs(client, tmp_path):
    log = tmp_path / "log"
    kernel = Witness(log=str(log))
    # The kernel of a cosine has two stages: a diagonal, then tiles.
    gram(kernel.normalized(), samples(12), store=tmp_path / "k", tile=2, engine=Dask(client))
    lines = log.read_text().splitlines()
    received = [line for line in lines if line.startswith("received")]
    assert len(received) == len(set(received)) <= 2
    here = [line for line in lines if line == "memory None"]  # the look at the first sample, in this process
    there = [line for line in lines if line == f"memory {LIMIT // 4}"]
    assert len(there) == 21
    assert len(lines) == len(received) + len(here) + len(there)


def peak_memory() -> int:
    """The most bytes that this process ever had in memory."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def fresh_pages(_=None) -> int:
    """Pages touched for the first time by ten tensors of 4 MB, one after the other."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_workers_use_their_memory_again(client):
    pages = 10 * 2**22 // os.sysconf("SC_PAGE_SIZE")
    assert min(client.run(fresh_pages).values()) > pages / 2  # as Dask wants it

    engine = Dask(client)
    with engine as busy:
        # The least: a thread whose heap has no 4 MB left is given a new one for every tensor, whatever is set.
        assert min(list(busy.map(fresh_pages, range(8)))) < pages / 2
    assert min(client.run(fresh_pages).values()) > pages / 2


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the peak memory")
def test_a_worker_stays_within_its_memory(forked, tmp_path):
    limit, side, outputs = 2**30, 192, 10
    channels, pixels = 32, 32 * 32
    model = nn.Sequential(
        nn.Conv2d(1, channels, 1),
        nn.Tanh(),
        nn.Conv2d(channels, channels, 1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, outputs),
    )
    image = 4 * channels * pixels
    # Activations and outgoing gradients of the samples of one tile: held at once they would be far beyond the limit.
    assert 2 * side * image * (2 + 2 * outputs) > limit
    x = torch.randn(2 * side, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit=limit, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        gram(tk.TangentKernel(model), x[:4], store=tmp_path / "small", tile=2, engine=Dask(client))
        (idle,) = client.run(peak_memory).values()
        (pid,) = client.run(os.getpid).values()
        gram(
            tk.TangentKernel(model), x[:side], x[side:], store=tmp_path / "k", tile=side, engine=Dask(client)
        )
        (peak,) = client.run(peak_memory).values()
        assert pid in client.run(os.getpid).values(), "the worker died and was replaced"
    assert peak <= limit
    # A quarter of the limit is the kernel's; tiles, samples and what is read of them come on top.
    own = 4 * side**2 * 4 + 2 * x.nbytes
    assert peak - idle <= limit // 4 + limit // 32 + own


def listening(process: psutil.Process) -> set[str]:
    """The addresses at which a process listens."""
    return {place.laddr.ip for place in process.net_connections() if place.status == psutil.CONN_LISTEN}


def test_without_an_address_processes_of_this_machine_are_started_and_ended(tmp_path):
    me = psutil.Process()
    before, others = listening(me), set(me.children(recursive=True))  # a browser of other tests, say
    # As they are started at a user's, not forked.
    with dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}), Dask(workers=1) as engine:
        gram(Gaussian(), samples(4), store=tmp_path / "k", tile=2, engine=engine)
        family = [me, *set(me.children(recursive=True)) - others]
        assert len(family) > 1
        found = set().union(*(listening(process) for process in family)) - (before - {"127.0.0.1"})
        assert found == {"127.0.0.1"}, "others can reach it"
    torch.testing.assert_close(open_gram(tmp_path / "k").dense(), Gaussian()(samples(4)))
