"""Spectra of kernels, weights and features: density, bulk and spikes, tails, comparison.

`tk.spectrum` gives eigenvalues; here is what they are compared with, since no number of a spectrum means anything
alone: the law of Marchenko and Pastur, the initial spectrum, shuffled and Gaussian matrices of the same shape.
"""

from tangentkit.analysis.spectra.bulk import Bulk as Bulk
from tangentkit.analysis.spectra.bulk import Spikes as Spikes
from tangentkit.analysis.spectra.bulk import bulk_edge as bulk_edge
from tangentkit.analysis.spectra.bulk import bulk_variance as bulk_variance
from tangentkit.analysis.spectra.bulk import initial_bulk as initial_bulk
from tangentkit.analysis.spectra.bulk import marchenko_pastur as marchenko_pastur
from tangentkit.analysis.spectra.bulk import spikes as spikes
from tangentkit.analysis.spectra.comparison import SpectraComparison as SpectraComparison
from tangentkit.analysis.spectra.comparison import compare_spectra as compare_spectra
from tangentkit.analysis.spectra.density import Resolution as Resolution
from tangentkit.analysis.spectra.density import SpectralDensity as SpectralDensity
from tangentkit.analysis.spectra.density import spectral_density as spectral_density
from tangentkit.analysis.spectra.operators import KernelProducts as KernelProducts
from tangentkit.analysis.spectra.tails import PowerLaw as PowerLaw
from tangentkit.analysis.spectra.tails import matrix_tail as matrix_tail
from tangentkit.analysis.spectra.weights import WeightSpectra as WeightSpectra
from tangentkit.analysis.spectra.weights import WeightSpectrum as WeightSpectrum
from tangentkit.analysis.spectra.weights import weight_spectra as weight_spectra
