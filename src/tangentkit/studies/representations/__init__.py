"""Representations: what the layers of trained networks know, and what pre-trained ones bring along."""

from tangentkit.studies.trials.study import Study

STUDIES: tuple[Study, ...] = (
    Study(
        name="layer-pca",
        title="What the first principal components of each layer know",
        question=(
            "How many principal components of a layer do simple classifiers need, and from which layer on are two or "
            "three enough?"
        ),
        source=(
            "PNNL report (2023), section on principal components of learned representations: Figures 17 and 18"
        ),
        paper="PNNL 2023",
        cost={
            "quick": "about 3 minutes on 2 cores, 1 GB",
            "evening": "about 30 minutes on 2 cores, 4 GB (estimated)",
            "full": "weeks on 2 cores, 64 GB (estimated)",
        },
        module="tangentkit.studies.representations.layer_pca",
    ),
)
"""The studies of this topic."""
