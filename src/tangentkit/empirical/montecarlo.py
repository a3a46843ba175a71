"""The mean kernel over random initializations, with its standard error."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from tangentkit.compute.kernel import Kernel
from tangentkit.core.batches import Batch
from tangentkit.core.errors import InputError
from tangentkit.core.memory import parse_bytes
from tangentkit.core.seeds import Key
from tangentkit.empirical.moments import mean_and_error
from tangentkit.empirical.tangent import TangentKernel


class MonteCarloKernel(Kernel):
    """E_θ[k_θ(x, y)], estimated by the mean over initializations.

    The standard error of every entry is std / sqrt(samples).

    Args:
        make_model: () -> a fresh module, other weights at every call: from torch's global generator, which is seeded
            for each sample and put back. (Those of `tk.models` take `seed=torch.default_generator`.)
        samples: number of initializations.
        seed: same seed, same kernel.
        kernel: module -> kernel; by default the trace of the tangent kernel. Divided by the number of outputs
            that converges to the infinite-width kernel as the width grows.

    Example:
        >>> kernel = MonteCarloKernel(lambda: nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 1)))
        >>> mean, error = kernel.with_error(torch.randn(5, 3))
        >>> mean.shape, error.shape
        (torch.Size([5, 5]), torch.Size([5, 5]))
    """

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        samples: int = 10,
        *,
        seed: int = 0,
        kernel: Callable[[nn.Module], Kernel] = TangentKernel,
    ):
        if not isinstance(samples, int) or samples < 1:
            raise InputError("bad number of samples", expected="a whole number, at least 1", got=samples)
        if isinstance(make_model, nn.Module):
            raise InputError(
                "make_model is a module",
                expected="a function () -> a fresh module",
                got=type(make_model).__name__,
            )
        self.make_model, self.samples, self.seed, self.kernel = make_model, samples, seed, kernel

    def __repr__(self) -> str:
        make, kernel = (getattr(f, "__qualname__", repr(f)) for f in (self.make_model, self.kernel))
        return f"MonteCarloKernel({make}, samples={self.samples}, seed={self.seed}, kernel={kernel})"

    def within(self, memory: int) -> "MonteCarloKernel":
        """The same mean, each sample's kernel with this working memory in bytes wherever it was left open."""
        bounded = MonteCarloKernel(self.make_model, self.samples, seed=self.seed, kernel=self.kernel)
        bounded.memory = memory
        return bounded

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """The mean of the kernels over initializations."""
        return self._estimate(lambda kernel: kernel(x, y))[0]

    def diag(self, x: Batch) -> Tensor:
        """The mean of their diagonals."""
        return self._estimate(lambda kernel: kernel.diag(x))[0]

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """What the kernel of a sample expects; it makes one."""
        return self._kernel_of(self._model(0)).expects()

    def growth(self, x: Batch, small: int, large: int) -> float:  # noqa: ARG002 - models are not made for it
        """How many times as much work a tile of `large` samples a side is, if all of it is passes."""
        return large / small

    def with_error(self, x: Batch, y: Batch | None = None) -> tuple[Tensor, Tensor]:
        """The mean and its standard error, entry by entry.

        Raises:
            InputError: one sample has no standard error.
        """
        if self.samples < 2:
            raise InputError("no standard error", expected="at least 2 samples", got=self.samples)
        return self._estimate(lambda kernel: kernel(x, y))

    def _estimate(self, evaluate: Callable[[Kernel], Tensor]) -> tuple[Tensor, Tensor]:
        return mean_and_error(evaluate(kernel) for kernel in self._kernels())

    def _kernels(self) -> Iterator[Kernel]:
        first = self._model(0)
        yield self._kernel_of(first)
        for i in range(1, self.samples):
            model = self._model(i)
            if first is not None:
                _check_fresh(first, model)
                first = None
            yield self._kernel_of(model)

    def _kernel_of(self, model: nn.Module) -> Kernel:
        kernel = self.kernel(model)
        return kernel if self.memory is None else kernel.within(parse_bytes(self.memory))

    def _model(self, i: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(Key(self.seed).fold("initialization", i).entropy % 2**63)
            model = self.make_model()
        if not isinstance(model, nn.Module):
            raise InputError("make_model made no module", expected="a module", got=type(model).__name__)
        return model


def _check_fresh(one: nn.Module, other: nn.Module) -> None:
    """Refuses models of the same weights: their mean would be one of them, of standard error 0.

    Raises:
        InputError: the weights are the same.
    """
    pairs = zip(one.parameters(), other.parameters(), strict=False)
    if one is other or all(p.shape == q.shape and torch.equal(p, q) for p, q in pairs):
        raise InputError(
            "make_model made the same weights twice",
            expected="a fresh module at every call, of weights from torch's global generator",
            got="the same module" if one is other else "modules of equal weights, by a seed of their own say",
            hint="leave seeds to MonteCarloKernel(seed=...); tk.models take seed=torch.default_generator",
        )
