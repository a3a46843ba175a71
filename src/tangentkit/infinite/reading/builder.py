"""Building a network node by node: which fields are Gaussian, which are correlated, and where their axes are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import prod

from tangentkit.infinite.duals.registry import Dual
from tangentkit.infinite.propagate.network import (
    Arrange,
    Average,
    InputNode,
    Mix,
    Network,
    Node,
    Nonlinear,
    Normalize,
    Part,
    Weights,
)
from tangentkit.infinite.propagate.position_pairs import Geometry, Patch, adaptive, identity, selection
from tangentkit.infinite.reading.fields import Axis, FieldLaw, Group, Hidden, Refusal


class Builder:
    """The nodes so far. Equal operations on equal fields are one node."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.laws: list[FieldLaw] = []
        self._places: dict[Node, int] = {}
        self._terms: dict[int, dict[int, float]] = {}

    def network(self, output: int) -> Network:
        """The nodes that the output needs, in order, the output last."""
        needed = {output}
        for i in range(output, -1, -1):
            if i in needed:
                needed |= set(self.nodes[i].inputs)
        order = sorted(needed)
        new = {old: i for i, old in enumerate(order)}
        return Network(
            tuple(replace(self.nodes[i], inputs=tuple(new[j] for j in self.nodes[i].inputs)) for i in order)
        )

    def add(self, node: Node, law: FieldLaw) -> int:
        """The place of a node, new or known."""
        if node not in self._places:
            self._places[node] = len(self.nodes)
            self.nodes.append(node)
            self.laws.append(law)
        return self._places[node]

    def is_gaussian(self, h: Hidden) -> bool:
        """Whether all channels are Gaussian of mean zero."""
        return all(self.laws[group.node].gaussian for group in h.groups)

    # Operations on whole tensors -----------------------------------------------------------------------------

    def source(self, name: str, shape: Sequence[int], channel: int) -> Hidden:
        """A value that no weight touched, as channels and positions."""
        positions = tuple(a for a in range(1, len(shape)) if a != channel)
        node = InputNode((), tuple(shape[a] for a in positions), name, positions, channel)
        place = self.add(node, FieldLaw(gaussian=False, sources=frozenset()))
        axes = tuple(
            ("n",) if a == 0 else ("c",) if a == channel else (positions.index(a),) for a in range(len(shape))
        )
        return Hidden((self.tidy(Group(place, axes, shape[channel])),))

    def weights(
        self,
        h: Hidden,
        rule: Callable[[tuple[int, ...], tuple[int, ...]], Weights],
        geometries: dict[int, Patch],
        width: int,
    ) -> Hidden:
        """A layer: the mean over what its filter sees, then random weights.

        Args:
            h: what goes in.
            rule: inputs and positions -> node of the weights.
            geometries: tensor axis -> what the filter sees along it; positions merged with the channels are
                summed over whole.
            width: channels of the result.
        """
        features = [self._features(group) for group in h.groups]
        seen = [self._seen(group, geometries) for group in h.groups]
        node = self.mix([group.node for group in seen], [f / sum(features) for f in features])
        weights = rule((node,), self.nodes[node].positions)
        place = self.add(weights, FieldLaw(gaussian=True, sources=frozenset({weights.name})))
        return Hidden((self.tidy(replace(seen[0], node=place, width=width)),))

    def nonlinear(self, h: Hidden, dual: Dual) -> Hidden:
        """A scalar function of every entry."""

        def apply(group: Group) -> Group:
            law = self.laws[group.node]
            if not law.gaussian:
                raise Refusal(
                    "its input is not Gaussian, even at infinite width: it adds positions or branches of which one "
                    "is a nonlinear function itself (as the shortcut of a block that ends in an activation is); a "
                    "linear or convolutional layer must come after it, or on that branch"
                )
            node = Nonlinear((group.node,), self.nodes[group.node].positions, dual)
            return replace(group, node=self.add(node, FieldLaw(gaussian=False, sources=law.sources)))

        return Hidden(tuple(map(apply, h.groups)))

    def normalize(self, h: Hidden, tensor_axes: Iterable[int], epsilon: float, *, centered: bool) -> Hidden:
        """Division by the root mean square (or standard deviation) over channels and perhaps positions."""
        group, *others = h.groups
        if others:
            raise Refusal("it normalizes concatenated channels, whose variances differ")
        roles = {role for a in tensor_axes for role in group.axes[a]}
        if "c" not in roles or "n" in roles:
            raise Refusal("it does not normalize over the channels")
        law = self.laws[group.node]
        if centered and not law.gaussian:
            raise Refusal(
                "its input has a mean that is not zero: there must be a linear or convolutional layer before it"
            )
        axes = tuple(sorted(role for role in roles if isinstance(role, int)))
        node = Normalize((group.node,), self.nodes[group.node].positions, axes, epsilon)
        return Hidden((replace(group, node=self.add(node, law)),))

    def average(self, h: Hidden, geometries: dict[int, Geometry]) -> Hidden:
        """A linear map of positions, given for some axes of the tensor."""
        return Hidden(tuple(self.tidy(self._mapped(group, geometries)) for group in h.groups))

    def take(self, h: Hidden, places: Mapping[int, Sequence[int]], shape: Sequence[int]) -> Hidden:
        """Some entries of a tensor along some of its axes, in the given order; -1 is a zero."""
        geometries: dict[int, Geometry] = {}
        for axis, kept in places.items():
            roles = {role for group in h.groups for role in group.axes[axis]}
            if "n" in roles:
                raise Refusal("it selects or moves samples")
            if "c" in roles:
                h = self._channels(h, axis, kept)
            else:
                geometries[axis] = selection(shape[axis], kept)
        return self.average(h, geometries) if geometries else h

    def mean(self, h: Hidden, tensor_axes: Iterable[int]) -> Hidden:
        """The mean over all positions of some axes, which keep one entry."""

        def apply(group: Group) -> Group:
            over = {role for a in tensor_axes for role in group.axes[a]}
            sizes = self.nodes[group.node].positions
            if not over:
                return group
            whole = tuple(adaptive(size, 1) if a in over else identity(size) for a, size in enumerate(sizes))
            node = Average((group.node,), tuple(g.outputs for g in whole), whole)
            return self.tidy(replace(group, node=self.add(node, self.laws[group.node])))

        return Hidden(tuple(map(apply, h.groups)))

    def scale(self, h: Hidden, factor: float) -> Hidden:
        """factor · z."""
        return Hidden(tuple(replace(group, node=self._sum({group.node: factor})) for group in h.groups))

    def sum(self, first: Hidden, second: Hidden, sign: float = 1.0) -> Hidden:
        """The sum or difference of two tensors of one shape."""
        first, second = self._matched(first, second)
        groups = []
        for a, b in zip(first.groups, second.groups, strict=True):
            other = self._aligned(b, a)
            total: dict[int, float] = {}
            for node, factor in ((a.node, 1.0), (other, sign)):
                total[node] = total.get(node, 0.0) + factor
            groups.append(replace(a, node=self._sum(total)))
        return Hidden(tuple(groups))

    def concatenate(self, parts: Sequence[Hidden], axis: int) -> Hidden:
        """Channels side by side."""
        groups = [group for part in parts for group in part.groups]
        if any("c" not in group.axes[axis] for group in groups):
            raise Refusal("it joins along an axis that is not the channels")

        def aligned(group: Group) -> Group:
            outside = any(isinstance(role, int) for a, x in enumerate(group.axes) if a != axis for role in x)
            return (
                replace(groups[0], node=self._aligned(group, groups[0]), width=group.width)
                if outside
                else group
            )

        return Hidden(tuple(map(aligned, groups)))

    def output(self, h: Hidden) -> int:
        """The node of the model's output (n, c) or (n,), with flattened positions averaged."""
        seen = [self._seen(group, {}) for group in h.groups]
        if any(self.nodes[group.node].positions for group in seen):
            raise Refusal("the output has positions")
        features = [self._features(group) for group in h.groups]
        return self.mix([group.node for group in seen], [f / sum(features) for f in features])

    # Channels -------------------------------------------------------------------------------------------------

    def _channels(self, h: Hidden, axis: int, kept: Sequence[int]) -> Hidden:
        """Some of the channels."""
        if any(group.axes[axis] != ("c",) for group in h.groups):
            raise Refusal("it takes a part of channels that are merged with positions")
        if min(kept) < 0 or len(set(kept)) < len(kept):
            raise Refusal("it adds or repeats channels")
        if len(h.groups) > 1 and list(kept) != sorted(kept):
            raise Refusal("it moves channels of different kinds past each other")
        groups, before = [], 0
        for group in h.groups:
            here = tuple(k - before for k in kept if before <= k < before + group.width)
            before += group.width
            if here == tuple(range(group.width)):
                groups.append(group)
            elif here:
                if not self._are_alike(group.node):
                    raise Refusal("it takes a part of channels that are not alike")
                part = Part((group.node,), self.nodes[group.node].positions, here)
                node = self.add(part, self.laws[group.node])
                groups.append(replace(group, node=node, width=len(here)))
        return Hidden(tuple(groups))

    def _are_alike(self, node: int) -> bool:
        """Whether the channels of a node are copies of one field; those of a source are not."""
        here = self.nodes[node]
        return isinstance(here, Weights) or (bool(here.inputs) and all(map(self._are_alike, here.inputs)))

    def _matched(self, first: Hidden, second: Hidden) -> tuple[Hidden, Hidden]:
        """Two tensors with their channels in groups of the same widths."""
        ends = [list(accumulate(group.width for group in h.groups)) for h in (first, second)]
        if ends[0] == ends[1]:
            return first, second
        axis = first.groups[0].axis_of("c")
        if ends[0][-1] != ends[1][-1] or axis is None or axis != second.groups[0].axis_of("c"):
            raise Refusal("its branches have channels that do not match")
        spans = [range(*span) for span in pairwise(sorted({0, *ends[0], *ends[1]}))]
        first, second = (
            Hidden(tuple(self._channels(h, axis, span).groups[0] for span in spans)) for h in (first, second)
        )
        return first, second

    # Axes ----------------------------------------------------------------------------------------------------

    def reshape(self, h: Hidden, before: Sequence[int], after: Sequence[int]) -> Hidden:
        """Another shape with the entries in the same order: axes merged or taken apart again."""
        if tuple(before) == tuple(after):
            return h
        if any(group.axes != h.axes for group in h.groups):
            raise Refusal("it reshapes concatenated features whose positions differ")
        channels = sum(group.width for group in h.groups)
        return Hidden(tuple(self._regrouped(group, channels, before, after) for group in h.groups))

    def permute(self, h: Hidden, order: Sequence[int]) -> Hidden:
        """The axes in another order."""
        return Hidden(tuple(replace(group, axes=tuple(group.axes[a] for a in order)) for group in h.groups))

    def tidy(self, group: Group) -> Group:
        """The group without position axes of one position, and the rest in the order of the tensor."""
        sizes = self.nodes[group.node].positions
        kept = [role for axis in group.axes for role in axis if isinstance(role, int) and sizes[role] > 1]
        new: dict[str | int, int] = {old: i for i, old in enumerate(kept)}
        axes = tuple(
            tuple(new.get(role, role) for role in axis if not isinstance(role, int) or role in new)
            for axis in group.axes
        )
        return replace(group, node=self._arranged(group.node, kept), axes=axes)

    def _regrouped(self, group: Group, channels: int, before: Sequence[int], after: Sequence[int]) -> Group:
        sizes = self.nodes[group.node].positions
        atoms = [
            (role, sizes[role] if isinstance(role, int) else size if role == "n" else channels)
            for axis, size in zip(group.axes, before, strict=True)
            for role in axis
        ]
        axes: list[Axis] = []
        for size in after:
            taken: list[str | int] = []
            got = 1
            while atoms and (got < size or (size == 1 and not taken and atoms[0] == ("c", 1))):
                role, count = atoms.pop(0)
                taken.append(role)
                got *= count
            if got != size:
                raise Refusal("it cuts samples, channels or positions into pieces")
            if "n" in taken and len(taken) > 1:
                raise Refusal("it merges the samples with other axes")
            axes.append(tuple(taken))
        return replace(group, axes=tuple(axes))

    def _features(self, group: Group) -> int:
        axis = group.axis_of("c")
        merged = () if axis is None else (r for r in group.axes[axis] if isinstance(r, int))
        return group.width * prod(self.nodes[group.node].positions[role] for role in merged)

    def _seen(self, group: Group, geometries: dict[int, Patch]) -> Group:
        """What a filter sees of a group: positions that are merged with the channels are summed over whole."""
        at = group.axis_of("c")
        sizes = self.nodes[group.node].positions
        flat = [] if at is None else [role for role in group.axes[at] if isinstance(role, int)]
        if flat:
            whole = tuple(
                Patch(size, kernel=size) if a in flat else identity(size) for a, size in enumerate(sizes)
            )
            positions = tuple(1 if a in flat else size for a, size in enumerate(sizes))
            node = self.add(Average((group.node,), positions, whole), self.laws[group.node])
            axes = tuple(("c",) if "c" in axis else axis for axis in group.axes)
            group = self.tidy(replace(group, node=node, axes=axes))
        return self._mapped(group, geometries) if geometries else group  # pyright: ignore

    def _mapped(self, group: Group, geometries: dict[int, Geometry]) -> Group:
        """A map of positions along tensor axes; axes of one entry become position axes first."""
        roles, axes, extra = {}, list(group.axes), 0
        sizes = self.nodes[group.node].positions
        for a in geometries:
            if not group.axes[a]:
                axes[a] = (len(sizes) + extra,)
                extra += 1
            if len(axes[a]) != 1 or not isinstance(axes[a][0], int):
                raise Refusal("it works along an axis that is not one axis of positions")
            roles[axes[a][0]] = geometries[a]
        order = (*range(len(sizes)), *(None,) * extra)
        node = self._arranged(group.node, order)
        sizes = self.nodes[node].positions
        chosen = tuple(roles.get(role, identity(size)) for role, size in enumerate(sizes))
        if all(g == identity(g.size) for g in chosen):
            return replace(group, node=node, axes=tuple(axes))
        average = Average((node,), tuple(g.outputs for g in chosen), chosen)
        return replace(group, node=self.add(average, self.laws[node]), axes=tuple(axes))

    def _arranged(self, node: int, order: Sequence[int | None]) -> int:
        sizes = self.nodes[node].positions
        if tuple(order) == tuple(range(len(sizes))):
            return node
        dropped = tuple(a for a in range(len(sizes)) if a not in order)
        positions = tuple(1 if a is None else sizes[a] for a in order)
        return self.add(Arrange((node,), positions, tuple(order), dropped), self.laws[node])

    def _aligned(self, group: Group, to: Group) -> int:
        """The node of a group with its position axes in the order of another of the same shape."""
        ours, theirs = ([(a, role) for a, axis in enumerate(g.axes) for role in axis] for g in (to, group))
        if [(a, type(role)) for a, role in ours] != [(a, type(role)) for a, role in theirs]:
            raise Refusal("its branches differ in what their axes mean, or one is stretched over positions")
        place = {role: other for (_, role), (_, other) in zip(ours, theirs, strict=True)}
        order = [int(place[role]) for role in range(len(self.nodes[to.node].positions))]
        node = self._arranged(group.node, order)
        if self.nodes[node].positions != self.nodes[to.node].positions:
            raise Refusal("its branches differ in positions: one would be stretched over the other")
        return node

    # Sums ----------------------------------------------------------------------------------------------------

    def mix(self, nodes: Sequence[int], shares: Sequence[float]) -> int:
        """Channels side by side, as the weights of a next layer see them: a mean with shares."""
        if len(nodes) == 1:
            return nodes[0]
        laws = [self.laws[node] for node in nodes]
        law = FieldLaw(gaussian=False, sources=frozenset().union(*(law.sources for law in laws)))
        return self.add(Mix(tuple(nodes), self.nodes[nodes[0]].positions, tuple(shares)), law)

    def _sum(self, terms: dict[int, float]) -> int:
        """Σ factor · z of nodes; sums of sums are one sum, in which a field that comes twice is doubled."""
        flat: dict[int, float] = {}
        for node, factor in terms.items():
            for term, inner in self._terms.get(node, {node: 1.0}).items():
                flat[term] = flat.get(term, 0.0) + factor * inner
        flat = {node: factor for node, factor in flat.items() if factor}
        if not flat:
            raise Refusal("its terms cancel")
        nodes = list(flat)
        for i, a in enumerate(nodes):
            for b in nodes[:i]:
                self._check_uncorrelated(a, b)
        if len(nodes) == 1 and flat[nodes[0]] == 1:
            return nodes[0]
        laws = [self.laws[node] for node in nodes]
        law = FieldLaw(all(law.gaussian for law in laws), frozenset().union(*(law.sources for law in laws)))
        factors = tuple(factor**2 for factor in flat.values())
        place = self.add(Mix(tuple(nodes), self.nodes[nodes[0]].positions, factors), law)
        self._terms[place] = flat
        return place

    def _check_uncorrelated(self, a: int, b: int) -> None:
        first, second = self.laws[a], self.laws[b]
        if shared := first.sources & second.sources:
            raise Refusal(
                f"two of its branches come from layer {min(shared)!r} with no weights of their own in between, "
                "so they are correlated"
            )
        if not (first.gaussian or second.gaussian):
            raise Refusal(
                "two of its branches end in nonlinear functions (or in the input itself), whose means are "
                "correlated: at most one may, the others need a linear or convolutional layer at their end"
            )
