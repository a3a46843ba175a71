"""Kernel surrogates of networks: how faithful they are, and which training samples a decision comes from."""

from tangentkit.surrogate.attribution import Attribution as Attribution
from tangentkit.surrogate.evaluation import evaluate_attribution as evaluate_attribution
from tangentkit.surrogate.faithfulness import Faithfulness as Faithfulness
from tangentkit.surrogate.influence import influence as influence
from tangentkit.surrogate.influence import representer_points as representer_points
from tangentkit.surrogate.influence import trak as trak
from tangentkit.surrogate.kernel_comparison import compare_kernels as compare_kernels
from tangentkit.surrogate.nearest import Neighbors as Neighbors
from tangentkit.surrogate.nearest import neighbors as neighbors
from tangentkit.surrogate.surrogate import Surrogate as Surrogate
