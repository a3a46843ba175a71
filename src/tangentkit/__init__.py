"""tangentkit: the kernels that neural networks carry."""

__version__ = "0.1.0"
