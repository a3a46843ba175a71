"""A study whose trials take a while: something to kill."""

import os
import signal
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

import warm_processes
from tangentkit.compute.engines import Processes, processes
from tangentkit.core.seeds import Key
from tangentkit.report import Claim
from tangentkit.studies.runner import execute
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result, Study
from tangentkit.studies.trials.trial import Trial, sweep


@dataclass(frozen=True)
class Config:
    """Settings of the slow study."""

    pause: float = 0.2
    """Seconds of a trial."""
    marker: str = ""
    """A file: whoever comes first makes it and is killed."""
    seeds: tuple[int, ...] = tuple(range(8))
    """One trial for each."""


SCALES = {"quick": Config(), "evening": Config(), "full": Config()}


def number(seed: int) -> float:
    """What a trial gives, whoever does it."""
    return float(torch.randn(50, 50, generator=Key(seed).torch()).matrix_exp().sum())


def wait(*, pause: float, marker: str, seed: int) -> dict[str, float]:
    """Waits, and gives its number."""
    if marker and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(pause)
    return {"number": number(seed)}


def trials(config: Config) -> list[Trial]:
    """One for each seed."""
    return sweep(wait, {"seed": config.seeds}, pause=config.pause, marker=config.marker)


def result(config: Config, records: Records) -> Result:
    """The numbers."""
    values = tuple(records.column("number"))
    return Result(answer="Done.", claims=(Claim("Numbers grow", "number", values),), tables={}, figures={})


SLOW = Study("slow", "Waiting", "Does it end?", "Folklore", {"quick": "seconds"}, "studies.slow_study")
"""The slow study."""


def run_warm(folder: Path, address: str) -> None:
    """Runs it on two processes, in one that began warm; so do they."""
    warm_processes.begin_at(address)
    processes.get_context = lambda _: get_context("forkserver")  # type: ignore[assignment]
    execute(SLOW, Config(), folder, scale="quick", engine=Processes(2))
