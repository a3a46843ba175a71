"""Tweets that are the same but for their label (Table 7)."""

import re
from collections import defaultdict
from typing import Any

from tangentkit.studies.trials.data import whole
from tangentkit.studies.trials.text_models import tokens

SCRAPS = re.compile(r"username|@\w+|https?://\S+|www\.\S+|[^a-z0-9 ]")
"""Handles, addresses and signs: what is left out where words alone count."""


def labels(*, model: str, length: int) -> dict[str, Any]:
    """Tweets that are the same but for their label, in P and M, as three readers see them; row numbers, no texts."""
    found: dict[str, Any] = {}
    for split in ("P", "M"):
        data = whole("sentiment140", split)
        readers = {
            "as they are": list(data.inputs),
            "tokens of the model": [
                tuple(row) for row in tokens(model, data.inputs, length)["input_ids"].tolist()
            ],
            "words, without handles and links": [words(text) for text in data.inputs],
        }
        found[split] = {how: conflicts(texts, data.targets.tolist()) for how, texts in readers.items()}
    return {"conflicts": found}


def words(tweet: str) -> str:
    """The words of a tweet in lower case, without handles, links and signs.

    Example:
        >>> words("USERNAME Thanks!! see http://a.bc/d it's GREAT")
        'thanks see it s great'
    """
    return " ".join(SCRAPS.sub(" ", tweet.lower()).split())


def conflicts(texts: list, targets: list[int]) -> dict[str, Any]:
    """How many samples there are several times, and how many of these with both labels.

    Example:
        >>> conflicts(["a", "b", "a", "c", "b", "a"], [0, 1, 1, 0, 1, 0])
        {'repeated': 5, 'conflicting': 3, 'groups': 1, 'empty': 0, 'rows': [[0, 2, 5]]}
    """
    places = defaultdict(list)
    for row, text in enumerate(texts):
        places[text].append(row)
    several = [rows for rows in places.values() if len(rows) > 1]
    both = sorted(
        (rows for rows in several if len({targets[row] for row in rows}) > 1), key=len, reverse=True
    )
    return {
        "repeated": sum(map(len, several)),
        "conflicting": sum(map(len, both)),
        "groups": len(both),
        "empty": len(places.get("", ())),
        "rows": [rows[:5] for rows in both[:5]],
    }
