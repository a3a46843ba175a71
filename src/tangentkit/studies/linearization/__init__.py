"""Networks and their linearizations: where a tangent kernel is as good, and where not."""

from tangentkit.studies.trials.study import Study

SAMARIN = (
    'Samarin, Roth and Belius, "Feature Learning and Random Features in Standard Finite-Width Convolutional Neural '
    'Networks: An Empirical Study" (UAI 2022)'
)
ORTIZ = (
    'Ortiz-Jiménez, Moosavi-Dezfooli and Frossard, "What can linearized neural networks actually say about '
    'generalization?" (NeurIPS 2021), supplement'
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
            "evening": "about 9 minutes on 2 cores, 3 GB",
            "full": "about 1 day on 2 cores, 16 GB (estimated)",
        },
        module="tangentkit.studies.linearization.tangent_rank",
    ),
    Study(
        name="width-gap",
        title="Networks and their linearizations over width",
        question=(
            "How much better is a LeNet than its linearization, does the gap close with width, and is it larger "
            "where the task is harder?"
        ),
        source=f"{SAMARIN}, Figures 2 to 4",
        paper="Samarin 2022",
        cost={
            "quick": "about 3 minutes on 2 cores, 1 GB",
            "evening": "about 12 minutes on 2 cores, 1 GB",
            "full": "about a year on 2 cores, 8 GB (estimated); a GPU or a cluster",
        },
        module="tangentkit.studies.linearization.width_gap",
    ),
    Study(
        name="binary-solver",
        title="A linearized network solved exactly",
        question=(
            "Is SGD what keeps a linearized network from its network's accuracy, or the linear model itself: what "
            "does the solution of least norm reach, and where does it overfit?"
        ),
        source=f"{SAMARIN}, Tables 1 and 2",
        paper="Samarin 2022",
        cost={
            "quick": "about 3 minutes on 2 cores, 1 GB",
            "evening": "about 9 minutes on one core, 2 GB",
            "full": "about a month on 2 cores, 96 GB (estimated)",
        },
        module="tangentkit.studies.linearization.binary_solver",
    ),
    Study(
        name="eigenfunctions",
        title="Learning the eigenfunctions of a network's own kernel",
        question=(
            "How well, how fast and how far does a network learn the eigenfunctions of its tangent kernel, is its "
            "linearization better at it, and does the kernel turn towards what is learned?"
        ),
        source=f"{ORTIZ}, Figures 2 to 7 and Table 1",
        paper="Ortiz-Jimenez 2021",
        cost={
            "quick": "about 4 minutes on 2 cores, 1 GB",
            "evening": "about 17 minutes on one core, 2 GB",
            "full": "about 2 months on 2 cores, 48 GB (estimated)",
        },
        module="tangentkit.studies.linearization.eigenfunctions",
    ),
    Study(
        name="alexnet-gap",
        title="AlexNet and its linearization on classes that look alike",
        question=(
            "How much better is AlexNet than its linearization where classes are hard to tell apart, and do width or "
            "the learning rate of the linearization close the gap?"
        ),
        source=f"{SAMARIN}, Figure 5",
        paper="Samarin 2022",
        cost={
            "quick": "about 2 minutes on 2 cores, 1 GB",
            "evening": "about 9 minutes on 2 cores, 2 GB",
            "full": "years on 2 cores, 48 GB (estimated), with pictures of your own; a GPU or a cluster",
        },
        module="tangentkit.studies.linearization.alexnet_gap",
    ),
    Study(
        name="output-trajectories",
        title="The outputs of a network and of its linearization while they are trained",
        question=(
            "A network and its linearization are trained alike: do their outputs take the same paths as the network "
            "becomes wide, or only paths of the same statistics?"
        ),
        source=f"{SAMARIN}, Supplementary Figure A.2, as the text describes it",
        paper="Samarin 2022",
        cost={
            "quick": "about 2 minutes on 2 cores, 1 GB",
            "evening": "about 6 minutes on 2 cores, 1 GB",
            "full": "about 3 months on 2 cores, 8 GB (estimated); a GPU or a cluster",
        },
        module="tangentkit.studies.linearization.output_trajectories",
    ),
    Study(
        name="anisotropy",
        title="Directions of input that an architecture prefers",
        question=(
            "Which directions of input does the kernel of an untrained network respond to, does the closed form of "
            "their alignment hold, and do networks and linearizations learn the others less well?"
        ),
        source=f"{ORTIZ}, Figure 1 and theorem 1",
        paper="Ortiz-Jimenez 2021",
        cost={
            "quick": "about 3 minutes on 2 cores, 1 GB",
            "evening": "about 4 minutes on 2 cores, 2 GB",
            "full": "about 2 months on 2 cores, 96 GB (estimated); a GPU or a cluster",
        },
        module="tangentkit.studies.linearization.anisotropy",
    ),
    Study(
        name="pretrained-kernel",
        title="The kernel of a trained network against that of its initialization",
        question=(
            "A network is linearized where it began and where training took it: does the second linear model learn "
            "the same labels faster and better, and is that more than the size of its kernel?"
        ),
        source=f"{ORTIZ}, the comparison in the authors' code",
        paper="Ortiz-Jimenez 2021",
        cost={
            "quick": "about 3 minutes on 2 cores, 1 GB",
            "evening": "about 8 minutes on 2 cores, 2 GB",
            "full": "years on 2 cores, 96 GB (estimated), of which MLP and LeNet 2 months; a GPU or a cluster",
        },
        module="tangentkit.studies.linearization.pretrained_kernel",
    ),
)
"""The studies of this topic."""
