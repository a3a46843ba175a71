"""Text made fit to be shown: of strangers without controls, of counts without "1 tiles"."""

import re

UNSEEN = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Controls, overrides of the direction of writing, halves of surrogate pairs: what cannot be shown."""


def visible(text: str) -> str:
    r"""A text in which whatever cannot be shown stands as an escape; ends of lines stay.

    Terminals would obey some of it, XML forbids some, and UTF-8 cannot hold halves of surrogate pairs.

    Example:
        >>> print(visible("bell\a, red \x1b[31m, half \ud800, α"))
        bell\x07, red \x1b[31m, half \ud800, α
    """
    return UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def counted(number: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "tile"), counted(2_000, "tile"), counted(10, "class")
        ('1 tile', '2000 tiles', '10 classes')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('s') else 's'}"
