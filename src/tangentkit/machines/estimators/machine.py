"""What machines share: a kernel, inputs of many kinds, targets and weights, predictions in pieces."""

import copy
import inspect
from collections.abc import Iterable, Mapping
from numbers import Real
from types import FunctionType
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset

from tangentkit.core.batches import as_batch, describe, from_array, tensors
from tangentkit.core.errors import InputError
from tangentkit.linalg import Operator, check_finite
from tangentkit.linalg.operators.matrices import as_tensor
from tangentkit.linalg.operators.operator import Memory
from tangentkit.machines.kernel_sources import KernelSource, as_source, pieces, size

FLOATS: Any = (np.float64, np.float32)
SHARED = ("kernel", "f0")
"""Parameters that clones share: kernels are immutable, and copying one would copy its network."""


class KernelMachine(BaseEstimator):
    """A scikit-learn estimator whose `kernel` is a name, a function k(x, y) or a kernel of this library.

    Arrays give arrays, tensors and pytrees of tensors give tensors. Clones share the kernel.
    """

    kernel: Any
    memory: Memory
    X_fit_: Any
    _coefficients: Float[Tensor, "nc q"]

    def __sklearn_tags__(self):
        """Precomputed kernels are pairwise inputs; targets are needed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        tags.input_tags.three_d_array = True
        tags.target_tags.required = True
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The options that were chosen, and of a fitted machine its sizes and solver."""
        defaults = {name: p.default for name, p in inspect.signature(type(self).__init__).parameters.items()}
        chosen = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if value is not defaults[name] and repr(value) != repr(defaults[name])
        }
        text = f"{type(self).__name__}({', '.join(f'{name}={_in_short(value)}' for name, value in chosen.items())})"
        found = vars(self)
        if "n_samples_fit_" in found:
            text += f", fitted on {self.n_samples_fit_} samples {self.sample_shape_}"
            text += f" of {len(found['classes_'])} classes" if "classes_" in found else ""
            text += f" by {found['solver_']!r}" if "solver_" in found else ""
        return text if len(text) <= N_CHAR_MAX else text[: N_CHAR_MAX - 3] + "..."

    def __sklearn_clone__(self) -> "KernelMachine":
        """An unfitted machine of the same parameters, with the same kernel."""
        parameters = {
            name: value if name in SHARED else clone(value, safe=False)
            for name, value in self.get_params(deep=False).items()
        }
        fresh = type(self)(**parameters)
        # The choices made by `set_fit_request` and its kind.
        if (requests := getattr(self, "_metadata_request", None)) is not None:
            setattr(fresh, "_metadata_request", copy.deepcopy(requests))  # noqa: B010
        return fresh

    def portable(self) -> Self:
        """The fitted machine without its kernel, samples and network: for pickles that need none of them.

        It predicts from k(Z, X), X being the training samples in their order (of a Nyström machine its landmarks),
        or from features where the machine was solved on features.
        """
        check_is_fitted(self)
        slim = copy.copy(self)
        slim._strip()
        return slim

    def _strip(self) -> None:
        """Leaves coefficients alone in a shallow copy."""
        self.kernel, self.X_fit_ = "precomputed", None
        self.n_features_in_ = len(self._coefficients)
        self.sample_shape_ = f"(n, {self.n_features_in_})"

    @property
    def _source(self) -> KernelSource:
        return as_source(self.kernel)

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _accept(self, X: Any, *, fitting: bool) -> Any:
        """Inputs as the kernel takes them: arrays checked by scikit-learn, tensors by the same rules.

        Raises:
            InputError: samples of another shape than in training, or numbers that are not finite.
        """
        self._source  # noqa: B018 - an unknown kernel is refused before anything else
        if not fitting:
            check_is_fitted(self)
        if fitting:
            self._fitted_on_tensors = gives_tensors(X)
            for name in ("n_features_in_", "feature_names_in_"):  # of an earlier fit
                vars(self).pop(name, None)
        if isinstance(X, Operator):
            if fitting:
                self.n_features_in_, self.sample_shape_ = X.shape[1], f"(n, {X.shape[1]})"
                self.n_samples_fit_ = X.shape[0]
            return X
        if isinstance(X, Dataset):
            raise InputError(
                "a machine has its samples in memory",
                expected="tensors, arrays or a kernel matrix",
                got=type(X).__name__,
                hint='kernel="precomputed" and tk.gram(kernel, Samples(dataset), store=...), a matrix of any size',
            )
        if not _is_batch(X):
            given = isinstance(self.kernel, str)
            dtype = FLOATS if given else "numeric"
            X = validate_data(self, X, reset=fitting, allow_nd=True, dtype=dtype)
            X = X if X.flags.writeable else X.copy()  # torch warns of arrays that are read-only
            shape = f"(n, {', '.join(map(str, X.shape[1:]))})"
            X = self._source.placed(X)
        else:
            X = pytree.tree_map_only(np.ndarray, self._source.placed, X)
            X = pytree.tree_map_only(
                Tensor, Tensor.detach, as_batch(X)
            )  # a graph would be kept, and not be copied
            for leaf in tensors(X):
                if leaf.layout != torch.strided:
                    raise InputError(
                        "sparse inputs", expected="dense tensors", got=leaf.layout, hint="x.to_dense()"
                    )
                # A sum needs no mask of the size of the inputs, and is finite only if they are.
                if leaf.is_floating_point() and not leaf.sum().isfinite() and not leaf.isfinite().all():
                    raise InputError(
                        "inputs are not finite", expected="finite numbers", got="NaN or infinity"
                    )
            if isinstance(X, Tensor) and X.ndim == 1:
                raise InputError(
                    "bad inputs",
                    expected="samples first and one more axis",
                    got=tuple(X.shape),
                    hint="x[:, None], if each sample is one number",
                )
            if fitting and isinstance(X, Tensor):
                self.n_features_in_ = X.shape[1]
            shape = describe(X).split(" ", 1)[-1] if isinstance(X, Tensor) else describe(X)
        # The columns of a matrix k(Z, X) are checked against the coefficients, with a message of their own.
        if fitting:
            self.sample_shape_, self.n_samples_fit_ = shape, size(X)
        elif not self._is_precomputed and shape != self.sample_shape_:
            raise InputError("samples do not match those of training", expected=self.sample_shape_, got=shape)
        return X if fitting else self._as_in_training(X)

    def _as_in_training(self, Z: Any) -> Any:
        """Samples in the kind of the training samples: a function k(z, x) may know only arrays, or only tensors."""
        if self._source.expects() is not None:  # arrays are tensors by now
            return Z
        if self._fitted_on_tensors:
            return from_array(Z) if isinstance(Z, np.ndarray) else Z
        return Z.cpu().numpy() if isinstance(Z, Tensor) else Z

    def _outputs(
        self, Z: Any, X: Any, coefficients: Float[Tensor, "nc q"], blocks: int
    ) -> Float[Tensor, "m c"]:
        """k(Z, X) times dual coefficients, in pieces that fit the memory budget."""
        bytes_each = blocks * len(coefficients) * coefficients.element_size()
        parts = [self._cross(z, X, coefficients) @ coefficients for z in self._pieces(Z, bytes_each)]
        rows = torch.cat(parts)
        if len(rows) % blocks:
            raise InputError(
                "the kernel matrix does not match the outputs",
                expected=f"k(Z, X) with {blocks} rows for every sample, as in training",
                got=f"{len(rows)} rows",
            )
        return rows.reshape(-1, blocks * coefficients.shape[1])

    def _cross(self, Z: Any, X: Any, coefficients: Float[Tensor, "nc q"]) -> Float[Tensor, "mc nc"]:
        """k(Z, X) in the dtype and on the device of the coefficients."""
        k = self._source.cross(Z, X)
        if k.shape[1] != len(coefficients):
            raise columns_do_not_match(k, len(coefficients))
        check_finite(k, "kernel matrix")
        return k.to(coefficients)

    def _features(self, Z: Any) -> Float[Tensor, "m d"]:
        """Features in the dtype and on the device of the coefficients."""
        features = self._source.features(Z)
        assert features is not None
        return features.to(self._coefficients)

    def _pieces(self, Z: Any, bytes_each: int) -> Iterable[Any]:
        """The samples in pieces that fit the memory budget; what is in memory already comes as a whole."""
        return [Z] if self._is_precomputed else pieces(Z, bytes_each=bytes_each, memory=self.memory)

    def _in_kind(self, values: Tensor, X: Any = None) -> Any:
        """A tensor where the inputs X, or without them those of `fit`, were tensors; else an array."""
        tensors_wanted = self._fitted_on_tensors if X is None else gives_tensors(X)
        return values if tensors_wanted else values.cpu().numpy()


