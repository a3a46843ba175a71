"""What a kernel is, and how its Gram matrix is computed in tiles."""

from tangentkit.compute.kernel import Kernel as Kernel
