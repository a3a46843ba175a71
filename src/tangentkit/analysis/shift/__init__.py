"""Whether two samples are of one distribution: permutation tests on features or kernels, and what drives them."""
