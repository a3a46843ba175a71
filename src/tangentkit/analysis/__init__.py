"""What a kernel or a network's features say: spectra, alignment, representations, shift, training tracker."""

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
