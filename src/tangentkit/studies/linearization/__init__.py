"""Networks and their linearizations: where a tangent kernel is as good, and where not."""

from tangentkit.studies.trials.study import Study

SAMARIN = (
    'Samarin, Roth and Belius, "Feature Learning and Random Features in Standard Finite-Width Convolutional Neural '
    'Networks: An Empirical Study" (UAI 2022)'
)

STUDIES: tuple[Study, ...] = (
    Study(
        name="tangent-rank",
        title="The rank of a network's tangent space over its width",
        question=(
            "How many directions does the Jacobian of a freshly initialized LeNet span, does its width add to them, "
            "and are shifted digits different?"
        ),
        source=f"{SAMARIN}, Figures 6 and 7",
        paper="Samarin 2022",
        cost={
            "quick": "about 1 minute on 2 cores, 1 GB",
            "evening": "about 40 minutes on 2 cores, 3 GB (estimated)",
            "full": "about 1 day on 2 cores, 16 GB (estimated)",
        },
        module="tangentkit.studies.linearization.tangent_rank",
    ),
)
"""The studies of this topic."""
