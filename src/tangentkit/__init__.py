"""tangentkit: the kernels that neural networks carry.

`import tangentkit as tk` gives every public name; each is loaded when it is first used, so that the command line
answers at once.
"""

import importlib
import sys
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tangentkit import analysis as analysis
    from tangentkit import compute as compute
    from tangentkit import data as data
    from tangentkit import infinite as infinite
    from tangentkit import linalg as linalg
    from tangentkit import linearized as linearized
    from tangentkit import machines as machines
    from tangentkit import models as models
    from tangentkit import nn as nn
    from tangentkit import reference as reference
    from tangentkit import surrogate as surrogate
    from tangentkit.analysis import Tracker as Tracker
    from tangentkit.analysis import anisotropy_directions as anisotropy_directions
    from tangentkit.analysis import bulk_edge as bulk_edge
    from tangentkit.analysis import cka as cka
    from tangentkit.analysis import compare_distributions as compare_distributions
    from tangentkit.analysis import compare_training as compare_training
    from tangentkit.analysis import eigenfunctions as eigenfunctions
    from tangentkit.analysis import kernel_target_alignment as kernel_target_alignment
    from tangentkit.analysis import layer_cka as layer_cka
    from tangentkit.analysis import neural_collapse as neural_collapse
    from tangentkit.analysis import principal_angles as principal_angles
    from tangentkit.analysis import probe_layers as probe_layers
    from tangentkit.analysis import spectral_density as spectral_density
    from tangentkit.analysis import target_alignment as target_alignment
    from tangentkit.analysis import track_checkpoints as track_checkpoints
    from tangentkit.analysis import weight_spectra as weight_spectra
    from tangentkit.compute import Samples as Samples
    from tangentkit.compute import engines as engines
    from tangentkit.compute import gram as gram
    from tangentkit.compute import open_gram as open_gram
    from tangentkit.core import TangentkitError as TangentkitError
    from tangentkit.empirical import ConjugateKernel as ConjugateKernel
    from tangentkit.empirical import EmbeddingKernel as EmbeddingKernel
    from tangentkit.empirical import MonteCarloKernel as MonteCarloKernel
    from tangentkit.empirical import TangentKernel as TangentKernel
    from tangentkit.empirical import layer_rule as layer_rule
    from tangentkit.infinite import InfiniteKernel as InfiniteKernel
    from tangentkit.infinite import boolean_cube_spectrum as boolean_cube_spectrum
    from tangentkit.infinite import fractional_variance as fractional_variance
    from tangentkit.infinite import sphere_spectrum as sphere_spectrum
    from tangentkit.linalg import Spectrum as Spectrum
    from tangentkit.linalg import spectrum as spectrum
    from tangentkit.linearized import linearize as linearize
    from tangentkit.linearized import taylorize as taylorize
    from tangentkit.machines import Dynamics as Dynamics
    from tangentkit.machines import GradientDescent as GradientDescent
    from tangentkit.machines import GradientFlow as GradientFlow
    from tangentkit.machines import HeavyBall as HeavyBall
    from tangentkit.machines import InfiniteEnsemble as InfiniteEnsemble
    from tangentkit.machines import KernelGLM as KernelGLM
    from tangentkit.machines import KernelLogistic as KernelLogistic
    from tangentkit.machines import KernelRegression as KernelRegression
    from tangentkit.machines import KernelRidgeClassifier as KernelRidgeClassifier
    from tangentkit.machines import MomentumFlow as MomentumFlow
    from tangentkit.machines import Nesterov as Nesterov
    from tangentkit.machines import NystromRegression as NystromRegression
    from tangentkit.machines import gradient_flow as gradient_flow
    from tangentkit.machines import max_learning_rate as max_learning_rate
    from tangentkit.machines import refit_last_layer as refit_last_layer
    from tangentkit.nn import ntk_parameterize as ntk_parameterize
    from tangentkit.sketch import SketchedTangentKernel as SketchedTangentKernel
    from tangentkit.surrogate import Surrogate as Surrogate
    from tangentkit.surrogate import audit as audit
    from tangentkit.surrogate import compare_kernels as compare_kernels
    from tangentkit.surrogate import compare_under_attack as compare_under_attack
    from tangentkit.surrogate import evaluate_attribution as evaluate_attribution
    from tangentkit.surrogate import forensics as forensics
    from tangentkit.surrogate import influence as influence
    from tangentkit.surrogate import neighbors as neighbors
    from tangentkit.surrogate import representer_points as representer_points
    from tangentkit.surrogate import trak as trak

_PACKAGES = (
    "analysis",
    "compute",
    "data",
    "infinite",
    "linalg",
    "linearized",
    "machines",
    "models",
    "nn",
    "reference",
    "surrogate",
)
_HOMES = {
    "TangentkitError": "core",
    "compare_distributions": "analysis",
    "neural_collapse": "analysis",
    "probe_layers": "analysis",
    "anisotropy_directions": "analysis",
    "cka": "analysis",
    "eigenfunctions": "analysis",
    "kernel_target_alignment": "analysis",
    "layer_cka": "analysis",
    "principal_angles": "analysis",
    "target_alignment": "analysis",
    "Tracker": "analysis",
    "compare_training": "analysis",
    "track_checkpoints": "analysis",
    "bulk_edge": "analysis",
    "spectral_density": "analysis",
    "weight_spectra": "analysis",
    "Samples": "compute",
    "engines": "compute",
    "gram": "compute",
    "open_gram": "compute",
    "ConjugateKernel": "empirical",
    "EmbeddingKernel": "empirical",
    "MonteCarloKernel": "empirical",
    "TangentKernel": "empirical",
    "layer_rule": "empirical",
    "InfiniteKernel": "infinite",
    "boolean_cube_spectrum": "infinite",
    "fractional_variance": "infinite",
    "sphere_spectrum": "infinite",
    "Spectrum": "linalg",
    "spectrum": "linalg",
    "linearize": "linearized",
    "taylorize": "linearized",
    "Dynamics": "machines",
    "InfiniteEnsemble": "machines",
    "GradientDescent": "machines",
    "GradientFlow": "machines",
    "HeavyBall": "machines",
    "KernelRidgeClassifier": "machines",
    "MomentumFlow": "machines",
    "Nesterov": "machines",
    "refit_last_layer": "machines",
    "KernelGLM": "machines",
    "KernelLogistic": "machines",
    "KernelRegression": "machines",
    "NystromRegression": "machines",
    "gradient_flow": "machines",
    "max_learning_rate": "machines",
    "ntk_parameterize": "nn",
    "SketchedTangentKernel": "sketch",
    "Surrogate": "surrogate",
    "compare_kernels": "surrogate",
    "evaluate_attribution": "surrogate",
    "audit": "surrogate",
    "compare_under_attack": "surrogate",
    "forensics": "surrogate",
    "influence": "surrogate",
    "neighbors": "surrogate",
    "representer_points": "surrogate",
    "trak": "surrogate",
}
"""Public name -> the package it lives in."""


__all__ = sorted([*_PACKAGES, *_HOMES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return importlib.import_module(f"tangentkit.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"tangentkit.{_HOMES[name]}"), name)
    module = sys.modules[__name__]
    raise AttributeError(f"module 'tangentkit' has no attribute {name!r}", name=name, obj=module)


def __dir__() -> list[str]:
    return sorted([*_PACKAGES, *_HOMES, "__version__"])
