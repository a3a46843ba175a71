"""A result of the surrogate study with made-up numbers of the usual size: what its page looks like takes no run."""

import numpy as np

from tangentkit.report import Page
from tangentkit.studies.study import DataCard
from tangentkit.studies.surrogate_result import KERNELS, Examples, Result, Scores
from tangentkit.surrogate.invertible_map import fit_invertible_map, log_odds

CLASSES = tuple(f"class {i}" for i in range(10))


def surrogate_result(rows: int = 5, seeds: int = 4) -> Result:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 40)
    q = np.clip(p + rng.normal(0, 0.05, 40), 0.01, 0.99)
    scores = {
        name: Scores(
            tuple(0.75 + rng.normal(0, 0.01, seeds)),
            tuple(rng.normal(-1.5, 1.5, seeds)),
            tuple(0.7 + rng.normal(0, 0.02, seeds)),
            tuple(86 + rng.normal(0, 1, seeds)),
        )
        for name in KERNELS
    }
    return Result(
        seeds=tuple(range(seeds)),
        data=(DataCard("fashion-mini", "train", 2000, "somewhere", "MIT", "0" * 64),),
        model="LeNet×1",
        parameters=61706,
        train=500,
        test=300,
        classes=len(CLASSES),
        accuracy=tuple(75 + rng.normal(0, 1, seeds)),
        removed=(0,) * seeds,
        scores=scores,
        examples=Examples(
            network=p,
            surrogate=q,
            correct=p > 0.3,
            curve=fit_invertible_map(log_odds(q), p),
            gram=np.eye(20),
            gram_classes=dict.fromkeys(CLASSES, 2),
            images=rng.random((rows, 6, 8, 8)),
            labels=(CLASSES[:6],) * rows,
        ),
    )


def surrogate_page(result: Result) -> Page:
    return Page(
        title="A page",
        source="A source",
        question="A kernel generalized linear model (kGLM)?",
        answer=result.answer(),
        terms=result.terms(),
        claims=result.claims(),
        tables=result.tables(),
        stand_ins=result.stand_ins(),
        command="tangentkit run surrogate",
    )
