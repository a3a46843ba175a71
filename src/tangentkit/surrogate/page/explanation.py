"""What the page shows, as plain data: samples, the network's answers, and what each kernel says.

With the kernel κ, weights W and offset b of a surrogate, the score of training sample t_j for output c at x_i is
A(x_i, t_j)^c = W_jc κ(x_i, t_j) + b_c / m. Scores sum over the training samples to the surrogate's logit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg.operators.operator import Operator
from tangentkit.linalg.operators.spans import spans

ROWS = 256
"""Rows of a kernel matrix that are read at a time."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples as people see them: a label each and, where there are any, pictures, texts and names."""

    labels: ArrayLike | Tensor | None
    """Numbers of classes, (n,). Of test samples None, where the truth is not known."""
    pictures: Any = None
    """(n, h, w), (n, h, w, 3) or (n, 3, h, w), floats from 0 to 1 or bytes; or paths of n picture files."""
    texts: Sequence[str] | None = None
    """Sentences; or whatever describes a sample that is neither picture nor text, such as a row of a table."""
    names: Sequence[str] | None = None
    """Names, such as those of files; by default samples are numbered."""


class IsFlag(Protocol):
    """What an audit says of one training sample: a `tangentkit.surrogate.Flag`, or whatever has its fields."""

    @property
    def sample(self) -> int:
        """The number of a training sample."""
        ...

    @property
    def kind(self) -> str:
        """What is suspected, such as "mislabeled"."""
        ...

    @property
    def score(self) -> float:
        """How much; the largest is shown first."""
        ...

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        ...

    @property
    def evidence(self) -> Sequence[int]:
        """Numbers of training samples that show it."""
        ...


@dataclass(frozen=True, eq=False)
class KernelView:
    """What one kernel says: its values between test and training samples, and the surrogate that stands on it."""

    name: str
    matrix: Operator | Float[Tensor, "n m"] | ArrayLike
    """κ(x_i, t_j)."""
    weights: Float[Tensor, "m c"] | ArrayLike
    offset: Float[Tensor, " c"] | ArrayLike
    gram: Operator | Float[Tensor, "m m"] | ArrayLike | None = None
    """κ(t_i, t_j), of which the map of the samples is made; without it there is no map."""
    predicts: bool = True
    """Whether its sums are the logits of a surrogate. If not, the page shows its scores and no answer."""

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Test and training samples."""
        return _shape(self.matrix)

    @cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """The weights, (m, c)."""
        return as_array(self.weights)

    @cached_property
    def offsets(self) -> NDArray[np.float64]:
        """The offset of each class, (c,)."""
        return as_array(self.offset)

    def rows(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Consecutive rows of κ, a few at a time.

        Raises:
            NumericalError: a value is not finite.
        """
        for span, block in row_blocks(self.matrix):
            if not np.isfinite(block).all():
                i = span.start + int(np.argmin(np.isfinite(block).all(axis=1)))
                raise NumericalError(
                    f"the kernel {self.name!r} is not finite",
                    expected="finite values",
                    got=f"others in row {i}",
                )
            yield span, block

    @cached_property
    def logits(self) -> NDArray[np.float64]:
        """What the surrogate answers: κ W + b, (n, c), from values that are not rounded."""
        return np.concatenate([block @ self.coefficients + self.offsets for _, block in self.rows()])


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation:
    """Everything that the page shows. Its checks are made when it is.

    Raises:
        InputError: counts, shapes or numbers of classes do not fit together; the message says which.

    Example:
        >>> view = KernelView("linear", [[1.0, 2.0, 0.0]], weights=[[1.0], [-1.0], [0.5]], offset=[0.3])
        >>> page = Explanation(
        ...     test=Samples([1], texts=["a question"]),
        ...     train=Samples([1, 0, 1], texts=["one", "two", "three"]),
        ...     classes=("no", "yes"),
        ...     network=[[0.8]],
        ...     kernels=(view,),
        ... )
        >>> page.outputs, view.logits.round(3).tolist()
        (('yes against no',), [[-0.7]])
    """

    test: Samples
    train: Samples
    classes: tuple[str, ...]
    """The names of the classes that labels number."""
    network: Float[Tensor, "n c"] | ArrayLike
    """The logits of the network: one for each class, or of two classes only one, which is for the second."""
    kernels: tuple[KernelView, ...]
    """The first is put into the page whole, the others by their strongest samples."""
    flags: Sequence[IsFlag] = ()
    title: str = "Why did it say that?"
    notes: Sequence[str] = ()
    """Sentences about the data, the network and what stood in for what."""
    summary: str = ""
    """How far the surrogate is to be trusted, in a short sentence that every view shows; the notes have the table."""

    def __post_init__(self) -> None:
        self._check_classes()
        n, m, c = self.num_test, self.num_train, len(self.outputs)
        _expect("the network's logits", self.logits.shape, (n, c))
        _expect_finite("the network's logits", self.logits)
        if not self.kernels:
            raise InputError("no kernel to explain by", expected="at least one", got="none")
        for view in self.kernels:
            _expect(f"the matrix of kernel {view.name!r}", view.shape, (n, m))
            _expect(f"the weights of kernel {view.name!r}", view.coefficients.shape, (m, c))
            _expect(f"the offset of kernel {view.name!r}", view.offsets.shape, (c,))
            _expect_finite(f"the weights of kernel {view.name!r}", view.coefficients)
            _expect_finite(f"the offset of kernel {view.name!r}", view.offsets)
            if view.gram is not None:
                _expect(f"the training Gram matrix of kernel {view.name!r}", _shape(view.gram), (m, m))
        for flag in self.flags:
            beyond = [j for j in (flag.sample, *flag.evidence) if not 0 <= int(j) < m]
            if beyond:
                raise InputError(
                    "a flag about no training sample", expected=f"numbers from 0 to {m - 1}", got=beyond[0]
                )

    @property
    def num_test(self) -> int:
        """The number of test samples."""
        return len(self.logits)

    @property
    def num_train(self) -> int:
        """The number of training samples."""
        return len(self.train_labels)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """What each logit is for: the classes, or of two with one logit the second against the first."""
        if len(self.classes) == 2 and self.logits.shape[-1] == 1:
            return (f"{self.classes[1]} against {self.classes[0]}",)
        return self.classes

    @cached_property
    def logits(self) -> NDArray[np.float64]:
        """The logits of the network, (n, c)."""
        logits = as_array(self.network)
        if logits.ndim != 2 or 0 in logits.shape:
            raise InputError("bad logits of the network", expected="shape (n, c)", got=logits.shape)
        return logits

    @cached_property
    def train_labels(self) -> Int[np.ndarray, " m"]:
        """The classes of the training samples."""
        if self.train.labels is None:
            raise InputError("training samples without labels", expected="a class for each", got="None")
        return _labels(self.train, "training", None, len(self.classes))

    @cached_property
    def test_labels(self) -> Int[np.ndarray, " n"] | None:
        """The true classes of the test samples, where they are known."""
        if self.test.labels is None:
            return None
        return _labels(self.test, "test", self.num_test, len(self.classes))

    def _check_classes(self) -> None:
        if len(self.classes) < 2 or not all(isinstance(name, str) for name in self.classes):
            raise InputError("bad classes", expected="two names or more", got=repr(self.classes)[:80])
        names = [view.name for view in self.kernels]
        if len(set(names)) < len(names):
            raise InputError("kernels of one name", expected="a name for each", got=names)
        _ = self.test_labels
        for what, samples, count in (
            ("test", self.test, self.num_test),
            ("training", self.train, self.num_train),
        ):
            for kind in ("texts", "names"):
                words = getattr(samples, kind)
                if words is not None and (len(words) != count or not all(isinstance(w, str) for w in words)):
                    got = f"{len(words)}, first {words[0]!r}" if len(words) else "none"
                    raise InputError(f"bad {kind} of the {what} samples", expected=f"{count} texts", got=got)


