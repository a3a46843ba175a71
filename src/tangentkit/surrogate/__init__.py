"""Kernel surrogates of networks: how faithful they are, and which training samples are near."""

from tangentkit.surrogate.nearest import Neighbors as Neighbors
from tangentkit.surrogate.nearest import neighbors as neighbors
