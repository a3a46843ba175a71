"""Writers of stores, as processes that can be killed."""

import itertools
import os
import signal
import sys
from multiprocessing.context import ForkServerContext, ForkServerProcess

import torch

from compute.toy_kernels import Gaussian, Linear
from tangentkit.compute import gram

SAMPLES, TILE = 5, 4
MANY = 120
"""Samples whose 465 tiles take longer than all killed writers together have: none of them comes to its end."""
SLOW, SAME = (Linear().normalized() + Gaussian(delay=delay) for delay in (0.004, 0.0))
"""A kernel to be killed at, and the one that gives the same numbers at once."""
QUICK = Linear()
COMMAND = ("gram", "--model", "mlp", "--width", "8", "--data", "digits", "--samples", "48", "--tile", "4")


def data(samples: int = SAMPLES) -> torch.Tensor:
    return torch.randn(samples, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def begin(warm: ForkServerContext, store: object, **order) -> ForkServerProcess:
    """Begins a writer."""
    writer = warm.Process(target=write, args=(str(store),), kwargs=order)
    writer.start()
    return writer


def ended(writer: ForkServerProcess) -> int:
    """How the writer ended: its exit code, or minus the signal that killed it."""
    writer.join(120)
    assert writer.exitcode is not None, "it does not end"
    return writer.exitcode


def write(store: str, many: bool = False, repair: bool = False, step: int = 0) -> None:
    """Writes a store, or dies in front of one of its steps."""
    if step:
        die_at(step, store)
    kernel, x = (SLOW, data(MANY)) if many else (QUICK, data())
    gram(kernel, x, store=store, tile=TILE, progress=False, repair=repair)
    os._exit(0)


def begin_command(warm: ForkServerContext, store: object) -> ForkServerProcess:
    """Begins the command that writes a store."""
    writer = warm.Process(target=command, args=(str(store),))
    writer.start()
    return writer


def command(store: str) -> None:
    """The command, in silence."""
    from tangentkit.cli import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    main([*COMMAND, "--store", store])


def die_at(step: int, store: str) -> None:
    """From now on this process is killed in front of the n-th thing that it does to the files of a store."""
    steps = itertools.count(1)

    def hear(event: str, details: tuple) -> None:
        opens = event == "open" and bool(set(str(details[1])) & set("wxa"))
        changes = opens or event in ("os.rename", "os.remove")
        counts = event == "fcntl.flock" or (changes and str(details[0]).startswith(store))
        if counts and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hear)
