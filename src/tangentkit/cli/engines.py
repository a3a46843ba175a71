"""Engines by name, as typed in a shell."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tangentkit.compute.engines import Engine


def parse_engine(text: str) -> "Engine":
    """The engine that a text names.

    Raises:
        InputError: it names none.

    Example:
        >>> parse_engine("threads://3")
        Threads(n=3)
    """
    from tangentkit.compute.engines import Dask, Processes, Serial, Threads
    from tangentkit.core.errors import InputError

    scheme, _, rest = text.partition("://")
    if scheme == "serial" and not rest:
        return Serial()
    if scheme == "threads" and (rest.isdecimal() or not rest):
        return Threads(int(rest)) if rest else Threads()
    if scheme == "processes" and (rest.isdecimal() or not rest):
        return Processes(int(rest)) if rest else Processes()
    if scheme == "dask":
        return Dask(None if not rest else rest if rest.startswith("/") or "://" in rest else f"tcp://{rest}")
    raise InputError(
        "bad engine",
        expected="serial, threads://N, processes://N, dask://, dask://HOST:PORT or dask:///PATH",
        got=text,
    )
