"""Linear systems: factorizations, conjugate gradients with their preconditioners, and one verb for all."""
