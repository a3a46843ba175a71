"""The tangent kernel of a module, exactly."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tangentkit.compute.kernel import Kernel, explaining
from tangentkit.compute.terms import Row
from tangentkit.core.batches import Batch, batch_size, check_same_structure, take
from tangentkit.core.errors import InputError, NumericalError, TangentkitError
from tangentkit.core.memory import memory_budget, parse_bytes
from tangentkit.core.model.functions import Forward, ModelFunction, snapshot
from tangentkit.core.model.hooks import refuse_hooked_parameters
from tangentkit.core.model.parameters import Selection
from tangentkit.core.model.refusals import accepted, refusal
from tangentkit.core.model.swaps import outside_autograd
from tangentkit.empirical.engine.engine import Engine, LeftSide
from tangentkit.empirical.moments import mean_and_error
from tangentkit.empirical.outputs import (
    Directions,
    Outputs,
    as_outputs,
    directions,
    left_to_draw,
    random_signs,
    words,
)
from tangentkit.empirical.passes.routes import FLOPS_PER_BYTE, Workload
from tangentkit.empirical.plan import Plan, make_plan
from tangentkit.empirical.product import SAMPLES, kernel_product
from tangentkit.empirical.trust.profiles import Profiles
from tangentkit.linalg.operators.spans import spans


class TangentKernel(Kernel):
    """The neural tangent kernel of a module at its present parameters, J_ic = ∇_θ f_c(x_i).

    =================  ==============  ====================================
    outputs            shape           value
    =================  ==============  ====================================
    "trace"            (n, m)          Σ_c <J_ic, J_jc>
    "full"             (n, c, m, c)    <J_ic, J_jd>
    "pseudo"           (n, m)          (1/C) <Σ_c J_ic, Σ_c J_jc>
    index c, vector v  (n, m)          kernel of the output f_c, of v · f
    =================  ==============  ====================================

    It is a snapshot: training the module later, or changing its attributes, does not change it, and the module may be
    used meanwhile. Of complex parameters, the real and imaginary parts count: K = Re <g, g'>.

    Args:
        model: any module that autograd can differentiate, in evaluation mode where that matters.
        outputs: which kernel.
        params: None for all that require grad; names or patterns such as "head.*", or a predicate
            (name, parameter) -> bool.
        forward: (model, batch) -> (n, c). By default the model is called as its signature takes the batch (a dict by
            keywords, a tuple by positions, or the whole as one argument), and `.logits` are read.
        memory: working memory beside the result, in bytes or as "2GB"; by default a quarter of what is free.
        probes: for "trace" with many outputs: the number of random output signs that estimate it, without bias;
            `with_error` gives the standard error too. As many as outputs give the trace itself.
        seed: of the probes.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> kernel = TangentKernel(model)
        >>> kernel(torch.randn(5, 3), torch.randn(4, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        model: nn.Module,
        outputs: Outputs = "trace",
        *,
        params: Selection = None,
        forward: Forward | None = None,
        memory: int | str | None = None,
        probes: int | None = None,
        seed: int = 0,
    ):
        outputs = as_outputs(outputs)
        if probes is not None and (outputs != "trace" or probes < 1):
            raise InputError(
                "bad probes", expected='a number >= 1, with outputs="trace"', got=f"{probes}, {outputs!r}"
            )
        self.function = snapshot(model, params=params, forward=forward)
        refuse_hooked_parameters(model, self.function.params)
        self.outputs, self.probes, self.seed = outputs, probes, seed
        self.memory = None if memory is None else parse_bytes(memory)
        self._profiles = Profiles(self.function)

    def __repr__(self) -> str:
        probes = "" if self.probes is None else f", probes={self.probes}, seed={self.seed}"
        return f"TangentKernel({self.function!r}; outputs={words(self.outputs)}{probes})"

    @outside_autograd
    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """The kernel of two batches, or of one with itself (half the work).

        Raises:
            NumericalError: the result is not finite.
        """
        return self._matrices(x, y, [])[""]

    def take_profiles(self, other: "TangentKernel") -> "TangentKernel":
        """Takes over the profiles of another kernel, of the same network some steps of training before, say.

        What is known of layers is not learned and verified again, which is a third of the time of a kernel of some
        hundred samples of LeNet. A batch that disproves a profile revises it as ever.

        Raises:
            InputError: the models have other parameters.

        Example:
            >>> model, x = nn.Linear(3, 2), torch.randn(5, 3)
            >>> before = TangentKernel(model)
            >>> K = before(x)
            >>> _ = model.weight.data.add_(1.0)
            >>> after = TangentKernel(model).take_profiles(before)
            >>> after(x).shape
            torch.Size([5, 5])
        """
        here, there = (_shapes(kernel.function) for kernel in (self, other))
        if here != there:
            name = next(name for name in here | there if here.get(name) != there.get(name))
            raise InputError(
                "profiles of another model",
                expected=f"{name} {here.get(name, 'not there')}",
                got=there.get(name, "no such parameter"),
            )
        self._profiles.take_over(other._profiles)
        return self

    def functions(self) -> tuple[ModelFunction, ...]:
        """The network at its snapshot."""
        return (self.function,)

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """The dtype and device of the model."""
        return self.function.dtype, self.function.device

    def row(self, x: Batch) -> Row:
        """y -> k(x, y) for many y in turn: x goes through the model once, as far as the memory budget allows."""
        x, left_side = self._checked(x), LeftSide()
        return lambda y=None: self._in_row(x, y, left_side)

    @explaining
    @outside_autograd
    def _in_row(self, x: Batch, y: Batch | None, left_side: LeftSide) -> Tensor:
        return self._matrices(x, y, [], left_side=left_side)[""]

    @outside_autograd
    def growth(self, x: Batch, small: int, large: int) -> float:
        """How many times as much work a tile of `large` samples a side is as one of `small`, by their plans."""
        x = self._checked(x)
        engine = self._engine(x)

        def work(n: int) -> float:
            directions = engine.directions
            tile = Workload(n, n, len(directions.vectors), directions.full, symmetric=False)
            plan = make_plan(self.function, engine.profile, tile, engine.budget)
            return plan.flops + FLOPS_PER_BYTE * plan.bytes

        return work(large) / work(small)

    @outside_autograd
    def by_parameter(self, x: Batch, y: Batch | None = None) -> dict[str, Tensor]:
        """Name of a parameter -> its part of the kernel; they sum to the kernel."""
        return self._matrices(x, y, list(self.function.params))

    @outside_autograd
    def with_error(self, x: Batch, y: Batch | None = None) -> tuple[Tensor, Tensor]:
        """The trace estimated by random output signs, and its standard error, entry by entry.

        The signs are drawn without repetition: all of them together, or as many as outputs, are the trace itself,
        whose error is 0.

        Raises:
            InputError: there are not at least two probes.
        """
        if self.probes is None or self.probes < 2:
            raise InputError("no standard error", expected="probes=2 or more", got=f"probes={self.probes}")
        x, y = self._pair(x, y)
        engine = self._engine(x)
        c = engine.profile.outputs
        if self.probes >= c:
            trace = self._matrices(x, y, [])[""]
            return trace, torch.zeros_like(trace)
        signs = engine.directions.vectors * math.sqrt(self.probes)

        def along(v: Tensor) -> Tensor:
            found = self._profiles.computed(x, lambda: self._along(x, v).matrices(x, y, []))
            return self._finite(found[""])

        mean, error = mean_and_error(map(along, signs))
        return mean, error * math.sqrt(left_to_draw(self.probes, c))

    @outside_autograd
    def diag(self, x: Batch) -> Tensor:
        """k(x_i, x_i): (n,), or (n, c) for outputs="full"."""
        x = self._checked(x)
        norms = self._profiles.computed(x, lambda: self._engine(x).square_norms(x))
        return self._finite(
            norms if isinstance(self.outputs, str) and self.outputs == "full" else norms.sum(1)
        )

    @outside_autograd
    def plan(self, x: Batch, y: Batch | None = None) -> Plan:
        """Route, FLOPs, bytes and share of every parameter, counted before any work. Prints as a table."""
        x, y = self._pair(x, y)
        engine = self._engine(x)
        return make_plan(self.function, engine.profile, engine.work(x, y), engine.budget)

    @outside_autograd
    def product(self, x: Batch, v: Tensor) -> Tensor:
        """The full kernel times v (n, c), as J (Jᵀ v) by one vjp and one jvp: the kernel is never formed."""
        x = self._checked(x)
        profile = self._profiles.of(x)
        for samples in spans(batch_size(x), SAMPLES):
            self._profiles.check_independence(take(x, samples), profile, every=bool(profile.structure.path))
        return self._finite(kernel_product(self.function, x, v))

    def _matrices(
        self, x: Batch, y: Batch | None, names: list[str], *, left_side: LeftSide | None = None
    ) -> dict[str, Tensor]:
        x, y = self._pair(x, y)
        found = self._profiles.computed(x, lambda: self._engine(x).matrices(x, y, names, left_side=left_side))
        if isinstance(self.outputs, str) and self.outputs == "full":
            c = self._profiles.of(x).outputs
            found = {name: k.unflatten(1, (-1, c)).unflatten(0, (-1, c)) for name, k in found.items()}
        return {name: self._finite(k) for name, k in found.items()}

    def _engine(self, x: Batch) -> Engine:
        profile = self._profiles.of(x)
        like = next(iter(self.function.params.values()))
        if self.probes is None:
            chosen = directions(self.outputs, profile.outputs, like=like)
        else:
            chosen = random_signs(self.probes, profile.outputs, seed=self.seed, like=like)
        return Engine(
            self._profiles, profile, chosen, memory_budget(self.memory, device=self.function.device)
        )

    def _along(self, x: Batch, v: Tensor) -> Engine:
        """The engine for one output direction."""
        return replace(self._engine(x), directions=Directions(v[None]))

    def _pair(self, x: Batch, y: Batch | None) -> tuple[Batch, Batch | None]:
        x, y = self._checked(x), None if y is None else self._checked(y)
        if y is not None:
            check_same_structure(x, y)
        return x, y

    def _checked(self, x: Batch) -> Batch:
        return accepted(self.function, x)

    def _refusal(self, error: Exception, *data: Any) -> TangentkitError | None:
        return refusal(self.function, error, *data)

    def _finite(self, result: Tensor) -> Tensor:
        # The sum is finite if all entries are, and needs no mask of the result's size.
        if not result.sum().isfinite() and not result.isfinite().all():
            raise NumericalError(
                "the kernel is not finite",
                expected="finite gradients",
                got="nan or inf in the result",
                hint="float64, or look for an operation with an infinite derivative (sqrt at 0, say)",
            )
        return result


def _shapes(function: ModelFunction) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in function.params.items()}