def _in_short(value: Any) -> str:
    """An option in a word or two: a network by its class, a function by its name."""
    if isinstance(value, nn.Module):
        return type(value).__name__
    if isinstance(value, FunctionType):
        return value.__name__
    if isinstance(value, (Tensor, np.ndarray)) and value.ndim:
        return f"{type(value).__name__} {tuple(value.shape)}"
    return " ".join(repr(value).split())


def gives_tensors(X: Any) -> bool:
    """Whether answers to these inputs are tensors: for tensors, pytrees and operators, not for arrays and lists."""
    return isinstance(X, Operator) or _is_batch(X)


def columns_do_not_match(k: Float[Tensor, "m n"], n: int) -> InputError:
    """The error of a matrix k(Z, X) whose columns are not those of the n training samples."""
    return InputError(
        "the kernel matrix does not match the training samples",
        expected=f"k(Z, X) with {n} columns",
        got=f"{k.shape[1]} columns",
    )


def check_number(value: Any, what: str, *, positive: bool = False, below: float = float("inf")) -> float:
    """A finite number that is not negative.

    Raises:
        InputError: it is something else.
    """
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else -1.0
    if not 0 <= number < below or (positive and number == 0):
        limit = f" and < {below:g}" if below < float("inf") else ""
        raise InputError(
            f"bad {what}", expected=f"a finite number {'>' if positive else '>='} 0{limit}", got=repr(value)
        )
    return number


