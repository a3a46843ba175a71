"""Records of the surrogate study with made-up numbers of the usual size: what its page looks like takes no run."""

import numpy as np

from tangentkit.report import Page
from tangentkit.studies.surrogates.surrogate_cases import CASES, KERNELS
from tangentkit.studies.surrogates.surrogate_report import report
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result

CLASSES = tuple(f"class {i}" for i in range(10))


def surrogate_records(seeds: int = 4, gain: float = 0.05) -> Records:
    """Rows in which trNTK is better than every other kernel by a gain."""
    rng = np.random.default_rng(0)
    rows = []
    for case in CASES:
        for seed in range(seeds):
            noise = rng.normal(0, 0.003)
            kernels = {
                name: {
                    "tau": 0.75 + noise + rng.normal(0, 0.001) + (gain if name == "trNTK" else 0),
                    "difference": rng.normal(0, 0.3),
                    "r2": 0.7 + rng.normal(0, 0.02),
                    "agreement": 86 + rng.normal(0, 1),
                    "seconds": 1.0,
                }
                for name in KERNELS
            }
            row = {
                "case": case,
                "seed": seed,
                "data": "fashion-mini",
                "accuracy": 75 + rng.normal(0, 1),
                "kernels": kernels,
                "tau_class_1": {name: 0.78 + noise for name in KERNELS},
                "overlap": {name: 0.5 for name in KERNELS if name != "trNTK"},
                "mass": 0.05 + rng.normal(0, 0.001),
                "largest_is_predicted": 0.97 + rng.normal(0, 0.001),
                "mean_in_box": 0.99,
                "seconds": 10.0,
            }
            rows.append(row | (_shown(rng) if seed == 0 else {}))
    return Records(rows)


def surrogate_result(seeds: int = 4, gain: float = 0.05) -> Result:
    return report(surrogate_records(seeds, gain), train=500, test=300, passes=0.2, dim=2048)


def surrogate_page(result: Result) -> Page:
    return Page(
        title="A page",
        source="A source",
        question="A kernel generalized linear model (kGLM)?",
        answer=result.answer,
        terms=result.terms,
        claims=result.claims,
        tables=result.tables,
        stand_ins=result.stand_ins,
        command="tangentkit run surrogate",
    )


def _shown(rng: np.random.Generator) -> dict:
    x = rng.normal(0, 2, 40)
    return {
        "odds": np.stack([x, x + rng.normal(0, 0.5, 40)]).astype(np.float32),
        "right": x > 0,
        "gram": np.eye(20, dtype=np.float16),
        "gram_classes": dict.fromkeys(CLASSES, 2),
        "pictures": rng.integers(0, 255, (5, 6, 1, 8, 8)).astype(np.uint8),
        "labels": [list(CLASSES[:6])] * 5,
    }
