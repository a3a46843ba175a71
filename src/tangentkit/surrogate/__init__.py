"""Kernel surrogates of networks: how faithful they are, and which training samples are near."""

from tangentkit.surrogate.neighbors import Neighbors as Neighbors
from tangentkit.surrogate.neighbors import neighbors as neighbors
