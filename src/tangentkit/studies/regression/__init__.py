"""Regression with the kernels of a network."""

from tangentkit.studies.trials.study import Study

STUDIES: tuple[Study, ...] = (
    Study(
        name="function-regression",
        title="Smooth functions: a network against regression with its own kernels",
        question=(
            "Once a network is trained on a smooth function, do regressions with its tangent and conjugate kernels "
            "come nearer to the function than the network itself?"
        ),
        source=(
            "PNNL report on mathematical foundations (2023), Section 2: Qadeer et al., Efficient kernel surrogates "
            "for neural network-based regression, Figures 3 to 7"
        ),
        paper="PNNL 2023",
        cost={
            "quick": "about 2 minutes on 2 cores",
            "evening": "about 13 minutes on one core",
            "full": "about 2 hours on 2 cores (estimated)",
        },
        module="tangentkit.studies.regression.function_regression",
    ),
    Study(
        name="logistic-regression",
        title="Two classes on a grid: a network stopped early against its own kernels",
        question=(
            "Does kernel logistic regression with the tangent or conjugate kernel of a hardly trained network "
            "classify better than the network?"
        ),
        source=(
            "PNNL report on mathematical foundations (2023), Section 2: Qadeer et al., Efficient kernel surrogates "
            "for neural network-based regression, Figures 8 to 11"
        ),
        paper="PNNL 2023",
        cost={
            "quick": "about 2 minutes on 2 cores",
            "evening": "about 6 minutes on 2 cores",
            "full": "about 80 minutes on 2 cores (estimated)",
        },
        module="tangentkit.studies.regression.logistic_regression",
    ),
    Study(
        name="kernel-bounds",
        title="How the errors of two kernels of one network bound each other",
        question=(
            "Do the published bounds between the test errors of regression with the tangent and the conjugate kernel "
            "hold on trained networks, and are their constants of any use?"
        ),
        source=(
            "PNNL report on mathematical foundations (2023), Section 2: Qadeer et al., Efficient kernel surrogates "
            "for neural network-based regression, Lemmas and Theorems 4.1 to 5.2"
        ),
        paper="PNNL 2023",
        cost={
            "quick": "about 1 minute on 2 cores",
            "evening": "about 4 minutes on 2 cores",
            "full": "about 2 hours on 2 cores (estimated)",
        },
        module="tangentkit.studies.regression.kernel_bounds",
    ),
    Study(
        name="kernel-regression",
        title="A network against kernel regression at infinite width and after training",
        question=(
            "How well does kernel regression with the cross-entropy classify with the tangent kernel at infinite "
            "width, and with that of the trained network, beside the network itself?"
        ),
        source="Cappelletti, student report on neural tangent kernels (2019), Table 1 and Figure 3",
        paper="Cappelletti 2019",
        cost={
            "quick": "about 3 minutes on 2 cores, 1 GB",
            "evening": "about 12 minutes on one core, 2 GB",
            "full": "about 2 hours on 2 cores, 2 GB (estimated)",
        },
        module="tangentkit.studies.regression.kernel_regression",
    ),
)
"""The studies of this topic."""
