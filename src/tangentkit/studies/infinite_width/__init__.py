"""Kernels of infinitely wide networks."""

from tangentkit.studies.trials.study import Study

STUDIES: tuple[Study, ...] = (
    Study(
        name="width-concentration",
        title="Wide networks near their limit: kernels, training, learning rates",
        question=(
            "How fast does the tangent kernel of a random network go to its limit, is a trained wide network a "
            "kernel regression, and which learning rate is the largest that converges?"
        ),
        source=(
            "Im, course report on neural tangent kernels (2021), on Arora et al. (2019), Theorems 3.1 and 3.2, and "
            "Yang and Salman (2019), maximal learning rate"
        ),
        paper="Im 2021",
        cost={
            "quick": "about 2 minutes on 2 cores",
            "evening": "about 4 minutes on 2 cores",
            "full": "about 2 hours on 2 cores, 4 GB (estimated)",
        },
        module="tangentkit.studies.infinite_width.width_concentration",
    ),
    Study(
        name="boolean-cube",
        title="Which functions wide networks prefer: spectra on the Boolean cube",
        question=(
            "Which degrees do the kernels of infinitely wide networks favor, how does that depend on depth, and do "
            "random networks follow?"
        ),
        source=(
            "Im, course report on neural tangent kernels (2021), on Yang and Salman, A fine-grained spectral "
            "perspective on neural networks (2019)"
        ),
        paper="Im 2021",
        cost={
            "quick": "about half a minute on 2 cores, 1 GB",
            "evening": "about a minute on 2 cores, 2 GB",
            "full": "about 20 minutes on 2 cores, 2 GB (estimated)",
        },
        module="tangentkit.studies.infinite_width.boolean_cube",
    ),
    Study(
        name="cntk",
        title="Convolutional kernels: exact, and of finite networks",
        question=(
            "How well does the exact tangent kernel of a convolutional network classify, and how much does the "
            "linearized finite network lose against it?"
        ),
        source=(
            "Im, course report on neural tangent kernels (2021), on Arora et al., On exact computation with an "
            "infinitely wide neural net (2019)"
        ),
        paper="Im 2021",
        cost={
            "quick": "about 3 minutes on 2 cores",
            "evening": "about an hour on 2 cores (estimated from 0.11 ms for a pair of images with GAP)",
            "full": "weeks on 2 cores, for clusters: pixels⁴ numbers for each of 150 million pairs (estimated)",
        },
        module="tangentkit.studies.infinite_width.cntk",
    ),
    Study(
        name="tensor-programs",
        title="Random networks as tensor programs, against their law",
        question=(
            "Do averages over the entries of a random network (MLP, CNN, residual, recurrent) go to the limit that "
            "the recursion of covariances gives, and how fast?"
        ),
        source=(
            "Cappelletti, student report on neural tangent kernels (2019), Section 2, on Yang, Tensor programs "
            "(2019): programs without transposes"
        ),
        paper="Cappelletti 2019",
        cost={
            "quick": "about 2 minutes on 2 cores",
            "evening": "about 9 minutes on 2 cores",
            "full": "about 2 hours on 2 cores, 2 GB (estimated)",
        },
        module="tangentkit.studies.infinite_width.tensor_programs",
    ),
)
"""The studies of this topic."""
