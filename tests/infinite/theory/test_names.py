"""The theory page: every name on it exists, and every public name is on it."""

import importlib
import re
from pathlib import Path

import tangentkit as tk
from tangentkit import infinite

PAGE = Path(__file__).parents[3] / "docs" / "theory.md"


PLACES = [
    infinite,
    *(
        importlib.import_module(f"tangentkit.infinite.{name}")
        for name in ("duals.closed_forms", "propagate.network")
    ),
]


def named(token: str) -> object:
    """What a name stands for: from `tk`, a public name or one of a table's, or a path below tangentkit.infinite."""
    if token == "tangentkit.infinite":
        return infinite
    first, *rest = token.split(".")
    found = tk if first == "tk" else next(getattr(place, first) for place in PLACES if hasattr(place, first))
    for part in rest:
        found = getattr(found, part)
    return found


def test_every_name_on_the_page_exists_and_every_public_name_is_on_it():
    page = PAGE.read_text()
    tokens = {token.rstrip(".") for token in re.findall(r"`([A-Za-z_][\w.]*)", page)} - {"tk"}
    assert len(tokens) > 40
    for token in tokens:
        assert named(token) is not None
    public = {name for name, value in vars(infinite).items() if callable(value) and name[0] != "_"}
    assert len(public) > 20
    assert not {name for name in public if not re.search(rf"\b{name}\b", page)}
