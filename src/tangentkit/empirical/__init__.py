"""Kernels of a module: tangent, conjugate, embedding, and the mean over initializations.

How a tangent kernel is made: `graph` finds where parameters meet samples in the autograd graph, `rules` (those of
`products`, `elementwise`, `lookups`, `distances` and `writes`) say what the gradient is at each such place,
`structure` puts both together and tells which layers can be seen from behind (`chains`, `pooling`, `merging`),
`routing` sees whether the model moves samples by their content, `company` whether samples see each other,
`verification` compares with plain autograd, `knowledge` keeps and revises it all. `recording` runs a batch and its
backward passes, `costs` and `batching` count the cheapest way within the memory budget, `contraction` turns factors
into tiles, `engine` drives it all, and `generic` does by force what has no rule.

Kernels of activations (`features`) watch modules (`activations`) and find the last product with a weight (`heads`).
"""

from tangentkit.empirical.activations.kernels import ConjugateKernel as ConjugateKernel
from tangentkit.empirical.activations.kernels import EmbeddingKernel as EmbeddingKernel
from tangentkit.empirical.montecarlo import MonteCarloKernel as MonteCarloKernel
from tangentkit.empirical.rules.base import layer_rule as layer_rule
from tangentkit.empirical.tangent import TangentKernel as TangentKernel
from tangentkit.empirical.trust.profiles import UnusedParameterWarning as UnusedParameterWarning
