"""Memory budgets: how many bytes a piece of work may use beside its result."""

import math
import re
from pathlib import Path

import psutil
import torch

from tangentkit.core.errors import BudgetError, InputError

UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
DEFAULT_SHARE = 0.25
NO_LIMIT = 2**63


def parse_bytes(size: int | float | str) -> int:
    """A number of bytes, from a number or a text such as "256MB" or "1.5 GiB".

    Example:
        >>> parse_bytes("256MB"), parse_bytes("1.5 GiB"), parse_bytes(1000)
        (256000000, 1610612736, 1000)
    """
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?i?)b?\s*", size.lower())
        try:
            number = float(match[1]) * UNITS[match[2]] if match else -1.0
        except (KeyError, ValueError):
            number = -1.0
    else:
        number = -1.0 if isinstance(size, bool) else float(size)
    if not 0 < number < float("inf"):
        raise InputError("bad memory size", expected='bytes such as 2**30 or "2GB"', got=repr(size))
    return int(number)


def format_bytes(size: float) -> str:
    """A number of bytes as people write it.

    Example:
        >>> format_bytes(1_500_000)
        '1.5 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def free_bytes(device: torch.device | str = "cpu") -> int:
    """Bytes that can be had on a device now: of the machine, or of the control group if that is less."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(psutil.virtual_memory().available, _free_in_cgroup())


class Budget(int):
    """Bytes that a piece of work may use beside its result, and how work is split to stay within them.

    Whoever splits work says how many `copies` of a piece there are at a time: the piece itself, what it is made of,
    and what is made of it.

    Example:
        >>> budget = Budget(8_000_000)
        >>> budget.holds(3_000_000, copies=2), budget.rows(1000, copies=4), budget.side(8, copies=4)
        (True, 2000, 500)
    """

    def holds(self, nbytes: float, *, copies: int = 1) -> bool:
        """Whether so many copies of something fit."""
        return copies * nbytes <= self

    def check(self, nbytes: float, what: str, *, of: str = "", hint: str, copies: int = 1) -> None:
        """Refuses what does not fit.

        Raises:
            BudgetError: with what it needs, what there is, and the hint.
        """
        if not self.holds(nbytes, copies=copies):
            raise BudgetError(
                f"{what} beyond the memory budget",
                expected=f"at most {_in_words(self)}",
                got=f"{_in_words(copies * nbytes)}{of and f' for {of}'}",
                hint=hint,
            )

    def rows(self, bytes_each: int, *, copies: int, most: int | None = None) -> int:
        """Rows of so many bytes that fit, at least one."""
        fits = max(1, self // (copies * max(1, bytes_each)))
        return fits if most is None else min(most, fits)

    def side(self, itemsize: int, *, copies: int, most: int | None = None) -> int:
        """The side of square tiles that fit, at least one."""
        fits = max(1, math.isqrt(self // (copies * itemsize)))
        return fits if most is None else min(most, fits)


def memory_budget(memory: int | float | str | None = None, *, device: torch.device | str = "cpu") -> Budget:
    """The budget in bytes: what the user said, else a quarter of what is free on the device."""
    return Budget(DEFAULT_SHARE * free_bytes(device) if memory is None else parse_bytes(memory))


def _in_words(size: float) -> str:
    """Exact, since budget and need may look alike as people write them."""
    return f"{int(size)} bytes ({format_bytes(size)})"


def _free_in_cgroup(root: Path = Path("/sys/fs/cgroup")) -> int:
    # Containers limit memory by control group; the machine's own figure ignores that limit.
    try:
        limit = (root / "memory.max").read_text().strip()
        return NO_LIMIT if limit == "max" else max(0, int(limit) - int((root / "memory.current").read_text()))
    except (OSError, ValueError):
        return NO_LIMIT
