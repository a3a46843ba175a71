"""Linear algebra of matrices that may be too large to hold: operators, solvers, spectra, estimates.

Three nouns and two verbs. An `Operator` is a matrix known by its blocks. `solve(K, y, method=...)` gives a
`Solution`, `spectrum(K)` a `Spectrum`; both take tensors, arrays and operators. Traces and diagonals can be
had exactly, or as an `Estimate` from products with random vectors. Nothing here knows of networks.
"""

from tangentkit.linalg.operators.checks import asymmetry as asymmetry
from tangentkit.linalg.operators.checks import check_finite as check_finite
from tangentkit.linalg.operators.checks import check_symmetric as check_symmetric
from tangentkit.linalg.operators.matrices import DenseOperator as DenseOperator
from tangentkit.linalg.operators.matrices import FactorOperator as FactorOperator
from tangentkit.linalg.operators.matrices import as_operator as as_operator
from tangentkit.linalg.operators.matrices import in_memory as in_memory
from tangentkit.linalg.operators.matrices import symmetrized as symmetrized
from tangentkit.linalg.operators.operator import Operator as Operator
from tangentkit.linalg.operators.operator import ScaledOperator as ScaledOperator
from tangentkit.linalg.operators.operator import ShiftedOperator as ShiftedOperator
from tangentkit.linalg.operators.operator import SumOperator as SumOperator
from tangentkit.linalg.operators.operator import TransposedOperator as TransposedOperator
from tangentkit.linalg.solvers.cg import CG as CG
from tangentkit.linalg.solvers.cholesky import Cholesky as Cholesky
from tangentkit.linalg.solvers.eigen import Eigen as Eigen
from tangentkit.linalg.solvers.preconditioners import Nystrom as Nystrom
from tangentkit.linalg.solvers.preconditioners import PivotedCholesky as PivotedCholesky
from tangentkit.linalg.solvers.preconditioners import Preconditioner as Preconditioner
from tangentkit.linalg.solvers.solution import Method as Method
from tangentkit.linalg.solvers.solution import Solution as Solution
from tangentkit.linalg.solvers.solve import Auto as Auto
from tangentkit.linalg.solvers.solve import solve as solve
from tangentkit.linalg.spectra.estimate import Estimate as Estimate
from tangentkit.linalg.spectra.estimate import hutchinson_diagonal as hutchinson_diagonal
from tangentkit.linalg.spectra.estimate import hutchinson_trace as hutchinson_trace
from tangentkit.linalg.spectra.estimate import hutchpp_trace as hutchpp_trace
from tangentkit.linalg.spectra.estimate import trace as trace
from tangentkit.linalg.spectra.measures import condition_number as condition_number
from tangentkit.linalg.spectra.measures import effective_rank as effective_rank
from tangentkit.linalg.spectra.measures import participation_ratio as participation_ratio
from tangentkit.linalg.spectra.spectrum import Spectrum as Spectrum
from tangentkit.linalg.spectra.spectrum import SpectrumWarning as SpectrumWarning
from tangentkit.linalg.spectra.spectrum import spectrum as spectrum
from tangentkit.linalg.spectra.tails import Hill as Hill
from tangentkit.linalg.spectra.tails import Tail as Tail
from tangentkit.linalg.spectra.tails import hill as hill
