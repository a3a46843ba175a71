"""What a kernel says about a network: spectra, alignment, anisotropy, representations, shift, training tracker."""

from tangentkit.analysis.alignment.angles import principal_angles as principal_angles
from tangentkit.analysis.alignment.cka import cka as cka
from tangentkit.analysis.alignment.complexity import TaskComplexity as TaskComplexity
from tangentkit.analysis.alignment.complexity import task_complexity as task_complexity
from tangentkit.analysis.alignment.eigenfunctions import Eigenfunctions as Eigenfunctions
from tangentkit.analysis.alignment.eigenfunctions import eigenfunctions as eigenfunctions
from tangentkit.analysis.alignment.kernel_target import eigenvector_alignments as eigenvector_alignments
from tangentkit.analysis.alignment.kernel_target import kernel_target_alignment as kernel_target_alignment
from tangentkit.analysis.alignment.layer_cka import LayerCKA as LayerCKA
from tangentkit.analysis.alignment.layer_cka import layer_cka as layer_cka
from tangentkit.analysis.alignment.target import target_alignment as target_alignment
from tangentkit.analysis.anisotropy import AnisotropyDirections as AnisotropyDirections
from tangentkit.analysis.anisotropy import anisotropy_directions as anisotropy_directions
from tangentkit.analysis.representations.collapse import NeuralCollapse as NeuralCollapse
from tangentkit.analysis.representations.collapse import neural_collapse as neural_collapse
from tangentkit.analysis.representations.dimension import participation_ratio as participation_ratio
from tangentkit.analysis.representations.dimension import two_nn as two_nn
from tangentkit.analysis.representations.layers import LayerProbes as LayerProbes
from tangentkit.analysis.representations.layers import probe_layers as probe_layers
from tangentkit.analysis.representations.probes import LayerProbe as LayerProbe
from tangentkit.analysis.shift.comparison import ComponentTest as ComponentTest
from tangentkit.analysis.shift.comparison import DistributionComparison as DistributionComparison
from tangentkit.analysis.shift.comparison import Drivers as Drivers
from tangentkit.analysis.shift.comparison import ShiftTest as ShiftTest
from tangentkit.analysis.shift.comparison import compare_distributions as compare_distributions
