"""The commands of Dask, run by processes that began warm."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path


def run_command(module: str, folder: Path, words: Sequence[str]) -> None:
    """Runs one in silence, as a shell would in a folder."""
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    importlib.import_module(f"distributed.cli.{module}").main(words)
