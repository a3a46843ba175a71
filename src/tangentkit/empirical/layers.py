"""Layers: parameters whose gradients come from the same uses, one class for each way in which they do."""

from dataclasses import dataclass

from tangentkit.empirical.reading.graph import Use


@dataclass(frozen=True)
class Layer:
    """A parameter and its uses."""

    weight: str
    uses: tuple[Use, ...]

    bias = None
    """Another parameter that comes along, at the same uses."""
    bias_uses = ()
    behind = ()
    """The same parameters seen from behind a pooling or from a linear head, where that is possible."""
    merges = False
    """Whether gradients at its uses are the same for all samples, so that output directions merge to one."""

    @property
    def parts(self) -> "tuple[Layer, ...]":
        """Layers that are no sum of others: itself, or the lookups and the products of a tied layer."""
        return (self,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layer's parameters."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


@dataclass(frozen=True)
class MatrixLayer(Layer):
    """The weight's gradient is Σ_s g_s ⊗ a_s over all positions of all uses; the bias', if it has one, Σ_s g_s."""

    bias: str | None = None
    bias_uses: tuple[Use, ...] = ()
    behind: tuple[Layer, ...] = ()
    merges: bool = False


@dataclass(frozen=True)
class LookupLayer(Layer):
    """Rows of a table by index: Σ_s g_s ⊗ a_s with one-hot a."""


@dataclass(frozen=True)
class VectorLayer(Layer):
    """Gradients that are small enough to be explicit."""


@dataclass(frozen=True)
class TiedLayer(Layer):
    """Rows of a table that is also the weight of a matrix product, as the embeddings of language models are."""

    lookups: tuple[Use, ...]
    """The uses that look up rows."""

    @property
    def parts(self) -> tuple[Layer, ...]:
        """The lookups and the products."""
        products = tuple(use for use in self.uses if use not in self.lookups)
        return LookupLayer(self.weight, self.lookups), MatrixLayer(self.weight, products)


@dataclass(frozen=True)
class AssembledLayer(Layer):
    """Other uses of different kinds, or of tensors made from the parameter: pulled back to it one by one."""