def as_array(values: Any) -> NDArray[np.float64]:
    """Numbers of a tensor or of anything like an array, as float64.

    Raises:
        InputError: they are no numbers.
    """
    try:
        return np.asarray(_plain(values), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("not numbers", expected="a tensor or an array", got=error) from None


def row_blocks(matrix: Any) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Consecutive rows of a tensor, an array or an operator, a few at a time."""
    n, m = _shape(matrix)
    # Rows become float64 when they are read: the whole might not fit.
    sliced = matrix if isinstance(matrix, Operator | Tensor | np.ndarray) else as_array(matrix)
    for span in spans(n, ROWS):
        yield span, as_array(sliced[span, 0:m])


def _plain(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def _shape(matrix: Any) -> tuple[int, int]:
    shape = tuple(matrix.shape) if isinstance(matrix, Operator | Tensor | np.ndarray) else np.shape(matrix)
    if len(shape) != 2:
        raise InputError("bad kernel matrix", expected="shape (n, m)", got=shape)
    return shape


def _labels(samples: Samples, what: str, count: int | None, classes: int) -> NDArray[np.int64]:
    labels = np.asarray(_plain(samples.labels))
    if (
        labels.ndim != 1
        or len(labels) == 0
        or labels.dtype.kind not in "biu"
        or (count or len(labels)) != len(labels)
    ):
        expected = f"{count or 'n'} integers"
        raise InputError(
            f"bad {what} labels", expected=expected, got=f"{labels.dtype} of shape {labels.shape}"
        )
    if labels.min() < 0 or labels.max() >= classes:
        got = int(labels.max() if labels.max() >= classes else labels.min())
        raise InputError(f"{what} labels without a class", expected=f"0 to {classes - 1}", got=got)
    return labels.astype(np.int64)


def _expect(what: str, got: Sequence[int], expected: tuple[int, ...]) -> None:
    if tuple(got) != expected:
        raise InputError(f"{what} does not fit", expected=f"shape {expected}", got=f"shape {tuple(got)}")


def _expect_finite(what: str, values: NDArray[np.float64]) -> None:
    if not np.isfinite(values).all():
        raise InputError(f"{what} must be finite", expected="finite numbers", got="nan or infinity")
