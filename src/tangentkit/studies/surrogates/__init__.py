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
            "quick": "about 3 minutes on 2 cores, 1 GB",
            "evening": "about 28 minutes on one core",
            "full": "about 2 days on 2 cores, 8 GB (estimated)",
        },
        module="tangentkit.studies.surrogates.surrogate",
    ),
    Study(
        name="poisoning",
        title="Tracing poisoned decisions to poisoned training images",
        question=(
            "A network has learned a backdoor from a few poisoned images. Do the nearest training images, by each "
            "of its kernels, tell which of its decisions are poisoned?"
        ),
        source="Engel et al. (ICLR 2024), Table 3; BadNets on CIFAR-10",
        paper="Engel 2024",
        cost={
            "quick": "about 5 minutes on 2 cores, 2 GB",
            "evening": "about 16 minutes on 2 cores, 7 GB",
            "full": "weeks on 2 cores (estimated: 50 hours of an A100 for the exact kernel)",
        },
        module="tangentkit.studies.surrogates.poisoning",
    ),
    Study(
        name="kernel-cost",
        title="What exact and projected tangent kernels cost",
        question="How much more does an exact tangent kernel cost than its random projections, and how does it grow?",
        source="Engel et al. (ICLR 2024), Table 4 and the cost model",
        paper="Engel 2024",
        cost={
            "quick": "about 1 minute on 2 cores, 1 GB",
            "evening": "about 3 minutes on 2 cores",
            "full": "about 10 hours on 2 cores (estimated)",
        },
        module="tangentkit.studies.surrogates.kernel_cost",
    ),
    Study(
        name="pretrained-surrogate",
        title="Surrogates of pre-trained networks: CIFAR-10 ResNets and MiniLM on CoLA",
        question=(
            "How faithful are kernel surrogates of real networks that somebody else trained, on which kernel, and at "
            "what price?"
        ),
        source="Engel et al. (ICLR 2024), Tables 1 and 2: rows of pre-trained networks",
        paper="Engel 2024",
        cost={
            "quick": "about 6 minutes on 2 cores, 3 GB",
            "evening": "about 2 hours on one core, 5 GB",
            "full": "about a day on 2 cores, 12 GB (estimated)",
        },
        module="tangentkit.studies.surrogates.pretrained_surrogate",
    ),
)
"""The studies of this topic."""
