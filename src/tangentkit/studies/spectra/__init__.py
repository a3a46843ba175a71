"""Spectra and representations: what training does to the kernels of a network."""

from tangentkit.studies.trials.study import Study

STUDIES: tuple[Study, ...] = (
    Study(
        name="spectral-evolution",
        title="What training does to the spectra of a network",
        question=(
            "Do the eigenvalues of weights and kernels stay as they were, send out a spike, or grow a heavy tail, "
            "and does the network then generalize better than its lazy benchmark?"
        ),
        source=(
            'Wang et al., "Spectral evolution and invariance in linear-width neural networks" (NeurIPS 2023), as '
            "reported by PNNL: Table 8, Figures 19 to 21"
        ),
        paper="Wang 2023",
        cost={
            "quick": "about 5 minutes on 2 cores, 1 GB",
            "evening": "about 4 minutes on one core",
            "full": "about 2 days on 2 cores (estimated)",
        },
        module="tangentkit.studies.spectra.spectral_evolution",
    ),
    Study(
        name="spectral-theory",
        title="Linear-width networks: rates of drift, decay of the loss, heavy tails",
        question=(
            "Do the weights and kernels of a linear-width network stay where they were as n grows, does its loss "
            "fall as fast as guaranteed, and do heavy tails make it generalize?"
        ),
        source=(
            'Wang et al., "Spectral evolution and invariance in linear-width neural networks" (NeurIPS 2023), as '
            "reported by PNNL: Lemma 4.1, Theorem 4.2, Figure 21 c and d"
        ),
        paper="Wang 2023",
        cost={
            "quick": "about 1 minute on 2 cores",
            "evening": "about 4 minutes on 2 cores",
            "full": "about 1 hour on 2 cores, 2 GB (estimated)",
        },
        module="tangentkit.studies.spectra.spectral_theory",
    ),
    Study(
        name="cnn-spectra",
        title="What training does to the spectrum of a CNN",
        question=(
            "Does the tail of the tangent kernel of a small CNN get heavier from gradient descent to SGD to Adam, "
            "and does the network generalize better in that order?"
        ),
        source=(
            'Wang et al., "Spectral evolution and invariance in linear-width neural networks" (NeurIPS 2023), as '
            "reported by PNNL: Figure 22"
        ),
        paper="Wang 2023",
        cost={
            "quick": "about 2 minutes on 2 cores",
            "evening": "about 6 minutes on 2 cores",
            "full": "about 3 days on 2 cores, 4 GB (estimated)",
        },
        module="tangentkit.studies.spectra.cnn_spectra",
    ),
    Study(
        name="finetune-spectra",
        title="The conjugate kernel of a text model while it is fine-tuned",
        question=(
            "Does the largest eigenvalue of the conjugate kernel first fall and then rise in fine-tuning, and do the "
            "first eigenvectors turn towards the labels?"
        ),
        source=(
            'Wang et al., "Spectral evolution and invariance in linear-width neural networks" (NeurIPS 2023), as '
            "reported by PNNL: Figure 23"
        ),
        paper="Wang 2023",
        cost={
            "quick": "about 2 minutes on 2 cores, 1 GB",
            "evening": "about 9 minutes on 2 cores, 1 GB",
            "full": "about a week on 2 cores (estimated)",
        },
        module="tangentkit.studies.spectra.finetune_spectra",
    ),
)
"""The studies of this topic."""
