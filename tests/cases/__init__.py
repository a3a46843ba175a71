"""The zoo: modules x batches, a file for each family. A new layer adds one line there and gets every law.

Weights and inputs are drawn in float32 and cast, so one float64 Jacobian is the oracle for both dtypes.
"""

from cases.case import Case as Case
from cases.case import M as M
from cases.case import N as N
from cases.case import cast as cast
from cases.catalog import CASES as CASES
from cases.formula import Formula as Formula
from cases.oracle import TOLERANCE as TOLERANCE
from cases.oracle import along as along
from cases.oracle import expected as expected
from cases.oracle import gap as gap
from cases.oracle import jacobians as jacobians
from cases.oracle import kernel_of as kernel_of
from cases.oracle import kernel_of_jacobians as kernel_of_jacobians
from cases.oracle import probed as probed
from cases.oracle import unlearned as unlearned
