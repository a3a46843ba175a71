"""Kernels of an architecture at infinite width, and what follows from a scalar kernel function.

`InfiniteKernel` reads a module (`reading`), keeps its limit as a few operations, and propagates covariances through
them (`propagate`). `duals` are what scalar functions do to covariances. Spectra, depths and draws need only a
function of the correlation (`scalar`); `programs` has the general law.
"""

from tangentkit.infinite.duals.expectations import gaussian_expectation as gaussian_expectation
from tangentkit.infinite.duals.registry import Dual as Dual
from tangentkit.infinite.duals.registry import PiecewiseLinear as PiecewiseLinear
from tangentkit.infinite.duals.registry import Pointwise as Pointwise
from tangentkit.infinite.duals.registry import dual_of as dual_of
from tangentkit.infinite.kernel import InfiniteKernel as InfiniteKernel
from tangentkit.infinite.programs.networks import convolutional as convolutional
from tangentkit.infinite.programs.networks import feedforward as feedforward
from tangentkit.infinite.programs.networks import recurrent as recurrent
from tangentkit.infinite.programs.networks import residual as residual
from tangentkit.infinite.programs.program import Program as Program
from tangentkit.infinite.scalar.cube import boolean_cube_spectrum as boolean_cube_spectrum
from tangentkit.infinite.scalar.cube import cube_points as cube_points
from tangentkit.infinite.scalar.cube import fractional_variance as fractional_variance
from tangentkit.infinite.scalar.depth import DepthProfile as DepthProfile
from tangentkit.infinite.scalar.depth import depth_profile as depth_profile
from tangentkit.infinite.scalar.depth import ntk_above_nngp as ntk_above_nngp
from tangentkit.infinite.scalar.depth import optimal_depth as optimal_depth
from tangentkit.infinite.scalar.mlp import mlp_kernel_function as mlp_kernel_function
from tangentkit.infinite.scalar.sampling import degree_energies as degree_energies
from tangentkit.infinite.scalar.sampling import empirical_fractional_variance as empirical_fractional_variance
from tangentkit.infinite.scalar.sampling import sample_gaussian_process as sample_gaussian_process
from tangentkit.infinite.scalar.sampling import sample_on_cube as sample_on_cube
from tangentkit.infinite.scalar.sphere import sphere_spectrum as sphere_spectrum
