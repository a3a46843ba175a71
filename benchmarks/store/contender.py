"""One measurement in a process of its own: `python -m benchmarks.store.contender NAME [quick]`; prints JSON."""

import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

import tangentkit as tk
from benchmarks.memory import peak_memory
from benchmarks.store.simulation import TILES
from tangentkit import models
from tangentkit.compute import Kernel, gram
from tangentkit.compute.engines import Dask, Serial, Threads

LIMIT = 2 * 2**30
"""Memory of a worker, in bytes."""


@contextmanager
def folder():
    """A folder on the disk of the working directory, removed at the end."""
    path = Path(tempfile.mkdtemp(prefix=".bench-", dir=os.environ.get("TANGENTKIT_BENCH")))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def timed(work, *args, **options) -> float:
    """Seconds of one call, with nothing left to write from before."""
    os.sync()
    start = time.perf_counter()
    work(*args, **options)
    return time.perf_counter() - start


def timed_gram(kernel, x, y, engine, **options) -> float:
    """Seconds of a Gram matrix to a store that is removed afterwards."""
    with folder() as place:
        return timed(gram, kernel, x, y, store=place / "k", engine=engine, progress=False, **options)


def product_to_file(x: torch.Tensor, y: torch.Tensor, path: Path) -> None:
    """One matrix product, one file."""
    torch.mm(x, y.T).numpy().tofile(path)


def writing(quick: bool) -> dict:
    """A kernel of cheap features to the store, against a matrix product and a file of the same bytes, in turns."""
    n, d = (8000 if quick else 20_000), 256
    x, y = torch.randn(n, d), torch.randn(n, d)
    kernel = tk.ConjugateKernel(nn.Linear(d, 1))
    timed_gram(kernel, x[:100], None, Serial())  # imports, and the model's structure
    seconds: dict[str, list[float]] = {"raw": [], "serial": [], "threads": [], "half": []}
    for _ in range(2 if quick else 3):
        with folder() as place:
            seconds["raw"].append(timed(product_to_file, x, y, place / "raw"))
        seconds["serial"].append(timed_gram(kernel, x, y, Serial()))
        seconds["threads"].append(timed_gram(kernel, x, y, Threads(2)))
        seconds["half"].append(timed_gram(kernel, x, None, Serial()))
    return {"n": n, "features": d, **{name: min(values) for name, values in seconds.items()}}


class Ones(Kernel):
    """A kernel that costs nothing, called for each tile."""

    def __call__(self, x, y=None):
        """Ones."""
        return x.new_ones(len(x), len(x if y is None else y))

    def diag(self, x):
        """Ones."""
        return x.new_ones(len(x))


def overhead(quick: bool) -> dict:
    """Seconds for each tile that costs nothing to compute; those of a run of one tile are taken off."""
    side = 16 if quick else 40
    x, kernel = torch.zeros(side * 8, 1), Ones()

    def each(engine) -> float:
        timed_gram(kernel, x[:8], None, engine)
        one = timed_gram(kernel, x[:8], None, engine)
        return (timed_gram(kernel, x, x, engine, tile=8) - one) / (side**2 - 1)

    with _cluster(2) as client:
        return {"tiles": side**2, "serial": each(Serial()), "dask": each(Dask(client))}


@contextmanager
def _cluster(workers: int):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=LIMIT, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def workers(quick: bool) -> dict:
    """Tangent tiles by one worker and by two, and the peak memory of a worker."""
    torch.manual_seed(0)
    tile, n = (32, 192) if quick else (128, 2048)
    model, x = models.lenet().eval(), torch.randn(n, 1, 28, 28)
    kernel = tk.TangentKernel(model)
    found: dict = {"n": n, "tile": tile, "limit": LIMIT}
    for count in (1, 2) * (1 if quick else 3):  # in turns: the machine has slow minutes
        with _cluster(count) as client, folder() as place:
            # First a small one: worker processes import what they need.
            gram(kernel, x[: 4 * count], tile=2, store=place / "warm", engine=Dask(client), progress=False)
            before = max(client.run(peak_memory).values())
            seconds = timed_gram(kernel, x, None, Dask(client), tile=tile)
            peak = max(client.run(peak_memory).values())
            found[f"{count} workers"] = min(seconds, found.get(f"{count} workers", seconds))
            found[f"peak of {count}"] = max(peak, found.get(f"peak of {count}", 0))
            found[f"idle of {count}"] = before
    return found


def rates(quick: bool) -> dict:
    """Seconds of a sample and of a tile for kernels of ResNet-18 on 32 x 32 images, by one core."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = models.resnet18(outputs=10, zero_init_residual=False).eval()
    n = 4 if quick else 24
    x = torch.randn(2 * n, 3, 32, 32)
    found: dict = {"trace": _tangent_rate(tk.TangentKernel(model, memory="4GB"), x[:n], x[n:])}
    kernels = {
        "conjugate": tk.ConjugateKernel(model),
        "sketched": tk.SketchedTangentKernel(model, dim=4096, memory="4GB"),
    }
    for name, kernel in kernels.items():
        width = kernel.features(x[:1]).shape[1]
        part = _best(lambda kernel=kernel: kernel.features(x)) / len(x)
        found[name] = {
            "part": part,
            "tile": _product_seconds(TILES[name], width),
            "width": width,
            "measured": len(x),
        }
    return found


def _tangent_rate(kernel: tk.TangentKernel, x: torch.Tensor, y: torch.Tensor) -> dict:
    """Seconds of a large tile: those of a small one, times the ratio of their counted FLOPs."""
    small = _best(lambda: kernel(x, y))
    large = torch.randn(TILES["trace"], *x.shape[1:])
    ratio = kernel.plan(large, large.clone()).flops / kernel.plan(x, y).flops
    return {"part": 0.0, "tile": small * ratio, "width": 0, "measured": len(x), "seconds": small}


def _best(work, repeats: int = 2) -> float:
    work()
    return min(timed(work) for _ in range(repeats))


def _product_seconds(side: int, width: int) -> float:
    """Seconds of a tile that is a product of features."""
    a, b = torch.randn(side, width), torch.randn(side, width)
    return _best(lambda: a @ b.T)


if __name__ == "__main__":
    names = {"writing": writing, "overhead": overhead, "workers": workers, "rates": rates}
    print(json.dumps(names[sys.argv[1]]("quick" in sys.argv[2:])))
