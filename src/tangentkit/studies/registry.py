"""The table of studies. Listing it imports none of them."""

from tangentkit.studies.study import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
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
            cost={
                "quick": "about 2 minutes on one core, 1 GB",
                "full": "about 2 days on 2 cores, 8 GB (estimated)",
            },
            module="tangentkit.studies.surrogate",
        ),
    )
}
"""Every study by name."""


def find(name: str) -> Study:
    """The study of a name.

    Raises:
        UnknownNameError: with the nearest names.

    Example:
        >>> find("surrogate").title
        'A kernel surrogate that repeats a trained network'
    """
    try:
        return STUDIES[name]
    except KeyError:
        # Imported here because the package `core` brings torch, which a listing must not wait for.
        from tangentkit.core.errors import UnknownNameError

        raise UnknownNameError("study", name, STUDIES) from None
