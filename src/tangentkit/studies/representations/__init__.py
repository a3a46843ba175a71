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
            "PNNL report on mathematical foundations (2023), Section 4, principal components of learned "
            "representations: Figures 17 and 18"
        ),
        paper="PNNL 2023",
        cost={
            "quick": "about 4 minutes on 2 cores, 1 GB",
            "evening": "about 11 minutes on 2 cores, 6 GB",
            "full": "weeks on 2 cores, 64 GB (estimated)",
        },
        module="tangentkit.studies.representations.layer_pca",
    ),
    Study(
        name="foundation-probe",
        title="Probe or fine-tune a pre-trained text model",
        question=(
            "Is a linear probe on few hand-labeled tweets as good as fine-tuning, there or on many tweets of another "
            "source, and do embeddings show that the sources differ?"
        ),
        source=(
            "PNNL report on mathematical foundations (2023), Sections 2 and 3, distribution shift by embedded "
            "representations: Tables 5 to 7, Figures 12 to 15"
        ),
        paper="PNNL 2023",
        cost={
            "quick": "about 5 minutes on 2 cores, 2 GB",
            "evening": "about 11 minutes on 2 cores, 2 GB",
            "full": "weeks on 2 cores, a day with a GPU (estimated)",
        },
        module="tangentkit.studies.representations.foundation_probe",
    ),
)
"""The studies of this topic."""
