"""How kernels, features and functions lie to each other: alignments, angles, CKA, eigenfunctions."""
