"""Claims about surrogates of pre-trained networks, of Tables 1 and 2."""

from tangentkit.report import Claim
from tangentkit.studies.surrogates.surrogate_cases import SMALL_DIFFERENCE, TABLE_2
from tangentkit.studies.trials.records import Records

FAITHFUL = 0.7
"""The published claim: tau is at least this everywhere."""
ENOUGH = 1_000
"""Training images, of 50,000, from which on the level of a surrogate on the trace is judged."""
LEARNED = 0.2
"""Matthews' correlation that a text model must have on test sentences for its surrogate to be judged."""
TEXT = "MiniLM on CoLA"
"""The text model among the networks."""


def _few(compared: int) -> str:
    """What must be larger before levels on the trace, and the order of the kernels, are judged."""
    more = f"{ENOUGH:,} training images or more: --dear-train {ENOUGH}"
    return more if compared < ENOUGH else ""


def on_level(name: str, kernels: dict[str, Records], small: str, compared: int) -> tuple[Claim, Claim]:
    """How faithful the surrogate of one network is, on the trace where it has one."""
    kernel = "proj-trNTK" if "proj-trNTK" in kernels else "proj-pNTK"
    rows = kernels.get(kernel, Records([]))
    needs = _few(compared) if name == small else ""
    if name == TEXT and not all(found.mean("matthews") >= LEARNED for found in kernels.values()):
        needs = f"a model that has learned, Matthews' correlation {LEARNED:g} or more: --sentences 6840"
    return (
        Claim(
            f"{name}: a surrogate ranks test points as the network does, tau at least {FAITHFUL:g}",
            f"tau of {kernel}",
            tuple(rows.column("tau")),
            low=FAITHFUL,
            published="at least 0.7 everywhere, with trNTK"
            + ("" if kernel == "proj-trNTK" else " (not pNTK)"),
            needs=needs,
        ),
        Claim(
            f"{name}: it is as accurate, within {SMALL_DIFFERENCE:g} points",
            f"TAD of {kernel} in points",
            tuple(rows.column("difference")),
            low=-SMALL_DIFFERENCE,
            high=SMALL_DIFFERENCE,
            published="-0.4 to -0.28 (ResNets), -0.1 (BERT)",
            needs=needs,
        ),
    )


def on_order(name: str, kernels: dict[str, Records], compared: int) -> tuple[Claim, ...]:
    """Which kernel is the more faithful, seed by seed on the same images."""
    if "proj-trNTK" not in kernels:
        return ()
    both = Records([row for rows in kernels.values() for row in rows])
    return tuple(
        Claim(
            f"{name}: the projected trace of the tangent kernel is more faithful than {other}",
            f"tau of proj-trNTK minus tau of {other}",
            tuple(both.paired("tau", "kernel", "proj-trNTK", other)),
            low=0.0,
            published=f"{TABLE_2['proj-trNTK'][0][0]} against {TABLE_2[other][0][0]} (ResNet18)",
            needs=_few(compared),
        )
        for other in ("proj-pNTK", "CK")
        if other in kernels
    )


def on_projection(name: str, exact: Records, images: int) -> Claim:
    """How near the projected kernel is to the exact one."""
    return Claim(
        f"{name.partition(',')[0]}, {images:,} images: the projection is close to the exact kernel",
        f"tau of the exact trNTK minus that of its projection, on the same {images:,} training and {images:,} test "
        "images" + (", too few to judge the level of either" if images < ENOUGH else ""),
        tuple(row["exact"]["tau"] - row["projected"]["tau"] for row in exact),
        low=-0.1,
        high=0.1,
        published="0.776 against 0.737 (ResNet18); within 0.1 is our rule",
    )


def of_all_images(whole: Records) -> tuple[Claim, ...]:
    """Of one run each: their values are of fifths of its test images."""
    return tuple(
        Claim(
            f"ResNet-{row['depth']}, all 50,000 images, {row['kernel']}: a surrogate ranks test points as the "
            f"network does, tau at least {FAITHFUL:g}",
            f"tau of {row['kernel']}, {row['test']:,} test images",
            tuple(row["everything"]["fifths"]),
            low=FAITHFUL,
            published=f"{TABLE_2[row['kernel']][0][0]} (ResNet18, {row['kernel']})",
            over="fifths of the test images of one run",
        )
        for row in whole
    )
