"""tangentkit: the kernels that neural networks carry.

`import tangentkit as tk` gives every public name; each is loaded when it is first used, so that the command line
answers at once.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tangentkit import data as data
    from tangentkit import linalg as linalg
    from tangentkit import models as models
    from tangentkit import reference as reference
    from tangentkit.core import TangentkitError as TangentkitError
    from tangentkit.empirical import ConjugateKernel as ConjugateKernel
    from tangentkit.empirical import EmbeddingKernel as EmbeddingKernel
    from tangentkit.empirical import MonteCarloKernel as MonteCarloKernel
    from tangentkit.empirical import TangentKernel as TangentKernel
    from tangentkit.empirical import layer_rule as layer_rule
    from tangentkit.linalg import Spectrum as Spectrum
    from tangentkit.linalg import spectrum as spectrum

_ROOMS = ("data", "linalg", "models", "reference")
_HOMES = {
    "TangentkitError": "core",
    "ConjugateKernel": "empirical",
    "EmbeddingKernel": "empirical",
    "MonteCarloKernel": "empirical",
    "TangentKernel": "empirical",
    "layer_rule": "empirical",
    "Spectrum": "linalg",
    "spectrum": "linalg",
}
"""Public name -> the room it lives in."""


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return importlib.import_module(f"tangentkit.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"tangentkit.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tangentkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_ROOMS, *_HOMES, "__version__"])
