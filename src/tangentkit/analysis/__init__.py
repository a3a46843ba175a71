"""What a kernel says about a network: spectra, alignment, anisotropy, representations, shift, tracking."""

from tangentkit.analysis.spectra import Bulk as Bulk
from tangentkit.analysis.spectra import KernelProducts as KernelProducts
from tangentkit.analysis.spectra import PowerLaw as PowerLaw
from tangentkit.analysis.spectra import Resolution as Resolution
from tangentkit.analysis.spectra import SpectraComparison as SpectraComparison
from tangentkit.analysis.spectra import SpectralDensity as SpectralDensity
from tangentkit.analysis.spectra import Spikes as Spikes
from tangentkit.analysis.spectra import WeightSpectra as WeightSpectra
from tangentkit.analysis.spectra import WeightSpectrum as WeightSpectrum
from tangentkit.analysis.spectra import bulk_edge as bulk_edge
from tangentkit.analysis.spectra import bulk_variance as bulk_variance
from tangentkit.analysis.spectra import compare_spectra as compare_spectra
from tangentkit.analysis.spectra import initial_bulk as initial_bulk
from tangentkit.analysis.spectra import marchenko_pastur as marchenko_pastur
from tangentkit.analysis.spectra import matrix_tail as matrix_tail
from tangentkit.analysis.spectra import spectral_density as spectral_density
from tangentkit.analysis.spectra import spikes as spikes
from tangentkit.analysis.spectra import weight_spectra as weight_spectra
