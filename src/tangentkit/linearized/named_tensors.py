"""Tensors under dotted names, as a module: they move, save and train with whatever holds them."""

from collections.abc import Mapping

from torch import Tensor, nn


class NamedTensors(nn.Module):
    """Parameters and buffers under the names that they have in another module.

    A name such as "encoder.0.weight" becomes a chain of containers, so `named_parameters` and `state_dict`
    give it back letter by letter. The class has no methods: no name of a tensor can meet one.

    Example:
        >>> import torch
        >>> held = NamedTensors({"0.weight": nn.Parameter(torch.zeros(2)), "0.mean": torch.ones(2)})
        >>> list(held.state_dict()), [name for name, _ in held.named_parameters()]
        (['0.weight', '0.mean'], ['0.weight'])
    """

    def __init__(self, tensors: Mapping[str, Tensor]):
        super().__init__()
        for name, tensor in tensors.items():
            *path, last = name.split(".")
            place: nn.Module = self
            for part in path:
                if part not in place._modules:
                    place.add_module(part, NamedTensors({}))
                place = place.get_submodule(part)
            if isinstance(tensor, nn.Parameter):
                place.register_parameter(last, tensor)
            else:
                place.register_buffer(last, tensor)

    def __repr__(self) -> str:
        # A tree of empty containers, line by line, would tell nothing.
        tensors = [*self.parameters(), *self.buffers()]
        return f"NamedTensors({len(tensors)} tensors, {sum(t.numel() for t in tensors):,} numbers)"
