"""Data sets with checksums, one door to all of them, and what the studies do to them.

The table of sets can be listed without torch: names that need it are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tangentkit.data.places import Availability as Availability
from tangentkit.data.places import available as available
from tangentkit.data.places import cache_folder as cache_folder
from tangentkit.data.registry import SETS as SETS

if TYPE_CHECKING:
    from tangentkit.data.dataset import Data as Data
    from tangentkit.data.fetching import fetch as fetch
    from tangentkit.data.fetching import is_here as is_here
    from tangentkit.data.loading import load as load
    from tangentkit.data.own_files import OwnData as OwnData
    from tangentkit.data.own_files import read_files as read_files
    from tangentkit.data.synthetic import Teacher as Teacher
    from tangentkit.data.synthetic import directional_data as directional_data
    from tangentkit.data.synthetic import function_data as function_data
    from tangentkit.data.synthetic import grid_data as grid_data
    from tangentkit.data.synthetic import random_teacher as random_teacher
    from tangentkit.data.transforms import poison_all as poison_all
    from tangentkit.data.transforms import poisoned as poisoned
    from tangentkit.data.transforms import shifted as shifted
    from tangentkit.data.transforms import stamped as stamped

_HOMES = {
    "dataset": ("Data",),
    "fetching": ("fetch", "is_here"),
    "loading": ("load",),
    "own_files": ("OwnData", "read_files"),
    "synthetic": ("Teacher", "directional_data", "function_data", "grid_data", "random_teacher"),
    "transforms": ("poison_all", "poisoned", "shifted", "stamped"),
}
_LAZY = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
