"""The table of studies. Listing it imports none of them, only the cards of each topic."""

from tangentkit.studies import infinite_width, linearization, regression, representations, spectra, surrogates
from tangentkit.studies.trials.study import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for topic in (linearization, regression, surrogates, spectra, representations, infinite_width)
    for study in topic.STUDIES
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
