"""Warnings point at the line of the user's code that they are about."""

import warnings

import pytest
import torch

from tangentkit.core import callers
from tangentkit.core.callers import users_level


def test_outside_of_the_library_the_caller_itself_is_the_user():
    assert users_level() == 1


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_frames_of_the_library_and_of_decorators_are_passed_over(depth):
    inside = compile(
        "def call(depth):\n"
        "    if depth > 1:\n"
        "        return call(depth - 1)\n"
        "    warnings.warn('look', stacklevel=users_level())\n",
        f"{callers.PACKAGE}/inside.py",
        "exec",
    )
    scope = {"users_level": users_level, "warnings": warnings}
    exec(inside, scope)
    scope["call"] = torch.no_grad()(scope["call"])
    with pytest.warns(UserWarning, match="look") as warned:
        scope["call"](depth)
    assert warned[0].filename == __file__