def regression_targets(y: Any, *, name: str) -> tuple[Float[Tensor, "n c"], bool]:
    """Targets (n,) or (n, c) as a matrix of floating point numbers, and whether they came without a second axis.

    Args:
        y: numbers, as an array, a list or a tensor.
        name: of the machine, for messages.

    Raises:
        InputError: there are none, their shape is wrong, or they are not finite.
    """
    if y is None:
        raise InputError(f"{name} requires y to be passed, but the target y is None", expected="targets")
    if isinstance(y, Tensor):
        y = as_tensor(y, "targets")
        if y.is_complex():
            raise InputError("complex targets", expected="real numbers", got=y.dtype, hint="y.real")
        if not y.isfinite().all():
            raise InputError("targets y are not finite", expected="finite numbers", got="NaN or infinity")
        y = y if y.is_floating_point() else y.double()
    else:
        y = check_array(y, ensure_2d=False, allow_nd=True, dtype=FLOATS, input_name="y", estimator=name)
        y = torch.from_numpy(np.array(y))
    if y.ndim not in (1, 2) or not y.numel():
        raise InputError("bad targets", expected="shape (n,) or (n, c)", got=tuple(y.shape))
    return (y, False) if y.ndim == 2 else (y[:, None], True)


def sample_weights(weights: Any, *, n: int, like: Tensor) -> Float[Tensor, " n"] | None:
    """Weights of the samples, on the device of the targets, or None where all count the same.

    They keep their own precision where that is finer: targets in half precision would round small ones to zero.

    Raises:
        InputError: of another length, negative, not finite, or all zero.
    """
    if weights is None:
        return None
    w = (
        as_tensor(weights, "sample weights")
        if isinstance(weights, Tensor)
        else torch.from_numpy(np.array(weights, dtype=float))
    )
    w = w.expand(n) if w.ndim == 0 else w
    if w.shape != (n,):
        raise InputError(
            f"Sample weights must be 1D array or scalar of shape ({n},)"
            if w.ndim != 1
            else f"sample_weight.shape == {tuple(w.shape)}, expected ({n},)!"
        )
    if not (w.isfinite().all() and (w >= 0).all()):
        raise InputError(
            "bad sample weights", expected="finite numbers >= 0", got=f"from {w.min()} to {w.max()}"
        )
    if not w.any():
        raise InputError("sample weights are all zero", expected="at least one above 0")
    w = w if w.is_floating_point() else w.double()
    w = w.to(like.device, torch.promote_types(w.dtype, like.dtype))
    return None if bool((w == 1).all()) else w


def _is_batch(X: Any) -> bool:
    """Whether it is a tensor or a pytree with tensors; in a mapping, arrays do as well."""
    if isinstance(X, Mapping):
        # A sparse matrix is a mapping too, of numbers.
        return any(isinstance(part, np.ndarray) or _is_batch(part) for part in X.values())
    return isinstance(X, Tensor) or (isinstance(X, (list, tuple)) and any(map(_is_batch, X)))
