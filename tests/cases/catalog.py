"""All families together."""

from cases import (
    architectures,
    attention,
    blocks,
    convolutions,
    formulas,
    functions,
    hooks,
    inputs,
    norms,
    parametrizations,
    perceptrons,
    pooling,
    positions,
    recurrence,
    routing,
    sharing,
    tables,
    tensors,
)
from cases.case import Case

FAMILIES = (
    perceptrons,
    convolutions,
    pooling,
    positions,
    sharing,
    tables,
    norms,
    attention,
    recurrence,
    formulas,
    parametrizations,
    blocks,
    routing,
    functions,
    hooks,
    architectures,
    inputs,
    tensors,
)
CASES: dict[str, Case] = {name: case for family in FAMILIES for name, case in family.zoo.items()}
assert len(CASES) == sum(len(family.zoo) for family in FAMILIES), "two families have a case of the same name"
