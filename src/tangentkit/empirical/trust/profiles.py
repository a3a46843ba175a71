"""The profiles of a model, one for every shape of samples, revised at one point by what later batches disprove."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor

from tangentkit.core.batches import Batch, batch_size, describe
from tangentkit.core.model.functions import ModelFunction
from tangentkit.empirical.passes.parameter_gradients import Orders
from tangentkit.empirical.passes.recording import AnotherGraphError, Recording, record
from tangentkit.empirical.reading.independence import check_all, keeps_apart, spread
from tangentkit.empirical.reading.sample_moves import with_path
from tangentkit.empirical.structure import LARGE
from tangentkit.empirical.trust.profile import Profile, profile, profile_of
from tangentkit.empirical.trust.verification import prove

Result = TypeVar("Result")


class UnusedParameterWarning(UserWarning):
    """A selected parameter does not reach the output: its gradient is zero."""


class WrongRuleError(Exception):
    """A batch has shown that the rules of some parameters are wrong."""

    def __init__(self, reasons: dict[str, str]):
        super().__init__(str(reasons))
        self.reasons = reasons


class Profiles:
    """The profiles of a model, for every shape of samples that it has seen."""

    def __init__(self, function: ModelFunction):
        self.function = function
        self.orders = Orders()
        self._found: dict[str, Profile] = {}
        self._warned: set[str] = set()

    def of(self, x: Batch) -> Profile:
        """The profile for samples like these, made if they are the first.

        Raises:
            ModelError: samples see each other, or no parameter reaches the output.
        """
        if describe(x) not in self._found:
            self._found[describe(x)] = profile(self.function, x)
        return self._found[describe(x)]

    def take_over(self, other: "Profiles") -> None:
        """Takes over what is known of a model with the same layers, at other weights."""
        self._found, self.orders = dict(other._found), other.orders.copy()

    def record(self, batch: Batch, profile: Profile) -> Recording:
        """Runs a batch; rules that are unproven are compared with autograd on it.

        Args:
            batch: samples.
            profile: of samples like these, as it is or as it was before a batch revised it.

        Raises:
            ModelError: its samples see each other.
            WrongRuleError: a rule disagrees.
        """
        structure = self._current(profile).structure
        path = structure.path
        if structure.path:
            recording, path = with_path(lambda: record(self.function, batch, structure), batch_size(batch))
        else:
            recording = record(self.function, batch, structure)
        elsewhere = path != structure.path
        self.check_independence(batch, profile, recording.outputs, every=elsewhere)
        wanted = set(structure.names() if structure.doubtful or elsewhere else structure.unproven)
        if wanted:
            proven, wrong = prove(recording, batch, wanted)
            if wrong:
                raise WrongRuleError(wrong)
            if proven & structure.unproven:
                still = replace(structure, unproven=structure.unproven - proven)
                self._revise(profile, structure=still)
        return recording

    def learn_orders(self, x: Batch, profile: Profile) -> None:
        """Notes in which order rules give the entries of gradients, by a pass of a few samples where it must be.

        Later samples may show no factors of a weight (some models have another graph for a batch of one): where the
        entries of a factored gradient belong in the weight is known all the same.
        """
        if self.orders.unknown(profile.structure.layers):
            self.orders.learn(self.record(spread(x, LARGE), profile))

    def check_independence(
        self, batch: Batch, profile: Profile, outputs: Tensor | None = None, *, every: bool = False
    ) -> None:
        """Looks whether samples see each other: a few of a batch larger than all before, or every one.

        Args:
            batch: samples.
            profile: of samples like these, as it is or as it was before a batch revised it.
            outputs: of the batch, if they are at hand.
            every: whether to look at every sample, as is done anyway where some may be moved.

        Raises:
            ModelError: they do.
        """
        n, profile = batch_size(batch), self._current(profile)
        every = (every or profile.structure.routed) and n > 1
        if not every and n <= profile.independent:
            return
        outputs = self.function(self.function.params, batch) if outputs is None else outputs
        if every:
            check_all(self.function, batch, outputs)
        elif keeps_apart(self.function, batch, outputs):
            self._revise(profile, independent=n)

    def computed(self, x: Batch, work: Callable[[], Result]) -> Result:
        """Does some work with all samples, revising; then warns, once, of parameters that none was seen to use.

        Not before: the expert that the first samples do not call may be that of later ones.
        """
        found = self.revising(x, work)
        unused = self.of(x).structure.unused
        if unused and describe(x) not in self._warned:
            self._warned.add(describe(x))
            shown = ", ".join(unused[:5]) + (", ..." if len(unused) > 5 else "")
            text = f"{len(unused)} parameter(s) do not reach the output: {shown}"
            warnings.warn(text, UnusedParameterWarning, stacklevel=4)
        return found

    def revising(self, x: Batch, work: Callable[[], Result]) -> Result:
        """Does some work; again, with fewer assumptions, where a batch disproves one."""
        leaves = self.function.leaves()
        while True:
            try:
                return self.function.within(leaves, work)
            except AnotherGraphError as error:
                revised = self.of(x).structure.all_generic(str(error), hooked=error.hooked)
            except WrongRuleError as error:
                revised = replace(self.of(x).structure.without(error.reasons), vmap=False)
            self._found[describe(x)] = profile_of(self.function, x, revised)

    def _current(self, profile: Profile) -> Profile:
        """The profile with all that batches have shown since it was handed out.

        What is under way goes on with its own where another thread has meanwhile disproved the layers and begun
        afresh; revisions of the same layers share their sizes.
        """
        found = self._found[profile.samples]
        return found if found.sizes is profile.sizes else profile

    def _revise(self, profile: Profile, **changes: Any) -> None:
        """Puts a revised profile in the place of the current one; kernels that share the old one do not see it."""
        current = self._current(profile)
        if current is self._found[profile.samples]:
            self._found[profile.samples] = replace(current, **changes)
