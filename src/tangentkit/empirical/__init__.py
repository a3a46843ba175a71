"""Kernels of a module: tangent, conjugate, embedding, and the mean over initializations.

How a tangent kernel is made: `graph` finds where parameters meet samples in the autograd graph, `rules` say what
the gradient is at each such place, `recording` runs a batch and its backward passes, `plan` counts the cheapest
route of every parameter, `contraction` turns factors into tiles of the kernel, `verification` compares with plain
autograd the first time a model is seen, and `generic` does by force what has no rule.
"""

from tangentkit.empirical.features import ConjugateKernel as ConjugateKernel
from tangentkit.empirical.features import EmbeddingKernel as EmbeddingKernel
from tangentkit.empirical.montecarlo import MonteCarloKernel as MonteCarloKernel
from tangentkit.empirical.rules import layer_rule as layer_rule
from tangentkit.empirical.tangent import TangentKernel as TangentKernel
