"""Whether a model may move samples by what is in them.

A router sorts samples by expert and back again, or hands them to experts by products with one-hot matrices. Row i of
a layer is then sample i in one batch and another in the next, while shapes and graph stay the same: what was verified
on the first samples says nothing of later batches. Whoever moves a sample leaves a trace in the graph: an operation
along the axis of samples.
"""

from torch.autograd.graph import Node

from tangentkit.empirical.graph import Graph, signed

INDEXED = frozenset({"Index", "IndexPut", "IndexPutImpl", "UnsafeIndexPut", "UnsafeIndex"})
ANYWHERE = frozenset({"MaskedSelect", "MaskedScatter", "Take", "Put", "Embedding", "RepeatInterleave"})
ALONG = frozenset(
    {"IndexSelect", "IndexAdd", "IndexCopy", "IndexFill", "IndexReduce", "Gather", "Scatter", "ScatterAdd"}
    | {"ScatterReduce", "Sort", "Topk", "Kthvalue", "Cumsum", "Cumprod", "Cummax", "Cummin", "Logcumsumexp"}
)
PRODUCTS = frozenset({"Mm", "Addmm", "Bmm", "Baddbmm", "Addbmm", "Mv", "Addmv", "Dot"})


def moves_samples(small: Graph, large: Graph, side: list[bool]) -> bool:
    """Whether some operation may move, pick or add up samples.

    Args:
        small: the graph of a batch of one size.
        large: the graph of the same code for another size.
        side: for each node, whether it is made of parameters alone.
    """
    return any(_moves(small, large, side, i) for i in range(len(small.nodes)) if not side[i])


def _moves(small: Graph, large: Graph, side: list[bool], i: int) -> bool:
    children = [
        (slot, _growing(small, large, *edge), len(small.shapes(edge[0])[edge[1]]))
        for slot, edge in enumerate(small.edges[i])
        if edge is not None and not side[edge[0]]
    ]
    own, node = _growing(small, large, i, 0), small.nodes[i]
    if len(own) > 1 or (not own and any(axes for _, axes, _ in children)):
        return True  # pairs of samples, or a sum over them
    name = node.name().rstrip("0123456789").removesuffix("Backward")
    if not children:
        return False  # a table that samples look up stays where it is
    if name in ANYWHERE:
        return True
    if name in INDEXED:
        return _indexes(node, own.union(*(axes for _, axes, _ in children)))
    if name in ALONG:
        dim = signed(node._saved_dim)  # pyright: ignore
        rank = len(small.shapes(i)[0])
        return dim % rank in own or any(dim % rank in axes for _, axes, _ in children)
    if name in PRODUCTS:
        left = len(small.edges[i]) - 2
        # Contracted: the last axis of the left factor, the last but one of the right.
        return any(
            slot >= left and (rank - 1 if slot == left else max(rank - 2, 0)) in axes
            for slot, axes, rank in children
        )
    return False


def _growing(small: Graph, large: Graph, i: int, output: int) -> set[int]:
    """The axes of a node's output that grow with the batch."""
    shapes = small.shapes(i)[output], large.shapes(i)[output]
    return {k for k, (a, b) in enumerate(zip(*shapes, strict=False)) if a != b}


def _indexes(node: Node, axes: set[int]) -> bool:
    """Whether an index stands on one of the axes; masks may span several."""
    indices = node._saved_indices  # pyright: ignore
    given = {k for k, index in enumerate(indices) if index is not None}
    return bool(given & axes) or any(index is not None and not index.dtype.is_signed for index in indices)
