"""Kernel surrogates of trained networks: faithful, able to find poison, and what they cost."""

from tangentkit.studies.trials.study import Study

STUDIES: tuple[Study, ...] = (
    Study(
        name="surrogate",
        title="A kernel surrogate that repeats a trained network",
        question=(
            "Can a network be replaced by a kernel generalized linear model (kGLM) on its own tangent "
            "kernel, so that the two agree point by point, and is that kernel the best one for it?"
        ),
        source=(
            'Engel et al., "Faithful and Efficient Explanations for Neural Networks via Neural Tangent '
            'Kernel Surrogate Models" (ICLR 2024), Tables 1 and 2'
        ),
        paper="Engel 2024",
        cost={
            "quick": "about 2 minutes on one core, 1 GB",
            "evening": "about 40 minutes on 2 cores (estimated)",
            "full": "about 2 days on 2 cores, 8 GB (estimated)",
        },
        module="tangentkit.studies.surrogates.surrogate",
    ),
)
"""The studies of this topic."""
