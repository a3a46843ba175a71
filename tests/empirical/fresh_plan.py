"""A plan in a process that has imported the library and no more."""

import sys
from multiprocessing.connection import Connection

import torch
from torch import nn

from tangentkit.empirical import TangentKernel


def compiler_after_a_plan(told: Connection) -> None:
    """Tells whether the compiler of torch is imported before and after a plan."""
    before = "torch._dynamo" in sys.modules
    TangentKernel(nn.Linear(3, 2)).plan(torch.randn(4, 3))
    told.send((before, "torch._dynamo" in sys.modules))
