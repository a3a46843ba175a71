"""Linear algebra of matrices that may be too large to hold: operators, solvers, spectra, estimates.

Three nouns and two verbs. An `Operator` is a matrix known by its blocks. `solve(K, y, method=...)` gives a
`Solution`, `spectrum(K)` a `Spectrum`; both take tensors, arrays and operators. Traces and diagonals can be
had exactly, or as an `Estimate` from products with random vectors. Nothing here knows of networks.
"""

from tangentkit.linalg.cg import CG as CG
from tangentkit.linalg.checks import asymmetry as asymmetry
from tangentkit.linalg.checks import check_finite as check_finite
from tangentkit.linalg.checks import check_symmetric as check_symmetric
from tangentkit.linalg.cholesky import Cholesky as Cholesky
from tangentkit.linalg.eigen import Eigen as Eigen
from tangentkit.linalg.estimate import Estimate as Estimate
from tangentkit.linalg.estimate import hutchinson_diagonal as hutchinson_diagonal
from tangentkit.linalg.estimate import hutchinson_trace as hutchinson_trace
from tangentkit.linalg.estimate import hutchpp_trace as hutchpp_trace
from tangentkit.linalg.estimate import trace as trace
from tangentkit.linalg.matrices import DenseOperator as DenseOperator
from tangentkit.linalg.matrices import FactorOperator as FactorOperator
from tangentkit.linalg.matrices import as_operator as as_operator
from tangentkit.linalg.matrices import in_memory as in_memory
from tangentkit.linalg.matrices import symmetrized as symmetrized
from tangentkit.linalg.measures import condition_number as condition_number
from tangentkit.linalg.measures import effective_rank as effective_rank
from tangentkit.linalg.measures import participation_ratio as participation_ratio
from tangentkit.linalg.operator import Operator as Operator
from tangentkit.linalg.operator import ScaledOperator as ScaledOperator
from tangentkit.linalg.operator import ShiftedOperator as ShiftedOperator
from tangentkit.linalg.operator import SumOperator as SumOperator
from tangentkit.linalg.operator import TransposedOperator as TransposedOperator
from tangentkit.linalg.preconditioners import Nystrom as Nystrom
from tangentkit.linalg.preconditioners import PivotedCholesky as PivotedCholesky
from tangentkit.linalg.preconditioners import Preconditioner as Preconditioner
from tangentkit.linalg.solution import Method as Method
from tangentkit.linalg.solution import Solution as Solution
from tangentkit.linalg.solve import Auto as Auto
from tangentkit.linalg.solve import solve as solve
from tangentkit.linalg.spectrum import Spectrum as Spectrum
from tangentkit.linalg.spectrum import SpectrumWarning as SpectrumWarning
from tangentkit.linalg.spectrum import spectrum as spectrum
from tangentkit.linalg.tails import Hill as Hill
from tangentkit.linalg.tails import Tail as Tail
from tangentkit.linalg.tails import hill as hill
