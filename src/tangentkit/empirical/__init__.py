"""Kernels of a module: tangent, conjugate, embedding, and the mean over initializations.

The walk of one call of a `TangentKernel`: a *profile* of the model is made first, then an *engine* computes with it.

    reading       what a forward pass shows: the autograd graph, how samples move through it, whether they depend on
                  each other
    rules         what the gradient is at each place where a parameter meets samples
    layers, structure    both put together: the layers of a model, and how each of them uses its parameters
    passes        one pass of a batch with its backward passes; per-sample gradients; the cheapest route of each layer
    trust         `profile(function, x) -> Profile`, verified against plain autograd; `Profiles` revises it where a
                  later batch disproves something
    engine        from per-sample gradients to tiles of the kernel
    activations   conjugate and embedding kernels, which need no gradients
"""

from tangentkit.empirical.activations.kernels import ConjugateKernel as ConjugateKernel
from tangentkit.empirical.activations.kernels import EmbeddingKernel as EmbeddingKernel
from tangentkit.empirical.montecarlo import MonteCarloKernel as MonteCarloKernel
from tangentkit.empirical.rules.base import Lookup as Lookup
from tangentkit.empirical.rules.base import Matrix as Matrix
from tangentkit.empirical.rules.base import Site as Site
from tangentkit.empirical.rules.base import Vector as Vector
from tangentkit.empirical.rules.base import broadcast_gradient as broadcast_gradient
from tangentkit.empirical.rules.base import layer_rule as layer_rule
from tangentkit.empirical.rules.base import picked_gradient as picked_gradient
from tangentkit.empirical.tangent import TangentKernel as TangentKernel
from tangentkit.empirical.trust.profiles import UnusedParameterWarning as UnusedParameterWarning
