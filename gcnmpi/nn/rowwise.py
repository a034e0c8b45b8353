"""The operators of the builder that take rows of any space, and work on each by itself."""

from __future__ import annotations

from collections.abc import Sequence

from gcnmpi.core.functions import ACTIVATIONS
from gcnmpi.layout.place import Space
from gcnmpi.nn.operators.arcs import HeadDots, RowDots, ScaleHeads
from gcnmpi.nn.operators.elementwise import (
    Activate,
    Add,
    Bias,
    Columns,
    Drop,
    Fill,
    Join,
    Maximum,
    MeanOfHeads,
    Reciprocal,
    Scale,
    StopGradient,
)
from gcnmpi.nn.operators.norms import BatchNorm, LayerNorm, Normalize
from gcnmpi.nn.structure import Writing
from partition.errors import check_name


class RowWise(Writing):
    """Writes operators of rows; what its methods take and give are numbers of operators."""

    def columns(self, x: int, first: int, width: int) -> int:
        """So many columns of x, from one on."""
        if width == self.width(x):
            return x
        return self._append(Columns((x,), width, self.layer(x), first))

    def join(self, parts: Sequence[int]) -> int:
        """The columns of one or more matrices side by side."""
        if len(parts) == 1:
            return parts[0]
        width, layer = sum(map(self.width, parts)), max(map(self.layer, parts))
        return self._append(Join(tuple(parts), width, layer))

    def stop_gradient(self, x: int) -> int:
        """x, which counts as given: nothing that it is made of learns from what is made of it."""
        return self._append(StopGradient((x,), self.width(x), self.layer(x)))

    def fill(self, x: int, value: float, width: int = 1) -> int:
        """Columns of one number with the rows of x."""
        x = self.input if self._spaces[x] is Space.OWN else x  # which is always there
        return self._append(Fill((x,), width, self.layer(x), value))

    def reciprocal(self, x: int) -> int:
        """1/x, entry by entry, and 0 where x is 0."""
        return self._append(Reciprocal((x,), self.width(x), self.layer(x)))

    def bias(self, x: int, name: str, layer: int | None = None, fan_in: int = 0) -> int:
        """x + 1·bᵀ, with b of 0 in the beginning, or uniform in ±1/√fan_in where that is given."""
        at, width = self.layer(x), self.width(x)
        own = max(1, at) if layer is None else layer
        if fan_in:
            self._random(name, (width,), own, "uniform", fan_in, width)
        else:
            self._constant(name, width, own, "0")
        return self._append(Bias((x,), width, at, name))

    def row_dots(self, x: int, y: int, heads: int) -> int:
        """For each row and head the dot product of x and y."""
        return self._append(RowDots((x, y), heads, max(self.layer(x), self.layer(y))))

    def scale_heads(self, values: int, x: int) -> int:
        """Rows of x, each head's columns times a number of ``values``."""
        layer = max(self.layer(values), self.layer(x))
        return self._append(ScaleHeads((values, x), self.width(x), layer))

    def head_dots(self, x: int, name: str, heads: int, layer: int) -> int:
        """For each row and head the dot product with a trained vector, stored (1, heads, …)."""
        width = self.width(x)
        stored = (1, heads, width // heads)
        self._random(name, (width,), layer, "glorot", heads, width // heads, stored=stored)
        return self._append(HeadDots((x,), heads, self.layer(x), name))

    def multiply(self, x: int, y: int) -> int:
        """Entry by entry x ⊙ y."""
        return self.scale_heads(x, y)

    def mean_of_heads(self, x: int, heads: int) -> int:
        """The mean of equally wide groups of columns."""
        return self._append(MeanOfHeads((x,), self.width(x) // heads, self.layer(x), heads))

    def add(self, x: int, y: int) -> int:
        """The sum x + y."""
        return self._append(Add((x, y), self.width(x), max(self.layer(x), self.layer(y))))

    def mix(self, gate: int, x: int, y: int) -> int:
        """The gated mean gate ⊙ x + (1 − gate) ⊙ y, entry by entry."""
        return self.add(y, self.multiply(gate, self.add(x, self.scale(y, -1.0))))

    def sum(self, terms: Sequence[int]) -> int:
        """The sum of one or more matrices."""
        total, *others = terms
        for term in others:
            total = self.add(total, term)
        return total

    def scale(self, x: int, factor: float, epsilon: str = "", start: float = 0.0) -> int:
        """(factor + ε)·x, with a trained ε (1,) that begins at ``start`` if it has a name."""
        layer = self.layer(x)
        if epsilon:
            self._constant(epsilon, 1, layer + 1, repr(start))
        return self._append(Scale((x,), self.width(x), layer, factor, epsilon))

    def maximum(self, terms: Sequence[int]) -> int:
        """The entry-wise maximum of one or more matrices."""
        layer = max(self.layer(x) for x in terms)
        return self._append(Maximum(tuple(terms), self.width(terms[0]), layer))

    def activate(self, x: int, kind: str, name: str = "", slope: float = 0.01) -> int:
        """f(x), or x for "none"; ``name`` is that of the slope of "prelu", which starts at 0.25."""
        if check_name("activation", kind, ACTIVATIONS) == "none":
            return x
        layer, parameter = self.layer(x), ""
        if kind == "prelu":
            parameter = name
            self._constant(name, 1, max(1, layer), "0.25")
        return self._append(Activate((x,), self.width(x), layer, kind, slope, parameter))

    def drop(self, x: int, p: float, stream: int) -> int:
        """Dropout; nothing where p is 0."""
        if not p:
            return x
        return self._append(Drop((x,), self.width(x), self.layer(x), p, stream))

    def layer_norm(self, x: int, name: str) -> int:
        """Parameters ``name.weight`` and ``name.bias``."""
        return self._append(LayerNorm((x,), self.width(x), self.layer(x), *self._affine(x, name)))

    def batch_norm(self, x: int, name: str) -> int:
        """Parameters ``name.weight``, ``.bias``, ``.running_mean`` and ``.running_var``."""
        layer, width, names = self.layer(x), self.width(x), self._affine(x, name)
        mean, variance = (
            self._constant(f"{name}.running_{moment}", width, max(1, layer), value, trained=False)
            for moment, value in (("mean", "0"), ("var", "1"))
        )
        return self._append(BatchNorm((x,), width, layer, *names, mean=mean, variance=variance))

    def normalize(self, x: int) -> int:
        """Each row divided by its length."""
        return self._append(Normalize((x,), self.width(x), self.layer(x)))
