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
            "evening": "about 40 minutes on 2 cores (estimated)",
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
            "evening": "about 30 minutes on 2 cores (estimated)",
            "full": "about 80 minutes on 2 cores (estimated)",
        },
        module="tangentkit.studies.regression.logistic_regression",
    ),
)
"""The studies of this topic."""
